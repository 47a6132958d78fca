"""Tokenizers that are trained on the text, and those that come from a file or the Hub."""

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import tokenizers
from huggingface_hub.errors import RepositoryNotFoundError
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from scalevec.model.data import SPLITS, CorpusConfig, CorpusError
from scalevec.model.data.prepare import fingerprint, prepare
from scalevec.model.data.tokenize import SEPARATOR, subword_ids, train_bpe

TEXT = [
    f"def function_{number}(first, second):\n    return first + {number}\n".encode() for number in range(200)
]


@pytest.fixture(scope="module")
def bpe() -> tokenizers.Tokenizer:
    return train_bpe(TEXT, 300)


def test_the_vocabulary_has_exactly_the_asked_size(bpe: tokenizers.Tokenizer) -> None:
    vocabulary = bpe.get_vocab()
    assert sorted(vocabulary.values()) == list(range(300))
    assert vocabulary[SEPARATOR] == 0


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_any_text_survives_bpe(bpe: tokenizers.Tokenizer, text: str) -> None:
    (ids,) = subword_ids(bpe, [text.encode()])
    assert bpe.decode(ids.tolist(), skip_special_tokens=False) == text
    assert 0 not in ids


def test_a_separator_spelt_out_in_a_document_stays_text(bpe: tokenizers.Tokenizer) -> None:
    (ids,) = subword_ids(bpe, [b"before " + SEPARATOR.encode() + b" after"])
    assert 0 not in ids


def test_a_vocabulary_that_the_text_cannot_fill_is_refused() -> None:
    message = r"vocabulary_size is 5000, but the training text gives \d+ at most"
    with pytest.raises(CorpusError, match=message):
        train_bpe(TEXT[:3], 5000)


WORDS = ["<unk>", "the", "value", "is", "one", "two", "three", "</s>"]
LINES = [
    f"the value is {first} {second} {number}"
    for first in WORDS[:-1]
    for second in WORDS[:-1]
    for number in WORDS[:-1]
]


def word_tokenizer(**vocabulary: int) -> Tokenizer:
    """A tokenizer of whole words, with ``</s>`` as its only special token."""
    ids = {word: position for position, word in enumerate(WORDS)} | vocabulary
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=8)
    return tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in LINES))
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def config(folder: Path, name: str = "tokenizer.json", **changes: Any) -> CorpusConfig:
    arguments: dict[str, Any] = {"separator": "</s>", "vocabulary_size": 0, "tokenizer": "file"} | changes
    return CorpusConfig(
        "jsonl",
        files=(str(folder / "a.jsonl"),),
        field="text",
        tokenizer_name=str(folder / name) if arguments["tokenizer"] == "file" else name,
        **arguments,
    )


def refusal(given: CorpusConfig) -> str:
    with pytest.raises(CorpusError) as error:
        fingerprint(given)
    return str(error.value)


def test_whole_documents_are_encoded_and_end_with_the_named_separator(folder: Path) -> None:
    corpus = prepare(config(folder), folder / "corpora", lambda _: None)
    assert corpus.vocabulary_size == 8
    assert corpus.facts.separator == 7
    shard = [token for name in SPLITS for token in corpus.split(name).tolist()]
    assert len(shard) == 7 * len(LINES)  # six words a line, and the separator
    assert shard[6::7] == [7] * len(LINES)
    assert 7 not in [token for position, token in enumerate(shard) if position % 7 != 6]
    assert shard[:3] == [1, 2, 3]
    kept = tokenizers.Tokenizer.from_file(str(corpus.directory / "tokenizer.json"))
    assert kept.get_vocab() == word_tokenizer().get_vocab()


def test_the_models_vocabulary_may_be_larger_than_the_tokenizers(folder: Path) -> None:
    corpus = prepare(config(folder, vocabulary_size=64), folder / "corpora", lambda _: None)
    assert corpus.vocabulary_size == 64
    assert fingerprint(config(folder)) != corpus.fingerprint


def test_a_tokenizer_whose_vocabulary_exceeds_the_models_is_refused(folder: Path) -> None:
    word_tokenizer(late=99).save(str(folder / "large.json"))
    message = refusal(config(folder, "large.json", vocabulary_size=64))
    assert "large.json' has a vocabulary of 100, which exceeds the model's: vocabulary is 64" in message
    assert "allowed: 100 or more" in message


def test_ids_that_two_bytes_cannot_hold_are_stored_in_four(folder: Path) -> None:
    word_tokenizer(late=70_000).save(str(folder / "large.json"))
    corpus = prepare(config(folder, "large.json"), folder / "corpora", lambda _: None)
    assert corpus.facts.dtype == "<u4"


def test_the_fingerprint_follows_the_content_of_the_tokenizer_not_its_name(folder: Path) -> None:
    (folder / "same.json").write_text(json.dumps(json.loads((folder / "tokenizer.json").read_text())))
    word_tokenizer(late=9).save(str(folder / "other.json"))
    expected = fingerprint(config(folder))
    assert fingerprint(config(folder, "same.json")) == expected
    assert fingerprint(config(folder, "other.json")) != expected
    assert fingerprint(config(folder, separator="two")) != expected


def test_a_separator_that_the_tokenizer_has_not_is_refused_with_its_special_tokens(folder: Path) -> None:
    message = refusal(config(folder, separator=""))
    assert "has no token '<|endoftext|>' to end documents with; name one by separator" in message
    assert "Its special tokens: </s>" in message


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"model": 7}', b'{"version": "1.0", "x": NaN}'])
def test_a_file_that_is_no_tokenizer_is_named(folder: Path, content: bytes) -> None:
    (folder / "bad.json").write_bytes(content)
    assert "bad.json' is no tokenizer.json of the tokenizers library" in refusal(config(folder, "bad.json"))


def test_a_tokenizer_that_is_not_there_is_named(folder: Path) -> None:
    assert "absent.json' cannot be read: No such file" in refusal(config(folder, "absent.json"))


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    """Lets the Hub answer with a path or an error."""

    def download(name: str, file: str) -> str:
        assert (name, file) == ("me/words", "tokenizer.json")
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def test_a_name_on_the_hub_gives_what_its_file_gives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, folder / "tokenizer.json")
    assert fingerprint(config(folder, "me/words", tokenizer="hub")) == fingerprint(config(folder))


def test_a_name_that_is_not_on_the_hub_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx2

    request = httpx2.Request("HEAD", "https://example.org")
    answering(monkeypatch, RepositoryNotFoundError("404", response=httpx2.Response(404, request=request)))
    assert "tokenizer.hub is 'me/words': 404" in refusal(config(folder, "me/words", tokenizer="hub"))
