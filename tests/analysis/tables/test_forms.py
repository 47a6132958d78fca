"""What all tables have in common: the same bytes every time, conventions, forms, and what none is made of."""

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import pytest
from tests.shown_tables import FEW, shown

from scalevec import analysis
from scalevec.analysis import DataError, render, table

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


def test_a_source_without_time_and_memory_has_no_table_of_overhead(source):
    rows = source(FEW).drop(columns=["steps", "tokens_per_s", "peak_memory_bytes"])
    with pytest.raises(DataError, match="'overhead' needs wall_s and steps; or allocated_bytes"):
        shown(rows, "overhead")


@pytest.mark.parametrize("name", list(analysis.TABLES))
def test_no_table_is_made_of_trials_that_have_not_finished(source, name: str):
    rows = source({"baseline": 0.0, "no-decay": 0.0}).assign(status="pending", loss=np.nan)
    with pytest.raises(DataError, match="needs completed comparison trials; none of 16 is"):
        shown(rows, name)


def test_one_rung_is_no_scaling_table(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, rungs={"25k": 25_088})
    with pytest.raises(DataError, match="no law can be fitted at one size"):
        shown(rows, "scaling")


def test_an_unknown_table_is_refused_with_the_nearest_name(source):
    with pytest.raises(DataError, match="table is 'comparsion'; nearest: 'comparison'"):
        shown(source(FEW), "comparsion")


def test_a_table_says_which_rows_were_chosen(sweep):
    table_shown = table(sweep(), "comparison", reference="baseline", where="seed < 1", bootstrap=0)
    assert table_shown.notes[-1] == "Rows: where seed < 1 (8 left out)."


def test_a_table_shows_another_column_of_losses_and_refuses_one_of_scores(sweep):
    trials = sweep().assign(loss_validation=lambda t: t["loss"] + 1.0, accuracy=0.5)
    table_shown = table(trials, "comparison", reference="baseline", y="loss_validation", bootstrap=0)
    column = table_shown.columns.index("loss")
    assert float(table_shown.rows[0][column].split()[0]) > 4.5
    with pytest.raises(DataError, match="y is 'accuracy'; a table shows losses"):
        table(trials, "comparison", reference="baseline", y="accuracy")
