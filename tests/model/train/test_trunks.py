"""Trunks: a run that branches off another one's trunk ends with the same bits as the run alone."""

import errno
import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.config import (
    OPTIMIZERS,
    SCHEDULES,
    ModelConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.identity import branch_step, trial_id, trunk_id
from scalevec.model.schedules import learning_rate
from scalevec.model.train import checkpoint as checkpoints
from scalevec.model.train import checkpoint_path, starting_state
from scalevec.model.train.checkpoint import Checkpoint, read_checkpoint
from scalevec.model.train.loop import train
from scalevec.model.train.record import TrainingInterruptedError, stays_whole
from scalevec.model.train.starting_state import how_trained, load_trunk, save_trunk
from support import BATCH_TOKENS, MemoryRecorder

SCHEDULE = ScheduleConfig("wsd", warmup_tokens=4 * BATCH_TOKENS)
TIMES = ("wall_s", "tokens_per_s", "timing", "peak_memory_bytes")


@pytest.fixture
def of_steps(trial):
    """The trial with so many steps, a fifth of them in the cooldown."""

    def make(steps, optimizer="adamw"):
        by = OptimizerConfig(optimizer, learning_rate=0.01)
        return replace(trial, tokens=steps * BATCH_TOKENS, schedule=SCHEDULE, optimizer=by)

    return make


def run(trial, corpus, folder, trunk=None, branch_steps=(), recorder=None, **options):
    recorder = recorder or MemoryRecorder()
    options = RunOptions(branch_steps=branch_steps, keep="all", **options)
    return train(trial, corpus, options, recorder, folder, trunk), recorder


def without_times(values):
    return {name: value for name, value in values.items() if name not in TIMES}


def tensors(folder, trial):
    return read_checkpoint(checkpoint_path(folder, trial.steps)).tensors


def assert_same_bits(trial, first, second):
    """Two runs (result, recorder, folder of checkpoints) of ``trial`` that differ in time alone."""
    ours, theirs = without_times(first[0]), without_times(second[0])
    assert ours | {"trunk_step": None} == theirs | {"trunk_step": None}
    assert list(map(without_times, first[1].rows)) == list(map(without_times, second[1].rows))
    mine, others = tensors(first[2], trial), tensors(second[2], trial)
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)


# The bits


@pytest.mark.parametrize(
    ("optimizer", "leader", "branch"), [("adamw", 10, 20), *((name, 20, 10) for name in OPTIMIZERS)]
)
def test_a_branch_ends_with_the_bits_of_the_run_alone(optimizer, leader, branch, of_steps, corpus, tmp_path):
    trunk, trial = tmp_path / "trunk", of_steps(branch, optimizer)
    run(of_steps(leader, optimizer), corpus, tmp_path / "leader", trunk, branch_steps=(8,))
    alone = (*run(trial, corpus, tmp_path / "alone"), tmp_path / "alone")
    branched = (*run(trial, corpus, tmp_path / "branch", trunk), tmp_path / "branch")
    assert branched[0]["trunk_step"] == 8
    assert alone[0]["trunk_step"] == 0
    assert any("branched from trunk trunk after step 8" in line for line in branched[1].said)
    assert_same_bits(trial, branched, alone)


def test_a_branch_that_is_stopped_goes_on_without_its_trunk(of_steps, corpus, tmp_path):
    trunk, trial = tmp_path / "trunk", of_steps(15)
    run(of_steps(20), corpus, tmp_path / "leader", trunk, branch_steps=(12,))
    recorder = MemoryRecorder(stop_after=13)
    with pytest.raises(TrainingInterruptedError):
        run(trial, corpus, tmp_path / "branch", trunk, recorder=recorder)
    checkpoint_path(trunk, 12).unlink()
    recorder.stop_after = None
    branched = (*run(trial, corpus, tmp_path / "branch", trunk, recorder=recorder), tmp_path / "branch")
    alone = (*run(trial, corpus, tmp_path / "alone"), tmp_path / "alone")
    assert (branched[0]["trunk_step"], branched[0].pop("resumes")) == (12, 1)
    alone[0].pop("resumes")
    assert_same_bits(trial, branched, alone)


def test_a_trial_keeps_no_state_of_its_cooldown(of_steps, corpus, tmp_path):
    run(of_steps(10), corpus, tmp_path / "trial", tmp_path / "trunk", branch_steps=(4, 8, 9, 10))
    expected = ["step-000000004.safetensors", "step-000000008.safetensors"]
    assert [path.name for path in sorted((tmp_path / "trunk").iterdir())] == expected


# What a trunk is


@given(
    st.integers(20, 60),
    st.integers(20, 60),
    st.integers(0, 2),
    st.floats(0.05, 0.85),
    st.sampled_from(["linear", "1-sqrt"]),
)
def test_budgets_have_the_same_rates_before_the_shorter_cooldown(first, second, warmup, fraction, form):
    trials = [_bare(steps, warmup, fraction, form) for steps in (first, second)]
    shared = min(map(branch_step, trials))
    for step in range(shared):
        assert learning_rate(trials[0], step) == learning_rate(trials[1], step)


@pytest.mark.parametrize(("steps", "fraction", "expected"), [(10, 0.2, 8), (40, 0.25, 30), (7, 0.5, 3)])
def test_a_branch_begins_where_the_cooldown_does(steps, fraction, expected):
    assert branch_step(_bare(steps, 1, fraction)) == expected


def _bare(steps, warmup, fraction=0.2, form="linear"):
    """A trial of ``steps`` steps that is never trained."""
    schedule = ScheduleConfig("wsd", warmup * 32, cooldown_fraction=fraction, cooldown=form)
    model = ModelConfig(Shape(16, 1, 2, 2, 48), 256)
    return Trial(model, OptimizerConfig(), schedule, "corpus", 32, 32, steps * 32, seed=0)


def test_a_trunk_is_the_trial_without_its_budget_and_its_cooldown():
    trial = _bare(20, 2)
    cooled = replace(trial.schedule, final_fraction=0.1, cooldown="1-sqrt", cooldown_fraction=0.4)
    for same in (_bare(40, 2), replace(trial, schedule=cooled)):
        assert trunk_id(same) == trunk_id(trial) != trial_id(trial)
        assert trial_id(same) != trial_id(trial)
    faster = replace(trial.optimizer, learning_rate=0.1)
    for other in (_bare(20, 1), replace(trial, seed=1), replace(trial, optimizer=faster)):
        assert trunk_id(other) != trunk_id(trial)


def test_schedules_of_one_course_share_their_trunk():
    trial = _bare(20, 2)
    constant = replace(trial, schedule=ScheduleConfig("constant", 64))
    falling = replace(trial, schedule=ScheduleConfig("inverse-sqrt", 64))
    assert trunk_id(constant) == trunk_id(trial) != trunk_id(falling)
    assert branch_step(constant) == branch_step(falling) == 19


WITH_TRUNK = sorted(name for name, registered in SCHEDULES.items() if registered.course is not None)


@pytest.mark.parametrize("name", WITH_TRUNK)
def test_schedules_with_a_trunk_have_the_same_rates_at_every_budget(name):
    trials = [replace(_bare(steps, 2), schedule=ScheduleConfig(name, 64)) for steps in (20, 50)]
    shared = min(map(branch_step, trials))
    assert shared >= 16
    rates = [[learning_rate(trial, step) for step in range(shared)] for trial in trials]
    assert rates[0] == rates[1]


def test_a_schedule_that_knows_the_budget_from_the_start_has_no_trunk(trial):
    assert trial.schedule.name not in WITH_TRUNK
    assert trunk_id(trial) is None
    assert branch_step(trial) == 0


def test_a_run_that_is_all_cooldown_has_no_trunk():
    assert trunk_id(_bare(20, 0, fraction=1.0)) is None


# States that cannot be used


@pytest.fixture
def trunk(of_steps, corpus, tmp_path):
    """A trunk with states after steps 4 and 8."""
    run(of_steps(20), corpus, tmp_path / "leader", tmp_path / "trunk", branch_steps=(4, 8))
    return tmp_path / "trunk"


def truncate(content):
    return content[:-100]


def flip(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", [truncate, flip, lambda _: b""], ids=["truncated", "flipped", "empty"])
def test_a_damaged_state_is_set_aside_and_the_older_one_is_used(damage, trunk, of_steps, corpus, tmp_path):
    path = checkpoint_path(trunk, 8)
    path.write_bytes(damage(path.read_bytes()))
    branched, recorder = run(of_steps(10), corpus, tmp_path / "branch", trunk)
    assert branched["trunk_step"] == 4
    assert not path.exists()
    assert path.with_name(f"{path.name}.corrupt").exists()
    assert any(path.name in line and "damaged" in line and "set aside" in line for line in recorder.said)
    alone, _ = run(of_steps(10), corpus, tmp_path / "alone")
    assert branched["loss"] == alone["loss"]


def test_a_state_of_another_micro_batch_is_left_alone_and_that_is_said(trunk, of_steps, corpus, tmp_path):
    branched, recorder = run(of_steps(10), corpus, tmp_path / "branch", trunk, micro_batch=2)
    assert branched["trunk_step"] == 0
    assert any("trained with micro_batch 0, here 2" in line for line in recorder.said)
    assert checkpoint_path(trunk, 8).exists()


def test_a_budget_that_would_have_counted_as_diverged_alone_does_not_branch():
    rows = [{"step": step, "loss": 5.0 if step == 1 else 5.1} for step in range(1, 61)]
    assert stays_whole(_bare(1000, 0), rows)  # a fifth of its steps is yet to come
    assert not stays_whole(_bare(100, 0), rows)
    assert stays_whole(_bare(100, 0), rows[:49])


# Writing


def test_a_state_is_written_once(trunk, of_steps, corpus, tmp_path):
    before = checkpoint_path(trunk, 8).read_bytes()
    _, recorder = run(of_steps(10), corpus, tmp_path / "second", trunk, (8,), micro_batch=2)
    assert not any("is kept for other trials" in line for line in recorder.said)
    assert checkpoint_path(trunk, 8).read_bytes() == before


def test_a_writer_that_is_killed_leaves_nothing_that_is_read(tmp_path):
    child = os.fork()
    if child == 0:
        checkpoints.sync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        try:
            save_trunk(tmp_path, Checkpoint(3, {"model.weight": torch.zeros(9)}, {}), [])
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1  # what it had written so far
    messages = []
    assert load_trunk(tmp_path, range(1, 9), lambda _: "", messages.append) is None
    assert messages == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_state_that_is_out_of_reach_is_passed_over_and_stays(number, tmp_path, monkeypatch):
    path, messages = _one_state(tmp_path), []
    monkeypatch.setattr(starting_state, "read_checkpoint", _refusing(number))
    assert load_trunk(tmp_path, range(1, 9), lambda _: "", messages.append) is None
    assert f"{path.name} is not used" in messages[0]
    assert path.exists()


def test_a_state_is_not_passed_over_where_the_machine_can_read_no_file(tmp_path, monkeypatch):
    path = _one_state(tmp_path)
    monkeypatch.setattr(starting_state, "read_checkpoint", _refusing(errno.EMFILE))
    with pytest.raises(OSError, match="refused"):
        load_trunk(tmp_path, range(1, 9), lambda _: "", pytest.fail)
    assert path.exists()


def _one_state(folder):
    save_trunk(folder, Checkpoint(3, {"model.weight": torch.zeros(9)}, {}), [])
    return checkpoint_path(folder, 3)


def _refusing(number):
    def read(path):
        raise OSError(number, "refused", str(path))

    return read


@pytest.mark.parametrize("before", [True, False], ids=["before the file is written", "after"])
def test_a_trunk_that_is_deleted_meanwhile_is_not_kept(before, monkeypatch, tmp_path):
    write, trunk = checkpoints.save_file, tmp_path / "trunk"

    def racing(tensors, path, metadata):
        if not before:
            write(tensors, path, metadata=metadata)
        shutil.rmtree(trunk)
        if before:
            write(tensors, path, metadata=metadata)

    monkeypatch.setattr(checkpoints, "save_file", racing)
    assert not save_trunk(trunk, Checkpoint(3, {"model.weight": torch.zeros(2)}, {}), [{"step": 3}])
    assert not trunk.exists()


def test_a_state_whose_rows_have_a_gap_is_not_used(of_steps, corpus, tmp_path):
    state = Checkpoint(4, {"model.weight": torch.zeros(2)}, how_trained(RunOptions()))
    save_trunk(tmp_path / "trunk", state, [{"step": 1, "loss": 5.0}, {"step": 4, "loss": 5.0}])
    result, recorder = run(of_steps(10), corpus, tmp_path / "branch", tmp_path / "trunk")
    assert result["trunk_step"] == 0
    assert any("metrics have a gap" in line for line in recorder.said)


def test_a_branch_says_which_trial_at_which_commit_took_its_first_steps(trunk, of_steps, corpus, tmp_path):
    _, recorder = run(of_steps(10), corpus, tmp_path / "branch", trunk)
    first = next(n for n, line in enumerate(recorder.said) if line.startswith("branched from trunk"))
    assert recorder.said[first].endswith("after step 8, trial_id ab12ab12ab12, commit c0ffeec0ffee")
    assert recorder.details[first]["trunk"] == {"trunk_id": "trunk", "step": 8, **recorder.origin()}
