"""Trials that wait in the queue behind the preflight of their machines: both cost one wait, not two."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.errors import CheckInterruptedError, MissingRequirementError, TryLaterError
from scalevec.orchestrator.executors.base import Ended, Executor
from scalevec.orchestrator.sweep.machine_checks import SentCheck, problems_of, require_ready, was_interrupted
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory

NEVER_SATISFIED = "DependencyNeverSatisfied"
"""SLURM's word for a job that it ends because a job before it did not end well, as far as it knows."""


class ExecutorBehindChecks:
    """An executor whose trials start only after the preflight job of their kind of machine has found it good.

    Where one finds something wrong, what waits behind it is called off, and ``wait`` raises.

    Args:
        executor: What starts the jobs; it keeps them in a queue that knows dependencies.
        checks: The preflight jobs that were sent to it.
        kinds: By rung, the rung whose preflight job speaks for it.
    """

    def __init__(self, executor: Executor, checks: Sequence[SentCheck], kinds: Mapping[str, str]) -> None:
        self._executor, self._kinds = executor, kinds
        self._open = {check.number: check for check in checks}
        self._several = len(set(kinds.values())) > 1
        self._behind: dict[str, Job] = {}
        self._ended: dict[str, Ended] = {}

    @property
    def name(self) -> str:
        """That of the executor."""
        return self._executor.name

    @property
    def cluster(self) -> str:
        """That of the executor."""
        return self._executor.cluster

    @property
    def free_slots(self) -> int:
        """Those of the executor."""
        return self._executor.free_slots

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Queue each behind the preflight of its kind of machine, if that has not ended."""
        waiting = [replace(job, after=self._before(job)) for job in jobs]
        by_token = {job.token: job for job in waiting}
        try:
            numbers = self._executor.submit(waiting)
        except TryLaterError as refusal:
            self._note({number: by_token[token] for token, number in refusal.sent.items()})
            raise
        self._note(dict(zip(numbers, waiting, strict=True)))
        return numbers

    def _note(self, sent: Mapping[str, Job]) -> None:
        self._behind |= {number: job for number, job in sent.items() if job.after}

    @property
    def _sent_here(self) -> list[str]:
        """The open preflight jobs that this run has sent."""
        return [number for number, check in self._open.items() if not check.is_shared]

    def _before(self, job: Job) -> tuple[str, ...]:
        kind = self._kinds.get(job.rung)
        return tuple(number for number, check in self._open.items() if check.machine.rung == kind)

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """As the executor does."""
        return self._executor.adopt(numbers)

    def wait(self, timeout_s: float) -> list[Ended]:
        """As the executor does, without the preflight jobs.

        Raises ``MissingRequirementError`` with what they found wrong, and ``CheckInterruptedError``.
        """
        problems: list[str] = []
        interrupted: list[str] = []
        for ended in self._executor.wait(timeout_s):
            if ended.number not in self._open:
                self._ended[ended.number] = ended
                continue
            check = self._open.pop(ended.number)
            complaints = problems_of(check, ended, self._several)
            (interrupted if was_interrupted(check, ended) else problems).extend(complaints)
        if problems or interrupted:
            self._call_off()
        require_ready(self.name, problems)
        if interrupted:
            raise CheckInterruptedError("; ".join(interrupted))
        return self._told()

    def _told(self) -> list[Ended]:
        """What ended, but for trials whose preflight is still open: SLURM may have known of its end first."""
        told = [
            ended
            for number, ended in self._ended.items()
            if number not in self._behind or not set(self._behind[number].after) & self._open.keys()
        ]
        for ended in told:
            del self._ended[ended.number]
        return [_as_sent(ended) if self._behind.pop(ended.number, None) else ended for ended in told]

    def _call_off(self) -> None:
        """What waits behind a preflight never starts: it is as if it had not been sent."""
        with suppress(MissingRequirementError):  # SLURM ends what can never start, too
            self._executor.cancel([*(self._behind.keys() - self._ended.keys()), *self._sent_here])
        for job in self._behind.values():
            note = "the preflight of its machine found something wrong"
            with suppress(CorruptRecordError):  # told when the trial is to be run
                RunDirectory(job.directory).append_event(
                    "pending", cause="not_started", job=job.token, note=note
                )

    def notices(self) -> list[tuple[str | None, str]]:
        """Those of the executor."""
        return self._executor.notices()

    def cancel(self, numbers: Collection[str]) -> None:
        """As the executor does."""
        self._executor.cancel(numbers)

    def stop(self, *, hard: bool = False) -> None:
        """As the executor does."""
        self._executor.stop(hard=hard)

    def close(self) -> None:
        """Call off the preflight jobs that nobody waits for; the executor is left open."""
        if not self._behind:
            with suppress(MissingRequirementError):  # what else ends the run is told
                self._executor.cancel(self._sent_here)


def _as_sent(ended: Ended) -> Ended:
    """A trial that waited behind a good preflight, of whose end the queue had other news, was not started."""
    if ended.cause == "cancelled" and NEVER_SATISFIED in ended.message:
        return replace(ended, cause="not_started")
    return ended
