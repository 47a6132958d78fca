import csv
import io

import pandas as pd
import pytest

from scalevec.analysis import DataError, Table, compare, comparison_table, render


def shown(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03}).assign(learning_rate=0.016, epochs=0.5)
    return comparison_table(table, compare(table, "baseline", bootstrap=20).values())


@pytest.mark.parametrize("form", ["markdown", "csv"])
def test_a_regenerated_table_is_the_same_bytes(sweep, form: str):
    assert render(shown(sweep), form) == render(shown(sweep), form)


def test_a_table_has_a_row_for_each_rung_and_one_for_all(sweep):
    table = shown(sweep)
    assert [row[1] for row in table.rows] == ["25k", "55k", "83k", "150k", "mean that decides"]
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert first["N"] == "25,088"
    assert first["epochs"] == "0.50"
    assert first["learning rate"] == "0.016, tuned"
    assert table.rows[-1][-1] == "better (25k to 150k)"


def test_a_row_shows_the_rate_of_its_own_setting(sweep):
    parts = [
        sweep().assign(optimizer=optimizer, learning_rate=rate, lr_status="tuned")
        for optimizer, rate in (("adamw", 0.016), ("muon", 0.5))
    ]
    trials = pd.concat(parts, ignore_index=True)
    table = comparison_table(trials, compare(trials, "baseline", bootstrap=20).values())
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows[:2]]
    assert [(row["rung"], row["learning rate"]) for row in rows] == [
        ("25k adamw", "0.016, tuned"),
        ("25k muon", "0.5, tuned"),
    ]


def test_a_table_states_its_conventions(sweep):
    text = render(shown(sweep), "markdown")
    assert "N: non-embedding matrix parameters; C: 6 x N x tokens." in text
    assert "arm minus baseline" in text


def test_a_diverged_trial_is_said_below_the_table(sweep, diverge):
    trials = diverge(sweep(), "unified", "55k", 1)
    table = comparison_table(trials, compare(trials, "baseline", bootstrap=20).values())
    assert "Without a difference, unified: diverged at 55k, seed 1." in table.notes


def test_markdown_is_a_table_whatever_a_name_holds():
    table = Table("t", ("arm", "loss"), (("a|b\n<b>", "1.0"),), (False, True))
    assert render(table, "markdown") == "| arm | loss |\n| --- | ---: |\n| a\\|b &lt;b> | 1.0 |\n"


def test_csv_reads_back_and_has_plain_minus_signs(sweep):
    rows = list(csv.DictReader(io.StringIO(render(shown(sweep), "csv"))))
    assert rows[0]["difference (interval)"].startswith("-0.0")


def test_an_unknown_format_is_refused():
    with pytest.raises(DataError, match="format is 'markdwn'; nearest: 'markdown'"):
        render(Table("t", (), (), ()), "markdwn")


def test_latex_is_a_booktabs_table_whatever_a_name_holds(sweep):
    text = render(shown(sweep), "latex")
    assert text.count(r"\\") == 1 + 5
    assert r"\begin{tabular}{l l" in text
    assert r"\ensuremath{-}0.0" in text
    odd = Table("t", ("arm_1", "a & b"), (("50 %", "x^2"),), (False, True), ("note #1",))
    assert r"arm\_1 & a \& b \\" in render(odd, "latex")
    assert r"50 \% & x\textasciicircum{}2 \\" in render(odd, "latex")
    assert r"note \#1" in render(odd, "latex")
