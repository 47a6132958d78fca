"""Ranks that share out the parameters train what one process does."""

from dataclasses import replace

import pytest

from parallel_worlds import losses, small_trial, together, trained
from scalevec.model.config import OF_ARCHITECTURE
from scalevec.model.strategies import PRESETS
from scalevec.model.train.sharded import owners_of

KINDS = [("adamw", None), ("adamw", "batch"), ("muon", "bias"), ("sgd", None)]


@pytest.mark.parametrize(("optimizer", "experts"), KINDS)
def test_losses_are_those_of_one_process_to_rounding(optimizer, experts, corpus, tmp_path):
    trial = small_trial(corpus, optimizer, experts)
    alone = trained(trial, corpus, tmp_path / "alone")
    leader, _ = together(2, trial, corpus, tmp_path / "together", shard=True, micro_batch=1)
    assert losses(leader) == pytest.approx(losses(alone), rel=1e-10)
    for ours, theirs in zip(leader["rows"], alone["rows"], strict=True):
        assert ours["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-9)
    last, of_one = leader["rows"][-1], alone["rows"][-1]
    assert last["sv/final/mean"] == pytest.approx(of_one["sv/final/mean"], rel=1e-9)


def test_a_gemma_and_vectors_that_maps_and_heads_share_are_trained_as_by_one_process(corpus, tmp_path):
    trial, of_gemma = small_trial(corpus, "adamw"), {"architecture": "gemma", **OF_ARCHITECTURE["gemma"]}
    model = replace(trial.model, scale_vectors=PRESETS["unified-attention"], **of_gemma)
    trial = replace(trial, model=model)
    alone = trained(trial, corpus, tmp_path / "alone")
    leader, _ = together(2, trial, corpus, tmp_path / "together", shard=True, micro_batch=1)
    assert losses(leader) == pytest.approx(losses(alone), rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_checkpoint_of_shares_goes_on_in_any_world_and_way(optimizer, corpus, tmp_path):
    trial, kept = small_trial(corpus, optimizer, "bias"), tmp_path / "kept"
    undisturbed = trained(trial, corpus, tmp_path / "alone")
    first = together(2, trial, corpus, kept, shard=True, stop_after=2)[0]
    second = together(4, trial, corpus, kept, shard=True, stop_after=3, rows=first["rows"])[0]
    third = trained(trial, corpus, kept, rows=second["rows"], stop_after=4)
    last = together(2, trial, corpus, kept, shard=True, rows=third["rows"])[0]
    assert last["result"]["resumes"] == 3
    assert losses(last) == pytest.approx(losses(undisturbed), rel=1e-10)


def test_a_sharded_world_that_was_stopped_ends_with_the_bits_of_one_that_was_not(corpus, tmp_path):
    trial, kept = small_trial(corpus, "muon", "loss"), tmp_path / "kept"
    undisturbed = together(2, trial, corpus, tmp_path / "whole", shard=True, double=False)[0]
    begun = together(2, trial, corpus, kept, shard=True, double=False, stop_after=2)[0]
    resumed = together(2, trial, corpus, kept, shard=True, double=False, rows=begun["rows"])[0]
    assert losses(resumed) == losses(undisturbed)
    assert resumed["parameters"] == undisturbed["parameters"]


def test_matrices_are_shared_out_by_what_they_cost():
    shapes = [(64, 64), (16, 16), (16, 16), (64, 64), (16, 16)]
    assert owners_of(shapes, 2) == [0, 0, 1, 1, 0]
    assert owners_of(shapes, 1) == [0] * 5
