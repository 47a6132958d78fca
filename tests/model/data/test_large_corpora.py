"""A batch costs the same whatever the size of the corpus: of a sparse file, nothing but the batch is read."""

import dataclasses
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from scalevec.model.data import CorpusConfig
from scalevec.model.data.corpus import TrainingBatches, open_corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.fields import to_dict

TOKENS = 10**11
FEW = 10**6


def grown(corpora: Path, folder: Path, *, in_place: bool, tokens: int) -> str:
    """The fingerprint of a corpus whose training file has so many tokens, nearly all of them holes."""
    ids = np.random.default_rng(0).integers(1, 250, 20_000).astype("<u2")
    ids[::97] = 0
    path = folder / "train.bin"
    ids.tofile(path)
    config = CorpusConfig("shards", "ids", 256, (str(path),), dtype="uint16", in_place=in_place)
    corpus = prepare(config, corpora, lambda _: None)
    grows = path if in_place else corpus.directory / "train.bin"
    os.truncate(grows, 2 * tokens)
    facts = dataclasses.replace(corpus.facts.train, tokens=tokens)
    if in_place:
        table = np.fromfile(corpus.split_path("train"), "<i8").reshape(-1, 3)
        table[-1, 2] = tokens - table[-1, 1]  # up to the end of the file
        table.tofile(corpus.split_path("train"))
    placed = tuple(dataclasses.replace(file, bytes=2 * tokens) for file in corpus.facts.in_place)
    manifest = dataclasses.replace(corpus.facts, train=facts, in_place=placed)
    (corpus.directory / "corpus.json").write_text(json.dumps(to_dict(manifest)))
    return corpus.fingerprint


def cost_of_a_batch(corpora: Path, fingerprint: str) -> tuple[int, int]:
    """Bytes of memory at most, and blocks read from files, of opening a corpus and taking three batches."""
    tracemalloc.start()
    corpus = open_corpus(corpora, fingerprint)
    batches = TrainingBatches(corpus.split("train"), 1024, 64, "stream")
    for step in (0, 10**4, 10**5):
        inputs, targets = batches.batch(step)
        assert inputs.shape == targets.shape == (64, 1024)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, batches.n_windows


@pytest.mark.parametrize("in_place", [False, True], ids=["prepared", "in place"])
def test_a_batch_of_100_billion_tokens_takes_the_memory_of_one_of_a_million(tmp_path, in_place):
    peaks = {}
    for tokens in (FEW, TOKENS):
        folder = tmp_path / str(tokens)
        folder.mkdir()
        name = grown(folder / "corpora", folder, in_place=in_place, tokens=tokens)
        peaks[tokens], n_windows = cost_of_a_batch(folder / "corpora", name)
        assert n_windows > 0.99 * (tokens / 1024 - 1)
    assert peaks[TOKENS] < 1.5 * peaks[FEW]
    assert peaks[TOKENS] < 50_000_000
