"""JSON lines, Parquet and shards: what is read of them, and what is said of those that cannot be used."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq

from corpus_reference import read_documents
from scalevec.model.data import CorpusConfig, CorpusError, formats
from scalevec.model.data.prepare import prepare


def documents(path: Path, field: str = "text") -> list[bytes]:
    """The documents in the file at ``path``, whose name says what it is."""
    source = "parquet" if ".parquet" in path.name else "jsonl"
    config = CorpusConfig(source, "bytes", 256, (str(path),), field=field)
    return read_documents(config)


def refusal(path: Path, field: str = "text") -> str:
    with pytest.raises(CorpusError) as error:
        documents(path, field)
    return str(error.value)


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


RECORDS = [{"text": "été\n", "id": 1}, {"text": "", "id": 2}, {"text": None}, {"id": 3, "text": "two"}]
TEXTS = ["été\n".encode(), b"", b"", b"two"]


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def test_the_field_of_each_line_is_a_document_and_blank_lines_are_none(jsonl: Path) -> None:
    jsonl.write_bytes(b"\xef\xbb\xbf" + lines(*RECORDS) + b"\n  \n" + b'{"text": "no end"}')
    assert documents(jsonl) == [*TEXTS, b"no end"]


def test_another_field_may_hold_the_text(jsonl: Path) -> None:
    jsonl.write_bytes(lines({"text": 1, "content": "here"}))
    assert documents(jsonl, "content") == [b"here"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_lines_are_read_as_they_are_decompressed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    content = lines(*RECORDS * 1000)
    with pyarrow.output_stream(str(path), compression={".gz": "gzip", ".zst": "zstd"}[suffix]) as file:
        file.write(content)
    assert path.stat().st_size < len(content)
    assert documents(path) == TEXTS * 1000


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_compressed_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    with pyarrow.output_stream(str(path), compression={".gz": "gzip", ".zst": "zstd"}[suffix]) as file:
        file.write(lines(*({"text": f"{position * 7919 % 10_007}"} for position in range(5000))))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = refusal(path)
    assert f"corpus file '{path}' is damaged: " in message
    assert "fetch it again or leave it out" in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "a.jsonl:2: not JSON: "),
        (b"[" * 100_000, "a.jsonl:2: not JSON: "),
        (b'["text"]', "a.jsonl:2: a list; a JSON object with the field 'text' is needed"),
        (b"null", "a.jsonl:2: null; a JSON object"),
        (b'{"body": "a", "id": 1}', "a.jsonl:2: no field 'text'; its fields: body, id"),
        (b'{"text": 7}', "a.jsonl:2: the field 'text' holds a number; text is needed"),
        (rb'{"text": "\ud800"}', "a.jsonl:2: the field 'text' holds half a character"),
        (rb'{"text": "ab\u0000"}', "a.jsonl:2: the field 'text' holds a NUL byte at byte 2"),
        (
            b'{"text": "caf\xe9"}',
            "a.jsonl:2: not UTF-8 text: invalid continuation byte at byte 26 of the file",
        ),
    ],
)
def test_a_line_that_holds_no_text_is_named_by_its_number(jsonl: Path, line: bytes, message: str) -> None:
    jsonl.write_bytes(b'{"text":"a"}\n' + line + b"\n")
    assert message in refusal(jsonl)


def test_a_line_that_would_fill_the_memory_is_refused(jsonl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LONGEST_LINE", 100)
    jsonl.write_bytes(lines({"text": "a"}, {"text": "a" * 100}))
    assert "a.jsonl:2: longer than 100 bytes; this is no JSON line" in refusal(jsonl)


def write_parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_the_text_column_of_every_row_group_is_read(tmp_path: Path, kind: str) -> None:
    texts = ["été\n", "", None, "two", "two"]
    types = {
        "string": pyarrow.string(),
        "large_string": pyarrow.large_string(),
        "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    }
    path = write_parquet(tmp_path / "a.parquet", id=range(5), text=pyarrow.array(texts, types[kind]))
    assert documents(path) == [*TEXTS, b"two"]


def test_a_parquet_file_without_the_column_lists_those_it_has(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", body=["a"], id=[1])
    message = refusal(path)
    assert f"corpus file '{path}' has no column 'text'; its columns: body (string), id (int64)" in message
    assert documents(path, "body") == [b"a"]


def test_a_column_that_holds_no_text_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", text=[1, 2])
    assert "the column 'text' holds int64; text is needed. Columns: text (int64)" in refusal(path)


@pytest.mark.parametrize("end", [600, None], ids=["a page", "all of it"])
def test_a_damaged_parquet_file_is_named(tmp_path: Path, end: int | None) -> None:
    path = write_parquet(tmp_path / "a.parquet", text=[f"{position}" * 50 for position in range(100)])
    content = bytearray(path.read_bytes())
    content[4:end] = bytes(596)
    path.write_bytes(content)
    assert f"corpus file '{path}' is damaged: " in refusal(path)


def test_parquet_text_that_is_not_utf8_is_named_by_its_row(tmp_path: Path) -> None:
    texts = pyarrow.array([b"good", b"caf\xe9"]).view(pyarrow.string())
    path = write_parquet(tmp_path / "a.parquet", text=texts)
    assert "a.parquet: row 2: not UTF-8 text" in refusal(path)


def test_a_nul_in_a_parquet_row_is_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", text=["a", "b\0"])
    assert "row 2: the column 'text' holds a NUL byte at byte 1" in refusal(path)


@pytest.mark.parametrize("source", ["jsonl", "parquet"])
def test_a_nul_is_text_where_it_separates_nothing(tmp_path: Path, source: str) -> None:
    path = tmp_path / f"a.{source}"
    if source == "jsonl":
        path.write_bytes(lines({"text": "b\0"}))
    else:
        write_parquet(path, text=["b\0"])
    config = CorpusConfig(source, "bpe", 300, (str(path),), field="text")
    assert read_documents(config) == [b"b\0"]


def test_gzip_of_the_standard_library_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(lines(*RECORDS)) + gzip.compress(lines({"text": "three"})))
    assert documents(path) == [*TEXTS, b"three"]


def shards_config(*paths: Path, dtype: str = "uint16", size: int = 1000, separator: int = 0) -> CorpusConfig:
    files = tuple(map(str, paths))
    return CorpusConfig("shards", "ids", size, files, dtype=dtype, separator_id=separator)


def shard_documents(path: Path, size: int = 1000, **options: Any) -> list[list[int]]:
    stored = "<u2" if size <= 2**16 else "<u4"
    actual = read_documents(shards_config(path, size=size, **options))
    return [np.frombuffer(content, stored).tolist() for content in actual]


def write_shard(path: Path, ids: list[int], dtype: str = "<u2") -> Path:
    np.array(ids, dtype=dtype).tofile(path)
    return path


@pytest.mark.parametrize(("dtype", "stored"), [("uint16", "<u2"), ("uint32", "<u4")])
def test_a_document_ends_at_a_separator_or_with_the_file(tmp_path: Path, dtype: str, stored: str) -> None:
    path = write_shard(tmp_path / "a.bin", [0, 5, 6, 0, 0, 7, 999, 0, 8], stored)
    assert shard_documents(path, dtype=dtype) == [[], [5, 6], [], [7, 999], [8]]


def test_ids_above_65535_are_kept_whole(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.bin", [70_000, 1, 99_999, 70_001], "<u4")
    assert shard_documents(path, 100_000, dtype="uint32", separator=1) == [[70_000], [99_999, 70_001]]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), max_size=60), st.sampled_from([8, 16, 24]))
def test_documents_do_not_depend_on_the_blocks_in_which_they_are_read(tmp_path_factory, ids, block):
    path = write_shard(tmp_path_factory.mktemp("shard") / "a.bin", ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "LONGEST_DOCUMENT", 7)
        whole = shard_documents(path)
        patch.setattr(formats, "BLOCK", block)
        assert shard_documents(path) == whole
    assert [token for document in whole for token in document] == [token for token in ids if token]
    assert max(map(len, whole), default=0) <= 7


def test_a_shard_that_ends_within_an_id_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.bin"
    path.write_bytes(bytes(101))
    message = r"odd\.bin' has 101 bytes, which is no whole number of 2-byte token ids"
    with pytest.raises(CorpusError, match=message):
        shard_documents(path)


def test_a_token_outside_the_vocabulary_is_named_with_its_place(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "other.bin", [1, 2, 0, 1000, 4])
    message = r"other\.bin' holds the token id 1000 at token 3; allowed: ids below"
    with pytest.raises(CorpusError, match=message):
        shard_documents(path)


def test_the_type_of_the_shards_changes_neither_tokens_nor_fingerprint(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 1000, 20_000).tolist()
    small, large = write_shard(tmp_path / "small.bin", ids), write_shard(tmp_path / "large.bin", ids, "<u4")
    first = prepare(shards_config(small), tmp_path / "first", lambda _: None)
    second = prepare(shards_config(large, dtype="uint32"), tmp_path / "second", lambda _: None)
    assert first.fingerprint == second.fingerprint
    assert (first.split("train") == second.split("train")).all()
    assert first.facts.separator == 0
    assert first.bytes_per_token is None
