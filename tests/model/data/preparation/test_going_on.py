"""A preparation that was stopped goes on from what is finished, and many processes make what one makes."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scalevec.model.data import prepare as corpora
from scalevec.model.data.specification import SPLITS
from scalevec.model.data.preparation import parts, units
from scalevec.model.data.prepare import Corpus, CorpusConfig, CorpusError, fingerprint, prepare

SIZES = {"UNIT_BYTES": 60_000, "PART_BYTES": 60_000}


def quiet(_message: str) -> None:
    pass


@pytest.fixture
def cut_small(monkeypatch):
    """Preparations in several processes and units, though the text is small."""
    monkeypatch.setattr(corpora, "SMALL_BYTES", 0)
    monkeypatch.setattr(units, "UNIT_BYTES", SIZES["UNIT_BYTES"])
    monkeypatch.setattr(parts, "PART_BYTES", SIZES["PART_BYTES"])


@pytest.fixture
def config(tmp_path) -> CorpusConfig:
    """One file of JSON lines, which is cut into units; one document is longer than the longest piece."""
    generator = random.Random(3)
    words = [f"{generator.randrange(10**6)} of été" for _ in range(400)]
    texts = [" ".join(generator.choices(words, k=generator.randrange(1, 60))) for _ in range(700)]
    texts += [texts[0], "", " ".join(generator.choices(words, k=900))]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    os.utime(path, (1e9, 1e9))
    return CorpusConfig("jsonl", "bpe", 300, (str(path),), field="text", sample_bytes=50_000)


def content(corpus: Corpus) -> dict[str, bytes]:
    names = [*(f"{name}.bin" for name in SPLITS), "corpus.json", "tokenizer.json"]
    return {name: (corpus.directory / name).read_bytes() for name in names}


@pytest.fixture
def undisturbed(config, tmp_path) -> dict[str, bytes]:
    """What this process makes alone, in one unit."""
    return content(prepare(config, tmp_path / "alone", quiet))


def test_many_processes_make_the_corpus_that_one_makes(config, tmp_path, undisturbed, cut_small):
    corpus = prepare(config, tmp_path / "corpora", quiet, jobs=2)
    assert content(corpus) == undisturbed
    assert fingerprint(config, jobs=2) == corpus.fingerprint
    assert [path.name for path in (tmp_path / "corpora").iterdir()] == [corpus.fingerprint]


PREPARE_AND_DIE = f"""
import os, signal, sys
from pathlib import Path
from scalevec.model.data import prepare as corpora
from scalevec.model.data.preparation import meter, parts, units

corpora.SMALL_BYTES, meter.SECONDS_BETWEEN = 0, -1.0
units.UNIT_BYTES, parts.PART_BYTES = {SIZES["UNIT_BYTES"]}, {SIZES["PART_BYTES"]}
path, folder, last, sent = sys.argv[1:]

def die(message):
    print(message, flush=True)
    if message.startswith(last):
        os.killpg(0, int(sent))

config = corpora.CorpusConfig("jsonl", "bpe", 300, (path,), field="text", sample_bytes=50_000)
corpora.prepare(config, Path(folder), die, jobs=2)
"""
STEPS = ("cut into pieces: ", "tokenized: ", "train: ")
"""Of reading, of tokenizing, of putting the shards together: what is said first."""


def ended_at(
    message: str, config: CorpusConfig, folder: Path, sent: signal.Signals
) -> "subprocess.CompletedProcess[str]":
    """A preparation that had a signal, as all its processes, at a message."""
    command = [sys.executable, "-c", PREPARE_AND_DIE, *config.files, str(folder), message, str(int(sent))]
    return subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=False)


def killed_at(message: str, config: CorpusConfig, folder: Path) -> list[str]:
    """What was said by a preparation that was killed at a message."""
    done = ended_at(message, config, folder, signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.splitlines()


def test_a_preparation_that_is_killed_at_every_step_makes_the_same_corpus(
    config, tmp_path, undisturbed, cut_small
):
    folder = tmp_path / "corpora"
    for message in STEPS:
        messages = killed_at(message, config, folder)
    # Of what was finished nothing was done again.
    assert any(line.startswith("tokenized: ") and "before it was stopped" in line for line in messages)
    assert not any(line.startswith("training") for line in messages)
    corpus = prepare(config, folder, quiet, jobs=2)
    assert content(corpus) == undisturbed
    assert [path.name for path in folder.iterdir()] == [corpus.fingerprint]


def test_ctrl_c_keeps_what_is_finished_and_says_where(config, tmp_path, undisturbed, cut_small):
    folder = tmp_path / "corpora"
    done = ended_at("tokenized: ", config, folder, signal.SIGINT)
    assert done.stderr.count("Traceback") == done.stderr.count("KeyboardInterrupt") == 1
    (kept,) = folder.iterdir()
    assert f"finished work are kept in {kept}: the same command goes on from there" in done.stdout
    assert not list(kept.glob("**/*.partial"))
    assert content(prepare(config, folder, quiet, jobs=1)) == undisturbed
    assert not kept.exists()


def test_what_is_left_of_another_corpus_is_named(config, tmp_path, cut_small):
    killed_at("read: ", config, tmp_path / "corpora")
    (left,) = (tmp_path / "corpora").iterdir()
    other = CorpusConfig("jsonl", "bytes", 256, config.files, field="text")
    messages: list[str] = []
    prepare(other, tmp_path / "corpora", messages.append, jobs=1)
    assert messages[0] == f"{left} is of a corpus in the making, or was interrupted and can be removed"
    assert left.is_dir()


def test_a_file_that_changed_since_is_read_again(config, tmp_path, cut_small):
    folder = tmp_path / "corpora"
    killed_at("tokenized: ", config, folder)
    path = Path(config.files[0])
    path.write_text(path.read_text().replace("of", "at"))
    alone = prepare(config, tmp_path / "alone", quiet)
    assert prepare(config, folder, quiet, jobs=1).fingerprint == alone.fingerprint


def test_an_error_in_a_part_of_a_file_names_its_line(config, tmp_path, cut_small):
    path = Path(config.files[0])
    lines = path.read_text().splitlines(keepends=True)
    lines[650] = '{"text": 7}\n'
    path.write_text("".join(lines))
    with pytest.raises(CorpusError, match=r"a\.jsonl:651: the field 'text' holds a number; text is needed"):
        prepare(config, tmp_path / "corpora", quiet, jobs=2)


def test_an_error_that_is_corrected_is_not_paid_for_twice(config, tmp_path, cut_small):
    """The message says where the finished work waits; the files that were right are not read again."""
    bad = tmp_path / "b.jsonl"
    bad.write_text("{}\n")
    config = CorpusConfig("jsonl", "bytes", 256, (*config.files, str(bad)), field="text")
    messages: list[str] = []
    with pytest.raises(CorpusError, match=r"b\.jsonl:1: no field 'text'"):
        prepare(config, tmp_path / "corpora", messages.append, jobs=1)
    assert "the same command goes on from there; remove the folder if" in messages[-1]
    bad.write_text('{"text": "corrected"}\n')
    prepare(config, tmp_path / "corpora", messages.append, jobs=1)
    assert any(line.startswith("read: ") and "before it was stopped" in line for line in messages)


def test_lines_are_read_once_wherever_a_file_is_cut(config, tmp_path, monkeypatch):
    path = tmp_path / "cut.jsonl"
    path.write_text("".join(json.dumps({"text": "x" * size}) + "\n" for size in (1, 40, 3, 90, 1, 1, 200, 5)))
    config = CorpusConfig("jsonl", "bytes", 256, (str(path),), field="text")
    whole = fingerprint(config)
    for size in (7, 13, 50, 101):
        monkeypatch.setattr(units, "UNIT_BYTES", size)
        assert len(units.units(config)) > 3
        assert fingerprint(config) == whole


def test_a_process_that_waits_for_none_does_the_work_itself(config, tmp_path, undisturbed, cut_small):
    """While another has the folder of the preparation, nobody waits for it."""
    folder = tmp_path / "corpora"
    names: list[str] = []

    def prepare_meanwhile(message: str) -> None:
        if message.startswith("training") and not names:
            names.append("")
            names[0] = prepare(config, folder, quiet, jobs=1).fingerprint

    corpus = prepare(config, folder, prepare_meanwhile, jobs=1)
    assert names == [corpus.fingerprint]
    assert content(corpus) == undisturbed
    assert [path.name for path in folder.iterdir()] == [corpus.fingerprint]
