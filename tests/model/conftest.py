"""Small models for the tests of the model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import ScaleVectorStrategy
from scalevec.model.transformer import Transformer, initialise

VOCABULARY = 23


@pytest.fixture
def tiny() -> Shape:
    return Shape(width=16, layers=2, heads=4, kv_heads=2, feed_forward=22)


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(7))


@pytest.fixture
def build(tiny):
    """A float64 model of a strategy at its start, or with vectors drawn around one."""

    def build(
        strategy: ScaleVectorStrategy,
        *,
        shape: Shape = tiny,
        drawn: bool = False,
        tied: bool = False,
        **options: Any,
    ) -> Transformer:
        config = ModelConfig(shape, VOCABULARY, strategy, tied_embeddings=tied, **options)
        model = Transformer(config).double()
        initialise(model, seed=3)
        if drawn:
            draw_vectors(model)
        return model

    return build


@torch.no_grad()
def draw_vectors(model: Transformer) -> None:
    """Move every parameter of every scale vector away from its start."""
    generator = torch.Generator().manual_seed(11)
    for module in model.modules():
        if isinstance(module, ScaleVector):
            for parameter in module.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
