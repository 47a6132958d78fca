"""Several processes train what one does: the same batch, step and losses, parameters shared out or not."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from parallel_worlds import losses, small_trial, stopped_by_the_follower, together, trained, world_of
from scalevec.model.config import OF_ARCHITECTURE, ModelConfig, ScheduleConfig, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.strategies import PRESETS
from scalevec.model.train import checkpoint_path, newest_first, newest_step
from scalevec.model.train.checkpoint import read_checkpoint
from scalevec.model.train.ddp import ALONE, World
from scalevec.model.train.evaluation import evaluate
from scalevec.model.train.optimizer_state import LAYOUT

WORLDS = [
    ("adamw", None, {}),
    ("muon", "bias", {}),
    ("muon", "bias", {"shard": True}),
    ("adamw", "batch", {"micro_batch": 1}),
    pytest.param("adamw", "loss", {}, marks=pytest.mark.slow),
    pytest.param("adamw", "batch", {"shard": True}, marks=pytest.mark.slow),
    pytest.param("sgd", None, {"shard": True}, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("optimizer", "experts", "how"), WORLDS)
def test_losses_are_those_of_one_process_to_rounding(optimizer, experts, how, corpus, tmp_path):
    trial = small_trial(corpus, optimizer, experts)
    alone = trained(trial, corpus, tmp_path / "alone")
    leader, follower = together(2, trial, corpus, tmp_path / "together", **how)
    assert losses(leader) == pytest.approx(losses(alone), rel=1e-10)
    for ours, theirs in zip(leader["rows"], alone["rows"], strict=True):
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-9)
    last, of_one = (run["rows"][-1]["sv/final/mean"] for run in (leader, alone))
    assert last == pytest.approx(of_one, rel=1e-9)
    assert leader["parameters"] == follower["parameters"]
    assert (leader["result"]["world_size"], follower["rows"]) == (2, [])


@pytest.mark.parametrize(
    ("shard", "worlds"), [(False, (2, 1)), pytest.param(True, (2, 4, 1, 2), marks=pytest.mark.slow)]
)
def test_a_checkpoint_of_some_ranks_goes_on_in_any_world(shard, worlds, corpus, tmp_path):
    trial, kept, rows = small_trial(corpus, "muon", "bias"), tmp_path / "kept", []
    undisturbed = trained(trial, corpus, tmp_path / "alone")
    for number, size in enumerate(worlds, 1):
        how = {"rows": rows, "stop_after": number + 1 if number < len(worlds) else None}
        if size == 1:
            run = trained(trial, corpus, kept, **how)
        else:
            run = together(size, trial, corpus, kept, shard=shard, **how)[0]
        rows = run["rows"]
    assert run["result"]["resumes"] == len(worlds) - 1
    assert losses(run) == pytest.approx(losses(undisturbed), rel=1e-10)


@pytest.mark.parametrize("shard", [False, True])
def test_a_world_that_was_stopped_ends_with_the_bits_of_one_that_was_not(shard, corpus, tmp_path):
    trial, kept = small_trial(corpus, "muon", "loss"), tmp_path / "kept"
    how = {"shard": shard, "double": False}
    undisturbed = together(2, trial, corpus, tmp_path / "whole", **how)[0]
    begun = together(2, trial, corpus, kept, stop_after=2, **how)[0]
    resumed = together(2, trial, corpus, kept, rows=begun["rows"], **how)[0]
    assert losses(resumed) == losses(undisturbed)
    assert resumed["parameters"] == undisturbed["parameters"]


def test_a_stop_that_one_rank_alone_is_asked_for_stops_all_at_one_step(corpus, tmp_path):
    work = partial(stopped_by_the_follower, small_trial(corpus), corpus, tmp_path / "kept")
    leader, follower = world_of(2, work, tmp_path / "world")
    assert leader["result"] is follower["result"] is None
    assert len(leader["rows"]) == newest_step(tmp_path / "kept") == 2


@pytest.mark.parametrize("n_tokens", [513, 1000])
def test_an_evaluation_that_ranks_share_out_has_the_bits_of_one_process(n_tokens, tmp_path):
    alone = evaluated(n_tokens, ALONE)
    assert alone["loss_blocks"]
    assert world_of(3, partial(evaluated, n_tokens), tmp_path / "world") == [alone] * 3


def evaluated(n_tokens: int, world: World) -> dict[str, Any]:
    model = Transformer(ModelConfig(Shape(16, 2, 2, 2, 48), 64))
    initialise(model, 0)
    tokens = np.random.default_rng(0).integers(0, 64, n_tokens).astype(np.uint16)
    evaluation = evaluate(model, tokens, 32, 5, world=world)
    return asdict(evaluation)


def test_a_gemma_and_vectors_that_maps_and_heads_share_are_trained_as_by_one_process(corpus, tmp_path):
    trial, of_gemma = small_trial(corpus, "adamw"), {"architecture": "gemma", **OF_ARCHITECTURE["gemma"]}
    model = replace(trial.model, scale_vectors=PRESETS["unified-attention"], **of_gemma)
    trial = replace(trial, model=model)
    alone = trained(trial, corpus, tmp_path / "alone")
    leader, _ = together(2, trial, corpus, tmp_path / "together", shard=True, micro_batch=1)
    assert losses(leader) == pytest.approx(losses(alone), rel=1e-10)


def test_a_sharded_world_keeps_the_one_file_that_one_process_keeps(corpus, tmp_path):
    trial = small_trial(corpus, "muon", "bias")
    trained(trial, corpus, tmp_path / "alone", stop_after=3)
    together(2, trial, corpus, tmp_path / "kept", shard=True, stop_after=3)
    of_one, of_two = (read_checkpoint(newest_first(tmp_path / name)[0]) for name in ("alone", "kept"))
    assert list((tmp_path / "kept").iterdir()) == [checkpoint_path(tmp_path / "kept", 3)]
    assert of_two.tensors.keys() == of_one.tensors.keys()
    for name in of_one.tensors.keys() - {LAYOUT}:
        torch.testing.assert_close(of_two.tensors[name], of_one.tensors[name])


@pytest.mark.slow
def test_another_trial_goes_on_from_the_state_of_a_sharded_trunk(corpus, tmp_path):
    schedule = ScheduleConfig("wsd", warmup_tokens=128, cooldown_fraction=0.4)
    trial, trunk = small_trial(corpus, steps=5, schedule=schedule), tmp_path / "trunk"
    together(2, trial, corpus, tmp_path / "first", shard=True, trunk=trunk, branch_steps=(3,))
    second = together(2, trial, corpus, tmp_path / "second", shard=True, trunk=trunk)[0]
    assert second["result"]["trunk_step"] == 3
    assert losses(second) == pytest.approx(losses(trained(trial, corpus, tmp_path / "alone")), rel=1e-10)
