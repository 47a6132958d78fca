import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_reference import documents_of, pieces, rank, splits_of
from scalevec.model.data.documents import (
    FEWEST_PIECES,
    SMALLEST_LIMIT,
    SPLITS,
    cut,
    last_ranks,
    piece_limit,
    require_enough,
    split_of,
)
from scalevec.model.data.specification import held_out
from scalevec.model.data.specification import CorpusError

texts = st.text(st.sampled_from("ab\n é€😀"), max_size=300).map(lambda text: text.encode())
DRAWN = ("test", "validation")


def words(n_bytes: int, seed: int = 0) -> bytes:
    generator = random.Random(seed)
    return b"".join(f"{generator.random()}\n".encode() for _ in range(n_bytes // 19))


def split_up(*all_texts: bytes) -> dict[str, list[bytes]]:
    """The splits of the documents in ``all_texts``, as the stream of ranked documents gives them."""
    ranked = sorted(documents_of(all_texts), key=rank)
    require_enough({"train": len(ranked)}, DRAWN)
    ends = ends_of([(rank(content), len(content)) for content in ranked], DRAWN)
    actual: dict[str, list[bytes]] = {name: [] for name in SPLITS}
    for content in ranked:
        actual[split_of(rank(content), "train", ends)].append(content)
    return actual


def ends_of(documents: list[tuple[bytes, int]], drawn: tuple[str, ...]) -> dict[str, str]:
    """The last rank of each split that is drawn, in hexadecimal."""
    quota = held_out(sum(size for _, size in documents))
    return {name: key.hex() for name, key in last_ranks(documents, drawn, len(documents), quota).items()}


@given(texts, st.integers(4, 40))
def test_pieces_are_whole_text_and_together_the_document(content: bytes, limit: int) -> None:
    actual = list(cut([content], limit))
    assert b"".join(actual) == content
    for piece in actual:
        assert 0 < len(piece) <= limit
        piece.decode("utf-8")


@settings(max_examples=50)
@given(texts, st.integers(4, 40), st.lists(st.integers(0, 300), max_size=6))
def test_a_document_that_comes_in_blocks_is_cut_as_if_it_came_whole(
    content: bytes, limit: int, ends: list[int]
) -> None:
    places = [0, *sorted(ends), len(content)]
    blocks = [content[start:end] for start, end in itertools.pairwise(places)]
    assert list(cut(blocks, limit)) == (pieces(content, limit) if content else [])


def test_a_piece_ends_at_a_line_where_it_can() -> None:
    assert list(cut([b"one\ntwo\nthree\nfour"], 9)) == [b"one\ntwo\n", b"three\n", b"four"]
    assert list(cut([b"without-a-line-end"], 9)) == [b"without-a", b"-line-end"]


def test_token_ids_are_cut_between_two_ids() -> None:
    assert list(cut([b"aabb", b"\n\ncc"], 5, unit=2)) == [b"aabb", b"\n\ncc"]


def test_the_longest_piece_is_a_share_of_all_text_within_bounds() -> None:
    assert [piece_limit(total) for total in (0, 10_000, 10**9)] == [512, 512, 10**9 // 512]
    assert piece_limit(10**9, largest=1 << 20) == 1 << 20


def test_small_corpora_hold_out_more_and_large_ones_no_more_than_helps() -> None:
    sizes = (1e5, 1e6, 5e6, 2e7, 2.5e7, 1e8, 8e8, 1e12)
    expected = (1e4, 1e5, 5e5, 5e5, 5e5, 2e6, 1.6e7, 1.6e7)
    assert [held_out(size) for size in sizes] == pytest.approx(expected)
    assert held_out(1e7, per_token=4) == pytest.approx(1e6)
    assert held_out(1e12, per_token=4) == pytest.approx(6.4e7)


def test_one_large_file_gives_all_three_splits() -> None:
    content = words(1_000_000)
    splits = split_up(content)
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
            split_up(*all_texts)
        return
    splits = split_up(*all_texts)
    assert splits == splits_of(all_texts)
    assert all(splits[name] for name in SPLITS)


def test_the_split_of_known_text_never_changes() -> None:
    splits = split_up(*(f"document {number}".encode() for number in range(60)))
    assert splits["test"] == [f"document {n}".encode() for n in [9, 8, 1, 32, 18, 25, 28]]
    assert splits["validation"] == [f"document {n}".encode() for n in [30, 12, 58, 51, 21, 48]]


def test_one_long_document_among_short_ones_leaves_no_split_empty() -> None:
    for seed in range(10):  # in some of them the long one comes last
        splits = split_up(b"a", b"b", words(SMALLEST_LIMIT, seed))
        assert [len(splits[name]) for name in SPLITS] == [1, 1, 1]


def test_a_split_with_files_of_its_own_takes_nothing_from_training() -> None:
    keys = [bytes([position]) for position in range(20)]
    ends = ends_of([(key, 1) for key in keys], ("validation",))
    assert split_of(keys[0], "test", ends) == "test"
    assert [split_of(key, "train", ends) for key in keys] == ["validation"] * 2 + ["train"] * 18


def test_files_of_a_split_without_text_of_their_own_are_refused() -> None:
    with pytest.raises(CorpusError, match="the files of the test split hold no text of their own"):
        require_enough({"train": 5, "validation": 0, "test": 0}, ["validation"])
