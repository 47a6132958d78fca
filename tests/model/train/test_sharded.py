"""Ranks that share out the parameters train what one process does."""

from dataclasses import replace

import pytest
import torch

from parallel_worlds import losses, small_trial, together, trained
from scalevec.model.config import OF_ARCHITECTURE, ScheduleConfig
from scalevec.model.strategies import PRESETS
from scalevec.model.train import checkpoint_path, newest_first
from scalevec.model.train.checkpoint import read_checkpoint
from scalevec.model.train.optimizer_state import LAYOUT


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
