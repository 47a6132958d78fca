"""``benchmarks/copying.py`` tells a model that copies from its context from one that does not."""

import math

import pytest
import torch
from copying import readings, repeated
from torch import Tensor, nn
from torch.nn.functional import one_hot

from scalevec import sweeps
from support import CHECKOUT

VOCABULARY = 256


class _Copies(nn.Module):
    """Predicts what followed the same token at its last occurrence; the first time, all tokens alike."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits = torch.zeros(*tokens.shape, VOCABULARY)
        for row, text in enumerate(tokens.tolist()):
            followed: dict[int, int] = {}
            for position, token in enumerate(text):
                if token in followed:
                    logits[row, position] = 50.0 * one_hot(torch.tensor(followed[token]), VOCABULARY)
                followed |= {text[position - 1]: token} if position else {}
        return logits


class _KnowsNothing(nn.Module):
    """All tokens are alike to it, whatever it has read."""

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.zeros(*tokens.shape, VOCABULARY)


WINDOWS = repeated(torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(0)).tolist())


def test_a_model_that_copies_loses_nothing_at_the_second_reading() -> None:
    first, second = readings(_Copies(), WINDOWS)
    assert first == pytest.approx(math.log(VOCABULARY))
    assert second == pytest.approx(0.0, abs=1e-6)


def test_a_model_that_does_not_has_the_same_loss_at_both() -> None:
    assert readings(_KnowsNothing(), WINDOWS) == pytest.approx((math.log(VOCABULARY),) * 2)


def test_its_text_is_that_of_the_sweep_that_it_speaks_of() -> None:
    paths = ("benchmarks/copying.yaml", "sweeps/small/trend.yaml")
    of_both = [sweeps.load(CHECKOUT / path) for path in paths]
    assert of_both[0].corpus == of_both[1].corpus
