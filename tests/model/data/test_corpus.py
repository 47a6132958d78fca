"""A shard that has changed since it was written is found by its digest, and read once for each change."""

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest

from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, TokenProcess
from scalevec.model.data import corpus as prepared
from scalevec.model.data.corpus import CHECKED, Corpus, open_corpus, verify
from scalevec.model.data.prepare import prepare

PROCESS = TokenProcess(vocabulary=8, branching=2, tokens=20_000)
CONFIG = CorpusConfig("synthetic", "ids", 8, process=PROCESS)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Corpus:
    return prepare(CONFIG, tmp_path_factory.mktemp("corpora"), lambda _: None)


@pytest.fixture
def corpus(written, tmp_path) -> Corpus:
    """A copy that a test may damage."""
    shutil.copytree(written.directory, tmp_path / "corpora" / written.fingerprint)
    return open_corpus(tmp_path / "corpora", written.fingerprint)


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
    shard = corpus.directory / f"{name}.bin"
    flip(shard)
    told = rf"{re.escape(str(shard))} is not what was written: .*; remove .* and prepare the corpus again"
    with pytest.raises(CorpusError, match=told):
        verify(corpus)


def test_prepare_refuses_a_damaged_corpus_and_makes_it_again_once_it_is_removed(corpus):
    flip(corpus.directory / "train.bin")
    with pytest.raises(CorpusError, match="is not what was written"):
        prepare(CONFIG, corpus.directory.parent, lambda _: None)
    shutil.rmtree(corpus.directory)
    assert prepare(CONFIG, corpus.directory.parent, lambda _: None).fingerprint == corpus.fingerprint


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


def test_a_shard_that_changes_after_it_was_found_whole_is_refused(corpus):
    verify(corpus)
    flip(corpus.directory / "validation.bin")
    with pytest.raises(CorpusError, match="validation"):
        verify(corpus)


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff{", b'{"train": 3}'])
def test_a_record_of_checks_that_cannot_be_read_counts_as_none(corpus, digests, content):
    (corpus.directory / CHECKED).write_bytes(content)
    verify(corpus)
    assert digests == list(SPLITS)


def test_where_nothing_can_be_kept_each_check_reads(corpus, digests, monkeypatch):
    def refuse(*_args):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    for _ in range(2):
        verify(corpus)
    assert digests == [*SPLITS, *SPLITS]
    assert {path.name for path in corpus.directory.iterdir()} == {
        "corpus.json",
        *(f"{s}.bin" for s in SPLITS),
    }


def test_a_check_that_takes_long_is_said(corpus, monkeypatch):
    messages: list[str] = []
    monkeypatch.setattr(prepared, "LONG_BYTES", 1)
    verify(corpus, messages.append)
    verify(corpus, messages.append)
    assert len(messages) == 1
    assert "checking the digests" in messages[0]
