"""The executor that simulates keeps the contract too, with the faults that tests give it."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from contracts.executor_contract import *  # noqa: F403
from faulty_simulation import Faults, FaultySimulation, draw_attempt
from recorded_sweep import TEMPLATE
from scalevec.model.identity import semantic_fields, trial_id
from scalevec.orchestrator.attempts.jobs import Job, WorkerExit
from scalevec.orchestrator.executors.base import Site
from scalevec.results.run_directory import RunDirectory

STRIKING = Faults(error=0.3, killed=0.3)
FAULTS = {"completes": None, "crashes": "error", "dies": "killed", "listens": None, "deaf": None}


class Watched(FaultySimulation):
    """One that knows again under which number it was given a job."""

    def __init__(self, site: Site) -> None:
        super().__init__(site, STRIKING)
        self.numbers: dict[Path, str] = {}

    def submit(self, jobs):
        numbers = super().submit(jobs)
        self.numbers |= {job.directory: number for job, number in zip(jobs, numbers, strict=True)}
        return numbers


class SimulateBench:
    """Trials whose first attempt is drawn the end that the kind of job asks for, by the choice of their seed.

    All of the contract is kept, with three words read otherwise, since no process runs: a crash is a worker's
    (``WorkerExit.ERROR``); time passes in ``wait`` alone, so a job runs as soon as it is submitted, and until
    then; and none can be ``deaf``, so a hard stop is asked of one that would have listened.
    """

    outlives_its_scheduler = False
    crash_code = WorkerExit.ERROR

    def __init__(self, folder: Path) -> None:
        self.runs_dir = folder / "runs"
        self._made: list[Watched] = []
        self._seeds = count()

    def executor(self, slots: int) -> Watched:
        self._made.append(Watched(Site(self.runs_dir, "contract", slots)))
        return self._made[-1]

    def job(self, kind: str) -> Job:
        trials = (replace(TEMPLATE, seed=seed) for seed in self._seeds)
        drawn = ((trial, trial_id(trial)) for trial in trials)
        trial, name = next(
            item for item in drawn if draw_attempt(STRIKING, item[1], 1, ()).fault == FAULTS[kind]
        )
        directory = RunDirectory.of(self.runs_dir, name)
        directory.create(semantic_fields(trial), {})
        return Job(name, (), directory.path, label=kind, arm="baseline")

    def wait_until_it_runs(self, job: Job, executor: Watched) -> None:
        assert self.is_running(job)

    def wait_until_it_is_gone(self, job: Job) -> None:
        assert not self.is_running(job)

    def is_running(self, job: Job) -> bool:
        numbers = ((built, built.numbers.get(job.directory, "")) for built in self._made)
        return any(built.adopt([number]) for built, number in numbers)

    def heard(self, job: Job) -> bool:
        text = RunDirectory(job.directory).events()[-1]
        return (text["state"], text["cause"]) == ("pending", "preempted")

    def kill_the_scheduler(self, executor: Watched) -> None:
        """With its process all that it simulates is gone."""
        self._made.remove(executor)
        executor.close()

    def close(self) -> None:
        for executor in self._made:
            executor.stop(hard=True)
            executor.close()


@pytest.fixture
def bench(tmp_path):
    built = SimulateBench(tmp_path)
    yield built
    built.close()
