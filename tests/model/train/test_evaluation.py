"""Evaluation: the loss over a split, and over fixed blocks of it."""

import numpy as np
import pytest
import torch

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.data.corpus import evaluation_batches
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.train.ddp import World
from scalevec.model.train.evaluation import blocks_of, evaluate

LENGTH = 8


@pytest.fixture(scope="module")
def model() -> Transformer:
    model = Transformer(ModelConfig(Shape(8, 1, 2, 2, 16), vocabulary_size=32))
    initialise(model, 0)
    return model


def text(n_tokens: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 32, n_tokens).astype(np.uint16)


def test_the_loss_is_the_mean_over_all_targets(model):
    tokens = text(1000)
    pairs = evaluation_batches(tokens, LENGTH, 16)
    sums = [model.loss(*pair).item() * pair[1].numel() for pair in pairs]
    assert evaluate(model, tokens, LENGTH, 16).loss == pytest.approx(sum(sums) / 999, rel=1e-6)


def test_blocks_weighted_by_their_tokens_give_the_loss(model):
    evaluation = evaluate(model, text(1003), LENGTH, 16)
    assert len(evaluation.loss_blocks) == len(evaluation.block_tokens) == 64
    assert sum(evaluation.block_tokens) == 1002
    mean = np.average(evaluation.loss_blocks, weights=evaluation.block_tokens)
    assert mean == pytest.approx(evaluation.loss, abs=1e-7)


def test_a_block_is_a_run_of_neighbouring_sequences(model):
    tokens = text(64 * 3 * LENGTH + 1)
    second = evaluate(model, tokens[3 * LENGTH : 6 * LENGTH + 1], LENGTH, 16).loss
    evaluation = evaluate(model, tokens, LENGTH, 5)
    assert evaluation.loss_blocks[1] == pytest.approx(second, abs=1e-6)
    assert evaluation.block_tokens == [3 * LENGTH] * 64


@pytest.mark.parametrize(("n_sequences", "n_blocks"), [(15, 0), (16, 16), (63, 63), (64, 64), (1000, 64)])
def test_few_sequences_are_a_block_each_and_too_few_are_none(n_sequences, n_blocks):
    blocks = blocks_of(n_sequences)
    assert len(blocks) == n_blocks
    expected = list(range(n_sequences)) * bool(blocks)
    assert [i for block in blocks for i in range(n_sequences)[block]] == expected
    assert {block.stop - block.start for block in blocks} <= {n_sequences // 64, n_sequences // 64 + 1, 1}


def test_under_autocast_the_losses_are_those_of_training(model):
    tokens = text(300)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (inputs, targets), *_ = evaluation_batches(tokens, LENGTH, 100)
        mean = model.loss(inputs, targets).item()
        assert model.token_losses(inputs, targets).mean().item() == pytest.approx(mean, rel=1e-5)


class Small:
    """A model on a device that holds so many sequences at once; notes what it was asked for."""

    def __init__(self, model, room, problem):
        self.model, self.room, self.problem, self.asked = model, room, problem, []
        self.embedding = model.embedding

    def token_losses(self, inputs, targets):
        self.asked.append(len(inputs))
        if len(inputs) > self.room:
            raise self.problem
        return self.model.token_losses(inputs, targets)


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["device", "process"],
)
def test_what_does_not_fit_into_memory_is_evaluated_in_halves(model, problem):
    small, messages = Small(model, 5, problem), []
    evaluation = evaluate(small, text(40 * LENGTH + 1), LENGTH, 16, messages.append)
    assert small.asked == [16, 8, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4]
    expected = evaluate(model, text(40 * LENGTH + 1), LENGTH, 16)
    assert evaluation.loss == pytest.approx(expected.loss, rel=1e-6)
    assert evaluation.block_tokens == expected.block_tokens
    assert [line.split("with ")[1] for line in messages] == [f"{n} sequences at a time" for n in (8, 4)]


def test_an_evaluation_of_which_no_sequence_fits_says_so(model):
    with pytest.raises(torch.OutOfMemoryError):
        evaluate(Small(model, 0, torch.OutOfMemoryError()), text(100), LENGTH, 2, print)


class InStep(World):
    in_step = True


def test_processes_that_have_to_take_the_same_batches_do_not_halve_them_each_for_itself(model):
    small = Small(model, 5, torch.OutOfMemoryError())
    with pytest.raises(torch.OutOfMemoryError):
        evaluate(small, text(40 * LENGTH + 1), LENGTH, 16, print, InStep())
    assert small.asked == [16]
