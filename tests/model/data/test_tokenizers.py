import os
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.data import CorpusError
from scalevec.model.data.tokenize import SEPARATOR, subword_ids, train_bpe

TEXT = [
    f"def function_{number}(first, second):\n    return first + {number}\n".encode() for number in range(200)
]

TRAIN_AND_PRINT = f"""
import hashlib
from scalevec.model.data.tokenize import serialized, train_bpe
documents = [line.encode() for line in {[text.decode() for text in TEXT]!r}]
print(hashlib.sha256(serialized(train_bpe(documents, 300))).hexdigest())
"""


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


def test_documents_are_encoded_in_order_and_apart(bpe: tokenizers.Tokenizer) -> None:
    documents = TEXT * 2
    together = list(subword_ids(bpe, documents))
    assert len(together) == len(documents)
    for position in (0, 255, 256, 399):
        (alone,) = subword_ids(bpe, [documents[position]])
        assert np.array_equal(together[position], alone)


def test_every_process_trains_the_same_tokenizer(bpe: tokenizers.Tokenizer) -> None:
    digests = set()
    for parallel in ("true", "false"):
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": parallel, "PYTHONHASHSEED": "random"}
        command = [sys.executable, "-c", TRAIN_AND_PRINT]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout)
    assert len(digests) == 1


def test_a_vocabulary_that_the_text_cannot_fill_is_refused() -> None:
    with pytest.raises(
        CorpusError, match=r"vocabulary_size is 5000, but the training text gives \d+ at most"
    ):
        train_bpe(TEXT[:3], 5000)
