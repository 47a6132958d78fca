"""Small models for the tests of the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.data import CorpusConfig
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import PRESETS, ScaleVectorStrategy
from scalevec.model.train.loop import train
from scalevec.model.train.record import TrainingInterruptedError
from support import BATCH_TOKENS, SEQUENCE, STEPS, MemoryRecorder

VOCABULARY = 23
TINY = Shape(width=16, layers=2, heads=4, kv_heads=2, feed_forward=22)


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(7))


@pytest.fixture
def build():
    """A float64 model of a strategy at its start, or with vectors drawn around one."""

    def build(
        strategy: ScaleVectorStrategy,
        *,
        shape: Shape = TINY,
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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, text_files) -> Corpus:
    config = CorpusConfig("text", "bytes", 256, (str(text_files / "*.txt"),))
    return prepare(config, tmp_path_factory.mktemp("corpora"), lambda _: None)


@pytest.fixture
def trial(corpus) -> Trial:
    """24 steps of a model of width 16 with the unified strategy, which has vectors of every kind.

    It is evaluated on 64 sequences of each split, one a block.
    """
    model = ModelConfig(Shape(16, 1, 2, 2, 48), 256, PRESETS["unified"])
    schedule = ScheduleConfig(warmup_tokens=4 * BATCH_TOKENS)
    optimizer = OptimizerConfig(learning_rate=0.01)
    tokens = STEPS * BATCH_TOKENS
    evaluated, of_corpus = 64 * SEQUENCE, (corpus.fingerprint, SEQUENCE, BATCH_TOKENS)
    return Trial(model, optimizer, schedule, *of_corpus, tokens, seed=3, evaluation_tokens=evaluated)


@pytest.fixture
def train_with_stops(corpus) -> Callable[..., tuple[dict[str, Any], MemoryRecorder]]:
    """Trains with a stop after each number of rows in ``stops``, then to the end, on one recorder."""

    def run(trial: Trial, folder: Path, stops=(), **options: Any) -> tuple[dict[str, Any], MemoryRecorder]:
        recorder = MemoryRecorder()
        for stop in stops:
            recorder.stop_after = stop
            with pytest.raises(TrainingInterruptedError):
                train(trial, corpus, RunOptions(**options), recorder, folder)
        recorder.stop_after = None
        return train(trial, corpus, RunOptions(**options), recorder, folder), recorder

    return run
