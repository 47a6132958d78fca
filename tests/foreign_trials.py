"""A trial of a foreign trainer in a run directory of its own, attempted in this process or in a fork."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from scalevec.model.config import RunOptions
from scalevec.model.fields import PlainValues
from scalevec.orchestrator.attempts.jobs import STOP_SIGNALS
from scalevec.orchestrator.worker.train import TrialAttempt, run_attempt
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import (
    ForeignTrial,
    Protocol,
    Readings,
    SourceFile,
    Trainer,
    file_digest,
)

METRICS = Readings(metrics="log.jsonl", tokens="tokens")
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
out, worker = Path(sys.argv[1]), int(sys.argv[2])

def log(step, loss, **more):
    with (out / "log.jsonl").open("a") as stream:
        print(json.dumps({"step": step, "loss": loss, "tokens": step * 100, **more}), file=stream)

"""
"""What scripts of the tests begin with: ``log`` adds a row for the step, of 100 tokens each."""
WHOLE = "for step in range(1, 11): log(step, 4 - step / 10)"
"""A training that is all well: ten steps, the last loss 3."""
GOES_ON = """
done = [int(path.name[5:]) for path in out.glob("ckpt-*")]
def save(*_):
    (out / "ckpt-4").touch()
    sys.exit(75)
signal.signal(signal.SIGUSR2, save)
if not done:
    for step in range(1, 6): log(step, 4 - step / 10)
    os.kill(worker, signal.SIGTERM)
    while True: time.sleep(0.01)
print("resumed by", sys.argv[3:])
for step in range(done[0] + 1, 11): log(step, 4 - step / 10, again=True)
"""
"""Is stopped after step 5, and goes on after step 4."""
RESUMES = Protocol(checkpoint="ckpt-*", resume=("--resume", "{out}"))


@contextmanager
def same_signals() -> Iterator[None]:
    """The handlers of the signals that stop an attempt are afterwards those of before."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class ForeignTrials:
    """A sweep's folder with a script, and attempts at its trial of 1,000 tokens."""

    root: Path
    body: str = WHOLE
    readings: Readings = METRICS
    protocol: Protocol = field(default_factory=Protocol)
    command: tuple[str, ...] = (sys.executable, "train.py", "{out}", str(os.getpid()))
    options: RunOptions = field(default_factory=RunOptions)
    values: PlainValues = field(default_factory=lambda: PlainValues(width=8))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.script.write_text(SCRIPT + self.body)
        self.trial = self._trial()
        self.directory = RunDirectory.of(self.root / "runs", self.trial.trial_id())
        self.directory.create(self.trial.semantic_fields(), {})

    @property
    def folder(self) -> Path:
        return self.root / "lab"

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    def _trial(self) -> ForeignTrial:
        files = (SourceFile("train.py", file_digest(self.script)),)
        trainer = Trainer(self.command, files, readings=self.readings)
        return ForeignTrial(trainer, self.values, 500, 1000, 3, "ab" * 32)

    @property
    def attempt(self) -> TrialAttempt:
        protocol = replace(self.protocol, folder=str(self.folder))
        return TrialAttempt(self.root / "runs", self.trial.trial_id(), self.options, protocol=protocol)

    def run(self, attempt: TrialAttempt | None = None) -> int:
        """One attempt in this process, whose signals are left as they were."""
        with same_signals():
            return run_attempt(attempt or self.attempt, "token")

    def fork(self) -> psutil.Process:
        """One attempt in a process of its own."""
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                code = run_attempt(self.attempt, "token")
            finally:
                os._exit(code)
        return psutil.Process(pid)

    @property
    def out(self) -> Path:
        return self.directory.out_path

    def result(self) -> dict[str, Any]:
        result = self.directory.result()
        assert result is not None, self.directory.events()
        return result

    def last(self) -> dict[str, Any]:
        return self.directory.events()[-1]

    def steps(self) -> list[int]:
        return [row["step"] for row in self.directory.metrics()]

    def printed(self) -> str:
        return self.directory.log_path.read_text()

    def told(self) -> dict[str, Any]:
        return json.loads((self.directory.path / "fields.json").read_text())
