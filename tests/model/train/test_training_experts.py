"""Mixtures in training: a resume changes no bit, and the load is balanced."""

from dataclasses import replace

import pytest
import torch

from scalevec.model.config import PER, Experts, RunOptions, Trial
from scalevec.model.train.checkpoint import load_newest
from scalevec.model.train.loop import train
from scalevec.model.train.record import TrainingInterruptedError
from support import MemoryRecorder

FOUR = Experts(n_experts=4, top_k=2, feed_forward=24)


def with_experts(trial: Trial, experts: Experts) -> Trial:
    return replace(trial, model=replace(trial.model, experts=experts))


def test_the_bias_is_in_the_checkpoint_and_the_load_is_not(trial, corpus, tmp_path):
    trial = with_experts(trial, replace(FOUR, balancing="bias"))
    with pytest.raises(TrainingInterruptedError):
        train(trial, corpus, RunOptions(), MemoryRecorder(stop_after=5), tmp_path)
    checkpoint = load_newest(tmp_path, print)
    bias = checkpoint.tensors["model.blocks.0.feed_forward.bias"]
    assert bias.abs().sum() > 0
    torch.testing.assert_close(bias / 0.001, (bias / 0.001).round(), rtol=0, atol=1e-3)
    assert not any(name.endswith("load") for name in checkpoint.tensors)


@pytest.mark.parametrize("per", PER)
def test_micro_batches_change_only_the_order_of_sums(per, trial, corpus, tmp_path):
    trial = with_experts(trial, replace(FOUR, per=per, loss_coefficient=1.0))
    first = [first_row(trial, corpus, tmp_path / str(n), micro_batch=n) for n in (0, 1)]
    for name in ("loss", "gradient_norm"):
        assert first[1][name] == pytest.approx(first[0][name], rel=1e-5)


def test_the_recorded_loss_has_no_penalty_in_it(trial, corpus, tmp_path):
    trial = replace(trial, stream="ab" * 32)
    penalised, plain = (
        first_row(with_experts(trial, replace(FOUR, balancing=kind, loss_coefficient=5.0)), corpus, tmp_path)
        for kind in ("loss", "none")
    )
    assert penalised["loss"] == plain["loss"]
    assert penalised["gradient_norm"] != plain["gradient_norm"]


def first_row(trial, corpus, folder, **options):
    """What is recorded of the first step."""
    recorder = MemoryRecorder(stop_after=1)
    with pytest.raises(TrainingInterruptedError):
        train(trial, corpus, RunOptions(**options), recorder, folder / trial.model.experts.balancing)
    return recorder.rows[0]
