"""The same rows mean the same by every door: whatever the form of the file, packed or not, mapped or not."""

import bz2
import gzip
import json
import lzma
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalevec.analysis.data.tidy import checked, read_table
from scalevec.analysis.errors import DataError
from support import assert_refused, succeeded

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


TAKEN = {"NaN": (), "": ("--map", "loss=loss"), "inf": ("--map", "n_tokens=20*n_params")}


def each_with_one(of: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Every form of a file with one of the cells, in turn."""
    return zip(FORMS, cycle(of), strict=False)


@pytest.mark.parametrize(("name", "odd"), [*each_with_one(TAKEN), ("t.parquet", "NaN"), ("t.parquet", "inf")])
def test_a_loss_that_is_not_finite_is_a_run_that_diverged(name, odd, tmp_path, command):
    if name == "t.parquet":
        pd.DataFrame(records("NaN")).to_parquet(tmp_path / name)
    else:
        written(tmp_path, name, odd)
    answer = succeeded(command("compare", name, "--reference", "a", "--json", *TAKEN[odd]))
    [arm] = json.loads(answer.stdout)
    assert arm["pairs"] == 3
    assert arm["loss_difference"]["mean"] == pytest.approx(-0.25 / 3)
    assert "1M, seed 1" in answer.stdout
    assert "rows 6 ended without a finite loss: diverged" in answer.stderr


REFUSED = {
    "1.2.3": ("compare", "--reference", "a"),
    "None": ("compare", "--reference", "a", "--map", "loss=loss"),
    "N/A": ("import", "--map", "loss=loss"),
    "0x1": ("compare", "--reference", "a"),
}


@pytest.mark.parametrize(("name", "odd"), each_with_one(REFUSED))
def test_a_cell_that_is_no_number_is_refused_with_its_row_and_column(name, odd, tmp_path, command):
    verb, *options = REFUSED[odd]
    assert_refused(command(verb, written(tmp_path, name, odd), *options), 2, "loss", f"row 6: {odd!r}")


@pytest.mark.parametrize("name", FORMS)
def test_an_import_counts_the_same_runs(name, tmp_path, command):
    succeeded(command("import", written(tmp_path, name, "NaN"), "--map", "loss=loss", "-o", "out.csv"))
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["status"].tolist() == ["completed"] * 5 + ["diverged"] + ["completed"] * 2
    assert table["loss"].sum() == pytest.approx(14.08 + 10.31)


CELLS = {
    "loss": ["3.1", "2.9", "nan", "", "-1", "1e400", "three", " 3.2"],
    "n_params": ["1e6", "2000000", "4M", ""],
    "n_tokens": ["2e7", "40000000", "9" * 400],
    "seed": ["0", "1", "1.0", "a", ""],
    "arm": ["a", "b", "None", "1.0", ""],
}


def meaning(path: Path) -> object:
    """What an analysis takes the rows of a file for, or the message that refuses them."""
    try:
        table = checked(read_table(path))
    except DataError as error:
        return str(error).replace(str(path), "FILE")
    plain = table.astype(object).where(table.notna(), None)
    return [{name: row[name] for name in sorted(row)} for row in plain.to_dict("records")]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.fixed_dictionaries({name: st.sampled_from(CELLS[name]) for name in CELLS}), min_size=1))
def test_the_same_cells_mean_the_same_in_every_form(cells: list[dict[str, str]]):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = pd.DataFrame(cells, dtype=object)
        for suffix, mark in ((".csv", ","), (".tsv", "\t"), (".csv.gz", ",")):
            frame.to_csv(folder / f"t{suffix}", index=False, sep=mark)
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cells))
        frame.to_parquet(folder / "t.parquet")
        meanings = [meaning(path) for path in sorted(folder.iterdir())]
    assert all(each == meanings[0] for each in meanings), meanings


def test_rows_that_where_leaves_out_are_not_looked_at(tmp_path, command):
    table = pd.DataFrame(rows("three"), columns=HEADER).assign(state="finished")
    table.loc[5, "state"] = "out of memory"
    table.to_csv(tmp_path / "t.csv", index=False)
    where = ("--where", "seed != 1", "--map", "n_tokens=n_params*20", "--map", "loss=loss*1")
    answer = succeeded(command("compare", "t.csv", "--reference", "a", "--json", *where))
    assert json.loads(answer.stdout)[0]["pairs"] == 3


def test_rows_that_only_a_formula_needs_are_read_by_every_door(tmp_path, command):
    for name, mark in (("t.csv", ","), ("t.tsv", "\t")):
        lines = [f"{width}{mark}{2 + 3 / width}" for width in (1, 2, 4, 8, 16)]
        (tmp_path / name).write_text("\n".join([f"width{mark}loss", *lines]) + "\n")
        answer = succeeded(command("fit", name, "--formula", "E + A/width", "--bootstrap", 0, "--json"))
        assert json.loads(answer.stdout)[0]["parameters"] == {"E": pytest.approx(2), "A": pytest.approx(3)}


@pytest.mark.parametrize("header", ["N,D,C,loss", "n,d,c,loss", "Params,Tokens,FLOPs,val_loss"])
def test_the_names_that_papers_use_are_known(header, tmp_path, command):
    sizes = [(n, 20 * n) for n in (1e6, 2e6, 4e6, 8e6)]
    lines = [f"{n:g},{d:g},{6 * n * d:g},{3 * n**-0.05:.5f}" for n, d in sizes]
    (tmp_path / "t.csv").write_text("\n".join([header, *lines]) + "\n")
    answer = succeeded(command("fit", "t.csv", "--law", "power", "--x", "N", "--bootstrap", 0))
    assert f"n_params         {header.split(',')[0]}" in answer.stderr
    assert "alpha 0.0499" in answer.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arm;loss;n_params\na;3,512;1\n", "'3,512' may be 3.512 or 3512"),
        ('arm,loss,n_params\na,"3,512",1e7\nb,"3,441",1e7\n', "'3,441' may be 3.441 or 3441"),
        ("arm;gpus;loss;n_params\na;0,1;3.512;1e7\n", "'3.512' may be 3.512 or 3512"),
        ("arm,loss,n_params\na,3,51,1\n", "row 1: 4 cells under 3 columns"),
        ('arm,lr,n_params,n_tokens,loss\na,0.01,1,2,"3,51"\nb,0.01,1,2,3.4\n', "'3,51' is not a number"),
        ("arm loss n_params\na 3.5 1\n", "one named column, 'arm loss n_params'"),
        ("arm,loss,loss\na,3,3\n", "several columns 'loss'; allowed: one of each name"),
    ],
)
def test_a_number_or_separator_that_is_in_doubt_is_asked_about(text, message, tmp_path, command):
    (tmp_path / "t.csv").write_text(text)
    assert_refused(command("compare", "t.csv", "--reference", "a"), 2, message)


def test_a_list_in_one_column_changes_no_number_of_another(tmp_path, command):
    rows = [
        f'{arm},{seed},1e7,2e8,{loss + seed / 1000:.3f},"0,1"'
        for arm, loss in (("a", 3.512), ("b", 3.441))
        for seed in (0, 1, 2)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["arm,seed,n_params,n_tokens,loss,gpus", *rows]))
    answer = command("compare", "t.csv", "--reference", "a", "--json")
    [comparison] = json.loads(answer.stdout)
    assert comparison["loss_difference"]["mean"] == pytest.approx(-0.071)


def test_excel_may_say_in_the_first_line_what_separates(tmp_path, command):
    (tmp_path / "t.csv").write_text("sep=;\nN;loss\n1e6;3,51\n2e6;3,4\n4e6;3,31\n8e6;3,25\n")
    answer = succeeded(command("fit", "t.csv", "--law", "power", "--x", "N", "--bootstrap", 0, "--json"))
    assert json.loads(answer.stdout)[0]["n_points"] == 4


def test_thousands_are_told_from_decimals_by_the_other_numbers_of_a_file(tmp_path, command):
    text = "loss;n_params;n_tokens\n3,5;1.000.000;20.000.000\n3,25;2.000.000;40000000\n"
    (tmp_path / "t.csv").write_text(text)
    succeeded(command("import", "t.csv", "--map", "loss=loss", "-o", "out.csv"))
    table = pd.read_csv(tmp_path / "out.csv")
    assert table[["loss", "n_params", "n_tokens"]].to_numpy().tolist() == [[3.5, 1e6, 2e7], [3.25, 2e6, 4e7]]


def test_an_import_writes_csv_under_no_other_name(tmp_path, command):
    (tmp_path / "t.csv").write_text("N,loss\n1e6,3.5\n2e6,3.4\n")
    answer = command("import", "t.csv", "-o", "out.parquet")
    assert (answer.returncode, (tmp_path / "out.parquet").exists()) == (2, False)
    assert "out.parquet: a table is written as CSV" in answer.stderr


CHART = """\
"Step","r - _step","r - _step__MIN","r - _step__MAX","r - val/loss","r - val/loss__MIN","r - val/loss__MAX"
"0","0","0","0","9.1","9.1","9.1"
"10","10","10","10","5.1","5.1","5.1"
"""


def test_a_chart_with_steps_is_no_table_of_runs(tmp_path, command):
    (tmp_path / "chart.csv").write_text(CHART)
    for verb in ("import", "compare"):
        assert_refused(command(verb, "chart.csv"), 2, "a chart that W&B exported, with columns per run (r)")


def test_one_file_per_run_gives_runs_that_are_named_as_their_files(tmp_path, command):
    for name, shift in (("one.csv", 0.0), ("two.csv", 0.1)):
        rows = [f"{step},{3.2 - 1e-4 * step + shift:.4f}" for step in (100, 200, 300)]
        (tmp_path / name).write_text("\n".join(["step,loss", *rows]) + "\n")
    maps = ("--map", "n_params=1e6", "--map", "n_tokens=step*1000", "--map", "arm=run")
    taken = succeeded(command("import", "one.csv", "two.csv", *maps, "-o", "out.csv"))
    assert "one run per file, of its name (one, two)" in taken.stderr
    assert pd.read_csv(tmp_path / "out.csv")["arm"].tolist() == ["one"] * 3 + ["two"] * 3
    assert "one size, 1M" in command("compare", "out.csv", "--reference", "one").stdout


def test_a_table_of_very_many_columns_takes_seconds(tmp_path, command):
    wide = pd.DataFrame({f"x{number}": 0.5 for number in range(20_000)}, index=range(8))
    table = pd.DataFrame(rows("3.4"), columns=HEADER)
    pd.concat([table, wide], axis=1).to_csv(tmp_path / "t.csv", index=False)
    before = time.process_time()
    assert command("compare", "t.csv", "--reference", "a").returncode == 0
    assert time.process_time() - before < 15
