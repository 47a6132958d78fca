"""Tokens that are used where they are: nothing is copied, and nothing that is held out is trained on."""

import hashlib
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_reference import quiet
from scalevec.model.data import SPLITS, CorpusConfig, CorpusError, in_place
from scalevec.model.data import prepare as corpora
from scalevec.model.data.corpus import Corpus, open_corpus, verify
from scalevec.model.data.in_place import MAGIC, read_index
from scalevec.model.data.in_place import MEGATRON_DTYPES as DTYPES
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.model.data.system import Workers

SEPARATOR = 0


def documents(count: int, seed: int = 0) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(1, 200, generator.integers(1, 60)).tolist() for _ in range(count)]


def write_shard(path: Path, listed: list[list[int]], dtype: str = "<u2", *, ended: bool = True) -> Path:
    ids = [token for document in listed for token in (*document, SEPARATOR)]
    np.array(ids if ended else ids[:-1], dtype).tofile(path)
    return path


def write_megatron(path: Path, listed: list[list[int]], code: int = 8, *, pieces: int = 1) -> Path:
    """NAME.idx and NAME.bin; each document is in so many sequences."""
    sequences = [part for document in listed for part in np.array_split([*document, SEPARATOR], pieces)]
    dtype = np.dtype(DTYPES[code])
    sizes = np.array([len(sequence) for sequence in sequences], "<i4")
    starts = (np.cumsum(sizes, dtype="<i8") - sizes) * dtype.itemsize
    entries = np.arange(0, len(sequences) + 1, pieces, dtype="<i8")
    head = struct.pack("<9sQBQQ", MAGIC, 1, code, len(sizes), len(entries))
    path.write_bytes(head + sizes.tobytes() + starts.tobytes() + entries.tobytes())
    np.concatenate(sequences).astype(dtype).tofile(path.with_suffix(".bin"))
    return path


def used_in_place(source: str, *paths: Path, **options) -> CorpusConfig:
    files = tuple(map(str, paths))
    return CorpusConfig(source, "ids", 200, files, separator_id=SEPARATOR, in_place=True, **options)


shards = partial(used_in_place, "shards", dtype="uint16")
megatron = partial(used_in_place, "megatron")


def documents_in(corpus: Corpus, name: str) -> list[tuple[int, ...]]:
    ids = np.asarray(corpus.split(name))
    parts = np.split(ids, np.flatnonzero(ids == SEPARATOR) + 1)
    return [tuple(part[part != SEPARATOR].tolist()) for part in parts if len(part)]


COPIES = documents(400) + documents(400)[::3]


@pytest.fixture(params=["shards", "megatron"])
def config(request, tmp_path) -> CorpusConfig:
    """Two files with documents of which some occur in both."""
    names, halves = ("a", "b"), (COPIES[:250], COPIES[250:])
    if request.param == "shards":
        return shards(*(write_shard(tmp_path / n, half) for n, half in zip(names, halves, strict=True)))
    paths = [write_megatron(tmp_path / f"{n}.idx", h, pieces=2) for n, h in zip(names, halves, strict=True)]
    return megatron(*paths)


def test_every_document_is_in_one_split_and_equal_ones_in_the_same(config, tmp_path):
    corpus = prepare(config, tmp_path / "corpora", quiet)
    parts = {name: documents_in(corpus, name) for name in SPLITS}
    everything = [document for part in parts.values() for document in part]
    assert sorted(everything) == sorted(map(tuple, COPIES))
    distinct = [document for part in parts.values() for document in set(part)]
    assert len(distinct) == len(set(distinct))
    total = sum(corpus.tokens.values())
    for name in ("validation", "test"):
        assert 0.1 * total <= corpus.tokens[name] <= 0.12 * total
    for name in SPLITS:
        assert corpus.split_facts(name).documents == len(parts[name])
        assert corpus.tokens[name] == len(corpus.split(name))


def test_nothing_is_copied(config, tmp_path):
    corpus = prepare(config, tmp_path / "corpora", quiet)
    names = {path.name for path in corpus.directory.iterdir()}
    assert names == {"corpus.json", *(f"{name}.segments" for name in SPLITS)}
    for file in corpus.facts.in_place:
        content = Path(file.path).read_bytes()
        assert (file.bytes, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_both_layouts_of_the_same_documents_hold_out_the_same(tmp_path):
    flat = prepare(shards(write_shard(tmp_path / "a", COPIES)), tmp_path / "corpora", quiet)
    index = write_megatron(tmp_path / "b.idx", COPIES, pieces=3)
    indexed = prepare(megatron(index), tmp_path / "corpora", quiet)
    for name in SPLITS:
        assert documents_in(flat, name) == documents_in(indexed, name)
    assert flat.fingerprint != indexed.fingerprint


def test_what_is_chosen_does_not_depend_on_blocks_and_processes(config, tmp_path, monkeypatch):
    whole = prepare(config, tmp_path / "whole", quiet)
    monkeypatch.setattr(corpora, "SMALL_BYTES", 0)
    assert fingerprint(config, jobs=2) == whole.fingerprint
    monkeypatch.setattr(in_place, "TOKENS_AT_ONCE", 37)
    blocks = in_place.place_files(config, Workers(0), quiet)
    assert blocks.fingerprint == whole.fingerprint
    (tmp_path / "blocks").mkdir()
    blocks.write(tmp_path / "blocks")
    for name in SPLITS:
        table = whole.split_path(name)
        assert (tmp_path / "blocks" / table.name).read_bytes() == table.read_bytes()


def test_names_of_files_are_no_part_of_the_corpus(config, tmp_path):
    before = prepare(config, tmp_path / "corpora", quiet)
    for path in (*tmp_path.glob("a"), *tmp_path.glob("a.*")):
        path.rename(path.with_name(path.name.replace("a", "z")))
    files = tuple(file.replace("/a", "/z") for file in config.files)
    renamed = CorpusConfig(**{**vars(config), "files": files})
    assert fingerprint(renamed) == before.fingerprint


def test_files_of_their_own_are_the_held_out_splits(tmp_path):
    train, validation, test = (documents(80, seed) for seed in (1, 2, 3))
    paths = [write_shard(tmp_path / str(n), listed) for n, listed in enumerate((train, validation, test))]
    config = shards(paths[0], validation_files=(str(paths[1]),), test_files=(str(paths[2]),))
    corpus = prepare(config, tmp_path / "corpora", quiet)
    for name, listed in (("train", train), ("validation", validation), ("test", test)):
        assert documents_in(corpus, name) == list(map(tuple, listed))


def test_a_last_document_without_its_separator_equals_one_that_has_it(tmp_path):
    listed = [*documents(100), documents(100)[7]]
    corpus = prepare(shards(write_shard(tmp_path / "a", listed, ended=False)), tmp_path / "corpora", quiet)
    twice = tuple(listed[7])
    assert sum(twice in documents_in(corpus, name) for name in SPLITS) == 1


def test_a_file_that_changed_or_is_gone_is_named(config, tmp_path):
    corpus = prepare(config, tmp_path / "corpora", quiet)
    verify(corpus)
    path = Path(corpus.facts.in_place[0].path)
    content = path.read_bytes()
    path.write_bytes(content[:-2] + b"\1\0")
    with pytest.raises(CorpusError, match="is not what was written: its SHA-256 begins with"):
        verify(corpus)
    path.unlink()
    with pytest.raises(CorpusError, match="which the corpus uses in place, has 0 bytes instead of"):
        open_corpus(tmp_path / "corpora", corpus.fingerprint)


def test_what_leaves_no_document_for_a_split_is_refused(tmp_path):
    path = write_shard(tmp_path / "a", [list(range(1, 150)) * 20])
    with pytest.raises(CorpusError, match=r"leave no document for the .* split: .* give files of their"):
        prepare(shards(path), tmp_path / "corpora", quiet)
    assert not (tmp_path / "corpora").exists()


def test_files_of_two_types_are_refused(tmp_path):
    paths = [write_megatron(tmp_path / f"{code}.idx", COPIES, code) for code in (4, 8)]
    with pytest.raises(CorpusError, match="these hold <i4 and <u2"):
        prepare(megatron(*paths), tmp_path / "corpora", quiet)


def test_an_id_outside_the_vocabulary_is_named_with_its_place(tmp_path):
    path = write_megatron(tmp_path / "a.idx", [*COPIES, [5, -1]], code=4)
    with pytest.raises(CorpusError, match=r"a\.bin' holds the token id -1 at token [\d,]+; allowed"):
        prepare(megatron(path), tmp_path / "corpora", quiet)


@pytest.mark.parametrize("name", ["a.bin.gz", "a.bin.zst"])
def test_compressed_tokens_have_no_place(tmp_path, name):
    (tmp_path / name).write_bytes(bytes(100))
    with pytest.raises(CorpusError, match=r"is compressed.*decompress it, or leave in_place out"):
        prepare(shards(tmp_path / name), tmp_path / "corpora", quiet)


def changed(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


@pytest.mark.parametrize(
    ("start", "content", "message"),
    [
        (0, b"XX", "does not begin as such an index does"),
        (9, b"\2", "its version is 2; 1 is needed"),
        (17, b"\6", "the code of its type is 6; allowed: 1, 2, 3, 4, 5, 8"),
        (18, b"\xff" * 8, "bytes, not what 18,446,744,073,709,551,615 sequences and"),
        (34, b"\xff\xff\xff\x7f", "does not follow the one before it"),
        (34 + 4 * 400, b"\1", "does not follow the one before it"),
        (34 + 12 * 400 + 8, b"\xff" * 8, "its documents do not follow one another"),
    ],
)
def test_a_damaged_index_is_refused_with_what_is_wrong(tmp_path, start, content, message):
    path = write_megatron(tmp_path / "a.idx", documents(400))
    assert len(read_index(path)[1]) == 400
    changed(path, start, content)
    with pytest.raises(CorpusError, match=message):
        read_index(path)


def test_data_of_another_size_than_the_index_says_are_refused(tmp_path):
    path = write_megatron(tmp_path / "a.idx", documents(400))
    with path.with_suffix(".bin").open("ab") as file:
        file.write(b"\0\0")
    with pytest.raises(CorpusError, match=r"a\.bin' has [\d,]+ bytes; its index says"):
        read_index(path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(CorpusError, match="has 0 bytes; its index says"):
        read_index(path)


def test_the_data_named_in_place_of_the_index_is_said(tmp_path):
    path = write_megatron(tmp_path / "a.idx", documents(400))
    with pytest.raises(CorpusError, match=r"name the \.idx file beside its \.bin"):
        read_index(path.with_suffix(".bin"))


INDEX_BYTES = 34 + 12 * 6 + 8 * 4


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, INDEX_BYTES - 1), st.binary(min_size=1, max_size=9)), max_size=4),
    st.integers(0, INDEX_BYTES),
)
def test_any_damage_to_an_index_is_a_message_or_an_index_within_the_data(tmp_path_factory, damage, length):
    folder = tmp_path_factory.mktemp("index", numbered=True)
    path = write_megatron(folder / "a.idx", documents(3), pieces=2)
    assert path.stat().st_size == INDEX_BYTES
    for start, content in damage:
        changed(path, start, content)
    if length % 3 == 0:
        with path.open("r+b") as file:
            file.truncate(length)
    tokens = path.with_suffix(".bin").stat().st_size
    try:
        dtype, behind = read_index(path)
    except CorpusError:
        return
    ends = behind.tolist()
    assert ends == sorted(ends)
    assert all(0 <= end * np.dtype(dtype).itemsize <= tokens for end in ends)
