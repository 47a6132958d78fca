"""The time left that a run tells: the estimates of what is to come, at the pace of what is completed."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Trial
from scalevec.orchestrator import progress as module
from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.progress import Progress
from scalevec.sweeps.ladders import shape

TRIAL = Trial(
    ModelConfig(shape(16, 1), 64), OptimizerConfig(), ScheduleConfig(), "c" * 64, 32, 256, 2560, seed=0
)
ESTIMATE_S = 100.0
N_TRIALS = 4


@dataclass
class Stage:
    """Four trials, each estimated at 100 s, of which one runs at a time, by a clock that the test moves."""

    clock: SimpleNamespace
    progress: Progress
    tasks: list[Task]

    def runs(self, number: int, seconds: float, status: str = "completed", **result: float) -> None:
        """Trial ``number`` runs for ``seconds``."""
        self.progress.started(self.tasks[number])
        self.clock.now += seconds
        self.progress.ended(self.tasks[number], status, result)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    tasks = [Task(str(number), TRIAL, "a", RunOptions(), ESTIMATE_S) for number in range(N_TRIALS)]
    progress = Progress(slots=1)
    progress.begin(tasks, "local")
    return Stage(clock, progress, tasks)


def test_before_any_trial_the_estimates_count(stage):
    assert stage.progress.seconds_left() == N_TRIALS * ESTIMATE_S


def test_completed_trials_set_the_pace(stage):
    stage.runs(0, 50.0, wall_s=49.0, resumes=0)
    assert stage.progress.seconds_left() == pytest.approx(3 * 50.0)


def test_a_resumed_trial_counts_with_what_it_took_before(stage):
    stage.runs(0, 20.0, wall_s=80.0, resumes=1)
    assert stage.progress.seconds_left() == pytest.approx(3 * 80.0)


def test_a_branch_counts_with_its_own_time_and_not_with_that_of_its_trunk(stage):
    stage.runs(0, 20.0, wall_s=80.0, resumes=0)
    assert stage.progress.seconds_left() == pytest.approx(3 * 20.0)


@pytest.mark.parametrize("status", ["failed", "diverged", "cancelled"])
def test_what_ends_early_says_nothing_of_the_others(stage, status):
    stage.runs(0, 1.0, status)
    assert stage.progress.seconds_left() == 3 * ESTIMATE_S
