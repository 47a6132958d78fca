"""What becomes of texts: the same corpus whatever their files, and nothing held out is trained on."""

import gzip
import hashlib
import io
import json
import multiprocessing
import os
import random
import shutil
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from corpus_reference import documents_of, pieces, quiet, splits_of
from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, formats, held_out, sources, tokenize
from scalevec.model.data import prepare as corpora
from scalevec.model.data import texts as texts_module
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.model.data.texts import FILLED, ROW, by_split, cut, piece_limit, ranked, split_up

short_texts = st.text(st.sampled_from("ab\n é€😀"), max_size=300).map(lambda text: text.encode())
TEXT = CorpusConfig("text", "bytes", 256, ("all",))


def splits_given(*all_texts: bytes) -> dict[str, list[bytes]]:
    """The splits of the documents in ``all_texts``."""
    contents = documents_of(all_texts)
    listed = [
        (hashlib.sha256(content).digest(), FILLED.index("train"), len(content), 0, number)
        for number, content in enumerate(contents)
    ]
    splits = split_up(TEXT, np.array(listed, ROW))
    return {name: [contents[row["offset"]] for row in of_split] for name, of_split in splits.items()}


@given(st.binary(max_size=9), short_texts, st.integers(4, 40))
def test_pieces_are_whole_text_and_together_the_document(before: bytes, content: bytes, limit: int) -> None:
    file = io.BytesIO(before + content + b"further")
    file.seek(len(before))
    actual = list(cut(file, len(content), limit))
    assert actual == (pieces(content, limit) if content else [])
    assert b"".join(actual) == content
    for piece in actual:
        assert 0 < len(piece) <= limit
        piece.decode("utf-8")


def cut_whole(content: bytes, limit: int, unit: int = 1) -> list[bytes]:
    return list(cut(io.BytesIO(content), len(content), limit, unit))


def test_token_ids_are_cut_between_two_ids() -> None:
    assert cut_whole(b"aabb\n\ncc", 5, unit=2) == [b"aabb", b"\n\ncc"]


def test_the_longest_piece_is_a_share_of_all_text_within_bounds() -> None:
    assert [piece_limit(total, "text") for total in (0, 10_000, 10**9)] == [512, 512, 10**9 // 512]
    assert [piece_limit(total, "jsonl") for total in (10_000, 10**9)] == [512, 1 << 20]


def test_small_corpora_hold_out_more_and_large_ones_no_more_than_helps() -> None:
    sizes = (1e5, 1e6, 5e6, 2e7, 2.5e7, 1e8, 8e8, 1e12)
    expected = (1e4, 1e5, 5e5, 5e5, 5e5, 2e6, 1.6e7, 1.6e7)
    assert [held_out(size) for size in sizes] == pytest.approx(expected)
    assert held_out(1e7, per_token=4) == pytest.approx(1e6)
    assert held_out(1e12, per_token=4) == pytest.approx(6.4e7)


@settings(max_examples=50)
@given(st.lists(short_texts, min_size=3, max_size=12))
def test_documents_are_split_as_they_were_when_all_were_in_memory(all_texts: list[bytes]) -> None:
    if len(documents_of(all_texts)) < 3:
        with pytest.raises(CorpusError, match="training, validation and test need one each"):
            splits_given(*all_texts)
        return
    splits = splits_given(*all_texts)
    assert splits == splits_of(all_texts)
    assert all(splits[name] for name in SPLITS)


def row(digest: bytes, split: str, size: int = 1) -> tuple[bytes, int, int, int, int]:
    return digest, FILLED.index(split), size, 0, 0


def test_a_split_with_files_of_its_own_takes_nothing_from_training() -> None:
    rows = np.array([row(bytes([n + 1]) * 32, "test" if n < 5 else "train") for n in range(25)], ROW)
    stored = by_split(ranked(rows, ["validation"], quota=2))
    expected = {"train": 18, "validation": 2, "test": 5}
    assert {name: len(of_split) for name, of_split in stored.items()} == expected


def test_files_of_a_split_without_text_of_their_own_are_refused() -> None:
    config = CorpusConfig("text", "bytes", 256, ("all",), test_files=("test",))
    with pytest.raises(CorpusError, match="the files of the test split hold no text of their own"):
        split_up(config, np.array([row(bytes([n]) * 32, "train") for n in range(5)], ROW))


def write_golden_text(folder: Path) -> None:
    """Files of all kinds: short, long, without lines, empty, and copies."""
    generator = random.Random(5)

    def lines(count: int) -> str:
        return "".join(
            f"the value {generator.randrange(10**6)} of été "
            f"{generator.choice('abc') * generator.randrange(9)}\n"
            for _ in range(count)
        )

    for position in range(40):
        (folder / f"{position}.txt").write_text(lines(generator.randrange(1, 60)))
    (folder / "long.txt").write_text(lines(3000))
    (folder / "nolines.txt").write_text("é1x" * 2000)
    (folder / "empty.txt").touch()
    (folder / "copy.txt").write_bytes((folder / "long.txt").read_bytes())
    (folder / "copy2.txt").write_bytes((folder / "3.txt").read_bytes())


GOLDEN = {
    "bytes": (
        "2386a8488f3e27e4bab80b8858bd53d46a9237493cf20fc2298d34098a0108ff",
        "c79febe455e9e4852ffeb7fe83b41ff84c5180d8ea6ba8a8095c8cbaa0d3321e",
        "163b74655e666d99976a72ed980fda04319b4f3a27cabc71f8507474de2f145a",
        "ba3686cf332a2cd90b8f4834b38556b00452bd672e433dba2eaa30bd33513a34",
    ),
    "bpe": (
        "c9fa8ff06c8d296d993973bebe000eab4e5f4ed2283743e62af490e5e5214413",
        "14f5f1121b6a4b9201d1e6a625267b634887d120a97213868046855aae905909",
        "5851968e0dfc35c266813a4eee62cafcb2541d2f40928fa0c6222b16d830c33d",
        "7e37d40e073d8c6b2a1e8524b327c1e39f7dfb4889031ee80d88cca44812ee51",
    ),
}
"""Fingerprint and shards under version 2 of the format."""


@pytest.mark.kept
@pytest.mark.parametrize("pieces", [1, 8], ids=["in one go", "in many chunks"])
@pytest.mark.parametrize(("tokenizer", "size"), [("bytes", 256), ("bpe", 300)])
def test_text_gives_the_corpus_that_it_always_gave(tmp_path, monkeypatch, tokenizer, size, pieces):
    monkeypatch.setattr(sources, "CHUNK_BYTES", 200_000 // pieces)
    write_golden_text(tmp_path)
    config = CorpusConfig("text", tokenizer, size, (f"{tmp_path}/*.txt",))
    corpus = prepare(config, tmp_path / "corpora", quiet)
    actual = corpus.fingerprint, *(corpus.split_facts(name).sha256 for name in SPLITS)
    assert actual == GOLDEN[tokenizer]
    assert corpus.facts.empty == 1


def texts(count: int, seed: int) -> Iterator[str]:
    generator = random.Random(seed)
    for _ in range(count):
        yield f"{generator.random()} " * generator.randrange(20, 400)


def peak_of_preparing(config: CorpusConfig, folder: Path) -> int:
    """Bytes of memory that ``prepare`` held at most with small buffers; for a process of its own."""
    sources.CHUNK_BYTES = 250_000
    tokenize.BYTES_AT_ONCE = formats.BLOCK = 1 << 16
    prepare(config, folder / "loaded", quiet)  # what modules take is not counted
    shutil.rmtree(folder / "loaded")
    tracemalloc.start()
    prepare(config, folder, quiet)
    return tracemalloc.get_traced_memory()[1]


@pytest.mark.slow
def test_memory_is_for_the_documents_digests_whatever_their_size(tmp_path: Path) -> None:
    """Four times as much text in as many documents takes the same, far less than the text."""
    peaks, sizes = [], []
    for factor in (1, 4):
        path = tmp_path / str(factor)
        with path.open("w") as file:
            for text in texts(1_500, seed=1):
                file.write(json.dumps({"text": text * factor}) + "\n")
        config = CorpusConfig("jsonl", "bytes", 256, (str(path),), field="text")
        # In this process other threads and what earlier tests left behind may allocate meanwhile.
        with multiprocessing.get_context("spawn").Pool(1) as process:
            peaks.append(process.apply(peak_of_preparing, (config, tmp_path / f"corpora-{factor}")))
        sizes.append(path.stat().st_size)
        corpus = prepare(config, tmp_path / f"corpora-{factor}", quiet)
        assert sum(corpus.split_facts(name).bytes for name in SPLITS) > 0.99 * sizes[-1]
    assert sizes[1] > 3.9 * sizes[0] > 20_000_000
    assert peaks[1] - peaks[0] < 0.05 * (sizes[1] - sizes[0])
    assert max(peaks) < 2_500_000


def documents_in(corpus: Corpus, name: str) -> list[bytes]:
    """The documents of a split as the bytes of their token ids, which are those of the text."""
    ids = corpus.split(name)
    ends = np.flatnonzero(ids == corpus.facts.separator)
    return [part[:-1].astype(np.uint8).tobytes() for part in np.split(ids, ends + 1)[:-1]]


DOCUMENTS = [text[:200] for text in texts(300, seed=2)]


def write_documents(folder: Path, source: str, name: str, documents: list[str]) -> str:
    """The documents in a file of ``source``; the pattern that names it."""
    path = folder / f"{name}.{source}"
    if source == "text":
        for position, text in enumerate(documents):
            (folder / f"{name}-{position:04d}.txt").write_text(text)
        return f"{folder}/{name}-*.txt"
    if source == "jsonl":
        path = folder / f"{name}.jsonl.gz"
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    elif source == "parquet":
        parquet.write_table(pyarrow.table({"text": documents}), path, row_group_size=70)
    else:
        ids = np.frombuffer("\0".join([*documents, ""]).encode(), np.uint8)
        ids.astype("<u2").tofile(path)
    return str(path)


SOURCE_FIELDS = {
    "text": {"tokenizer": "bytes"},
    "jsonl": {"tokenizer": "bytes", "field": "text"},
    "parquet": {"tokenizer": "bytes", "field": "text"},
    "shards": {"tokenizer": "ids", "dtype": "uint16"},
}


@pytest.mark.parametrize("source", SOURCE_FIELDS)
def test_no_document_of_a_held_out_split_is_trained_on(tmp_path: Path, source: str) -> None:
    copies = DOCUMENTS + DOCUMENTS[::3]
    pattern = write_documents(tmp_path, source, "all", copies)
    config = CorpusConfig(source, vocabulary_size=256, files=(pattern,), **SOURCE_FIELDS[source])
    corpus = prepare(config, tmp_path / "corpora", quiet)
    parts = {name: documents_in(corpus, name) for name in SPLITS}
    everything = [document for part in parts.values() for document in part]
    assert len(everything) == len(set(everything)) == len(DOCUMENTS)
    assert all(parts.values())


@pytest.mark.parametrize("source", SOURCE_FIELDS)
def test_files_of_a_held_out_split_keep_their_documents_from_training(tmp_path: Path, source: str) -> None:
    train = write_documents(tmp_path, source, "train", DOCUMENTS[:250])
    validation = write_documents(tmp_path, source, "validation", DOCUMENTS[200:280])
    test = write_documents(tmp_path, source, "test", DOCUMENTS[240:])
    config = CorpusConfig(
        source,
        vocabulary_size=256,
        files=(train,),
        validation_files=(validation,),
        test_files=(test,),
        **SOURCE_FIELDS[source],
    )
    corpus = prepare(config, tmp_path / "corpora", quiet)
    expected = {"train": DOCUMENTS[:200], "validation": DOCUMENTS[200:240], "test": DOCUMENTS[240:]}
    for name, kept in expected.items():
        assert sorted(documents_in(corpus, name)) == sorted(text.encode() for text in kept)


def test_every_source_of_the_same_documents_gives_the_same_corpus(tmp_path: Path) -> None:
    names = set()
    for source in ("text", "jsonl", "parquet"):
        pattern = write_documents(tmp_path, source, "all", DOCUMENTS)
        config = CorpusConfig(source, vocabulary_size=256, files=(pattern,), **SOURCE_FIELDS[source])
        names.add(fingerprint(config))
    assert len(names) == 1


def test_held_out_files_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    train, test = (write_documents(tmp_path, "text", name, DOCUMENTS[:40]) for name in ("train", "test"))
    other = write_documents(tmp_path, "text", "other", DOCUMENTS[40:50])
    configs = [
        CorpusConfig("text", "bytes", 256, (train,)),
        CorpusConfig("text", "bytes", 256, (train, other)),
        CorpusConfig("text", "bytes", 256, (train,), test_files=(other,)),
        CorpusConfig("text", "bytes", 256, (train,), validation_files=(other,)),
    ]
    assert len({fingerprint(config) for config in configs}) == len(configs)
    assert fingerprint(CorpusConfig("text", "bytes", 256, (train, test))) == fingerprint(configs[0])


@pytest.fixture
def config(tmp_path: Path) -> CorpusConfig:
    """The documents as files of text that were written a while ago."""
    config = CorpusConfig("text", "bytes", 256, (write_documents(tmp_path, "text", "all", DOCUMENTS),))
    aged(tmp_path, seconds=100)
    return config


def aged(folder: Path, seconds: int) -> None:
    """The text files of ``folder`` as if they had been written so long ago."""
    then = time.time_ns() - seconds * 10**9
    for path in folder.glob("*.txt"):
        os.utime(path, ns=(then, then))


def test_files_that_change_while_they_are_read_are_noticed(config, tmp_path, monkeypatch):
    def change_and_read(*arguments: Any) -> Any:
        (tmp_path / "all-0000.txt").write_text("another text")
        return sources.documents(*arguments)

    monkeypatch.setattr(texts_module, "documents", change_and_read)
    with pytest.raises(CorpusError, match=r"all-0000\.txt changed while it was read; prepare"):
        prepare(config, tmp_path / "corpora", quiet)
    assert not (tmp_path / "corpora").exists()


def test_text_that_is_damaged_while_it_waits_is_noticed(config: CorpusConfig, tmp_path: Path) -> None:
    def damage(message: str) -> None:
        if message.startswith("corpus "):
            (content,) = tmp_path.glob("corpora/.*.preparing/*.content")
            content.write_bytes(content.read_bytes()[::-1])

    with pytest.raises(CorpusError, match=r"000000\.content is not what was read of the corpus: check"):
        prepare(config, tmp_path / "corpora", damage)
    assert not (tmp_path / "corpora").exists()


def test_a_sample_trains_the_tokenizer_and_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    pattern = write_documents(tmp_path, "jsonl", "all", DOCUMENTS)
    rows = []
    for sample in (0, 5_000, 10**9):
        config = CorpusConfig("jsonl", "bpe", 270, (pattern,), field="text", sample_bytes=sample)
        corpus = prepare(config, tmp_path / "corpora", quiet)
        rows.append((corpus.fingerprint, corpus.facts.sample_bytes))
    everything, sampled, larger = rows
    assert (everything[1], sampled[1]) == (0, 5_000)
    assert larger == everything
    assert sampled[0] != everything[0]


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fingerprints that were found by reading all text."""
    rows: list[str] = []
    usual = texts_module.corpus_fingerprint

    def counted(*arguments: Any) -> Any:
        rows.append(usual(*arguments))
        return rows[-1]

    monkeypatch.setattr(corpora, "corpus_fingerprint", counted)
    return rows


def test_files_that_did_not_change_are_not_read_again(config, tmp_path, read_files):
    first = prepare(config, tmp_path / "corpora", quiet)
    assert prepare(config, tmp_path / "corpora", quiet) == first
    assert fingerprint(config, quiet, tmp_path / "corpora") == first.fingerprint
    assert read_files == [first.fingerprint]
    assert fingerprint(config) == first.fingerprint
    assert len(read_files) == 2


def test_files_that_changed_are_read_again_though_their_size_is_the_same(config, tmp_path, read_files):
    first = prepare(config, tmp_path / "corpora", quiet)
    path = tmp_path / "all-0000.txt"
    path.write_text(path.read_text()[::-1])
    second = prepare(config, tmp_path / "corpora", quiet)
    assert second.fingerprint != first.fingerprint
    assert read_files == [first.fingerprint, second.fingerprint]


def test_another_tokenizer_of_the_same_files_is_another_corpus(config, tmp_path, read_files):
    for tokenizer, size in (("bytes", 256), ("bpe", 270), ("bpe", 271)):
        prepare(CorpusConfig("text", tokenizer, size, config.files), tmp_path / "corpora", quiet)
    assert len(set(read_files)) == 3


def test_files_that_were_just_written_are_read_each_time(config, tmp_path, read_files):
    aged(tmp_path, seconds=-100)
    for _ in range(2):
        prepare(config, tmp_path / "corpora", quiet)
    assert len(read_files) == 2
