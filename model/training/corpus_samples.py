"""The first documents of a prepared corpus, turned back into text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from model.training.corpus_facts import Corpus, Shard

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
    ends = _no_end if corpus.facts.config.source == "synthetic" else _end_of_document
    found: list[SampledDocument] = []
    start = 0
    while start < len(shard) and len(found) < count:
        length = ends(shard, start, corpus.facts.separator)
        is_whole = length < LONGEST_SHOWN
        ids = tuple(shard[start : start + length].tolist())
        found.append(SampledDocument(ids, decode(ids), is_whole))
        if not is_whole:
            return found  # where the next one begins would take a search
        start += length + 1
    return found


def _end_of_document(shard: Shard, start: int, separator: int) -> int:
    """Tokens from ``start`` to the next separator, ``LONGEST_SHOWN`` at most."""
    ids = np.asarray(shard[start : start + LONGEST_SHOWN])
    places = np.flatnonzero(ids == separator)
    return int(places[0]) if len(places) else len(ids)


def _no_end(shard: Shard, start: int, _separator: int) -> int:
    return min(LONGEST_SHOWN, len(shard) - start)


def _decoder(corpus: Corpus) -> Callable[[Sequence[int]], str | None]:
    kind = corpus.facts.config.tokenizer
    if kind == "bytes":
        return lambda ids: bytes(ids).decode("utf-8", "replace")
    if kind == "ids":
        return lambda _: None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(corpus.directory / "tokenizer.json"))
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))
