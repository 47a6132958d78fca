"""The first documents of a prepared corpus, turned back into text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scalevec.model.data.prepared import Corpus
from scalevec.model.data.tokenizers import TextTokenizer

LONGEST_SHOWN = 4096
"""Tokens of a document that are looked at."""


@dataclass(frozen=True)
class SampledDocument:
    """The beginning of a document: its ids, their text (None where it is not known), whether it is all."""

    ids: tuple[int, ...]
    text: str | None
    is_whole: bool


def first_documents(corpus: Corpus, split: str, count: int) -> list[SampledDocument]:
    """The first ``count`` documents of ``split``; a synthetic corpus is one long document."""
    shard = corpus.split(split)
    decode = _decoder(corpus)
    has_separators = corpus.facts.config.source != "synthetic"
    documents: list[SampledDocument] = []
    start = 0
    while start < len(shard) and len(documents) < count:
        seen = np.asarray(shard[start : start + LONGEST_SHOWN])
        separators = np.flatnonzero(seen == corpus.facts.separator)
        length = int(separators[0]) if has_separators and len(separators) else len(seen)
        is_whole = length < LONGEST_SHOWN
        ids = tuple(seen[:length].tolist())
        documents.append(SampledDocument(ids, decode(ids), is_whole))
        if not is_whole:
            return documents  # where the next one begins would take a search
        start += length + 1
    return documents


def _decoder(corpus: Corpus) -> Callable[[Sequence[int]], str | None]:
    return (lambda _: None) if corpus.facts.config.tokenizer == "ids" else TextTokenizer(corpus).decode
