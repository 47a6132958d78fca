"""What is counted of a corpus before it is written: distinct documents, cut where they are too long."""

import json
from pathlib import Path

import pytest

from scalevec.model.data import census
from scalevec.model.data.census import Census, ReadTexts, take_census
from scalevec.model.data.documents import FEWEST_PIECES
from scalevec.model.data.preparation.processes import Workers
from scalevec.model.data.specification import CorpusConfig

PIECE = 1000
LINES = [f"{number:09d}\n" for number in range(FEWEST_PIECES * PIECE // 10)]
SMALLER = 600


def census_of(folder: Path, source: str, documents: list[str]) -> Census:
    path = folder / f"a.{source}"
    path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in documents))
    if source == "text":
        path.write_text("".join(documents))
    config = CorpusConfig(source, "bytes", 256, (str(path),), field="" if source == "text" else "text")
    with Workers(0) as workers:
        texts = ReadTexts(config, folder / "work", workers, lambda _: None, keeps_text=False)
        return take_census(texts, {"kind": "bytes"})


@pytest.mark.parametrize(("source", "longest"), [("text", PIECE), ("jsonl", SMALLER)])
def test_only_records_have_a_longest_piece_beside_their_share_of_all_text(
    monkeypatch, tmp_path, source, longest
):
    monkeypatch.setattr(census, "LARGEST_LIMIT", SMALLER)
    taken = census_of(tmp_path, source, ["".join(LINES)])
    assert taken.limit == longest
    assert taken.counts == {"train": -(-10 * len(LINES) // longest), "validation": 0, "test": 0}


def test_documents_within_the_limit_are_counted_whole(tmp_path):
    taken = census_of(tmp_path, "jsonl", [line * 50 for line in LINES[:2000]])
    assert taken.limit > len(LINES[0]) * 50
    assert taken.counts["train"] == 2000


def test_empty_documents_and_copies_are_no_documents(tmp_path):
    taken = census_of(tmp_path, "jsonl", ["one", "", "two", "one", ""])
    assert (taken.counts["train"], taken.sizes["train"], taken.empty) == (2, 6, 2)
