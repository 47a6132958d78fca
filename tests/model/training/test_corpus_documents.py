import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.training.corpus_documents import (
    FEWEST_PIECES,
    HELD_OUT_FRACTION,
    SMALLEST_LIMIT,
    SPLITS,
    Document,
    cut,
    documents_of,
    split,
)
from model.training.corpus_sources import CorpusError

texts = st.text(st.sampled_from("ab\n é€😀"), max_size=300).map(lambda text: text.encode())


def words(n_bytes: int, seed: int = 0) -> bytes:
    generator = random.Random(seed)
    return b"".join(f"{generator.random()}\n".encode() for _ in range(n_bytes // 19))


def contents(documents: list[Document]) -> list[bytes]:
    return [document.content for document in documents]


def splits_of(*all_texts: bytes) -> dict[str, list[bytes]]:
    return {name: contents(part) for name, part in split(documents_of(all_texts)).items()}


@given(texts, st.integers(4, 40))
def test_pieces_are_whole_text_and_together_the_document(content: bytes, limit: int) -> None:
    pieces = list(cut(content, limit))
    assert b"".join(pieces) == content
    for piece in pieces:
        assert 0 < len(piece) <= limit
        piece.decode("utf-8")


def test_a_piece_ends_at_a_line_where_it_can() -> None:
    assert list(cut(b"one\ntwo\nthree\nfour", 9)) == [b"one\ntwo\n", b"three\n", b"four"]
    assert list(cut(b"without-a-line-end", 9)) == [b"without-a", b"-line-end"]


def test_equal_files_count_once() -> None:
    assert contents(documents_of([b"a", b"b", b"a"])) == [b"a", b"b"]


def test_empty_files_give_no_document() -> None:
    assert documents_of([b"", b""]) == []


def test_one_large_file_gives_all_three_splits() -> None:
    content = words(1_000_000)
    splits = splits_of(content)
    sizes = {name: sum(map(len, splits[name])) for name in SPLITS}
    quota = HELD_OUT_FRACTION * len(content)
    limit = len(content) // FEWEST_PIECES
    for name in ("validation", "test"):
        assert quota <= sizes[name] <= quota + limit
    assert sum(sizes.values()) == len(content)


@given(st.lists(texts, min_size=3, max_size=12))
def test_splits_share_no_document_lose_none_and_are_never_empty(all_texts: list[bytes]) -> None:
    documents = documents_of(all_texts)
    if len(documents) < 3:
        with pytest.raises(CorpusError, match="training, validation and test need one each"):
            split(documents)
        return
    splits = split(documents)
    parts = [content for name in SPLITS for content in contents(splits[name])]
    assert sorted(parts) == sorted(contents(documents))
    assert all(splits[name] for name in SPLITS)


@given(st.randoms())
def test_splits_do_not_depend_on_the_order_of_the_files(shuffler: random.Random) -> None:
    files = [words(200, seed) for seed in range(30)]
    expected = splits_of(*files)
    shuffler.shuffle(files)
    assert splits_of(*files) == expected


def test_the_split_of_known_text_never_changes() -> None:
    splits = splits_of(*(f"document {number}".encode() for number in range(60)))
    assert splits["test"] == [b"document 9", b"document 8"]
    assert splits["validation"] == [b"document 1", b"document 32"]


def test_short_documents_are_not_cut() -> None:
    content = words(SMALLEST_LIMIT)
    assert contents(documents_of([content])) == [content]


def test_one_long_document_among_short_ones_leaves_no_split_empty() -> None:
    for seed in range(10):  # in some of them the long one comes last
        splits = splits_of(b"a", b"b", words(SMALLEST_LIMIT, seed))
        assert [len(splits[name]) for name in SPLITS] == [1, 1, 1]
