"""What an attempt at a trial says goes into its run directory."""

import mmap
import signal
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from scalevec.results.claims import Claim
from scalevec.results.run_directory import RunDirectory

LOOK_S = 1.0
"""Seconds without a look at the claim after which the next row waits for one: a process that was stopped
past its lease was stopped for longer."""


class SupersededError(Exception):
    """A later claim exists: another worker has taken over, and this one must not write any more."""


class StopRequest:
    """Whether a signal asked this process to stop, or a rank that is a fork of it, or one it is a fork of.

    A page that they share: a signal to one of them reaches all, those that are not forked yet too. And no
    lock, which would be taken twice where a second signal interrupts the handler of the first.
    """

    def __init__(self) -> None:
        self._asked = mmap.mmap(-1, 1)

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler: stop at the next step. SIGUSR2 says that the job's time is up."""
        self._asked[0] = max(self._asked[0], 2 if number == signal.SIGUSR2 else 1)

    def is_made(self) -> bool:
        """Whether there was one."""
        return self._asked[0] > 0

    @property
    def cause(self) -> str:
        """That of the stop."""
        return "timeout" if self._asked[0] == 2 else "preempted"


class RunDirectoryRecorder:
    """Implements ``model.train.record.Recorder`` on a run directory."""

    def __init__(self, directory: RunDirectory, claim: Claim) -> None:
        self.directory, self.claim = directory, claim
        self.stop = StopRequest()
        self._looked = _now()

    def record(self, row: Mapping[str, Any]) -> None:
        """Append ``row`` to metrics.jsonl; a process that was stopped for long looks at its claim first."""
        self.directory.append_metrics(dict(row), self._require_recent_ownership)

    def cut_back(self, step: int) -> None:
        """Drop the rows after ``step`` from metrics.jsonl."""
        self.directory.cut_metrics(step)

    def recorded(self) -> list[dict[str, Any]]:
        """Everything in metrics.jsonl that is whole."""
        return self.directory.metrics_before_damage()

    def replace_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Make metrics.jsonl hold ``rows`` alone."""
        self.directory.replace_metrics([dict(row) for row in rows])

    def sync(self) -> None:
        """Make metrics and events survive a loss of power."""
        self.directory.sync_records()

    def say(self, message: str, **details: Any) -> None:
        """Print to the log, and keep as an event."""
        print(message, flush=True)
        self.directory.append_event("running", note=message, **details)

    def origin(self) -> dict[str, Any]:
        """The trial and the attempt, and the code that the attempt began with."""
        attempt = self.claim.attempt
        records = (record for record in self.directory.environments() if record.get("attempt") == attempt)
        code = next(records, {})
        known = {name: code.get(name) for name in ("commit", "dirty")}
        return {"trial_id": self.directory.trial_id, "attempt": attempt, **known}

    def require_ownership(self) -> None:
        """Raise :class:`SupersededError` where a later claim exists.

        And ``CorruptRecordError`` where a folder that is written next has become a link.
        """
        self.directory.require_no_links()
        if not self.claim.is_current():
            raise SupersededError
        self._looked = _now()

    def _require_recent_ownership(self) -> None:
        if _now() - self._looked > LOOK_S:
            self.require_ownership()

    def stop_requested(self) -> bool:
        """Whether a signal asked this process to stop."""
        return self.stop.is_made()


def _now() -> float:
    """Seconds that also pass while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
