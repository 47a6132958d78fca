"""A fault campaign: a sweep is trained while faults strike at random moments.

Afterwards every trial has completed exactly once, with the bits of the undisturbed sweep. The environment
variable SCALEVEC_FAULTS sets the number of faults, and with it that of trials; SCALEVEC_FAULTS_RECORD names
a file to which a line of JSON about the campaign is appended.
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
from typing import Any

import psutil

from hold import can_hold
from recorded_sweep import directories_in
from scalevec.orchestrator.worker.provenance import code_state, cpu_model
from scalevec.results.run_directory import RunDirectory
from support import SCALEVEC, two_arms, workers_of

PATIENCE_S = 900
"""For a campaign without a fault; each fault may take PATIENCE_OF_A_FAULT_S more."""
PATIENCE_OF_A_FAULT_S = 60
LAST_FAULT = 0.5
"""Part of the training by which all faults are due: the sweep trains on while a slow one strikes."""
MORE_SEEDS = 2
"""Of each arm, where a sweep has ended before its faults."""
BREATH_S = 3.0
"""The next fault may strike up to so long after one: workers that begin are hit, and those that train."""
Fault = Callable[["Campaign"], bool]
"""Strikes; False where there was nothing to strike at."""
Losses = dict[str, tuple[float, float]]
"""Test and validation loss by trial."""


class Campaign:
    """One sweep of two arms on the ``text`` files, in ``folder`` under ``faults``.

    ``n_seeds`` are those of each arm at first; ``options`` are those of ``scalevec run``.
    """

    def __init__(
        self,
        folder: Path,
        text: Path,
        n_seeds: int,
        options: list[str],
        faults: Mapping[str, Fault],
        seed: int,
    ) -> None:
        self.folder, self.text, self.options, self.faults = folder, text, options, faults
        self.random = random.Random(seed)
        self.deck: list[str] = []
        self.struck: Counter[str] = Counter()
        self.retries = 0
        self.wall_s = 0.0
        self.scheduler: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.set_seeds(n_seeds)

    def set_seeds(self, n_seeds: int) -> None:
        """Write the sweep file with so many seeds; trials that have completed stay as they are."""
        self.n_seeds = n_seeds
        sweep = two_arms("campaign", self.text, tokens_per_parameter=3, seeds=range(n_seeds))
        (self.folder / "campaign.yaml").write_text(sweep)

    def scalevec(self, *arguments: str) -> list[str]:
        return [str(SCALEVEC), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return can_hold(os.environ) | {"SCALEVEC_CACHE_DIR": str(self.folder / "cache")}

    def start(self) -> None:
        with (self.folder / "scheduler.log").open("ab") as log:
            self.scheduler = subprocess.Popen(
                self.scalevec("run", "campaign.yaml", *self.options),
                cwd=self.folder, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip

    def run(self, faults: int = 0, steps: int = 0) -> None:
        """Train to the end, with ``faults`` at random moments of the ``steps`` of all trials together.

        Moments are counted in steps, not seconds. Where the machine has trained everything before all faults
        have struck (a node needs seconds to come back), seeds are added and the rest strike those.
        """
        moments = sorted(self.random.uniform(0.0, LAST_FAULT * steps) for _ in range(faults))
        begun = time.monotonic()
        deadline = begun + PATIENCE_S + faults * PATIENCE_OF_A_FAULT_S
        try:
            self._train(moments, deadline)
            while moments:
                self.set_seeds(self.n_seeds + MORE_SEEDS)
                # A kind that found nothing to strike at may never find it: all kinds are in play again.
                self.deck.clear()
                moments = [0.0] * len(moments)
                self._train(moments, deadline)
        finally:
            self.end()
        self.wall_s = time.monotonic() - begun

    def _train(self, moments: list[float], deadline: float) -> None:
        furthest = 0
        self.start()
        while not self.is_done():
            assert time.monotonic() < deadline, self.log()
            furthest = max(furthest, self.steps())
            if moments and furthest >= moments[0] and self._strike():
                moments.pop(0)
                self.holds(self.is_done, self.random.uniform(0.0, BREATH_S))
            else:
                time.sleep(0.1)

    def end(self) -> None:
        """kill -9 of the scheduler and of every worker."""
        kill_the_scheduler(self)
        for worker in self.workers():
            killed(worker)

    def _strike(self) -> bool:
        """One fault; none strikes twice before every kind has struck that can."""
        if not self.deck:
            self.deck = self.random.sample(sorted(self.faults), len(self.faults))
        name = next((name for name in self.deck if self.faults[name](self)), None)
        if name is not None:
            self.deck.remove(name)
            self.struck[name] += 1
        return name is not None

    def holds(self, condition: Callable[[], bool], patience_s: float) -> bool:
        """Whether ``condition`` comes to hold in time."""
        until = time.monotonic() + patience_s
        while not condition():
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        return True

    def is_done(self) -> bool:
        """Whether the sweep is done; a scheduler that has gone is started again."""
        code = self.scheduler.poll()
        if code is None or code == 0:
            return code == 0
        if code == 1:  # some given up: faults that struck three times without a new checkpoint
            self.retries += 1
            command = self.scalevec("retry", "campaign")
            subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, check=True)
        # 3: a daemon gave no answer, as where the machine stands still for a while. A Ctrl-C that comes while
        # Python itself is loading ends it with the signal.
        assert code in (1, 3, 130, -signal.SIGINT, -signal.SIGKILL), self.log()
        self.start()
        return False

    def workers(self) -> list[psutil.Process]:
        return workers_of(self.folder)

    def log(self) -> str:
        return (self.folder / "scheduler.log").read_text()

    def trials(self) -> list[RunDirectory]:
        return directories_in(self.folder / "runs")

    def seed_of(self, name: str) -> int:
        return int(RunDirectory.of(self.folder / "runs", name).trial()["semantic"]["seed"])

    def steps(self) -> int:
        """What all trials together have come to."""
        return sum(trial.last_step() for trial in self.trials())

    def results(self) -> dict[str, dict[str, Any]]:
        actual = {trial.trial_id: trial.result() for trial in self.trials()}
        return {name: result for name, result in actual.items() if result is not None}

    def losses(self, n_seeds: int | None = None) -> Losses:
        """Those of the first ``n_seeds``, by default of all."""
        return {
            name: (actual["loss"], actual["loss_validation"])
            for name, actual in self.results().items()
            if n_seeds is None or self.seed_of(name) < n_seeds
        }

    def counts(self, undisturbed: Losses) -> dict[str, int]:
        """What must not be: each figure is 0 where the faults have changed nothing."""
        losses = self.losses()
        events = {trial.trial_id: [event["state"] for event in trial.events()] for trial in self.trials()}
        rows = {trial.trial_id: [row["step"] for row in trial.metrics()] for trial in self.trials()}
        return {
            "lost": len(undisturbed.keys() - losses.keys()),
            "run_twice": sum(states.count("completed") > 1 for states in events.values()),
            "losses_that_differ": sum(losses[name] != undisturbed.get(name) for name in losses),
            "metrics_with_gap_or_double": sum(
                steps != list(range(1, len(steps) + 1)) for steps in rows.values()
            ),
        }

    def assert_whole(self, undisturbed: Losses) -> None:
        """Every trial completed exactly once, with the same bits, its metrics without gap or double."""
        assert not any(self.counts(undisturbed).values()), (self.counts(undisturbed), self.log())

    def record(self, executor: str, undisturbed: Losses) -> None:
        """Print what was done and seen, and append it to the file that the environment names."""
        events = [event for trial in self.trials() for event in trial.events()]
        causes = Counter(event["cause"] for event in events if event["state"] == "pending")
        actual = {
            "executor": executor,
            "faults": sum(self.struck.values()),
            "by_kind": dict(sorted(self.struck.items())),
            "trials": len(undisturbed),
            "completed": len(self.losses()),
            "attempts": sum(len(list(trial.claims_path.glob("*.json"))) for trial in self.trials()),
            "resumed_from_a_checkpoint": sum(result["resumes"] for result in self.results().values()),
            "causes": {str(cause): count for cause, count in sorted(causes.items(), key=str)},
            "given_up_and_retried": self.retries,
            **self.counts(undisturbed),
            "wall_s": round(self.wall_s),
            "machine": f"{os.cpu_count()} x {cpu_model()}",
            "commit": code_state()["commit"],
        }
        print(json.dumps(actual))
        if path := os.environ.get("SCALEVEC_FAULTS_RECORD"):
            with Path(path).open("a") as stream:
                stream.write(json.dumps(actual) + "\n")


def count_of_faults(usually: int) -> int:
    return int(os.environ.get("SCALEVEC_FAULTS", usually))


def kill_a_worker(campaign: Campaign) -> bool:
    workers = campaign.workers()
    return bool(workers) and killed(campaign.random.choice(workers))


def kill_the_parent_of_a_worker(campaign: Campaign) -> bool:
    """What an executor put between itself and the worker."""
    workers = campaign.workers()
    try:
        parent = campaign.random.choice(workers).parent() if workers else None
    except psutil.NoSuchProcess:
        return False
    return parent is not None and parent.pid > 1 and killed(parent)


def killed(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def kill_the_scheduler(campaign: Campaign) -> bool:
    campaign.scheduler.kill()
    campaign.scheduler.wait()
    return True


def interrupt_the_scheduler(campaign: Campaign) -> bool:
    """Once it looks after workers: before, nothing is there that it could interrupt."""
    if not campaign.workers():
        return False
    campaign.scheduler.send_signal(signal.SIGINT)
    campaign.scheduler.wait(PATIENCE_S)
    return True


def kill_everything(campaign: Campaign) -> bool:
    """The machine has lost its power."""
    if not campaign.workers():
        return False
    campaign.end()
    return True


FAULTS_EVERYWHERE: dict[str, Fault] = {
    "kill -9 of a worker": kill_a_worker,
    "kill -9 of the scheduler": kill_the_scheduler,
    "Ctrl-C": interrupt_the_scheduler,
}
LOCAL_FAULTS = {**FAULTS_EVERYWHERE, "kill -9 of the scheduler and all workers": kill_everything}
