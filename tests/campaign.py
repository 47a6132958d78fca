"""A fault campaign: a small sweep is trained while faults strike at random moments.

Afterwards every trial has completed exactly once, with the bits of the undisturbed sweep. The environment
variable SCALEVEC_FAULTS sets the number of faults; SCALEVEC_FAULTS_RECORD names a file to which a line of
JSON about the campaign is appended.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
from support import SCALEVEC

PATIENCE_S = 900
SWEEP = """\
name: campaign
corpus: {{source: text, files: ["{text}/*.txt"], tokenizer: bytes, sequence_length: 32}}
trial: {{batch_tokens: 256, learning_rate: 0.02}}
ladder:
  - {{name: a, width: 32, layers: 2}}
tokens_per_parameter: [6]
arms:
  baseline: {{scale_vectors: baseline}}
  unified: {{scale_vectors: unified}}
seeds: [0, 1]
resources: {{default: {{checkpoint_s: 0.5}}}}
"""
Fault = Callable[["Campaign"], bool]
"""Strikes; False where there was nothing to strike at."""


def results(folder: Path) -> dict[str, tuple[float, float]]:
    """The terminal losses by trial."""
    found = {
        path.parent.name: json.loads(path.read_text()) for path in folder.glob("runs/trials/*/*/result.json")
    }
    return {name: (result["loss"], result["loss_validation"]) for name, result in found.items()}


class Campaign:
    """One sweep in ``folder`` under ``faults``; ``options`` are those of ``scalevec run``."""

    def __init__(
        self, folder: Path, sweep: str, options: list[str], faults: Mapping[str, Fault], seed: int
    ) -> None:
        self.folder, self.options, self.faults = folder, options, faults
        self.random = random.Random(seed)
        self.struck: Counter[str] = Counter()
        self.retries = 0
        self.scheduler: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "campaign.yaml").write_text(sweep)

    def scalevec(self, *arguments: str) -> list[str]:
        return [str(SCALEVEC), *arguments]

    def start(self) -> None:
        environment = os.environ | {"SCALEVEC_CACHE_DIR": str(self.folder / "cache")}
        with (self.folder / "scheduler.log").open("ab") as log:
            self.scheduler = subprocess.Popen(
                self.scalevec("run", "campaign.yaml", *self.options),
                cwd=self.folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def run(self, most: int, pause_s: tuple[float, float]) -> None:
        """Let faults strike until ``most`` have, then let the sweep end."""
        self.start()
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_done():
            assert time.monotonic() < deadline, self.log()
            if sum(self.struck.values()) < most:
                self._pause(self.random.uniform(*pause_s))
                self._strike()
            else:
                self._pause(1.0)

    def _strike(self) -> None:
        names = self.random.sample(sorted(self.faults), len(self.faults))
        name = next((name for name in names if self.faults[name](self)), None)
        if name is not None:
            self.struck[name] += 1

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_done():
            time.sleep(0.1)

    def _is_done(self) -> bool:
        """Whether the sweep is done; a scheduler that has gone is started again."""
        code = self.scheduler.poll()
        if code is None or code == 0:
            return code == 0
        if code == 1:  # some given up: faults that struck three times before a first checkpoint
            self.retries += 1
            subprocess.run(
                self.scalevec("retry", "campaign"), cwd=self.folder, capture_output=True, check=True
            )
        assert code in (1, 130, -signal.SIGKILL), self.log()
        self.start()
        return False

    def workers(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            if "orchestrator.worker" in command and str((self.folder / "runs").resolve()) in command:
                found.append(process)
        return found

    def log(self) -> str:
        return (self.folder / "scheduler.log").read_text()

    def trials(self) -> list[Path]:
        return sorted(self.folder.glob("runs/trials/*/*"))

    def assert_whole(self, undisturbed: dict[str, tuple[float, float]]) -> None:
        """Every trial completed exactly once, with the same bits, its metrics without gap or double."""
        assert results(self.folder) == undisturbed, self.log()
        for directory in self.trials():
            events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
            assert [event["state"] for event in events].count("completed") == 1
            rows = (directory / "metrics.jsonl").read_text().splitlines()
            assert [json.loads(row)["step"] for row in rows] == list(range(1, len(rows) + 1))

    def record(self, executor: str) -> None:
        claims = sum(len(list(directory.glob("claims/*.json"))) for directory in self.trials())
        found = {
            "executor": executor,
            "trials": len(self.trials()),
            "faults": dict(sorted(self.struck.items())),
            "attempts": claims,
            "given_up_and_retried": self.retries,
            "lost": 0,
            "run_twice": 0,
            "terminal_losses": "bit-identical to the undisturbed sweep",
        }
        print(json.dumps(found))
        if path := os.environ.get("SCALEVEC_FAULTS_RECORD"):
            with Path(path).open("a") as stream:
                stream.write(json.dumps(found) + "\n")


def count_of_faults(usually: int) -> int:
    return int(os.environ.get("SCALEVEC_FAULTS", usually))


def kill_a_worker(campaign: Campaign) -> bool:
    workers = campaign.workers()
    if workers:
        try:
            campaign.random.choice(workers).kill()
        except psutil.NoSuchProcess:
            return False
    return bool(workers)


def kill_the_scheduler(campaign: Campaign) -> bool:
    campaign.scheduler.kill()
    campaign.scheduler.wait()
    return True


def interrupt_the_scheduler(campaign: Campaign) -> bool:
    campaign.scheduler.send_signal(signal.SIGINT)
    campaign.scheduler.wait()
    return True


def freeze_a_worker(campaign: Campaign) -> bool:
    """A machine that hangs for a while."""
    workers = campaign.workers()
    if not workers:
        return False
    victim = campaign.random.choice(workers)
    try:
        victim.suspend()
        campaign._pause(2.0)
        victim.resume()
    except psutil.NoSuchProcess:
        return False
    return True


LOCAL_FAULTS: dict[str, Fault] = {
    "kill -9 of a worker": kill_a_worker,
    "kill -9 of the scheduler": kill_the_scheduler,
    "Ctrl-C": interrupt_the_scheduler,
    "a worker stopped for 2 s": freeze_a_worker,
}
