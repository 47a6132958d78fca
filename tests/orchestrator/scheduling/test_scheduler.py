"""What the scheduler asks of its executor."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from faulty_simulation import FaultySimulation
from scalevec.model.train import checkpoint_path
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.errors import MissingRequirementError, TryLaterError
from scalevec.orchestrator.executors.base import Ended
from scalevec.orchestrator.scheduling import scheduler as scheduling
from scalevec.orchestrator.scheduling import watched_jobs
from scalevec.orchestrator.scheduling.scheduler import Scheduler
from scalevec.results.run_directory import RunDirectory, trial_ids
from simulations import simulated


class Slow(FaultySimulation):
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


def simulated_by(kind, monkeypatch) -> list:
    """Simulations have executors of ``kind`` from now on: those that were built."""
    built = []

    def make(site, _faults):
        built.append(kind(site))
        return built[-1]

    monkeypatch.setattr("simulations.FaultySimulation", make)
    return built


def test_a_trial_that_was_called_off_is_asked_once_to_end(monkeypatch, tmp_path):
    monkeypatch.setattr(scheduling, "CANCEL_POLL_S", 0.0)
    built = simulated_by(Slow, monkeypatch)
    simulated(tmp_path / "runs", slots=8)
    assert len(built[0].asked) == len(set(built[0].asked)) == 8


def test_a_trial_whose_workers_write_results_that_nobody_can_read_is_given_up(monkeypatch, tmp_path):
    write = RunDirectory.write_result
    negative = {"loss": -1.0}
    monkeypatch.setattr(RunDirectory, "write_result", lambda self, result: write(self, result | negative))
    actual = simulated(tmp_path)
    assert len(actual.outcome.failed) == 8
    for directory in actual.directories():
        assert len(list(directory.path.glob("result.json.corrupt-*"))) == scheduling.MOST_CORRUPT
        assert "loss" in actual.outcome.failed[directory.trial_id]


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

    class Noting(FaultySimulation):
        def submit(self, jobs):
            sent.extend((job.rung, job.label.split("seed ")[1][0], job.arm) for job in jobs)
            return super().submit(jobs)

    monkeypatch.setattr("simulations.FaultySimulation", Noting)
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


class Full(FaultySimulation):
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
    monkeypatch.setattr("simulations.FaultySimulation", Full)
    monkeypatch.setattr(watched_jobs, "FIRST_S", 0.01)
    assert len(simulated(tmp_path).results()) == 8


class Elsewhere(FaultySimulation):
    """Of its jobs, in order, the ``unready`` come to a machine that is not ready, and end as ``end``."""

    unready: Collection[int] = range(8)
    end = Ended("", WorkerExit.MACHINE_LACKS, node="n1")
    says: tuple[str, ...] = ("CUDA: sees no GPU", "corpus: gone")

    def __init__(self, site):
        super().__init__(site)
        self.n_sent, self.refused, self.cancelled = 0, [], set()

    def submit(self, jobs):
        return [self._send(job) for job in jobs]

    def _send(self, job):
        self.n_sent += 1
        if self.n_sent - 1 not in self.unready:
            return super().submit([job])[0]
        if self.says:
            directory = RunDirectory(job.directory)
            directory.append_event("pending", "not_started", job=job.token, lacks=list(self.says))
        self.refused.append(job.token)
        return job.token

    def wait(self, timeout_s):
        ends = [replace(self.end, number=number) for number in self.refused]
        self.refused = []
        return ends or super().wait(timeout_s)

    def cancel(self, numbers):
        self.cancelled |= set(numbers)

    def stop(self, *, hard=False):
        """Nothing runs."""


@pytest.fixture
def elsewhere(monkeypatch):
    """An executor of which the given is changed; those that were built."""
    return lambda **given: simulated_by(type("Changed", (Elsewhere,), given), monkeypatch)


def last_events(runs: Path) -> list[tuple[str, str | None]]:
    events = [RunDirectory.of(runs, name).events()[-1] for name in trial_ids(runs)]
    return [(event["state"], event.get("cause")) for event in events]


def test_the_first_machine_that_lacks_something_ends_the_run_and_empties_its_queue(elsewhere, tmp_path):
    built = elsewhere()
    with pytest.raises(MissingRequirementError) as lacks:
        simulated(tmp_path / "runs")
    (executor,) = built
    assert str(lacks.value).splitlines() == [
        "the machine n1 lacks what trials of large need; nothing more is sent:",
        "- CUDA: sees no GPU",
        "- corpus: gone",
    ]
    assert len(executor.cancelled) == 7
    assert last_events(tmp_path / "runs") == [("pending", "not_started")] * 8


def test_what_was_never_begun_is_sent_again_once_the_machine_is_ready(elsewhere, tmp_path, monkeypatch):
    elsewhere()
    with pytest.raises(MissingRequirementError):
        simulated(tmp_path / "runs")
    monkeypatch.setattr("simulations.FaultySimulation", FaultySimulation)
    assert len(simulated(tmp_path / "runs").results()) == 8


@pytest.mark.parametrize(
    ("code", "says", "words"),
    [
        (255, "FATAL: no image", "FATAL: no image"),  # as a launcher ends whose image is not there
        (126, "", "python: No such file"),
        (WorkerExit.MACHINE_LACKS, "SLURM: FAILED; no_such_module", "no_such_module"),
    ],
)
def test_a_job_without_a_worker_is_told_with_last_words(elsewhere, tmp_path, monkeypatch, code, says, words):
    monkeypatch.setattr(RunDirectory, "last_log_line", lambda _: "python: No such file")
    elsewhere(says=(), end=Ended("", code, message=says))
    with pytest.raises(MissingRequirementError, match=f"lacks what trials of large need(.|\n)*{words}"):
        simulated(tmp_path / "runs")


def test_after_a_trial_of_its_rung_has_begun_it_is_the_fault_of_one_machine(elsewhere, tmp_path):
    elsewhere(unready=[1])
    actual = simulated(tmp_path / "runs", slots=1)
    assert len(actual.results()) == 8
    causes = [event.get("cause") for directory in actual.directories() for event in directory.events()]
    assert causes.count("node_failure") == 1


def test_a_machine_that_lacks_it_again_and_again_fails_the_trial(elsewhere, tmp_path):
    elsewhere(unready=[1, 2, 3])
    (reason,) = simulated(tmp_path / "runs", slots=1).outcome.failed.values()
    assert "3 attempts without a new checkpoint" in reason
