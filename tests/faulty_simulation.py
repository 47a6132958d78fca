"""A simulation in which attempts meet faults, on virtual time, with checkpoints and trunks.

Every draw is a hash of the seed and of what is drawn: a simulation that was stopped and goes on is the one
that it would have been.
"""

import hashlib
import heapq
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from scalevec.model.train import checkpoint_path, checkpoint_steps
from scalevec.orchestrator.attempts.jobs import Job, WorkerExit
from scalevec.orchestrator.executors.base import Ended, Site
from scalevec.orchestrator.executors.simulate import planted_law
from scalevec.orchestrator.executors.simulate.simulate_executor import SimulatedAttempt, SimulateExecutor
from scalevec.orchestrator.worker.provenance import environment
from scalevec.results.claims import Claim
from scalevec.results.opening import make_folder, open_log
from scalevec.results.run_directory import RunDirectory, trunk_path
from scalevec.sweeps.trainers.any_trial import trial_from_fields

KILLED = -9


ATTEMPT_FAULTS = ("preempted", "killed", "error", "out_of_memory", "node_failure")
"""Each ends an attempt."""


@dataclass(frozen=True)
class Faults:
    """The probability of each fault in one attempt, and the nodes of the cluster.

    Every attempt on one of the ``bad_nodes`` ends with a failure of the node.
    """

    preempted: float = 0.0
    killed: float = 0.0
    error: float = 0.0
    out_of_memory: float = 0.0
    node_failure: float = 0.0
    nodes: int = 16
    bad_nodes: int = 0
    seed: int = 0


CALM = Faults()


@dataclass(frozen=True)
class Attempt:
    """What befalls one attempt. ``part`` is the share of its work after which ``fault`` strikes."""

    node: str
    fault: str | None
    part: float


def draw_attempt(faults: Faults, trial_id: str, number: int, avoid: Collection[str]) -> Attempt:
    """What befalls attempt ``number``, on a node that is not to be avoided (any, where all are)."""
    drawn = (faults.seed, trial_id, number)
    nodes = [f"node-{index:03d}" for index in range(faults.nodes)]
    allowed = [node for node in nodes if node not in avoid] or nodes
    node = allowed[int(planted_law.uniform("node", *drawn) * len(allowed))]
    is_bad = node in nodes[: faults.bad_nodes]
    fault = "node_failure" if is_bad else _fault(faults, planted_law.uniform("fault", *drawn))
    return Attempt(node, fault, planted_law.uniform("part", *drawn))


def _fault(faults: Faults, draw: float) -> str | None:
    for name in ATTEMPT_FAULTS:
        draw -= getattr(faults, name)
        if draw < 0:
            return name
    return None


@dataclass(frozen=True)
class _Run(SimulatedAttempt):
    """One attempt under way: from ``first_step`` on; times in virtual seconds."""

    outcome: planted_law.Truth
    attempt: Attempt
    first_step: int
    began_s: float
    step_s: float
    trunk: Path | None

    @property
    def last_step(self) -> int:
        """Where the trial ends if nothing befalls it."""
        return self.outcome.diverged_at_step or planted_law.steps_of(self.trial)

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
        last = min(self.ends_at_step, self.trial.branch_step())
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


class FaultySimulation(SimulateExecutor):
    """At most ``site.slots`` attempts at a time by a virtual clock; ``wait`` goes to the next end at once.

    Claims, events and results are those of a worker. Its checkpoints are kept in memory only: where this
    process ends, a trial's next attempt goes on from the last step that its events name. The states of a
    trunk are empty files.
    """

    def __init__(self, site: Site, faults: Faults = CALM) -> None:
        super().__init__(site)
        self.clock_s, self._faults = 0.0, faults
        self._moments: list[tuple[float, int, str, int]] = []
        """When something happens: virtual time, order, number, and the step that is kept (0: the end)."""
        self._past: dict[str, _Past] = {}

    def _begin(self, job: Job) -> str:
        number = super()._begin(job)
        if run := self._running.get(number):
            for step, kept in ((run.ends_at_step, 0), *((step, step) for step in run.steps_to_keep())):
                at_s, order = run.began_s + run.seconds_to(step), int(number.rpartition("-")[2])
                heapq.heappush(self._moments, (at_s, order, number, kept))
        return number

    def _start(self, job: Job, directory: RunDirectory, claim: Claim) -> _Run:
        """Draw what will befall the attempt, and say that it runs."""
        trial = trial_from_fields(directory.trial()["semantic"])
        attempt = draw_attempt(self._faults, job.trial_id, claim.attempt, job.avoid_nodes)
        outcome = planted_law.truth(self._simulate, job.arm, trial, job.trial_id)
        step_s = self._seconds(trial, job) / planted_law.steps_of(trial)
        name = trial.trunk_id()
        trunk = trunk_path(self.runs_dir, name) if name else None
        past = self._past_of(directory, job.trial_id)
        last = (outcome.diverged_at_step or planted_law.steps_of(trial)) - 1
        kept = _newest_kept(trunk, min(trial.branch_step(), last))
        branches = kept > past.step
        if branches:
            past.step = past.trunk_step = kept
            past.wall_s = kept * step_s
        run = _Run(job, trial, claim, outcome, attempt, past.step, self.clock_s, step_s, trunk)
        self._say_running(run, f"branched from a trunk after step {kept}" if branches else None)
        return run

    def _past_of(self, directory: RunDirectory, trial_id: str) -> _Past:
        if trial_id not in self._past:
            steps = [event["step"] for event in directory.events() if isinstance(event.get("step"), int)]
            self._past[trial_id] = _Past(max(steps, default=0))
        return self._past[trial_id]

    def _say_running(self, run: _Run, note: str | None) -> None:
        node, attempt, device = run.attempt.node, run.claim.attempt, planted_law.DEVICE
        run.directory.write_environment({**environment(), "attempt": attempt, "node": node, "device": device})
        run.directory.append_event(
            "running",
            attempt=attempt,
            step=run.first_step,
            micro_batch=run.job.options.micro_batch,
            node=node,
            virtual_s=run.began_s,
            **({"note": note} if note else {}),
        )

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

    def _end(self, number: str) -> Ended:
        """What the worker and the executor say when the attempt ends as was drawn for it."""
        run = self._running[number]
        fault = run.attempt.fault
        if fault is None:
            return replace(super()._end(number), node=run.attempt.node)
        del self._running[number]
        _log(run.job, f"simulated on {run.attempt.node}: {fault} at step {run.ends_at_step}")
        if fault == "preempted":
            return self._interrupt(number, run, run.ends_at_step)
        self._keep(run, run.ends_at_step, run.checkpoint_at(run.ends_at_step))
        if fault == "killed":
            return Ended(number, KILLED, node=run.attempt.node)
        if fault == "node_failure":
            return Ended(number, None, fault, run.attempt.node, f"{run.attempt.node} failed (simulated)")
        return self._fail(number, run, fault)

    def _result(self, run: _Run) -> dict[str, Any]:
        self._keep(run, run.last_step, run.last_step)
        past = self._past.pop(run.job.trial_id)
        result = planted_law.result_fields(run.trial, run.outcome, past.wall_s, run.job.options.micro_batch)
        return {**result, "resumes": past.resumes, "trunk_step": past.trunk_step}

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
        run.directory.append_event("pending", cause=cause, node=run.attempt.node, **details)
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
