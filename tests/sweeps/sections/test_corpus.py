"""The section ``corpus`` of a sweep file: what may stand beside what."""

from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.sweeps.sections.corpus import TokenizerSection

REST = "\nname: my\nladder: [tiny-25k]\narms: {baseline: {scale_vectors: baseline}}\n"
SHARDS = "source: shards, files: [a]"
GOOD = {
    "text": "{source: text, files: [a]}",
    "jsonl": "{source: jsonl, files: [a], field: body, tokenizer: {bpe: 512, sample_mb: 10}}",
    "parquet": "{source: parquet, files: [a], validation: [b], test: [c], tokenizer: bytes}",
    "a file": "{source: text, files: [a], tokenizer: {file: c, separator: </s>, vocabulary: 50304}}",
    "the Hub": "{tokenizer: {hub: me/words, vocabulary: 64}}",
    "shards": "{source: shards, files: [a], tokenizer: {vocabulary: 50304, separator: 50256}}",
    "shards in place": f"{{{SHARDS}, in_place: true, tokenizer: {{vocabulary: 9, separator: 1}}}}",
    "megatron": "{source: megatron, files: [a], tokenizer: {vocabulary: 50257, separator: 50256}}",
    "more ids": "{source: shards, files: [a], dtype: uint32, tokenizer: {vocabulary: 99999, separator: 9}}",
    "synthetic": "{source: synthetic}",
    "a process": "{source: synthetic, process: {vocabulary: 32, branching: 4, lag: 8, tokens: 99, seed: 3}}",
}
VOCABULARIES = {
    "text": 1024,
    "jsonl": 512,
    "parquet": 256,
    "a file": 50_304,
    "the Hub": 64,
    "shards": 50_304,
    "shards in place": 9,
    "megatron": 50_257,
    "more ids": 99_999,
    "synthetic": 64,
    "a process": 32,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("case", GOOD)
def test_a_corpus_of_every_source_loads_and_resolves_to_itself(folder: Path, case: str) -> None:
    sweep = sweeps.loads(f"corpus: {GOOD[case]}{REST}", "my.yaml", folder)
    assert sweep.corpus.vocabulary == VOCABULARIES[case]
    again = sweeps.loads(yaml.safe_dump(sweep.resolved()), "again.yaml", folder)
    assert again.corpus == sweep.corpus


def test_an_old_corpus_is_written_out_as_it_was(folder: Path) -> None:
    sweep = sweeps.loads(f"corpus: {{tokenizer: bytes}}{REST}", "my.yaml", folder)
    assert sweep.corpus.model_dump(mode="json") == {
        "source": "python-stdlib",
        "files": None,
        "tokenizer": "bytes",
        "sequence_length": 256,
    }


REFUSED = {
    "an unknown source": (
        "{source: csv}",
        "corpus.source: 'csv'; allowed: 'python-stdlib', 'python-packages'",
    ),
    "no packages": (
        "{source: python-packages}",
        "corpus.packages is missing; source python-packages needs a list of installed distributions",
    ),
    "a requirement that is no pin": (
        "{source: python-packages, packages: [scipy>=1]}",
        "corpus.packages[0]: 'scipy>=1'; allowed: a distribution, NAME or NAME==VERSION",
    ),
    "packages of another source": (
        "{packages: [scipy]}",
        "corpus.packages: ['scipy']; allowed: packages only with source: python-packages",
    ),
    "no files": ("{source: jsonl}", "corpus: corpus.files is missing; source jsonl needs a list of files"),
    "a missing file": ("{source: parquet, files: [z]}", "corpus.files[0]: 'z': no such file"),
    "a missing held-out file": ("{source: text, files: [a], test: [z]}", "corpus.test[0]: 'z': no such file"),
    "files of the library": (
        "{files: [a]}",
        "corpus.files: ['a']; allowed: files only with source: text, jsonl",
    ),
    "held-out files of the library": (
        "{test: [a]}",
        "corpus.test: ['a']; allowed: test only with source: text",
    ),
    "a field of text": (
        "{source: text, files: [a], field: body}",
        "corpus.field: 'body'; allowed: field only with source: jsonl or parquet",
    ),
    "a type of text": (
        "{source: text, files: [a], dtype: uint16}",
        "corpus.dtype: 'uint16'; allowed: dtype only with source: shards",
    ),
    "a process of text": (
        "{source: text, files: [a], process: {lag: 2}}",
        "allowed: process only with source: synthetic",
    ),
    "an unknown key of a process": (
        "{source: synthetic, process: {lags: 2}}",
        "corpus.process.lags: unknown key",
    ),
    "a lag of one": (
        "{source: synthetic, process: {lag: 1}}",
        "corpus.process.lag: 1; allowed: 0, or 2 and more",
    ),
    "a process of one token": (
        "{source: synthetic, process: {vocabulary: 1, branching: 1}}",
        "corpus.process.vocabulary: 1; allowed: 2 or more",
    ),
    "a training split of one token": (
        "{source: synthetic, process: {tokens: 1}}",
        "corpus.process.tokens: 1; allowed: 2 or more",
    ),
    "a negative seed": (
        "{source: synthetic, process: {seed: -1}}",
        "corpus.process.seed: -1; allowed: 0 or more",
    ),
    "a type that shards do not have": (
        f"{{{SHARDS}, dtype: int64, tokenizer: {{vocabulary: 512, separator: 0}}}}",
        "corpus.dtype: 'int64'; allowed: 'uint16' or 'uint32'",
    ),
    "text in place": (
        "{source: text, files: [a], in_place: true}",
        "corpus.in_place: true; allowed: in_place only with source: shards",
    ),
    "an index without a separator": (
        "{source: megatron, files: [a], tokenizer: {vocabulary: 512}}",
        "allowed: {vocabulary: SIZE, separator: ID OF THE TOKEN THAT ENDS A DOCUMENT} with source: megatron",
    ),
    "more branches than tokens": (
        "{source: synthetic, process: {vocabulary: 4, branching: 5}}",
        "corpus.process.branching: 5; allowed: at most the vocabulary, 4",
    ),
    "a tokenizer of a process": (
        "{source: synthetic, tokenizer: bytes}",
        "corpus.tokenizer: a synthetic corpus has no tokenizer; allowed: process.vocabulary",
    ),
    "no tokenizer of shards": (
        f"{{{SHARDS}}}",
        "corpus: corpus.tokenizer is missing; allowed: {vocabulary: SIZE",
    ),
    "another tokenizer of shards": (
        f"{{{SHARDS}, tokenizer: {{bpe: 512}}}}",
        "corpus.tokenizer: {'bpe': 512}; allowed: {vocabulary: SIZE, separator: ID",
    ),
    "shards without a separator": (
        f"{{{SHARDS}, tokenizer: {{vocabulary: 512}}}}",
        "corpus.tokenizer: {'vocabulary': 512}; allowed: {vocabulary: SIZE, separator: ID",
    ),
    "a vocabulary that the shards cannot hold": (
        f"{{{SHARDS}, tokenizer: {{vocabulary: 65537, separator: 0}}}}",
        "corpus.tokenizer.vocabulary: 65537; allowed: at most 65536, the ids that uint16 can hold",
    ),
    "a separator outside the vocabulary": (
        f"{{{SHARDS}, tokenizer: {{vocabulary: 512, separator: 512}}}}",
        "corpus.tokenizer.separator: 512; allowed: an id below the vocabulary, 512",
    ),
    "a separator that is no token": (
        f"{{{SHARDS}, tokenizer: {{vocabulary: 512, separator: true}}}}",
        "corpus.tokenizer.separator: true; allowed: a token by its text, or its id in shards",
    ),
    "an id beside a file": (
        "{tokenizer: {file: a, separator: 3}}",
        "corpus.tokenizer.separator: 3; allowed: a token by its text with file or hub",
    ),
    "a separator of bpe": (
        "{tokenizer: {bpe: 512, separator: </s>}}",
        "corpus.tokenizer.separator: '</s>'; allowed: a token by its text with file or hub",
    ),
    "two tokenizers": (
        "{tokenizer: {bpe: 512, hub: gpt2}}",
        "corpus.tokenizer: {'bpe': 512, 'hub': 'gpt2'}; allowed",
    ),
    "no tokenizer at all": ("{tokenizer: {}}", "corpus.tokenizer: {}; allowed: bytes, {bpe: SIZE"),
    "a vocabulary alone of text": (
        "{tokenizer: {vocabulary: 512}}",
        "corpus.tokenizer.vocabulary: 512; allowed: a vocabulary alone only with source: shards",
    ),
    "a vocabulary beside bpe": (
        "{tokenizer: {bpe: 512, vocabulary: 600}}",
        "corpus.tokenizer.vocabulary: 600; allowed: no vocabulary beside bpe, which gives it",
    ),
    "a sample of a file": (
        "{tokenizer: {file: a, sample_mb: 3}}",
        "corpus.tokenizer.sample_mb: 3.0; allowed: a sample only with bpe",
    ),
    "a missing tokenizer": ("{tokenizer: {file: z}}", "corpus.tokenizer.file: 'z': no such file (looked in "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_together_is_refused_with_what_does(folder: Path, case: str) -> None:
    mapping, message = REFUSED[case]
    with pytest.raises(sweeps.SweepError) as error:
        sweeps.loads(f"name: my\ncorpus: {mapping}{REST.replace('name: my', '')}", "my.yaml", folder)
    assert message in str(error.value)
    assert all(line.startswith("my.yaml:2: ") for line in str(error.value).splitlines())


def test_the_schema_knows_every_source_and_tokenizer() -> None:
    definitions = sweeps.json_schema()["$defs"]
    corpus, tokenizer = (
        definitions["CorpusSection"]["properties"],
        definitions["TokenizerSection"]["properties"],
    )
    assert set(corpus["source"]["enum"]) == {
        "python-stdlib",
        "python-packages",
        "text",
        "jsonl",
        "parquet",
        "shards",
        "megatron",
        "synthetic",
    }
    assert {"files", "validation", "test", "field", "dtype", "process", "in_place"} <= corpus.keys()
    assert {"bpe", "sample_mb", "file", "hub", "vocabulary", "separator"} == tokenizer.keys()
    assert {"const": "bytes", "type": "string"} in corpus["tokenizer"]["anyOf"]


def test_the_sources_and_tokenizers_of_the_file_are_those_that_can_be_prepared() -> None:
    from scalevec.model.data.sources import READERS
    from scalevec.model.data.tokenize import TOKENIZERS

    definitions = sweeps.json_schema()["$defs"]
    sources = definitions["CorpusSection"]["properties"]["source"]["enum"]
    assert sources == ["python-stdlib", "python-packages", *READERS, "megatron", "synthetic"]
    sections = [{"bpe": 512}, {"file": "a"}, {"hub": "a"}, {"vocabulary": 9, "separator": 0}]
    kinds = ["bytes", *(TokenizerSection(**section).kind for section in sections)]
    assert kinds == list(TOKENIZERS)
