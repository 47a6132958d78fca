"""The section ``corpus`` of a sweep file: what may stand beside what."""

from pathlib import Path

import pytest
import yaml

from scalevec import sweeps
from scalevec.sweeps.sections.corpus import TokenizerSection

REST = "\nname: my\nladder: [tiny-25k]\narms: {baseline: {scale_vectors: baseline}}\n"
SHARDS = "source: shards, files: [a]"
VOCABULARIES = {
    "{source: text, files: [a]}": 1024,
    "{source: jsonl, files: [a], field: body, tokenizer: {bpe: 512, sample_mb: 10}}": 512,
    "{source: parquet, files: [a], validation: [b], test: [c], tokenizer: bytes}": 256,
    "{source: text, files: [a], tokenizer: {file: c, separator: </s>, vocabulary: 50304}}": 50_304,
    "{tokenizer: {hub: me/words, vocabulary: 64}}": 64,
    "{source: shards, files: [a], tokenizer: {vocabulary: 50304, separator: 50256}}": 50_304,
    f"{{{SHARDS}, in_place: true, tokenizer: {{vocabulary: 9, separator: 1}}}}": 9,
    "{source: megatron, files: [a], tokenizer: {vocabulary: 50257, separator: 50256}}": 50_257,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(("corpus", "vocabulary"), VOCABULARIES.items())
def test_a_corpus_of_every_source_loads_and_resolves_to_itself(folder, corpus, vocabulary):
    sweep = sweeps.loads(f"corpus: {corpus}{REST}", "my.yaml", folder)
    assert sweep.corpus.vocabulary == vocabulary
    again = sweeps.loads(yaml.safe_dump(sweep.resolved()), "again.yaml", folder)
    assert again.corpus == sweep.corpus


def test_an_old_corpus_is_written_out_as_it_was(folder: Path) -> None:
    sweep = sweeps.loads(f"corpus: {{tokenizer: bytes}}{REST}", "my.yaml", folder)
    expected = {"source": "python-stdlib", "files": None, "tokenizer": "bytes", "sequence_length": 256}
    assert sweep.corpus.model_dump(mode="json") == expected


REFUSED = {
    "{source: csv}": "corpus.source: 'csv'; allowed: 'python-stdlib', 'python-packages'",
    "{source: python-packages}": (
        "corpus.packages is missing; source python-packages needs a list of installed distributions"
    ),
    "{source: python-packages, packages: [scipy>=1]}": (
        "corpus.packages[0]: 'scipy>=1'; allowed: a distribution, NAME or NAME==VERSION"
    ),
    "{packages: [scipy]}": "corpus.packages: ['scipy']; allowed: packages only with source: python-packages",
    "{source: jsonl}": "corpus: corpus.files is missing; source jsonl needs a list of files",
    "{files: [a]}": "corpus.files: ['a']; allowed: files only with source: text, jsonl",
    "{source: text, files: [a], field: body}": (
        "corpus.field: 'body'; allowed: field only with source: jsonl or parquet"
    ),
    "{source: text, files: [a], in_place: true}": (
        "corpus.in_place: true; allowed: in_place only with source: shards"
    ),
    "{source: megatron, files: [a], tokenizer: {vocabulary: 512}}": (
        "allowed: {vocabulary: SIZE, separator: ID OF THE TOKEN THAT ENDS A DOCUMENT} with source: megatron"
    ),
    f"{{{SHARDS}}}": "corpus: corpus.tokenizer is missing; allowed: {vocabulary: SIZE",
    f"{{{SHARDS}, tokenizer: {{vocabulary: 65537, separator: 0}}}}": (
        "corpus.tokenizer.vocabulary: 65537; allowed: at most 65536, the ids that uint16 can hold"
    ),
    f"{{{SHARDS}, tokenizer: {{vocabulary: 512, separator: 512}}}}": (
        "corpus.tokenizer.separator: 512; allowed: an id below the vocabulary, 512"
    ),
    f"{{{SHARDS}, tokenizer: {{vocabulary: 512, separator: true}}}}": (
        "corpus.tokenizer.separator: true; allowed: a token by its text, or its id in shards"
    ),
    "{tokenizer: {file: a, separator: 3}}": (
        "corpus.tokenizer.separator: 3; allowed: a token by its text with file or hub"
    ),
    "{tokenizer: {bpe: 512, hub: gpt2}}": "corpus.tokenizer: {'bpe': 512, 'hub': 'gpt2'}; allowed",
    "{tokenizer: {vocabulary: 512}}": (
        "corpus.tokenizer.vocabulary: 512; allowed: a vocabulary alone only with source: shards"
    ),
    "{tokenizer: {bpe: 512, vocabulary: 600}}": (
        "corpus.tokenizer.vocabulary: 600; allowed: no vocabulary beside bpe, which gives it"
    ),
    "{tokenizer: {file: a, sample_mb: 3}}": (
        "corpus.tokenizer.sample_mb: 3.0; allowed: a sample only with bpe"
    ),
}


@pytest.mark.parametrize(("mapping", "message"), REFUSED.items())
def test_what_does_not_go_together_is_refused_with_what_does(folder, mapping, message):
    with pytest.raises(sweeps.SweepError) as error:
        sweeps.loads(f"name: my\ncorpus: {mapping}{REST.replace('name: my', '')}", "my.yaml", folder)
    assert message in str(error.value)
    assert all(line.startswith("my.yaml:2: ") for line in str(error.value).splitlines())


def test_the_sources_and_tokenizers_of_the_file_are_those_that_can_be_prepared() -> None:
    from scalevec.model.data.sources import READERS
    from scalevec.model.data.tokenize import TOKENIZERS

    definitions = sweeps.json_schema()["$defs"]
    sources = definitions["CorpusSection"]["properties"]["source"]["enum"]
    assert sources == ["python-stdlib", "python-packages", *READERS, "megatron"]
    sections = [{"bpe": 512}, {"file": "a"}, {"hub": "a"}, {"vocabulary": 9, "separator": 0}]
    kinds = ["bytes", *(TokenizerSection(**section).kind for section in sections)]
    assert kinds == list(TOKENIZERS)
