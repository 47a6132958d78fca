"""Pre-tokenized shards: their documents, and what is said of corrupt ones."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_reference import read_documents
from scalevec.model.data import CorpusConfig, CorpusError, formats
from scalevec.model.data.prepare import prepare


def config(*paths: Path, dtype: str = "uint16", size: int = 1000, separator: int = 0) -> CorpusConfig:
    files = tuple(map(str, paths))
    return CorpusConfig("shards", "ids", size, files, dtype=dtype, separator_id=separator)


def documents(path: Path, dtype: str = "uint16", size: int = 1000, separator: int = 0) -> list[list[int]]:
    given_config = config(path, dtype=dtype, size=size, separator=separator)
    stored = "<u2" if size <= 2**16 else "<u4"
    actual = read_documents(given_config)
    return [np.frombuffer(content, stored).tolist() for content in actual]


def write(path: Path, ids: list[int], dtype: str = "<u2") -> Path:
    np.array(ids, dtype=dtype).tofile(path)
    return path


@pytest.mark.parametrize(("dtype", "stored"), [("uint16", "<u2"), ("uint32", "<u4")])
def test_a_document_ends_at_a_separator_or_with_the_file(tmp_path: Path, dtype: str, stored: str) -> None:
    path = write(tmp_path / "a.bin", [0, 5, 6, 0, 0, 7, 999, 0, 8], stored)
    assert documents(path, dtype) == [[], [5, 6], [], [7, 999], [8]]


def test_ids_above_65535_are_kept_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bin", [70_000, 1, 99_999, 70_001], "<u4")
    assert documents(path, "uint32", 100_000, separator=1) == [[70_000], [99_999, 70_001]]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), max_size=60), st.sampled_from([8, 16, 24]))
def test_documents_do_not_depend_on_the_blocks_in_which_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], block: int
) -> None:
    path = write(tmp_path_factory.mktemp("shard") / "a.bin", ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "LONGEST_DOCUMENT", 7)
        whole = documents(path)
        patch.setattr(formats, "BLOCK", block)
        assert documents(path) == whole
    assert [token for document in whole for token in document] == [token for token in ids if token]
    assert max(map(len, whole), default=0) <= 7


def test_a_shard_that_ends_within_an_id_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.bin"
    path.write_bytes(bytes(101))
    with pytest.raises(
        CorpusError, match=r"odd\.bin' has 101 bytes, which is no whole number of 2-byte token ids"
    ):
        documents(path)


def test_a_token_outside_the_vocabulary_is_named_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "other.bin", [1, 2, 0, 1000, 4])
    with pytest.raises(
        CorpusError, match=r"other\.bin' holds the token id 1000 at token 3; allowed: ids below"
    ):
        documents(path)


def test_a_corrupt_shard_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write(tmp_path / "other.bin", [*range(1, 900), 0, 2000])
    with pytest.raises(CorpusError, match="2000"):
        prepare(config(path), tmp_path / "corpora", lambda _: None)
    assert not (tmp_path / "corpora").exists()


def test_the_type_of_the_shards_changes_neither_tokens_nor_fingerprint(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 1000, 20_000).tolist()
    small, large = write(tmp_path / "small.bin", ids), write(tmp_path / "large.bin", ids, "<u4")
    first = prepare(config(small), tmp_path / "first", lambda _: None)
    second = prepare(config(large, dtype="uint32"), tmp_path / "second", lambda _: None)
    assert first.fingerprint == second.fingerprint
    assert (first.split("train") == second.split("train")).all()
    assert first.facts.separator == 0
    assert first.bytes_per_token is None
