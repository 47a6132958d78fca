"""The same rows mean the same by every door: whatever the form of the file, packed or not, mapped or not."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

HEADER = ["arm", "seed", "n_params", "n_tokens", "loss"]
LOSSES = {"a": ("3.51", "3.52", "3.52", "3.53"), "b": ("3.44", "3.45", "3.43", "3.44")}


def rows(odd: str) -> list[list[str]]:
    """Two arms with four seeds each, where the second seed of ``b`` ended with ``odd``."""
    table = [
        [arm, str(seed), "1e6", "2e7", loss]
        for arm, of_arm in LOSSES.items()
        for seed, loss in enumerate(of_arm)
    ]
    table[5][-1] = odd
    return table


def separated(odd: str, mark: str = ",") -> str:
    return "".join(mark.join(cells) + "\n" for cells in [HEADER, *rows(odd)])


def records(odd: str) -> Iterator[dict[str, Any]]:
    for arm, seed, n_params, n_tokens, loss in rows(odd):
        value = odd if loss == odd and odd not in ("", "NaN") else (None if loss == "" else float(loss))
        yield dict(zip(HEADER, (arm, int(seed), float(n_params), float(n_tokens), value), strict=True))


FORMS: dict[str, Callable[[str], bytes]] = {
    "t.csv": lambda odd: separated(odd).encode(),
    "T.CSV": lambda odd: separated(odd).encode("utf-16"),
    "t.tsv": lambda odd: separated(odd, "\t").encode(),
    "semicolons.csv": lambda odd: b"\xef\xbb\xbf" + separated(odd, ";").encode(),
    "commas.csv": lambda odd: separated(odd, ";").replace("3.", "3,").encode(),
    "t.jsonl": lambda odd: "".join(json.dumps(record) + "\n" for record in records(odd)).encode(),
    "t.csv.gz": lambda odd: gzip.compress(separated(odd).encode()),
    "t.tsv.bz2": lambda odd: bz2.compress(separated(odd, "\t").encode()),
    "t.csv.xz": lambda odd: lzma.compress(separated(odd).encode()),
    "t.csv.zst": lambda odd: pa.Codec("zstd").compress(separated(odd).encode(), asbytes=True),
}


def written(folder: Path, name: str, odd: str) -> str:
    (folder / name).write_bytes(FORMS[name](odd))
    return name


TAKEN = {
    "NaN": (),
    "": ("--map", "loss=loss"),
    "inf": ("--map", "n_tokens=20*n_params"),
}


@pytest.mark.parametrize("odd", TAKEN)
@pytest.mark.parametrize("name", [*FORMS, "t.parquet"])
def test_a_loss_that_is_not_finite_is_a_run_that_diverged(name, odd, tmp_path, command):
    if name == "t.parquet":
        pd.DataFrame(records("NaN")).to_parquet(tmp_path / name)
    else:
        written(tmp_path, name, odd)
    answer = command("compare", name, "--reference", "a", "--json", *TAKEN[odd])
    assert answer.code == 0, answer.err
    [arm] = json.loads(answer.out)
    assert arm["pairs"] == 3
    assert arm["loss_difference"]["mean"] == pytest.approx(-0.25 / 3)
    assert "1e+06, seed 1" in answer.out
    assert "rows 6 ended without a finite loss: diverged" in answer.err


REFUSED = {
    "1.2.3": ("compare", "--reference", "a"),
    "None": ("compare", "--reference", "a", "--map", "loss=loss"),
    "N/A": ("import", "--map", "loss=loss"),
}


@pytest.mark.parametrize("odd", REFUSED)
@pytest.mark.parametrize("name", FORMS)
def test_a_cell_that_is_no_number_is_refused_with_its_row_and_column(name, odd, tmp_path, command):
    verb, *options = REFUSED[odd]
    refused = command(verb, written(tmp_path, name, odd), *options)
    assert refused.code == 2, refused.out
    assert "loss" in refused.err
    assert f"row 6: {odd!r}" in refused.err


@pytest.mark.parametrize("name", FORMS)
def test_an_import_counts_the_same_runs(name, tmp_path, command):
    taken = command("import", written(tmp_path, name, "NaN"), "--map", "loss=loss", "-o", "out.csv")
    assert taken.code == 0, taken.err
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["status"].tolist() == ["completed"] * 5 + ["diverged"] + ["completed"] * 2
    assert table["loss"].sum() == pytest.approx(14.08 + 10.31)
