import hashlib
import io
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_reference import documents_of, pieces, splits_of
from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, held_out
from scalevec.model.data.texts import (
    FEWEST_PIECES,
    FILLED,
    ROW,
    SMALLEST_LIMIT,
    by_split,
    cut,
    dedup,
    piece_limit,
    ranked,
    split_up,
)

texts = st.text(st.sampled_from("ab\n é€😀"), max_size=300).map(lambda text: text.encode())
TEXT = CorpusConfig("text", "bytes", 256, ("all",))


def words(n_bytes: int, seed: int = 0) -> bytes:
    generator = random.Random(seed)
    return b"".join(f"{generator.random()}\n".encode() for _ in range(n_bytes // 19))


def splits_given(*all_texts: bytes) -> dict[str, list[bytes]]:
    """The splits of the documents in ``all_texts``."""
    contents = documents_of(all_texts)
    listed = [
        (hashlib.sha256(content).digest(), FILLED.index("train"), len(content), 0, number)
        for number, content in enumerate(contents)
    ]
    splits = split_up(TEXT, np.array(listed, ROW))
    return {name: [contents[row["offset"]] for row in of_split] for name, of_split in splits.items()}


@given(st.binary(max_size=9), texts, st.integers(4, 40))
def test_pieces_are_whole_text_and_together_the_document(before: bytes, content: bytes, limit: int) -> None:
    file = io.BytesIO(before + content + b"further")
    file.seek(len(before))
    actual = list(cut(file, len(content), limit))
    assert actual == (pieces(content, limit) if content else [])
    assert b"".join(actual) == content
    for piece in actual:
        assert 0 < len(piece) <= limit
        piece.decode("utf-8")


def cut_whole(content: bytes, limit: int, unit: int = 1) -> list[bytes]:
    return list(cut(io.BytesIO(content), len(content), limit, unit))


def test_a_piece_ends_at_a_line_where_it_can() -> None:
    assert cut_whole(b"one\ntwo\nthree\nfour", 9) == [b"one\ntwo\n", b"three\n", b"four"]
    assert cut_whole(b"without-a-line-end", 9) == [b"without-a", b"-line-end"]


def test_token_ids_are_cut_between_two_ids() -> None:
    assert cut_whole(b"aabb\n\ncc", 5, unit=2) == [b"aabb", b"\n\ncc"]


def test_the_longest_piece_is_a_share_of_all_text_within_bounds() -> None:
    assert [piece_limit(total, "text") for total in (0, 10_000, 10**9)] == [512, 512, 10**9 // 512]
    assert [piece_limit(total, "jsonl") for total in (10_000, 10**9)] == [512, 1 << 20]


def test_small_corpora_hold_out_more_and_large_ones_no_more_than_helps() -> None:
    sizes = (1e5, 1e6, 5e6, 2e7, 2.5e7, 1e8, 8e8, 1e12)
    expected = (1e4, 1e5, 5e5, 5e5, 5e5, 2e6, 1.6e7, 1.6e7)
    assert [held_out(size) for size in sizes] == pytest.approx(expected)
    assert held_out(1e7, per_token=4) == pytest.approx(1e6)
    assert held_out(1e12, per_token=4) == pytest.approx(6.4e7)


def test_one_large_file_gives_all_three_splits() -> None:
    content = words(1_000_000)
    splits = splits_given(content)
    sizes = {name: sum(map(len, splits[name])) for name in SPLITS}
    quota = held_out(len(content))
    limit = len(content) // FEWEST_PIECES
    for name in ("validation", "test"):
        assert quota <= sizes[name] <= quota + limit
    assert sum(sizes.values()) == len(content)


@settings(max_examples=50)
@given(st.lists(texts, min_size=3, max_size=12))
def test_documents_are_split_as_they_were_when_all_were_in_memory(all_texts: list[bytes]) -> None:
    if len(documents_of(all_texts)) < 3:
        with pytest.raises(CorpusError, match="training, validation and test need one each"):
            splits_given(*all_texts)
        return
    splits = splits_given(*all_texts)
    assert splits == splits_of(all_texts)
    assert all(splits[name] for name in SPLITS)


def test_the_split_of_known_text_never_changes() -> None:
    splits = splits_given(*(f"document {number}".encode() for number in range(60)))
    assert splits["test"] == [f"document {n}".encode() for n in [9, 8, 1, 32, 18, 25, 28]]
    assert splits["validation"] == [f"document {n}".encode() for n in [30, 12, 58, 51, 21, 48]]


def test_one_long_document_among_short_ones_leaves_no_split_empty() -> None:
    for seed in range(10):  # in some of them the long one comes last
        splits = splits_given(b"a", b"b", words(SMALLEST_LIMIT, seed))
        assert [len(splits[name]) for name in SPLITS] == [1, 1, 1]


def row(digest: bytes, split: str, size: int = 1) -> tuple[bytes, int, int, int, int]:
    return digest, FILLED.index(split), size, 0, 0


def test_a_split_with_files_of_its_own_takes_nothing_from_training() -> None:
    rows = np.array([row(bytes([n + 1]) * 32, "test" if n < 5 else "train") for n in range(25)], ROW)
    stored = by_split(ranked(rows, ["validation"], quota=2))
    assert {name: len(of_split) for name, of_split in stored.items()} == {
        "train": 18,
        "validation": 2,
        "test": 5,
    }


def test_of_equal_documents_one_is_kept_and_held_out_if_any_is() -> None:
    ends_with_zeros = bytes([7]) + bytes(31)
    rows = [row(ends_with_zeros, "train"), row(bytes(32), "validation"), row(ends_with_zeros, "test")]
    kept = dedup(np.array([*rows, *rows], ROW))
    assert [(FILLED[of_one["split"]], of_one["digest"]) for of_one in kept] == [
        ("validation", b""),
        ("test", bytes([7])),
    ]


def test_files_of_a_split_without_text_of_their_own_are_refused() -> None:
    config = CorpusConfig("text", "bytes", 256, ("all",), test_files=("test",))
    with pytest.raises(CorpusError, match="the files of the test split hold no text of their own"):
        split_up(config, np.array([row(bytes([n]) * 32, "train") for n in range(5)], ROW))
