"""Synthetic corpora: the entropy rate is exact, and no model comes below it."""

import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.data import CorpusConfig, TokenProcess
from scalevec.model.data import prepare as synthetic
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.strategies import PRESETS
from scalevec.model.train.loop import train
from support import MemoryRecorder

MARKOV = TokenProcess(vocabulary=16, branching=4, tokens=60_000)
LAGGED = TokenProcess(vocabulary=16, branching=4, lag=5, tokens=60_000)


def tokens_of(process: TokenProcess, split: str = "train") -> np.ndarray:
    return np.concatenate(list(synthetic.drawn_blocks(process, split))).astype(np.int64)


def prepared(process: TokenProcess, folder: Path) -> Corpus:
    config = CorpusConfig("synthetic", "ids", process.vocabulary, process=process)
    return prepare(config, folder, lambda _: None)


def test_the_entropy_rate_is_that_of_the_weights() -> None:
    assert synthetic.entropy_rate(TokenProcess(branching=1)) == 0
    for branching in (2, 8):
        shares = np.array(synthetic.weights(TokenProcess(branching=branching))) / synthetic.SLOTS
        expected = -(shares * np.log(shares)).sum()
        assert math.isclose(
            synthetic.entropy_rate(TokenProcess(branching=branching)), expected, rel_tol=1e-12
        )


def test_a_large_vocabulary_takes_memory_for_its_successors_alone() -> None:
    tracemalloc.start()
    synthetic.successors(TokenProcess(vocabulary=4096, branching=4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6  # bytes; all keys at once take 134e6


def test_every_token_is_a_successor_of_the_one_before_at_its_rate() -> None:
    tokens = tokens_of(MARKOV)
    rows = synthetic.successors(MARKOV)
    ranks = (rows[tokens[:-1]] == tokens[1:, None]).argmax(axis=1)
    assert (rows[tokens[:-1], ranks] == tokens[1:]).all()
    counts = np.bincount(ranks, minlength=4)
    shares = np.array(synthetic.weights(MARKOV)) / synthetic.SLOTS
    spread = np.sqrt(len(ranks) * shares * (1 - shares))
    assert (abs(counts - len(ranks) * shares) < 5 * spread).all()


def test_with_a_lag_the_difference_to_that_token_is_a_successor() -> None:
    tokens = tokens_of(LAGGED)
    drawn = (tokens[LAGGED.lag :] - tokens[: -LAGGED.lag]) % LAGGED.vocabulary
    before = tokens[LAGGED.lag - 1 : -1]
    assert (synthetic.successors(LAGGED)[before] == drawn[:, None]).any(axis=1).all()
    pairs = len(set(zip(before.tolist(), tokens[LAGGED.lag :].tolist(), strict=True)))
    assert pairs == LAGGED.vocabulary**2  # the token before alone says nothing of which may follow


@pytest.mark.parametrize("process", [MARKOV, LAGGED])
def test_the_ideal_loss_is_the_entropy_rate_within_its_sampling_error(process: TokenProcess) -> None:
    nats = -np.log(np.array(synthetic.weights(process)) / synthetic.SLOTS)
    shares = np.exp(-nats)
    spread = math.sqrt((shares * (nats - shares @ nats) ** 2).sum() / process.tokens)
    assert abs(synthetic.ideal_loss(process, "train") - synthetic.entropy_rate(process)) < 5 * spread


def test_the_tokens_never_change_nor_hang_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    process = TokenProcess(vocabulary=10, branching=3, lag=4, tokens=50, seed=7)
    whole = tokens_of(process)
    monkeypatch.setattr(synthetic, "TOKENS_AT_ONCE", 7)
    assert tokens_of(process).tolist() == whole.tolist()
    assert whole[:16].tolist() == [1, 5, 9, 1, 9, 4, 5, 0, 1, 9, 4, 1, 6, 9, 9, 6]


def test_held_out_splits_are_draws_of_their_own(tmp_path: Path) -> None:
    corpus = prepared(MARKOV, tmp_path)
    assert corpus.tokens == {"train": 60_000, "validation": 10_000, "test": 10_000}
    content = {name: corpus.split(name).astype(np.uint8).tobytes() for name in corpus.tokens}
    windows = {
        name: {held[start : start + 40] for start in range(len(held) - 40)} for name, held in content.items()
    }
    assert not windows["train"] & windows["test"]
    assert not windows["train"] & windows["validation"]
    assert not windows["validation"] & windows["test"]


def test_corpus_json_holds_the_floor(tmp_path: Path) -> None:
    facts = prepared(LAGGED, tmp_path).facts
    assert facts.entropy_rate == synthetic.entropy_rate(LAGGED)
    assert facts.test.ideal_loss == synthetic.ideal_loss(LAGGED, "test")
    assert facts.config.process == LAGGED


def test_every_part_of_the_process_is_part_of_the_fingerprint() -> None:
    others = [
        TokenProcess(vocabulary=32),
        TokenProcess(branching=7),
        TokenProcess(lag=2),
        TokenProcess(tokens=9),
        TokenProcess(seed=1),
    ]
    configs = [CorpusConfig("synthetic", "ids", 64, process=process) for process in [TokenProcess(), *others]]
    assert len({synthetic.fingerprint(config) for config in configs}) == 6


@pytest.mark.slow
def test_a_trained_model_comes_close_to_the_floor_and_stays_above_it(tmp_path: Path) -> None:
    corpus = prepared(TokenProcess(vocabulary=16, branching=4, tokens=60_000), tmp_path / "corpora")
    model = ModelConfig(Shape(32, 1, 2, 2, 64), 16, PRESETS["baseline"])
    trial = Trial(
        model,
        OptimizerConfig(learning_rate=0.02),
        ScheduleConfig(warmup_tokens=1024),
        corpus.fingerprint,
        sequence_length=32,
        batch_tokens=512,
        tokens=512 * 200,
        seed=0,
    )
    result = train(trial, corpus, RunOptions(), MemoryRecorder(), tmp_path / "checkpoints")
    assert corpus.facts.test.ideal_loss is not None
    excess = result["loss"] - corpus.facts.test.ideal_loss
    uniform = math.log(16) - corpus.facts.test.ideal_loss
    assert 0 < excess < 0.1 * uniform
