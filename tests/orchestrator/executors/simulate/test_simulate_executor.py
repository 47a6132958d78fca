"""The executor that simulates, alone; and simulated results kept apart from real ones."""

from pathlib import Path

import pytest
import yaml

from scalevec.model.identity import semantic_fields
from scalevec.orchestrator.attempts.jobs import Job, WorkerExit, worker_command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.simulate.planted_law import hold_simulations, is_simulated
from scalevec.orchestrator.executors.simulate.simulate_executor import SimulateExecutor
from scalevec.results.claims import acquire, claim_record, end_claim
from scalevec.results.run_directory import RunDirectory
from simulations import SWEEP, sweep_run
from support import assert_refused, succeeded


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job for the first trial of the sweep, whose run directory is there."""
    hold_simulations(tmp_path / "runs")
    run = sweep_run(tmp_path / "runs")
    task = run.task(run.members()[0])
    directory = run.directory(task.trial)
    directory.create(semantic_fields(task.trial), task.descriptive)
    command = worker_command(run.runs_dir, task.trial_id, task.options, "token")
    return Job(task.trial_id, command, directory.path, arm=task.arm, token="token", options=task.options)


@pytest.fixture
def executor(tmp_path: Path):
    built = SimulateExecutor(Site(tmp_path / "runs", "simulated", 2))
    yield built
    built.close()


def test_a_trial_that_was_stopped_begins_again(executor, job):
    (first,) = executor.submit([job])
    executor.stop()
    (ended,) = executor.wait(0.0)
    assert (ended.number, ended.exit_code) == (first, WorkerExit.STOPPED)
    stopped = RunDirectory(job.directory).events()[-1]
    assert (stopped["state"], stopped["cause"]) == ("pending", "preempted")
    executor.submit([job])
    (ended,) = executor.wait(0.0)
    assert ended.exit_code == WorkerExit.RESULT
    assert RunDirectory(job.directory).result()["status"] == "completed"


def test_a_trial_that_somebody_else_runs_is_left_alone(executor, job):
    acquire(RunDirectory(job.directory), {})
    (number,) = executor.submit([job])
    (ended,) = executor.wait(0.0)
    assert (ended.number, ended.exit_code) == (number, WorkerExit.NOT_OWNER)
    assert RunDirectory(job.directory).result() is None


def test_a_trial_that_was_finished_meanwhile_does_not_run_again(executor, job):
    directory = RunDirectory(job.directory)
    directory.write_result({"status": "completed"})
    (number,) = executor.submit([job])
    (ended,) = executor.wait(0.0)
    assert (ended.number, ended.exit_code) == (number, WorkerExit.RESULT)
    assert directory.events() == []
    acquire(directory, {})  # nobody holds the trial


def test_the_claim_says_of_which_job_it_is(executor, job):
    executor.submit([job])
    assert claim_record(RunDirectory(job.directory), 1)["job"] == job.token == "token"


def test_a_successor_keeps_an_attempt_from_writing_the_result(executor, job):
    executor.submit([job])
    end_claim(RunDirectory(job.directory), 1, "found dead by another scheduler")
    (ended,) = executor.wait(0.0)
    assert ended.exit_code == WorkerExit.NOT_OWNER
    assert RunDirectory(job.directory).result() is None


# Simulated and real results are kept apart


def test_a_folder_of_real_trials_takes_no_simulation(tmp_path):
    (tmp_path / "trials").mkdir()
    with pytest.raises(InvalidInputError, match="holds trials that were trained"):
        SimulateExecutor(Site(tmp_path, "simulated", 1))
    assert not is_simulated(tmp_path)


def test_the_command_keeps_simulated_and_real_runs_apart(scalevec, tmp_path):
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    succeeded(scalevec("run", "my.yaml", "--executor", "simulate"))
    assert len(list(tmp_path.glob("runs/simulated/trials/*/*/result.json"))) == 8
    assert not (tmp_path / "runs" / "trials").exists()
    assert_refused(scalevec("run", "my.yaml", "--runs", "runs/simulated"), 2, "holds simulated results")
