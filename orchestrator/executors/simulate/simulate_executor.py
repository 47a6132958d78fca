"""Trials that are not trained: the whole machinery on a planted law, in this process, on virtual time."""

import hashlib
import heapq
import secrets
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from scalevec.model.config import RunOptions
from scalevec.model.train import checkpoint_path, checkpoint_steps
from scalevec.orchestrator.attempts.any_trunk import branch_step, trunk_id
from scalevec.orchestrator.attempts.jobs import Job, WorkerExit
from scalevec.orchestrator.costs.estimates import cost
from scalevec.orchestrator.executors.base import Ended, Site
from scalevec.orchestrator.executors.simulate.planted_law import (
    DEVICE,
    Attempt,
    Truth,
    draw_attempt,
    result_fields,
    steps_of,
    truth,
)
from scalevec.orchestrator.executors.simulate.runs_folder import hold_simulations
from scalevec.orchestrator.worker.provenance import environment
from scalevec.results.claims import AlreadyClaimedError, Claim, acquire
from scalevec.results.files import AlreadyWrittenError, unsynced
from scalevec.results.opening import make_folder, open_log
from scalevec.results.run_directory import RunDirectory, trunk_path
from scalevec.sweeps.trainers.any_trial import AnyTrial, trial_from_fields
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial

KILLED = -9


@dataclass(frozen=True)
class _Run:
    """One attempt under way: from ``first_step`` on; times in virtual seconds."""

    job: Job
    trial: AnyTrial
    claim: Claim
    outcome: Truth
    attempt: Attempt
    first_step: int
    began_s: float
    step_s: float
    trunk: Path | None

    @property
    def directory(self) -> RunDirectory:
        return self.claim.run_directory

    @property
    def last_step(self) -> int:
        """Where the trial ends if nothing befalls it."""
        return self.outcome.diverged_at_step or steps_of(self.trial)

    @cached_property
    def ends_at_step(self) -> int:
        """Where this attempt ends."""
        if self.attempt.fault is None:
            return self.last_step
        if self.attempt.fault == "out_of_memory":  # the first step shows it
            return self.first_step
        return self.first_step + int(self.attempt.part * (self.last_step - self.first_step))

    def steps_to_keep(self) -> list[int]:
        """The steps of this attempt after which it keeps its state for other trials."""
        last = min(self.ends_at_step, branch_step(self.trial))
        return [step for step in self.job.options.branch_steps if self.first_step < step <= last]

    def keep(self, step: int) -> None:
        """Keep the state after ``step`` for other trials of the trunk."""
        if self.trunk is not None:
            make_folder(self.trunk)
            checkpoint_path(self.trunk, step).touch()

    def seconds_to(self, step: int) -> float:
        """Virtual seconds of this attempt until ``step`` is done."""
        return (step - self.first_step) * self.step_s

    def step_at(self, now_s: float) -> int:
        """The last whole step at ``now_s``."""
        return min(self.ends_at_step, self.first_step + int((now_s - self.began_s) / self.step_s))

    def checkpoint_at(self, step: int) -> int:
        """The step of the last checkpoint that was due before ``step``."""
        interval = self.job.options.checkpoint_s
        n_checkpoints = int(self.seconds_to(step) / interval)
        return self.first_step + int(n_checkpoints * interval / self.step_s)


@dataclass
class _Past:
    """What a trial's earlier attempts left: its newest checkpoint and the time they took."""

    step: int = 0
    wall_s: float = 0.0
    resumes: int = 0
    trunk_step: int = 0


class SimulateExecutor:
    """At most ``site.slots`` attempts at a time by a virtual clock; ``wait`` goes to the next end at once.

    Claims, events and results are those of a worker. Its checkpoints are kept in memory only: where this
    process ends, a trial's next attempt goes on from the last step that its events name. The states of a
    trunk are empty files.
    """

    name = "simulate"
    cluster = ""

    def __init__(self, site: Site) -> None:
        from scalevec.sweeps.sections.simulate import Simulate  # pydantic is imported only where it is used

        hold_simulations(site.runs_dir)
        self._held = ExitStack()
        self._held.enter_context(unsynced())
        self.slots, self.clock_s, self.runs_dir = site.slots, 0.0, site.runs_dir
        self._simulate = Simulate.model_validate(dict(site.simulation))
        self._running: dict[str, _Run] = {}
        self._moments: list[tuple[float, int, str, int]] = []
        """When something happens: virtual time, order, number, and the step that is kept (0: the end)."""
        self._over: list[Ended] = []
        self._past: dict[str, _Past] = {}
        self._count, self._prefix = count(), secrets.token_hex(8)

    @property
    def free_slots(self) -> int:
        """Slots without an attempt."""
        return self.slots - len(self._running) - len(self._over)

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Begin an attempt for each job, at the present virtual time."""
        return [self._begin(job) for job in jobs]

    def _begin(self, job: Job) -> str:
        order = next(self._count)
        number = f"{self._prefix}-{order}"
        directory = RunDirectory(job.directory)
        try:
            claim = acquire(directory, {"options": vars(job.options), "job": job.token, "device": DEVICE})
        except AlreadyClaimedError as owner:
            _log(job, f"left alone: {owner}")
            self._over.append(Ended(number, WorkerExit.NOT_OWNER))
            return number
        if directory.result() is not None:  # finished between the scheduler's look and our claim
            claim.release()
            self._over.append(Ended(number, WorkerExit.RESULT))
            return number
        run = self._running[number] = self._start(job, directory, claim)
        for step, kept in ((run.ends_at_step, 0), *((step, step) for step in run.steps_to_keep())):
            heapq.heappush(self._moments, (run.began_s + run.seconds_to(step), order, number, kept))
        return number

    def _start(self, job: Job, directory: RunDirectory, claim: Claim) -> _Run:
        """Draw what will befall the attempt, and say that it runs."""
        trial = trial_from_fields(directory.trial()["semantic"])
        attempt = draw_attempt(self._simulate, job.trial_id, claim.attempt, job.avoid_nodes)
        outcome = truth(self._simulate, job.arm, trial, job.trial_id)
        step_s = self._seconds(trial, job) / steps_of(trial)
        name = trunk_id(trial)
        trunk = trunk_path(self.runs_dir, name) if name else None
        past = self._past_of(directory, job.trial_id)
        kept = _newest_kept(trunk, min(branch_step(trial), (outcome.diverged_at_step or steps_of(trial)) - 1))
        branches = kept > past.step
        if branches:
            past.step = past.trunk_step = kept
            past.wall_s = kept * step_s
        slowness = self._simulate.slow_factor if attempt.is_slow else 1.0
        run = _Run(job, trial, claim, outcome, attempt, past.step, self.clock_s, slowness * step_s, trunk)
        self._say_running(run, f"branched from a trunk after step {kept}" if branches else None)
        return run

    def _seconds(self, trial: AnyTrial, job: Job) -> float:
        """What the attempt would take: as our own loop would, else as the plan says, else a minute."""
        if isinstance(trial, ForeignTrial):
            return job.estimate_s or 60.0
        return cost(trial, RunOptions(job.options.device)).seconds

    def _past_of(self, directory: RunDirectory, trial_id: str) -> _Past:
        if trial_id not in self._past:
            steps = [event["step"] for event in directory.events() if isinstance(event.get("step"), int)]
            self._past[trial_id] = _Past(max(steps, default=0))
        return self._past[trial_id]

    def _say_running(self, run: _Run, note: str | None) -> None:
        node, attempt = run.attempt.node, run.claim.attempt
        run.directory.write_environment({**environment(), "attempt": attempt, "node": node, "device": DEVICE})
        run.directory.append_event(
            "running",
            attempt=attempt,
            step=run.first_step,
            micro_batch=run.job.options.micro_batch,
            node=node,
            virtual_s=run.began_s,
            **({"note": note} if note else {}),
        )

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Its own jobs; those of another process ended with it."""
        return set(numbers) & self._running.keys()

    def wait(self, timeout_s: float) -> list[Ended]:
        """The next attempt that ends in virtual time; only without any does it wait ``timeout_s``.

        Nothing where a state of a trunk is kept before that: then is the time to send who waits for it.
        """
        if not self._over and not self._running:
            time.sleep(timeout_s)
        while not self._over and self._moments:
            at_s, _, number, step = heapq.heappop(self._moments)
            if number not in self._running:
                continue
            self.clock_s = at_s
            if step:
                self._running[number].keep(step)
                break
            self._over.append(self._end(number))
        over, self._over = self._over, []
        return over

    def notices(self) -> list[tuple[str | None, str]]:
        """None: what is interrupted here has ended."""
        return []

    def cancel(self, numbers: Collection[str]) -> None:
        """End these attempts now, each with a checkpoint."""
        for number in numbers:
            if number in self._running:
                run = self._running.pop(number)
                self._over.append(self._interrupt(number, run, run.step_at(self.clock_s)))

    def stop(self, *, hard: bool = False) -> None:
        """End all attempts now, with a checkpoint or with none."""
        if not hard:
            self.cancel(list(self._running))
            return
        for number, run in self._running.items():
            self._keep(run, run.step_at(self.clock_s), run.checkpoint_at(run.step_at(self.clock_s)))
            self._over.append(Ended(number, KILLED, node=run.attempt.node))
        self._running.clear()

    def close(self) -> None:
        """From now on records survive a loss of power again."""
        self._held.close()

    def _end(self, number: str) -> Ended:
        """What the worker and the executor say when the attempt ends as was drawn for it."""
        run = self._running.pop(number)
        fault = run.attempt.fault
        if fault is None:
            return self._finish(number, run)
        _log(run.job, f"simulated on {run.attempt.node}: {fault} at step {run.ends_at_step}")
        if fault == "preempted":
            return self._interrupt(number, run, run.ends_at_step)
        self._keep(run, run.ends_at_step, run.checkpoint_at(run.ends_at_step))
        if fault == "killed":
            return Ended(number, KILLED, node=run.attempt.node)
        if fault == "node_failure":
            return Ended(number, None, fault, run.attempt.node, f"{run.attempt.node} failed (simulated)")
        return self._fail(number, run, fault)

    def _finish(self, number: str, run: _Run) -> Ended:
        if not run.claim.is_current():
            return Ended(number, WorkerExit.NOT_OWNER, node=run.attempt.node)
        self._keep(run, run.last_step, run.last_step)
        past = self._past.pop(run.job.trial_id)
        result = result_fields(run.trial, run.outcome, past.wall_s, past.resumes, run.job.options.micro_batch)
        result = {**result, "trunk_step": past.trunk_step}
        try:
            run.directory.write_result(result)
        except AlreadyWrittenError:
            return Ended(number, WorkerExit.NOT_OWNER, node=run.attempt.node)
        run.directory.append_event(run.outcome.status, virtual_s=self.clock_s)
        run.claim.release()
        return Ended(number, WorkerExit.RESULT, node=run.attempt.node)

    def _interrupt(self, number: str, run: _Run, step: int) -> Ended:
        """A worker that was asked to stop."""
        self._keep(run, step, step)
        self._say_pending(run, "preempted", step=step)
        return Ended(number, WorkerExit.STOPPED, node=run.attempt.node)

    def _fail(self, number: str, run: _Run, cause: str) -> Ended:
        """A worker whose training raised; every simulated error is another one."""
        message = f"simulated {cause} in attempt {run.claim.attempt} of {run.job.trial_id}"
        trace = hashlib.sha256(message.encode()).hexdigest()
        self._say_pending(run, cause, error=message, traceback=trace)
        return Ended(number, WorkerExit.ERROR, node=run.attempt.node)

    def _say_pending(self, run: _Run, cause: str, **details: Any) -> None:
        run.directory.append_event(
            "pending", cause=cause, node=run.attempt.node, virtual_s=self.clock_s, **details
        )
        run.claim.release()

    def _keep(self, run: _Run, step: int, checkpoint: int) -> None:
        """Remember what the next attempt goes on from."""
        past = self._past[run.job.trial_id]
        past.resumes += run.first_step > past.trunk_step
        past.wall_s += run.seconds_to(step)
        past.step = checkpoint


def _newest_kept(trunk: Path | None, limit: int) -> int:
    """The last step up to ``limit`` at which a state of ``trunk`` is kept; 0 where there is none."""
    steps = [] if trunk is None else checkpoint_steps(trunk)
    return max((step for step in steps if step <= limit), default=0)


def _log(job: Job, text: str) -> None:
    with open_log(job.log) as log:
        log.write(f"{text}\n".encode())
