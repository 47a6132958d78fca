"""A shard that has changed since it was written is found by its digest, and read once for each change."""

import errno
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from scalevec.model.data import SPLITS, CorpusConfig, CorpusError
from scalevec.model.data.corpus import CHECKED, Corpus, open_corpus, verify
from scalevec.model.data.prepare import prepare


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Corpus:
    path = tmp_path_factory.mktemp("text") / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"text number {number}"}) + "\n" for number in range(3000)))
    config = CorpusConfig("jsonl", "bytes", 256, (str(path),), field="text")
    return prepare(config, tmp_path_factory.mktemp("corpora"), lambda _: None)


@pytest.fixture
def corpus(written, tmp_path) -> Corpus:
    """A copy that a test may damage."""
    shutil.copytree(written.directory, tmp_path / "corpora" / written.fingerprint)
    return open_corpus(tmp_path / "corpora", written.fingerprint)


@pytest.fixture
def corpora(corpus) -> Path:
    return corpus.directory.parent


@pytest.fixture
def digests(monkeypatch) -> list[str]:
    """The names of the shards that are read."""
    names: list[str] = []
    usual = hashlib.file_digest

    def file_digest(file, name):
        names.append(Path(file.name).stem)
        return usual(file, name)

    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    return names


def flip(path: Path) -> None:
    """One bit of one byte, as a disk may do."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("name", SPLITS)
def test_a_flipped_byte_is_refused_with_the_shard_and_what_to_do(corpus, name):
    verify(corpus)
    shard = corpus.directory / f"{name}.bin"
    flip(shard)
    told = rf"{re.escape(str(shard))} is not what was written: .*; remove .* and prepare the corpus again"
    with pytest.raises(CorpusError, match=told):
        verify(corpus)


def test_what_was_found_whole_is_read_again_only_when_it_has_changed(corpus, digests):
    verify(corpus)
    assert digests == list(SPLITS)
    verify(corpus)
    assert digests == list(SPLITS)
    os.utime(corpus.directory / "test.bin")
    verify(corpus)
    assert digests == [*SPLITS, "test"]
    verify(corpus, again=True)
    assert digests == [*SPLITS, "test", *SPLITS]


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff{", b'{"train": 3}'])
def test_a_record_of_checks_that_cannot_be_read_counts_as_none(corpus, digests, content):
    (corpus.directory / CHECKED).write_bytes(content)
    verify(corpus)
    assert digests == list(SPLITS)


@pytest.mark.parametrize("name", ["", "ab12", "../" + "a" * 61, "A" * 64, "a" * 64 + "\n"])
def test_only_a_fingerprint_is_opened(corpora, name):
    with pytest.raises(CorpusError, match="a fingerprint of 64 hexadecimal digits is needed"):
        open_corpus(corpora, name)


def test_a_corpus_that_is_not_there_is_said(corpora):
    with pytest.raises(CorpusError, match="prepare it first"):
        open_corpus(corpora, "a" * 64)


@pytest.mark.parametrize("name", SPLITS)
def test_a_truncated_shard_is_named_with_the_remedy(corpus, corpora, name):
    path = corpus.directory / f"{name}.bin"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CorpusError, match=rf"{name}\.bin has .* bytes instead of .*; remove .* again"):
        open_corpus(corpora, corpus.fingerprint)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format_version": 1}', b"\xff"])
def test_a_broken_corpus_json_is_named_with_the_remedy(corpus, corpora, content):
    (corpus.directory / "corpus.json").write_bytes(content)
    with pytest.raises(CorpusError, match=r"corpus\.json cannot be read .*; remove .* and prepare"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_corpus_json_out_of_reach_is_not_said_to_be_broken(corpus, corpora, monkeypatch):
    unreachable = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=unreachable))
    with pytest.raises(OSError, match="Input/output error"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_folder_in_place_of_corpus_json_is_named(corpus, corpora):
    path = corpus.directory / "corpus.json"
    path.unlink()
    path.mkdir()
    with pytest.raises(CorpusError, match=r"corpus\.json is a link, or no file"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_corpus_moved_under_another_fingerprint_is_refused(corpus, corpora):
    corpus.directory.rename(corpora / ("a" * 64))
    with pytest.raises(CorpusError, match="describes another corpus"):
        open_corpus(corpora, "a" * 64)
