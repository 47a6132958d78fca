"""Mixtures in training: a resume changes no bit, and the load is balanced."""

from dataclasses import replace

import pytest
import torch

from scalevec.model.config import BALANCINGS, PER, Experts, RunOptions, Trial
from scalevec.model.train.checkpoint import load_newest
from scalevec.model.train.loop import train
from scalevec.model.train.record import TrainingInterruptedError
from support import MemoryRecorder

FOUR = Experts(n_experts=4, top_k=2, feed_forward=24)


def with_experts(trial: Trial, experts: Experts) -> Trial:
    return replace(trial, model=replace(trial.model, experts=experts))


@pytest.mark.parametrize("balancing", BALANCINGS)
def test_a_resumed_mixture_ends_with_the_same_bits(balancing, trial, train_with_stops, tmp_path):
    trial = with_experts(trial, replace(FOUR, balancing=balancing, bias_rate=0.05))
    undisturbed, _ = train_with_stops(trial, tmp_path / "undisturbed")
    resumed, _ = train_with_stops(trial, tmp_path / "resumed", (3, 11))
    assert (resumed["loss"], resumed["resumes"]) == (undisturbed["loss"], 2)
    assert resumed["loss"] < resumed["loss_initial"] - 0.3


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


@pytest.mark.parametrize("changes", [{"per": "batch"}, {"balancing": "bias"}], ids=str)
def test_recomputed_blocks_change_no_bit_of_a_mixture(changes, trial, corpus, tmp_path):
    """The load of the experts is counted once."""
    mixture = with_experts(replace(trial, tokens=8 * trial.batch_tokens), replace(FOUR, **changes))
    losses = []
    for recompute in ("none", "block"):
        recorder = MemoryRecorder()
        options = RunOptions(recompute=recompute, micro_batch=2)
        train(mixture, corpus, options, recorder, tmp_path / recompute)
        losses.append([row["loss"] for row in recorder.rows])
    assert losses[0] == losses[1]
