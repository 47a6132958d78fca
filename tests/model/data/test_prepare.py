import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from corpus_reference import documents_of
from scalevec.model.data import SPLITS, CorpusConfig, CorpusError
from scalevec.model.data.corpus import Corpus, open_corpus
from scalevec.model.data.prepare import fingerprint, prepare


def quiet(_message: str) -> None:
    pass


def write_text(path: Path, seed: int = 0, lines: int = 1000) -> Path:
    generator = random.Random(seed)
    path.write_text("".join(f"the value {generator.randrange(10**6)} of été\n" for _ in range(lines)))
    return path


def text_config(*paths: Path, tokenizer: str = "bytes", vocabulary_size: int = 256) -> CorpusConfig:
    return CorpusConfig("text", tokenizer, vocabulary_size, tuple(str(path) for path in paths))


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt")


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    return tmp_path / "corpora"


@pytest.fixture
def corpus(text_file: Path, corpora: Path) -> Corpus:
    return prepare(text_config(text_file), corpora, quiet)


def documents_in(corpus: Corpus, name: str) -> list[bytes]:
    """The documents of a byte corpus, taken apart again."""
    return corpus.split(name).astype(np.uint8).tobytes().split(b"\0")[:-1]


def test_every_byte_of_text_is_in_exactly_one_split(corpus: Corpus, text_file: Path) -> None:
    parts = [document for name in SPLITS for document in documents_in(corpus, name)]
    assert sorted(parts) == sorted(documents_of([text_file.read_bytes()]))
    assert len(set(parts)) == len(parts)


def test_corpus_json_says_what_the_shards_hold(corpus: Corpus) -> None:
    for name in SPLITS:
        facts = corpus.split_facts(name)
        documents = documents_in(corpus, name)
        assert facts.tokens == corpus.tokens[name] == len(corpus.split(name))
        assert facts.documents == len(documents)
        assert facts.bytes == sum(map(len, documents))
        shard = (corpus.directory / f"{name}.bin").read_bytes()
        assert facts.sha256 == hashlib.sha256(shard).hexdigest()
    assert corpus.bytes_per_token == corpus.facts.test.bytes / corpus.facts.test.tokens


def test_bpe_shards_decode_to_the_text_with_the_stored_tokenizer(text_file: Path, corpora: Path) -> None:
    corpus = prepare(text_config(text_file, tokenizer="bpe", vocabulary_size=300), corpora, quiet)
    tokenizer = tokenizers.Tokenizer.from_file(str(corpus.directory / "tokenizer.json"))
    parts = [
        tokenizer.decode(corpus.split(name).tolist(), skip_special_tokens=False).split("<|endoftext|>")[:-1]
        for name in SPLITS
    ]
    expected = [document.decode() for document in documents_of([text_file.read_bytes()])]
    assert sorted(itertools.chain(*parts)) == sorted(expected)
    assert corpus.vocabulary_size == 300
    assert max(corpus.split("train")) < 300


def test_shards_cannot_be_written_to(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="read-only"):
        corpus.split("train")[0] = 1


def test_token_ids_take_two_bytes_while_they_fit(corpus: Corpus) -> None:
    assert corpus.split("train").dtype == np.dtype("<u2")
    for size, dtype in ((2**16, "<u2"), (2**16 + 1, "<u4")):
        assert CorpusConfig("text", "bpe", size).stored_type == dtype
        assert np.array(size - 1).astype(dtype) == size - 1


def test_a_second_call_reads_what_the_first_made(text_file: Path, corpora: Path, corpus: Corpus) -> None:
    before = (corpus.directory / "corpus.json").stat().st_mtime_ns
    messages: list[str] = []
    assert prepare(text_config(text_file), corpora, messages.append) == corpus
    assert (corpus.directory / "corpus.json").stat().st_mtime_ns == before
    assert messages == []


def test_the_fingerprint_is_known_before_anything_is_prepared(text_file: Path, corpora: Path) -> None:
    expected = fingerprint(text_config(text_file))
    assert not corpora.exists()
    assert prepare(text_config(text_file), corpora, quiet).fingerprint == expected


def test_the_fingerprint_follows_content_and_tokenizer_not_names(tmp_path: Path) -> None:
    first = write_text(tmp_path / "a.txt", seed=1)
    second = write_text(tmp_path / "b.txt", seed=2)
    expected = fingerprint(text_config(first, second))
    assert fingerprint(text_config(second, first)) == expected
    second.rename(tmp_path / "0.txt")
    assert fingerprint(text_config(tmp_path / "*.txt")) == expected
    assert fingerprint(text_config(first)) != expected
    bpe = text_config(tmp_path / "*.txt", tokenizer="bpe", vocabulary_size=300)
    assert fingerprint(bpe) != expected
    (tmp_path / "0.txt").write_text("another text")
    assert fingerprint(text_config(tmp_path / "*.txt")) != expected


def test_a_known_fingerprint_never_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1000)))
    expected = "991f7d33e0663b04f312bf1b4d333525ed319ca89037777f2393465d7ed94b38"
    assert fingerprint(text_config(path)) == expected


@pytest.mark.nightly  # the smoke of the small sweeps prepares it too
def test_the_standard_library_is_large_enough_for_the_quickstart(corpora: Path) -> None:
    corpus = prepare(CorpusConfig("python-stdlib", "bpe", 1024), corpora, quiet)
    total = sum(corpus.split_facts(name).bytes for name in SPLITS)
    assert 8e6 < total < 20e6
    for name in ("validation", "test"):
        assert corpus.tokens[name] >= 80_000
        assert corpus.split_facts(name).bytes <= 0.06 * total


def test_a_corpus_without_text_is_refused(tmp_path: Path, corpora: Path) -> None:
    (tmp_path / "empty.txt").touch()
    with pytest.raises(CorpusError, match=r"the corpus is empty: no text in .*empty\.txt"):
        prepare(text_config(tmp_path / "empty.txt"), corpora, quiet)
    assert not corpora.exists()


def test_a_corpus_too_small_to_split_leaves_nothing_behind(tmp_path: Path, corpora: Path) -> None:
    (tmp_path / "tiny.txt").write_text("a few words")
    with pytest.raises(CorpusError, match="too small"):
        prepare(text_config(tmp_path / "tiny.txt"), corpora, quiet)
    assert not corpora.exists() or list(corpora.iterdir()) == []


@pytest.mark.parametrize("name", ["", "ab12", "../" + "a" * 61, "A" * 64, "a" * 64 + "\n"])
def test_only_a_fingerprint_is_opened(corpora: Path, name: str) -> None:
    with pytest.raises(CorpusError, match="a fingerprint of 64 hexadecimal digits is needed"):
        open_corpus(corpora, name)


def test_a_corpus_that_is_not_there_is_said(corpora: Path) -> None:
    with pytest.raises(CorpusError, match="prepare it first"):
        open_corpus(corpora, "a" * 64)


@pytest.mark.parametrize("name", SPLITS)
def test_a_truncated_shard_is_named_with_the_remedy(corpus: Corpus, corpora: Path, name: str) -> None:
    path = corpus.directory / f"{name}.bin"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CorpusError, match=rf"{name}\.bin has .* bytes instead of .*; remove .* again"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_missing_shard_is_named(corpus: Corpus, corpora: Path) -> None:
    (corpus.directory / "test.bin").unlink()
    with pytest.raises(CorpusError, match=r"test\.bin has 0 bytes"):
        open_corpus(corpora, corpus.fingerprint)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format_version": 1}', b"\xff"])
def test_a_broken_corpus_json_is_named_with_the_remedy(corpus: Corpus, corpora: Path, content: bytes) -> None:
    (corpus.directory / "corpus.json").write_bytes(content)
    with pytest.raises(CorpusError, match=r"corpus\.json cannot be read .*; remove .* and prepare"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_corpus_json_out_of_reach_is_not_said_to_be_broken(
    corpus: Corpus, corpora: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "read_bytes", unreachable)
    with pytest.raises(OSError, match="Input/output error"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_folder_in_place_of_corpus_json_is_named(corpus: Corpus, corpora: Path) -> None:
    path = corpus.directory / "corpus.json"
    path.unlink()
    path.mkdir()
    with pytest.raises(CorpusError, match=r"corpus\.json is a link, or no file"):
        open_corpus(corpora, corpus.fingerprint)


def test_a_corpus_moved_under_another_fingerprint_is_refused(corpus: Corpus, corpora: Path) -> None:
    corpus.directory.rename(corpora / ("a" * 64))
    with pytest.raises(CorpusError, match="describes another corpus"):
        open_corpus(corpora, "a" * 64)


@pytest.mark.parametrize("call", [1, 3, 4, 5])  # of a shard, of corpus.json, of the folders
def test_a_full_disk_leaves_nothing_half_written(
    text_file: Path, corpora: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    calls = iter(range(1, 100))
    real_fsync = os.fsync

    def full_at_the_call(descriptor: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_at_the_call)
    with pytest.raises(OSError, match="No space left on device"):
        prepare(text_config(text_file), corpora, quiet)
    assert list(corpora.glob("*")) == []


def _prepare_together(config: CorpusConfig, corpora: Path, barrier: Any, answers: Any) -> None:
    def wait_before_the_rename(message: str) -> None:
        if message.startswith("test:"):
            barrier.wait(timeout=300)

    answers.put(prepare(config, corpora, wait_before_the_rename).fingerprint)


def test_two_processes_preparing_at_once_agree_on_one_directory(text_file: Path, corpora: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    arguments = (text_config(text_file), corpora, barrier, answers)
    processes = [context.Process(target=_prepare_together, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    fingerprints = {answers.get(timeout=300) for _ in processes}
    for process in processes:
        process.join(timeout=300)
    assert [process.exitcode for process in processes] == [0, 0]
    assert [path.name for path in corpora.iterdir()] == list(fingerprints)


def test_corpus_json_is_plain_json(corpus: Corpus) -> None:
    facts = json.loads((corpus.directory / "corpus.json").read_text())
    assert facts["fingerprint"] == corpus.directory.name
    assert facts["config"]["tokenizer"] == "bytes"


def test_corpora_are_prepared_without_torch() -> None:
    command = "import sys; from scalevec.model.data import prepare; "
    command += "sys.exit('torch' in sys.modules or 'tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
