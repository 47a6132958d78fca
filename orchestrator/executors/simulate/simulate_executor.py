"""Trials that are not trained: a planted law says what comes of each, in this process and at once."""

import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

from scalevec.model.config import RunOptions
from scalevec.orchestrator.attempts.jobs import Job, WorkerExit
from scalevec.orchestrator.costs import Cost
from scalevec.orchestrator.executors.base import Ended, Executor, Site
from scalevec.orchestrator.executors.simulate import planted_law
from scalevec.orchestrator.executors.simulate.planted_law import DEVICE, truth
from scalevec.orchestrator.worker.provenance import environment
from scalevec.results.claims import AlreadyClaimedError, Claim, acquire
from scalevec.results.files import AlreadyWrittenError, unsynced
from scalevec.results.opening import open_log
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import AnyTrial, ForeignTrial, trial_from_fields

UNKNOWN_S = 60.0
"""What a trial of a foreign trainer is said to take where the plan does not know it."""


@dataclass(frozen=True)
class SimulatedAttempt:
    """An attempt at a trial that is under way."""

    job: Job
    trial: AnyTrial
    claim: Claim

    @property
    def directory(self) -> RunDirectory:
        """That of the trial."""
        return self.claim.run_directory


class SimulateExecutor(Executor):
    """At most ``site.slots`` attempts at a time; each call of ``wait`` ends the one that began first.

    Claims, events and results are those of a worker. Nothing goes wrong on the way, and no checkpoint is
    written: an attempt that was stopped begins again.
    """

    name = "simulate"

    def __init__(self, site: Site) -> None:
        from scalevec.sweeps.sections.simulate import Simulate  # pydantic is imported only where it is used

        planted_law.hold_simulations(site.runs_dir)
        self._held = ExitStack()
        self._held.enter_context(unsynced())
        self.slots, self.runs_dir = site.slots, site.runs_dir
        self._simulate = Simulate.model_validate(dict(site.simulation))
        self._running: dict[str, SimulatedAttempt] = {}
        self._over: list[Ended] = []
        self._count, self._prefix = count(), secrets.token_hex(8)

    @property
    def free_slots(self) -> int:
        """Slots without an attempt."""
        return self.slots - len(self._running) - len(self._over)

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Begin an attempt for each job."""
        return [self._begin(job) for job in jobs]

    def _begin(self, job: Job) -> str:
        number = f"{self._prefix}-{next(self._count)}"
        directory = RunDirectory(job.directory)
        try:
            claim = acquire(directory, {"options": vars(job.options), "job": job.token, "device": DEVICE})
        except AlreadyClaimedError as owner:
            with open_log(job.log) as log:
                log.write(f"left alone: {owner}\n".encode())
            self._over.append(Ended(number, WorkerExit.NOT_OWNER))
            return number
        if directory.result() is not None:  # finished between the scheduler's look and our claim
            claim.release()
            self._over.append(Ended(number, WorkerExit.RESULT))
            return number
        self._running[number] = self._start(job, directory, claim)
        return number

    def _start(self, job: Job, directory: RunDirectory, claim: Claim) -> SimulatedAttempt:
        attempt = claim.attempt
        directory.write_environment({**environment(), "attempt": attempt, "device": DEVICE})
        directory.append_event("running", attempt=attempt, step=0, micro_batch=job.options.micro_batch)
        return SimulatedAttempt(job, trial_from_fields(directory.trial()["semantic"]), claim)

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Its own jobs; those of another process ended with it."""
        return set(numbers) & self._running.keys()

    def wait(self, timeout_s: float) -> list[Ended]:
        """What ended; only without any attempt does it wait ``timeout_s``."""
        if not self._over and not self._running:
            time.sleep(timeout_s)
        elif not self._over:
            self._over.append(self._end(next(iter(self._running))))
        over, self._over = self._over, []
        return over

    def cancel(self, numbers: Collection[str]) -> None:
        """End these attempts now."""
        for number in self.adopt(numbers):
            run = self._running.pop(number)
            run.directory.append_event("pending", cause="preempted")
            run.claim.release()
            self._over.append(Ended(number, WorkerExit.STOPPED))

    def stop(self, *, hard: bool = False) -> None:  # noqa: ARG002 (there is nothing to write before the end)
        """End all attempts now."""
        self.cancel(list(self._running))

    def close(self) -> None:
        """From now on records survive a loss of power again."""
        self._held.close()

    def _end(self, number: str) -> Ended:
        """Write the result, unless another worker has taken over."""
        run = self._running.pop(number)
        if not run.claim.is_current():
            return Ended(number, WorkerExit.NOT_OWNER)
        result = self._result(run)
        try:
            run.directory.write_result(result)
        except AlreadyWrittenError:
            return Ended(number, WorkerExit.NOT_OWNER)
        run.directory.append_event(result["status"])
        run.claim.release()
        return Ended(number, WorkerExit.RESULT)

    def _result(self, run: SimulatedAttempt) -> dict[str, Any]:
        outcome = truth(self._simulate, run.job.arm, run.trial, run.job.trial_id)
        return planted_law.result_fields(
            run.trial, outcome, self._seconds(run.trial, run.job), run.job.options.micro_batch
        )

    def _seconds(self, trial: AnyTrial, job: Job) -> float:
        """What the trial would take: as our own loop would, else as the plan says."""
        if isinstance(trial, ForeignTrial):
            return job.estimate_s or UNKNOWN_S
        return Cost(trial, RunOptions(job.options.device)).seconds
