"""What all tables have in common: the same bytes every time, conventions, and Markdown, LaTeX and CSV."""

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache

import pandas as pd
import pytest
from tests.shown_tables import FEW, shown

from scalevec import analysis
from scalevec.analysis import DataError, render

ODD = "uni_fied & 100%"
NAMES = [name for name in analysis.TABLES if name != "factorial"]


@pytest.fixture(scope="module")
def rows(source) -> pd.DataFrame:
    """Not to be changed."""
    return source(FEW).replace({"arm": {"unified": ODD}})


@pytest.fixture(scope="module")
def table_of(rows) -> Callable[[str], analysis.Table]:
    """Each table of the rows, made once."""
    return cache(lambda name: shown(rows, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_table_is_the_same_bytes_whatever_the_order_of_an_arms_rows(rows, table_of, name: str):
    again = shown(pd.concat([part.iloc[::-1] for _, part in rows.groupby("arm", sort=False)]), name)
    for form in ("markdown", "latex", "csv"):
        assert render(table_of(name), form) == render(again, form)


@pytest.mark.parametrize("name", NAMES)
def test_every_table_states_its_conventions_and_has_whole_rows(table_of, name: str):
    table = table_of(name)
    assert table.rows
    assert {len(row) for row in table.rows} == {len(table.columns)} == {len(table.numeric)}
    assert any(note.startswith("N: ") for note in table.notes)


def test_a_row_of_latex_that_begins_with_a_bracket_is_no_argument():
    item = analysis.Table("t", ("arm", "loss"), (("a", "1"), ("[b]", "2")), (False, True))
    assert r"{[b]} & 2 \\".replace("\\\\", "\\") in render(item, "latex")


def test_a_name_in_a_csv_file_is_no_formula():
    item = analysis.Table("t", ("arm", "=loss"), (("=1+1", "−0.5"), ("@b", "1")), (False, True))
    assert render(item, "csv") == "arm,'=loss\n'=1+1,−0.5\n'@b,1\n"


def columns_of_latex(line: str) -> int:
    spans = re.findall(r"\\multicolumn\{(\d+)\}", line)
    return line.replace(r"\&", "").count("&") + 1 + sum(int(span) - 1 for span in spans)


@pytest.mark.parametrize("name", NAMES)
def test_latex_is_balanced_and_escaped(table_of, name: str):
    text = render(table_of(name), "latex")
    specification = text.split(r"\begin{tabular}{")[1].split("}\n")[0]
    width = len(re.findall(r"[lr]", re.sub(r"\[.*?\]", "", specification)))
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {columns_of_latex(line) for line in lines} == {width}
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert r"uni\_fied \& 100\%" in text
    assert text.isascii()


def test_notes_of_latex_have_products_and_powers_of_ten():
    note = "C: 6 x N x tokens; L = A/C^alpha; at 1.5e-03 and 2e+18."
    text = render(analysis.Table("t", ("a",), (("1",),), (True,), (note,)), "latex")
    shown_note = next(line for line in text.splitlines() if line.startswith(r"\item"))
    assert shown_note == (
        r"\item C: 6 \ensuremath{\times} N \ensuremath{\times} tokens; "
        r"L = A/C\ensuremath{^{\alpha}}; at \ensuremath{1.5\times10^{-3}} and "
        r"\ensuremath{2\times10^{18}}."
    )


def test_a_narrow_table_takes_one_column_of_a_paper_and_a_wide_one_both():
    for n_columns, float_ in ((3, "table"), (12, "table*")):
        names = tuple(f"column {n}" for n in range(n_columns))
        text = render(analysis.Table("t", names, (names,), (False,) * n_columns), "latex")
        assert rf"\begin{{{float_}}}[tb]" in text
        assert rf"\end{{{float_}}}" in text


def test_columns_are_chosen_in_order(table_of):
    whole = table_of("comparison")
    text = render(whole, "markdown", columns=["loss", "rung"])
    assert text.splitlines()[0] == "| loss | rung |"
    assert text.partition("\n\n")[0].count("**") == 2 * len(whole.best)


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("markdown", {"columns": ["los"]}, "column is 'los'; nearest: 'loss'"),
        ("csv", {"columns": ["loss"]}, "csv has every one"),
    ],
)
def test_a_part_of_a_table_that_cannot_be_is_refused(table_of, form, options, message):
    with pytest.raises(DataError, match=message):
        render(table_of("comparison"), form, **options)


def test_no_note_speaks_of_scale_vectors_where_there_are_none(source):
    rows = source(FEW).assign(vector_branches="none", vector_placement="input")
    notes = " ".join(shown(rows.drop(columns="n_params_scale_vectors", errors="ignore"), "comparison").notes)
    assert "scale vectors" not in notes


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_latex_is_compiled_without_an_overfull_box(source, tmp_path, name):
    text = render(shown(source(), name), "latex")
    packages = text.partition("{")[2].partition("}")[0]
    (tmp_path / "paper.tex").write_text(
        rf"\documentclass[twocolumn]{{article}}\usepackage{{{packages}}}\begin{{document}}"
        f"\nText.\n{text}\n\\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
