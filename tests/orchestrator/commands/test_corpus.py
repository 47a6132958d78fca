"""scalevec corpus: what a sweep file says of its corpus is what is prepared and shown."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from scalevec import sweeps
from scalevec.model.data import CorpusConfig
from scalevec.orchestrator.cli.output import json_text
from scalevec.orchestrator.commands.data import corpus as corpora
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.sweep.corpus_of_sweep import configuration
from support import assert_refused, wait_until

REST = "\nname: my\nladder: [tiny-25k]\narms: {baseline: {scale_vectors: baseline}}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Some lines of text to make corpora of, in the folder that commands are given in."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": f"the value {number * 7919 % 10_007}\n" * 5}) for number in range(300)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"text": ""}']))
    return tmp_path


JSONL = "{source: jsonl, files: [a.jsonl], tokenizer: bytes}"


def config_of(mapping: str, folder: Path) -> CorpusConfig:
    return configuration(sweeps.loads(f"corpus: {mapping}{REST}", "my.yaml", folder))


def file_of(mapping: str) -> str:
    """A sweep file with that corpus."""
    Path("my.yaml").write_text(f"corpus: {mapping}{REST}")
    return "my.yaml"


def prepared(mapping: str) -> dict:
    return json.loads(json_text(corpora.prepare(file_of(mapping), Path("runs")).record))


def test_what_a_sweep_leaves_out_has_its_default(folder):
    path = str(folder / "a.jsonl")
    config = config_of("{source: jsonl, files: [a.jsonl]}", folder)
    assert config == CorpusConfig("jsonl", "bpe", 1024, (path,), field="text", sample_bytes=256_000_000)
    assert config_of("{}", folder) == CorpusConfig("python-stdlib", "bpe", 1024)
    expected = CorpusConfig("text", "bytes", 256, (path,))
    assert config_of("{source: text, files: [a.jsonl], tokenizer: bytes}", folder) == expected


def test_every_part_of_the_section_reaches_the_configuration(folder):
    for name in ("b.bin", "c.bin", "tokenizer.json"):
        (folder / name).touch()
    a, b, c = (str(folder / name) for name in ("a.jsonl", "b.bin", "c.bin"))
    assert config_of(
        "{source: shards, files: [a.jsonl], validation: [b.bin], test: [c.bin], dtype: uint32,"
        " tokenizer: {vocabulary: 70000, separator: 3}}",
        folder,
    ) == CorpusConfig("shards", "ids", 70_000, (a,), (b,), (c,), separator_id=3, dtype="uint32")
    mapping = "{source: parquet, files: [a.jsonl], field: body, tokenizer: {bpe: 300, sample_mb: 0.5}}"
    expected = CorpusConfig("parquet", "bpe", 300, (a,), field="body", sample_bytes=500_000)
    assert config_of(mapping, folder) == expected
    assert config_of(
        "{source: text, files: [a.jsonl],"
        " tokenizer: {file: tokenizer.json, separator: </s>, vocabulary: 50304}}",
        folder,
    ) == CorpusConfig(
        "text", "file", 50_304, (a,), tokenizer_name=str(folder / "tokenizer.json"), separator="</s>"
    )
    expected = CorpusConfig("text", "hub", 0, (a,), tokenizer_name="gpt2")
    assert config_of("{source: text, files: [a.jsonl], tokenizer: {hub: gpt2}}", folder) == expected


def test_the_fingerprint_is_known_without_preparing(folder):
    name = corpora.fingerprint(file_of(JSONL), Path("runs")).text
    assert not (folder / "runs").exists()
    assert prepared(JSONL)["fingerprint"] == name


def inspected(source: str, **options) -> dict:
    arguments = {"split": "train", "documents": 2} | options
    return json.loads(json_text(corpora.inspect(source, Path("runs"), **arguments).record))


def test_inspect_finds_a_corpus_by_sweep_file_name_or_digits(folder):
    corpus = prepared(JSONL)
    by_file = inspected("my.yaml")
    assert by_file == inspected(corpus["fingerprint"][:8])
    assert by_file["fingerprint"] == corpus["fingerprint"]
    (kept := folder / "runs" / "sweeps" / "decade" / "sweep.yaml").parent.mkdir(parents=True)
    kept.write_text(f"corpus: {JSONL}{REST}".replace("name: my", "name: decade"))
    assert inspected("decade") == by_file
    first, second = by_file["documents"]
    assert first["text"].startswith("the value ")
    assert first["ids"][:4] == list(b"the ")
    assert first["is_whole"]
    assert second["text"] != first["text"]
    (of_test,) = inspected("my.yaml", split="test", documents=1)["documents"]
    assert of_test["text"] not in (first["text"], second["text"])


@pytest.mark.parametrize("tokenizer", ["bytes", "{bpe: 300}"])
def test_inspect_shows_text_whatever_the_tokenizer(folder, tokenizer):
    mapping = JSONL.replace("bytes", tokenizer)
    prepared(mapping)
    shown = corpora.inspect("my.yaml", Path("runs"), split="train", documents=1).text
    assert "bytes/token" in shown
    assert "the value " in shown
    assert "1 empty documents were left out" in shown


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("abc", "match prefix 'abc'; give at least 4 hexadecimal digits of the fingerprint"),
        ("abcdef", "no corpora in runs/corpora match prefix 'abcdef'"),
        ("my.yaml", "is not under runs/corpora; scalevec corpus prepare makes it"),
    ],
)
def test_what_cannot_be_inspected_is_said(folder, source, message):
    file_of(JSONL)
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        corpora.inspect(source, Path("runs"))


@pytest.fixture
def without_network(tmp_path, monkeypatch):
    """What is started later takes the Hub for out of reach, and finds nothing in its cache."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


def test_without_network_a_tokenizer_of_the_hub_is_out_of_reach(without_network, scalevec_process, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    corpus = "corpus: {source: text, files: [a.txt], tokenizer: {hub: me/it}}"
    (tmp_path / "my.yaml").write_text(corpus + REST)
    done = scalevec_process("corpus", "fingerprint", "my.yaml")
    message = "the tokenizer 'me/it' is not in the local cache and the Hugging Face Hub is out of reach"
    assert_refused(done, 3, message, "give its file instead, as in {file: token")


def test_ctrl_c_leaves_nothing_half_made(start_scalevec, tmp_path):
    corpus = "corpus: {source: python-stdlib, tokenizer: {bpe: 30000}}"
    (tmp_path / "my.yaml").write_text(corpus + REST)
    process = start_scalevec("corpus", "prepare", "my.yaml")
    wait_until(lambda: list(tmp_path.glob("runs/corpora/.*.preparing/*")), process)
    os.kill(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=300)
    assert process.returncode == 130, printed
    assert "stopped; nothing was kept. Give the same command again to start over" in printed
    assert list(tmp_path.glob("runs/corpora/*")) == list(tmp_path.glob("runs/corpora/.*")) == []


def test_a_changed_shard_is_refused_by_run_inspect_and_prepare(folder, scalevec):
    file_of(JSONL)
    assert scalevec("corpus", "prepare", "my.yaml").returncode == 0
    (shard,) = folder.glob("runs/corpora/*/test.bin")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    for words in (["run", "my.yaml"], ["corpus", "inspect", "my.yaml"], ["corpus", "prepare", "my.yaml"]):
        parts = (f"{shard.name} is not what was written", "prepare the corpus again")
        assert_refused(scalevec(*words), Exit.INVALID_INPUT, *parts)
    assert not (folder / "runs/trials").exists()
