"""Many processes make the corpus that one makes, and a preparation that ends early leaves nothing of one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, sources
from scalevec.model.data import prepare as corpora
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.model.data.system import Workers
from scalevec.model.data.texts import rank

CHUNK_BYTES = 60_000


def quiet(_message: str) -> None:
    pass


@pytest.fixture
def cut_small(monkeypatch):
    """Preparations in several processes and chunks, though the text is small."""
    monkeypatch.setattr(corpora, "SMALL_BYTES", 0)
    monkeypatch.setattr(sources, "CHUNK_BYTES", CHUNK_BYTES)


@pytest.fixture
def config(tmp_path) -> CorpusConfig:
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
def undisturbed(config, tmp_path) -> dict[str, bytes]:
    """What this process makes alone, in one chunk."""
    return content(prepare(config, tmp_path / "alone", quiet))


@pytest.mark.parametrize("jobs", [1, 3])
def test_any_number_of_processes_makes_the_corpus_that_one_makes(
    config, tmp_path, undisturbed, cut_small, jobs
):
    corpus = prepare(config, tmp_path / "corpora", quiet, jobs=jobs)
    assert content(corpus) == undisturbed
    assert fingerprint(config, jobs=jobs) == corpus.fingerprint
    assert [path.name for path in (tmp_path / "corpora").iterdir()] == [corpus.fingerprint]


def test_an_error_in_another_process_names_the_line(config, tmp_path, cut_small):
    path = tmp_path / "3.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[130] = '{"text": 7}\n'
    path.write_text("".join(lines))
    with pytest.raises(CorpusError, match=r"3\.jsonl:131: the field 'text' holds a number; text is needed"):
        prepare(config, tmp_path / "corpora", quiet, jobs=2)
    assert not (tmp_path / "corpora").exists()


PREPARE_AND_DIE = f"""
import os, sys
from pathlib import Path
from scalevec.model.data import prepare as corpora, sources, system

def die(message):
    print(message, flush=True)
    if message.startswith(last):
        os.killpg(0, int(sent))

if __name__ == "__main__":
    corpora.SMALL_BYTES, system.SECONDS_BETWEEN, sources.CHUNK_BYTES = 0, -1.0, {CHUNK_BYTES}
    path, folder, last, sent = sys.argv[1:]
    config = corpora.CorpusConfig("jsonl", "bpe", 300, (path,), field="text", sample_bytes=50_000)
    corpora.prepare(config, Path(folder), die, jobs=2)
"""


def ended_at(
    message: str, config: CorpusConfig, folder: Path, sent: signal.Signals
) -> "subprocess.CompletedProcess[str]":
    """A preparation that had a signal, as all its processes, at a message."""
    command = [sys.executable, "-c", PREPARE_AND_DIE, *config.files, str(folder), message, str(int(sent))]
    return subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("message", ["read: ", "training ", "tokenized: ", "train: "])
def test_a_killed_preparation_is_no_corpus_and_the_next_one_makes_it(
    config, tmp_path, undisturbed, cut_small, message
):
    folder = tmp_path / "corpora"
    done = ended_at(message, config, folder, signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = folder.iterdir()
    messages: list[str] = []
    corpus = prepare(config, folder, messages.append, jobs=2)
    assert content(corpus) == undisturbed
    assert messages[0] == f"{left} is of a corpus in the making, or was interrupted and can be removed"
    assert {path.name for path in folder.iterdir()} == {corpus.fingerprint, left.name}


@pytest.mark.parametrize("message", ["read: ", "tokenized: "])
def test_ctrl_c_ends_all_processes_and_leaves_nothing(config, tmp_path, message):
    done = ended_at(message, config, tmp_path / "corpora", signal.SIGINT)
    assert done.stderr.count("Traceback") == done.stderr.count("KeyboardInterrupt") == 1, done.stderr
    assert not (tmp_path / "corpora").exists()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_answers_come_in_the_order_of_the_tasks(count):
    tasks = [bytes([number]) for number in range(40)]
    with Workers(count) as workers:
        assert list(workers.map(rank, tasks)) == [rank(task) for task in tasks]
        assert list(workers.map(rank, [])) == []


def test_a_process_that_is_killed_is_said():
    with Workers(1) as workers, pytest.raises(ChildProcessError, match="killed for want of memory; give the"):
        list(workers.map(signal.raise_signal, [signal.SIGKILL]))


LEFT_ALONE = """
import os, signal, time
from scalevec.model.data.system import Workers
if __name__ == "__main__":
    with Workers(1) as workers:
        answers = workers.map(time.sleep, [0] * 4 + [600])
        next(answers)
        print(*workers._executor._processes, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_in_the_middle_of_its_work_with_the_one_that_started_it():
    done = subprocess.run([sys.executable, "-c", LEFT_ALONE], capture_output=True, text=True, check=False)
    left = int(done.stdout)
    deadline = time.monotonic() + 300
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)
