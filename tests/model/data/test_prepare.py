"""Corpora are whole or not there, the same from one process or many, and named by their content."""

import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from corpus_reference import documents_of, quiet
from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, sources
from scalevec.model.data import prepare as preparation
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import fingerprint, prepare


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


def test_a_second_call_reads_what_the_first_made(text_file: Path, corpora: Path, corpus: Corpus) -> None:
    before = (corpus.directory / "corpus.json").stat().st_mtime_ns
    messages: list[str] = []
    assert prepare(text_config(text_file), corpora, messages.append) == corpus
    assert (corpus.directory / "corpus.json").stat().st_mtime_ns == before
    assert messages == []


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


@pytest.mark.parametrize("call", [1, 3, 4, 5])  # of a shard, of corpus.json, of the folders
def test_a_full_disk_leaves_nothing_half_written(text_file, corpora, monkeypatch, call):
    calls = iter(range(1, 100))
    real_fsync = os.fsync

    def full_at_the_call(descriptor: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_at_the_call)
    with pytest.raises(OSError, match=r"No space left on device: .*/corpora"):
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


def test_corpora_are_prepared_without_torch() -> None:
    command = "import sys; from scalevec.model.data import prepare; "
    command += "sys.exit('torch' in sys.modules or 'tokenizers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


CHUNK_BYTES = 60_000


@pytest.fixture
def cut_small(monkeypatch):
    """Preparations in several processes and chunks, though the text is small."""
    monkeypatch.setattr(preparation, "SMALL_BYTES", 0)
    monkeypatch.setattr(sources, "CHUNK_BYTES", CHUNK_BYTES)


@pytest.fixture
def jsonl_config(tmp_path) -> CorpusConfig:
    """Files of JSON lines, in several chunks; one document is longer than the longest piece."""
    generator = random.Random(3)
    words = [f"{generator.randrange(10**6)} of été" for _ in range(400)]
    texts = [" ".join(generator.choices(words, k=generator.randrange(1, 60))) for _ in range(700)]
    texts += [texts[0], "", " ".join(generator.choices(words, k=900))]
    for number in range(5):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[number::5]))
        os.utime(path, (1e9, 1e9))
    return CorpusConfig("jsonl", "bpe", 300, (f"{tmp_path}/*.jsonl",), field="text", sample_bytes=50_000)


def content(corpus: Corpus) -> dict[str, bytes]:
    names = [*(f"{name}.bin" for name in SPLITS), "corpus.json", "tokenizer.json"]
    return {name: (corpus.directory / name).read_bytes() for name in names}


@pytest.fixture
def undisturbed(jsonl_config, tmp_path) -> dict[str, bytes]:
    """What this process makes alone, in one chunk."""
    return content(prepare(jsonl_config, tmp_path / "alone", quiet))


@pytest.mark.parametrize("jobs", [1, 3])
def test_any_number_of_processes_makes_the_same_corpus(jsonl_config, tmp_path, undisturbed, cut_small, jobs):
    corpus = prepare(jsonl_config, tmp_path / "corpora", quiet, jobs=jobs)
    assert content(corpus) == undisturbed
    assert fingerprint(jsonl_config, jobs=jobs) == corpus.fingerprint
    assert [path.name for path in (tmp_path / "corpora").iterdir()] == [corpus.fingerprint]


def test_an_error_in_another_process_names_the_line(jsonl_config, tmp_path, cut_small):
    path = tmp_path / "3.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[130] = '{"text": 7}\n'
    path.write_text("".join(lines))
    with pytest.raises(CorpusError, match=r"3\.jsonl:131: the field 'text' holds a number; text is needed"):
        prepare(jsonl_config, tmp_path / "corpora", quiet, jobs=2)
    assert not (tmp_path / "corpora").exists()


PREPARE_AND_DIE = f"""
import os, sys
from pathlib import Path
from scalevec.model.data import prepare as preparation, sources, system

def die(message):
    print(message, flush=True)
    if message.startswith(last):
        os.killpg(0, int(sent))

if __name__ == "__main__":
    preparation.SMALL_BYTES, system.SECONDS_BETWEEN, sources.CHUNK_BYTES = 0, -1.0, {CHUNK_BYTES}
    path, folder, last, sent = sys.argv[1:]
    config = preparation.CorpusConfig("jsonl", "bpe", 300, (path,), field="text", sample_bytes=50_000)
    preparation.prepare(config, Path(folder), die, jobs=2)
"""


def ended_at(
    message: str, config: CorpusConfig, folder: Path, sent: signal.Signals
) -> "subprocess.CompletedProcess[str]":
    """A preparation that had a signal, as all its processes, at a message."""
    command = [sys.executable, "-c", PREPARE_AND_DIE, *config.files, str(folder), message, str(int(sent))]
    return subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("message", ["read: ", "tokenized: "])
def test_a_killed_preparation_is_no_corpus_and_the_next_one_makes_it(
    jsonl_config, tmp_path, undisturbed, cut_small, message
):
    folder = tmp_path / "corpora"
    done = ended_at(message, jsonl_config, folder, signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = folder.iterdir()
    messages: list[str] = []
    corpus = prepare(jsonl_config, folder, messages.append, jobs=2)
    assert content(corpus) == undisturbed
    assert messages[0] == f"{left} is of a corpus in the making, or was interrupted and can be removed"
    assert {path.name for path in folder.iterdir()} == {corpus.fingerprint, left.name}


def test_ctrl_c_ends_all_processes_and_leaves_nothing(jsonl_config, tmp_path):
    done = ended_at("tokenized: ", jsonl_config, tmp_path / "corpora", signal.SIGINT)
    assert done.stderr.count("Traceback") == done.stderr.count("KeyboardInterrupt") == 1, done.stderr
    assert not (tmp_path / "corpora").exists()
