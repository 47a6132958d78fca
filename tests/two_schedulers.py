"""Two schedulers, each in a process of its own, that begin one sweep of fast trials at the same moment."""

import multiprocessing
import sys
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scalevec.model.config import RunOptions
from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.orchestrator.worker.provenance import HOME
from simulations import SWEEP, sweep_run

PATIENCE_S = 300
SPAWN = multiprocessing.get_context("spawn")
SECTIONS: dict[str, Any] = {"ladder": SWEEP["ladder"][:1], "arms": {"baseline": {}}}
WORKER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from scalevec.results.claims import AlreadyClaimedError, acquire
from scalevec.results.run_directory import RunDirectory

directory = RunDirectory.of(Path(sys.argv[2]), sys.argv[4])
try:
    claim = acquire(directory, {"job": sys.argv[3]})
except AlreadyClaimedError:
    sys.exit(76)
if directory.result() is None:
    directory.append_event("running", attempt=claim.attempt)
    directory.write_result({"status": "completed", "loss": 1.0, "loss_validation": 1.0})
    directory.append_event("completed")
claim.release()
"""
"""What a worker does about its claim and its records, without a training between."""


def worker_command(
    runs_dir: Path, trial_id: str, _: RunOptions, token: str, *_further: object
) -> tuple[str, ...]:
    """A worker that starts and ends in some hundredths of a second."""
    python = (sys.executable, "-S", "-E", "-P", "-c", WORKER)
    return (*python, str(HOME / "src"), str(runs_dir.resolve()), token, trial_id)


def compete(executor: str, runs_dir: Path, slots: tuple[int, int], trials: int, *, reverse: bool) -> None:
    """Run a sweep of ``trials`` trials by two schedulers, the second in the reverse order if asked."""
    barriers = SPAWN.Barrier(2), SPAWN.Barrier(2)
    orders = (1, -1 if reverse else 1)
    processes = [
        SPAWN.Process(target=_run, args=(executor, runs_dir, trials, *slots_and_order, *barriers))
        for slots_and_order in zip(slots, orders, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_S)
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0]


def _run(
    name: str,
    runs_dir: Path,
    trials: int,
    slots: int,
    order: int,
    both_are_ready: Barrier,
    both_have_chosen: Barrier,
) -> None:
    run = sweep_run(runs_dir, **SECTIONS, seeds=list(range(trials)))
    sweep = run.sweep
    executor = EXECUTORS[name].build(Site(runs_dir, sweep.name, slots, simulation=sweep.simulation()))
    tasks = [run.task(member) for member in run.members()][::order]
    scheduler = Scheduler(runs_dir, executor, run.progress)
    submit = executor.submit

    def submit_together(jobs: Sequence[Job]) -> list[str]:
        """The first jobs: neither scheduler has begun any when the other chooses, however slow it is."""
        executor.submit = submit
        both_have_chosen.wait(PATIENCE_S)
        return submit(jobs)

    executor.submit = submit_together
    both_are_ready.wait(PATIENCE_S)
    with patch("scalevec.orchestrator.attempts.jobs.worker_command", worker_command):
        outcome = scheduler.run(tasks)
    executor.close()
    assert not outcome.failed
    assert not outcome.cancelled
