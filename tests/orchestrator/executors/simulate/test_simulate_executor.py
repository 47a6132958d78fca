"""The executor that simulates, its planted law, and simulated results kept apart from real ones."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.accounting import count_parameters
from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape
from scalevec.model.identity import semantic_fields
from scalevec.orchestrator.attempts.jobs import Job, WorkerExit, worker_command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.simulate import planted_law
from scalevec.orchestrator.executors.simulate.simulate_executor import SimulateExecutor
from scalevec.results.claims import acquire, claim_record, end_claim
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.sections.simulate import ArmLaw, PlantedLaw, RateBowl, Simulate
from scalevec.sweeps.trainers.any_trial import OwnTrial
from simulations import SWEEP, sweep_run
from support import assert_refused, succeeded


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job for the first trial of the sweep, whose run directory is there."""
    planted_law.hold_simulations(tmp_path / "runs")
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
    assert not planted_law.is_simulated(tmp_path)


def test_the_command_keeps_simulated_and_real_runs_apart(scalevec, tmp_path):
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    succeeded(scalevec("run", "my.yaml", "--executor", "simulate"))
    assert len(list(tmp_path.glob("runs/simulated/trials/*/*/result.json"))) == 8
    assert not (tmp_path / "runs" / "trials").exists()
    assert_refused(scalevec("run", "my.yaml", "--runs", "runs/simulated"), 2, "holds simulated results")


sizes = st.floats(1e4, 1e12)


@given(sizes, st.floats(1, 1000), st.floats(0.5, 2))
def test_a_gain_is_the_compute_multiplier_along_every_ratio_of_tokens(n_params, ratio, gain):
    simulate = Simulate(arms={"better": ArmLaw(gain=gain)})
    larger = n_params * math.sqrt(gain)  # 6ND at D/N as it is: gain times the compute
    loss = planted_law.expected_loss(simulate, "better", n_params, ratio * n_params)
    of_larger = planted_law.expected_loss(simulate, "other", larger, ratio * larger)
    assert loss == pytest.approx(of_larger, rel=1e-12)


@given(sizes, sizes)
def test_without_an_entry_an_arm_has_the_law_itself(n_params, n_tokens):
    law = PlantedLaw(E=1.0, A=10.0, alpha=0.5, B=20.0, beta=0.25)
    loss = planted_law.expected_loss(Simulate(law=law), "any", n_params, n_tokens)
    assert loss == pytest.approx(1.0 + 10.0 / n_params**0.5 + 20.0 / n_tokens**0.25)


def test_normal_draws_have_mean_0_and_deviation_1():
    drawn = [planted_law.normal("noise", number) for number in range(10_000)]
    mean = math.fsum(drawn) / len(drawn)
    assert mean == pytest.approx(0, abs=0.03)
    assert math.fsum((value - mean) ** 2 for value in drawn) / len(drawn) == pytest.approx(1, abs=0.05)


def trial(cell: str = "a", tokens: int = 10_240) -> OwnTrial:
    model = ModelConfig(Shape(16, 1, 2, 2, 48), 256)
    stream = hashlib.sha256(cell.encode()).hexdigest()
    return OwnTrial(model, OptimizerConfig(), ScheduleConfig(), "c", 32, 1024, tokens, 0, stream=stream)


def noise(simulate: Simulate, arm: str, of: OwnTrial) -> float:
    """What the loss of a trial has beside the law."""
    n_params = count_parameters(of.model).matrices
    expected = planted_law.expected_loss(simulate, arm, n_params, of.tokens)
    return planted_law.truth(simulate, arm, of, f"{arm} {of.stream} {of.tokens}").loss - expected


def drawn(simulate: Simulate, arm: str, tokens: int = 10_240) -> np.ndarray:
    return np.array([noise(simulate, arm, trial(f"cell {number}", tokens)) for number in range(300)])


def test_the_arms_of_a_cell_share_what_follows_from_the_stream():
    simulate = Simulate(pair_noise=0.0, block_noise=0.0)
    assert drawn(simulate, "a") == pytest.approx(drawn(simulate, "b"), abs=1e-6)
    assert np.std(drawn(simulate, "a")) == pytest.approx(simulate.seed_noise, rel=0.15)


def test_budgets_of_one_stream_share_a_part_of_what_is_the_arms_own():
    simulate = Simulate(seed_noise=0.0, block_noise=0.0, stream_share=0.5)
    first, second = drawn(simulate, "a"), drawn(simulate, "a", tokens=20_480)
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.5, abs=0.12)
    assert abs(np.corrcoef(first, drawn(simulate, "b"))[0, 1]) < 0.15


def test_the_loss_is_the_mean_of_its_blocks():
    outcome = planted_law.truth(Simulate(), "a", trial(), "name")
    assert len(outcome.loss_blocks) == 64
    assert outcome.loss == pytest.approx(np.mean(outcome.loss_blocks))


def test_block_differences_of_two_pairs_share_what_is_common_to_their_arms():
    simulate = Simulate(seed_noise=0.0, pair_noise=0.0, block_share=0.4)
    blocks = {
        (arm, cell): np.array(planted_law.truth(simulate, arm, trial(cell), f"{arm} {cell}").loss_blocks)
        for arm in ("a", "b")
        for cell in map(str, range(40))
    }
    pairs = np.array([blocks["b", cell] - blocks["a", cell] for cell in map(str, range(40))])
    assert np.std(pairs) == pytest.approx(math.sqrt(2) * simulate.block_noise, rel=0.1)
    assert np.mean(np.corrcoef(pairs)[np.triu_indices(40, 1)]) == pytest.approx(0.4, abs=0.1)


def test_without_block_noise_blocks_differ_for_all_arms_alike_and_not_in_the_mean():
    simulate = Simulate(seed_noise=0.0, pair_noise=0.0, block_noise=0.0)
    first, second = (planted_law.truth(simulate, arm, trial(), arm) for arm in ("a", "b"))
    assert first.loss_blocks == second.loss_blocks
    assert np.std(first.loss_blocks) > 0.1
    assert noise(simulate, "a", trial()) == pytest.approx(0, abs=1e-6)


def test_the_best_rate_costs_nothing_and_a_factor_of_two_the_curvature():
    bowl = RateBowl(optimum=0.01, at=1e6, exponent=-0.5, curvature=0.03)
    assert planted_law.rate_penalty(bowl, 1e6, 0.01) == 0
    assert planted_law.rate_penalty(bowl, 1e6, 0.02) == pytest.approx(0.03)
    assert planted_law.rate_penalty(bowl, 1e6, 0.005) == pytest.approx(0.03)
    assert planted_law.rate_penalty(bowl, 4e6, 0.005) == pytest.approx(0, abs=1e-12)


def test_without_a_best_rate_every_rate_is_as_good():
    assert planted_law.rate_penalty(RateBowl(), 1e6, 1e9) == 0
