"""What the scheduler asks of its executor."""

from functools import partial

import pytest

from scalevec.model.train import checkpoint_path
from scalevec.orchestrator.errors import TryLaterError
from scalevec.orchestrator.executors.simulate.simulate_executor import SimulateExecutor
from scalevec.orchestrator.scheduling import scheduler as scheduling
from scalevec.orchestrator.scheduling.patience import Patience
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from simulations import simulated


class Slow(SimulateExecutor):
    """Ends nothing while its trials are called off, and keeps what it was asked to cancel."""

    def __init__(self, site):
        super().__init__(site)
        self.looks, self.asked = 0, []

    def wait(self, timeout_s):
        self.looks += 1
        if self.looks == 1:
            for run in self._running.values():
                run.directory.append_event("cancelled", cause="cancelled")
        return [] if self.looks < 5 else super().wait(timeout_s)

    def cancel(self, numbers):
        self.asked.extend(numbers)


@pytest.fixture
def slow(monkeypatch):
    built = []

    def make(site):
        built.append(Slow(site))
        return built[-1]

    monkeypatch.setattr("simulations.SimulateExecutor", make)
    monkeypatch.setattr(scheduling, "CANCEL_POLL_S", 0.0)
    return built


def test_a_trial_that_was_called_off_is_asked_once_to_end(slow, tmp_path):
    simulated(tmp_path / "runs", slots=8)
    assert len(slow[0].asked) == len(set(slow[0].asked)) == 8


@pytest.mark.parametrize(("keep", "left"), [("none", 0), ("weights", 1)])
def test_what_a_worker_killed_after_its_result_left_is_pruned_by_the_next_run(keep, left, tmp_path):
    directory = simulated(tmp_path).directories()[0]
    result = directory.result()
    directory.result_path.unlink()
    directory.write_result({**result, "keep": keep})
    directory.checkpoints_path.mkdir(exist_ok=True)
    for step in (1, 2):
        checkpoint_path(directory.checkpoints_path, step).write_bytes(b"state")
    simulated(tmp_path)
    assert len(list(directory.checkpoints_path.iterdir())) == left


def test_arms_take_turns_among_trials_of_like_length_the_longest_first(monkeypatch, tmp_path):
    sent = []

    class Noting(SimulateExecutor):
        def submit(self, jobs):
            sent.extend((job.rung, job.label.split("seed ")[1][0], job.arm) for job in jobs)
            return super().submit(jobs)

    monkeypatch.setattr("simulations.SimulateExecutor", Noting)
    simulated(tmp_path, slots=1)
    order = [(seed, arm) for seed in "01" for arm in ("baseline", "unified")]
    assert sent == [(rung, *item) for rung in ("large", "small") for item in order]


def call_off(tmp_path) -> list:
    """A sweep all of whose trials somebody cancelled."""
    directories = simulated(tmp_path).directories()
    for directory in directories:
        directory.result_path.unlink()
        directory.append_event("cancelled", cause="cancelled")
    return directories


def test_a_scheduler_that_starts_again_brings_nothing_back_that_was_cancelled(tmp_path):
    directories = call_off(tmp_path)
    again = simulated(tmp_path)
    assert set(again.outcome.cancelled) == {directory.trial_id for directory in directories}
    assert not again.results()


def test_a_persons_run_brings_it_back(tmp_path):
    directories = call_off(tmp_path)
    simulated(tmp_path).run.ask_again()
    assert {directory.state().state for directory in directories} == {"pending"}
    assert len(simulated(tmp_path).results()) == len(directories)


def test_nothing_is_sent_once_the_sweep_is_cancelled(tmp_path, monkeypatch):
    monkeypatch.setattr("simulations.Scheduler", partial(Scheduler, may_send=lambda: False))
    actual = simulated(tmp_path)
    assert len(actual.outcome.cancelled) == 8
    assert not actual.results()


class Full(SimulateExecutor):
    """Takes nothing at first, then one job of each call, then all."""

    calls = 0

    def submit(self, jobs):
        self.calls += 1
        if self.calls < 3:
            taken = jobs[: self.calls - 1]
            numbers = super().submit(taken)
            sent = {job.token: number for job, number in zip(taken, numbers, strict=True)}
            raise TryLaterError("the queue is full", sent)
        return super().submit(jobs)


def test_a_refusal_that_passes_is_waited_out_and_what_was_taken_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("simulations.SimulateExecutor", Full)
    monkeypatch.setattr(scheduling, "Patience", partial(Patience, first_s=0.01))
    assert len(simulated(tmp_path).results()) == 8
