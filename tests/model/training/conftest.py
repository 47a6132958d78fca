"""A small corpus and a trial of some steps."""

import pytest

from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape, Trial
from scalevec.model.strategies import PRESETS
from scalevec.model.training.corpora.prepare import Corpus, CorpusConfig, prepare
from support import BATCH_TOKENS, SEQUENCE, STEPS


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
