"""What each table of a paper shows, what it refuses, and that it comes out the same every time."""

import csv
import io
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis import DataError, render, table

STRATEGIES = {
    "baseline": ("shared", "input", "none", "all"),
    "none": ("none", "input", "none", "all"),
    "unified": ("heterogeneous", "dual-normalized", "or", "input"),
    "no-decay": ("shared", "input", "none", "none"),
    "or-norm": ("shared", "input", "or-normalized", "all"),
}
FIELDS = ("vector_branches", "vector_placement", "vector_reparameterization", "vector_decay")
FEW = {"baseline": 0.0, "unified": -0.03, "no-decay": 0.002}
EFFECTS = {"baseline": 0.0, "none": 0.04, "unified": -0.03, "no-decay": 0.002, "or-norm": 0.001}


@pytest.fixture
def source(sweep):
    """A sweep's rows with everything that a table may ask for."""

    def make(effects: dict[str, float] = EFFECTS, **options) -> pd.DataFrame:
        rows = sweep(effects, **options)
        strategies = pd.DataFrame([STRATEGIES[arm] for arm in rows["arm"]], columns=list(FIELDS))
        rows = pd.concat([rows, strategies], axis=1).assign(
            optimizer="adamw",
            schedule="cosine",
            architecture="llama",
            learning_rate=np.where(rows["arm"] == "none", 0.008, 0.016),
            matrix_decay=0.1,
            device="cuda",
            micro_batch=0,
            steps=100,
            peak_memory_bytes=2.0**30,
            n_params_total=rows["n_params"] + 1000,
            n_params_scale_vectors=np.where(rows["arm"] == "none", 0, 160),
        )
        slow = np.where(rows["arm"] == "unified", 1.1, 1.0) * (1 + 0.01 * rows["seed"].astype(float))
        return rows.assign(wall_s=10.0 * slow, tokens_per_s=rows["n_tokens"] / (10.0 * slow))

    return make


def shown(results: pd.DataFrame, name: str, **options) -> analysis.Table:
    return table(results, name, **{"reference": "baseline", "bootstrap": 20, **options})


def column(table_shown: analysis.Table, name: str, group: str = "") -> list[str]:
    headings = list(
        zip(table_shown.groups or [""] * len(table_shown.columns), table_shown.columns, strict=True)
    )
    position = headings.index((group, name))
    return [row[position] for row in table_shown.rows]


def records(table_shown: analysis.Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(table_shown, "csv"))))


@pytest.mark.parametrize("name", list(analysis.TABLES))
def test_every_table_is_the_same_bytes_whatever_the_order_of_an_arms_rows(source, name: str):
    rows = source(FEW)
    first = shown(rows, name)
    again = shown(pd.concat([part.iloc[::-1] for _, part in rows.groupby("arm", sort=False)]), name)
    for form in ("markdown", "latex", "csv"):
        assert render(first, form) == render(again, form)


@pytest.mark.parametrize("name", list(analysis.TABLES))
def test_every_table_states_its_conventions_and_has_whole_rows(source, name: str):
    table_shown = shown(source(FEW), name)
    assert table_shown.rows
    assert {len(row) for row in table_shown.rows} == {len(table_shown.columns)} == {len(table_shown.numeric)}
    assert any(note.startswith("N: ") for note in table_shown.notes)


def test_a_row_of_latex_that_begins_with_a_bracket_is_no_argument():
    item = analysis.Table("t", ("arm", "loss"), (("a", "1"), ("[b]", "2")), (False, True))
    assert r"{[b]} & 2 \\".replace("\\\\", "\\") in render(item, "latex")


def test_a_name_in_a_csv_file_is_no_formula():
    item = analysis.Table("t", ("arm", "=loss"), (("=1+1", "−0.5"), ("@b", "1")), (False, True))
    assert render(item, "csv") == "arm,'=loss\n'=1+1,-0.5\n'@b,1\n"


def columns_of_latex(line: str) -> int:
    spans = re.findall(r"\\multicolumn\{(\d+)\}", line)
    return line.replace(r"\&", "").count("&") + 1 + sum(int(span) - 1 for span in spans)


@pytest.mark.parametrize("name", list(analysis.TABLES))
def test_latex_is_balanced_and_escaped(source, name: str):
    rows = source(FEW).replace({"arm": {"unified": "uni_fied & 100%"}})
    text = render(shown(rows, name), "latex")
    specification = text.split(r"\begin{tabular}{")[1].split("}\n")[0]
    width = len(re.findall(r"[lrS]", re.sub(r"\[.*?\]", "", specification)))
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {columns_of_latex(line) for line in lines} == {width}
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert r"uni\_fied \& 100\%" in text
    assert text.isascii()


def test_numbers_of_latex_are_aligned_at_the_point_with_what_follows_them_beside():
    rows = (("a", "3.85 ± 0.02", "25.1k", "reference"), ("b", "13.9†", "1.2M", "−0.04 ± 0.10"))
    item = analysis.Table("t", ("arm", "loss", "N", "difference"), rows, (False, *[True] * 3), best={(0, 1)})
    text = render(item, "latex")
    assert r"{l S[table-format=2.2]@{}l r S[table-format=+1.2]@{}l}" in text
    lines = [line.split(" & ", 1)[1] for line in text.splitlines() if line.startswith(("a ", "b "))]
    assert lines == [
        r"\bfseries 3.85 & \bfseries \,\ensuremath{\pm}\,0.02 & 25.1k & \multicolumn{2}{c}{reference} \\",
        r"13.9 & \dag{} & 1.2M & -0.04 & \,\ensuremath{\pm}\,0.10 \\",
    ]


def test_notes_of_latex_have_symbols_products_and_powers_of_ten():
    note = "C: 6 x N x tokens; L = A/C^alpha; at 1.5e-03 and 2e+18."
    text = render(analysis.Table("t", ("a",), (("1",),), (True,), (note,)), "latex")
    shown_note = next(line for line in text.splitlines() if line.startswith(r"\item"))
    assert shown_note == (
        r"\item \ensuremath{C}: 6 \ensuremath{\times} \ensuremath{N} \ensuremath{\times} tokens; "
        r"L = A/\ensuremath{C}\ensuremath{^{\alpha}}; at \ensuremath{1.5\times10^{-3}} and "
        r"\ensuremath{2\times10^{18}}."
    )


def test_a_narrow_table_takes_one_column_of_a_paper_and_a_wide_one_both():
    for n_columns, float_ in ((3, "table"), (12, "table*")):
        names = tuple(f"column {n}" for n in range(n_columns))
        text = render(analysis.Table("t", names, (names,), (False,) * n_columns), "latex")
        assert rf"\begin{{{float_}}}[tb]" in text
        assert rf"\end{{{float_}}}" in text


def test_columns_are_chosen_in_order_and_losses_rounded(source):
    whole = shown(source(FEW), "main")
    text = render(whole, "markdown", columns=["loss", "rung"], digits=2)
    assert text.splitlines()[0].endswith("loss | rung |")
    assert not re.search(r"\d\.\d{3}", text.partition("\n\n")[0])
    assert text.partition("\n\n")[0].count("**") == 2 * len(whole.best)


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("markdown", {"columns": ["los"]}, "has no column 'los'; allowed: rung, N"),
        ("markdown", {"digits": 5}, "digits is 5; allowed: 1 to 4"),
        ("csv", {"digits": 2}, "csv has every column"),
    ],
)
def test_a_part_of_a_table_that_cannot_be_is_refused(source, form, options, message):
    with pytest.raises(DataError, match=message):
        render(shown(source(FEW), "main"), form, **options)


def test_a_note_begins_no_list_and_no_heading_in_markdown():
    notes = ("- no item", "# no heading", "1. no number", "a | b")
    text = render(analysis.Table("t", ("a",), (("1",),), (True,), notes), "markdown")
    assert text.split("\n\n")[1:] == [r"\- no item", r"\# no heading", r"\1. no number", "a | b\n"]


def test_arms_without_a_multiplier_for_one_reason_share_a_note(source):
    rows = source(EFFECTS)
    notes = shown(rows[rows["rung"] == rows["rung"].iloc[0]], "main").notes
    [note] = [note for note in notes if note.startswith("No compute multipliers")]
    assert note.count("no multiplier from one rung") == 1
    assert all(arm in note for arm in EFFECTS if arm != "baseline")


def test_no_note_speaks_of_scale_vectors_where_there_are_none(source):
    rows = source(FEW).assign(vector_branches="none", vector_placement="input")
    notes = " ".join(shown(rows.drop(columns="n_params_scale_vectors", errors="ignore"), "main").notes)
    assert "scale vectors" not in notes


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", list(analysis.TABLES))
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


# main


def test_main_has_two_arms_side_by_side_and_a_row_for_each_rung(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "main")
    assert column(table_shown, "rung") == ["25k", "55k", "83k", "150k"]
    assert column(table_shown, "N") == ["25.1k", "55.3k", "82.9k", "151k"]
    assert column(table_shown, "seeds") == ["2"] * 4
    assert all(
        text.startswith("−0.0") and "±" in text for text in column(table_shown, "difference", "unified")
    )
    assert column(table_shown, "multiplier", "unified")[0].startswith("1.")


def test_main_has_many_arms_one_below_the_other(source):
    table_shown = shown(source(), "main")
    assert column(table_shown, "rung")[:6] == ["25k", "", "", "", "", "55k"]
    assert column(table_shown, "arm") == list(EFFECTS) * 4
    assert column(table_shown, "difference")[0] == "reference"
    assert all("±" in text for text in column(table_shown, "difference")[1:5])
    assert table_shown.breaks == {5, 10, 15}
    assert {table_shown.rows[row][table_shown.columns.index("arm")] for row, _ in table_shown.best} == {
        "unified"
    }


def test_a_grid_of_rates_is_not_taken_for_seeds(source):
    rows = source({"baseline": 0.0, "unified": -0.03}).assign(lr_status="fixed", learning_rate=0.01)
    both = pd.concat([rows, rows.assign(learning_rate=0.02, loss=rows["loss"] + 0.5)])
    table_shown = shown(both, "main")
    assert column(table_shown, "learning_rate") == ["0.01"] * 4 + ["0.02"] * 4
    assert column(table_shown, "seeds") == ["2"] * 8
    (compared,) = analysis.compare(both, reference="baseline", bootstrap=0)
    assert "on average over 8 cells of 4 rungs" in compared.sentence
    got = [record for record in records(table_shown) if record["arm"] == "unified"]
    assert sorted(float(item["difference"]) for item in got) == sorted(cell.mean for cell in compared.by_rung)


def test_main_agrees_with_compare(source):
    rows = source({"baseline": 0.0, "none": 0.04})
    (compared,) = analysis.compare(rows, reference="baseline", bootstrap=0)
    got = [record for record in records(shown(rows, "main")) if record["arm"] == "none"]
    assert [float(record["difference"]) for record in got] == [cell.mean for cell in compared.by_rung]
    assert [float(record["difference_low"]) for record in got] == [c.interval[0] for c in compared.by_rung]


def test_the_multiplier_of_a_rung_is_that_of_its_compute(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, noise=4e-3)
    # A difference that is one at all sizes lies on no power law: the hold-out would withhold the largest.
    (compared,) = analysis.compare(rows, reference="baseline", bootstrap=20, hold_out="none")
    shown_main = shown(rows, "main", hold_out="none")
    got = [record for record in records(shown_main) if record["arm"] == "unified"]
    largest = compared.compute_multipliers[1]
    assert float(got[-1]["at_flops"]) == largest.at_flops
    assert float(got[-1]["multiplier"]) == pytest.approx(largest.estimate)
    assert float(got[-1]["multiplier_low"]) == pytest.approx(largest.interval[0])


def test_bold_is_the_lowest_mean_and_a_star_says_that_it_is_separated(source):
    clear = shown(source({"baseline": 0.0, "unified": -0.05}, noise=1e-3), "main")
    assert {clear.columns[position] for _, position in clear.best} == {"loss"}
    assert all(text.endswith("*") for text in column(clear, "loss", "unified"))
    close = shown(source({"baseline": 0.0, "unified": -1e-5}, noise=2e-2), "main")
    assert len(close.best) == 4
    assert not any(text.endswith("*") for row in close.rows for text in row)


def test_one_seed_may_be_bold_but_never_separated(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.05}, seeds=(0,)), "main")
    assert len(table_shown.best) == 4
    assert not any("*" in text or "±" in text for row in table_shown.rows for text in row)


def test_an_arm_that_diverged_in_a_row_is_not_its_best(source, diverge):
    rows = diverge(source({"baseline": 0.0, "none": 0.02, "unified": -0.05}), "unified", "55k", 1)
    table_shown = shown(rows, "main")
    best = {
        table_shown.rows[row][table_shown.columns.index("arm")] + f" {row // 3}"
        for row, _ in table_shown.best
    }
    assert best == {"unified 0", "baseline 1", "unified 2", "unified 3"}
    assert column(table_shown, "seeds")[3:6] == ["2", "2", "1"]
    assert "Without a difference, unified: diverged at 55k, seed 1." in table_shown.notes


def test_a_cell_whose_trials_all_diverged_says_so(source, diverge):
    rows = source({"baseline": 0.0, "unified": -0.05}, seeds=(0,))
    table_shown = shown(diverge(rows, "unified", "55k", 0), "main")
    assert column(table_shown, "loss", "unified")[1] == "diverged"


def test_a_censored_rate_is_marked(source):
    rows = source()
    rows.loc[(rows["arm"] == "none") & (rows["rung"] == "25k"), "lr_status"] = "censored"
    table_shown = shown(rows, "main")
    (marked,) = [row for row in table_shown.rows if "†" in row[table_shown.columns.index("loss")]]
    assert marked[table_shown.columns.index("arm")] == "none"
    assert any(note.startswith("†: learning rate censored") for note in table_shown.notes)
    assert "censored at 25k, tuned at 55k, 83k and 150k" in " ".join(table_shown.notes)


def test_decay_has_a_rule_where_another_architecture_begins_and_nowhere_else(source):
    table_shown = shown(pd.concat([source(FEW), source(FEW).assign(architecture="gemma")]), "decay")
    assert column(table_shown, "architecture") == ["gemma"] * 3 + ["llama"] * 3
    assert table_shown.breaks == {3}


def test_the_decay_convention_of_every_arm_is_said(source):
    notes = " ".join(shown(source(), "main").notes)
    assert (
        "Weight decay: 0.1 on matrices; of the scale vectors decay: all in baseline and or-norm; "
        "no vectors in none; input in unified; none in no-decay." in notes
    )


def test_decay_that_pulls_gains_to_one_is_said(source):
    rows = source().assign(vector_gain="g")
    rows.loc[rows["arm"] == "unified", "vector_gain"] = "1+w"
    assert "baseline and or-norm; no vectors in none; input (towards 1) in unified; none in no-decay." in (
        " ".join(shown(rows, "main").notes)
    )
    rows.loc[(rows["arm"] == "unified") & (rows["seed"] == 0), "vector_gain"] = "g"
    assert "input (towards 0 or, with 1+w, 1) in unified" in " ".join(shown(rows, "main").notes)


def test_several_settings_have_rows_and_multipliers_of_their_own(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    both = pd.concat([rows, rows.assign(optimizer="muon", loss=rows["loss"] - 0.1)])
    table_shown = shown(both, "main", hold_out="none")
    assert column(table_shown, "optimizer") == ["adamw"] * 4 + ["muon"] * 4
    assert table_shown.breaks == {4}
    assert all(column(table_shown, "multiplier", "unified"))


def in_four_settings(rows):
    settings = [(optimizer, schedule) for optimizer in ("adamw", "muon") for schedule in ("cosine", "wsd")]
    parts = [rows.assign(optimizer=optimizer, schedule=schedule) for optimizer, schedule in settings]
    return pd.concat(parts, ignore_index=True)


def fractions(rows):
    return [note for note in shown(rows, "main").notes if note.startswith("Fractional design")]


def test_a_full_product_of_settings_is_not_called_fractional(source):
    rows = source(FEW)
    assert fractions(rows) == fractions(in_four_settings(rows)) == []


def test_a_fractional_design_says_what_of_the_product_was_run(source):
    rows = in_four_settings(source(FEW))
    half = rows[(rows["optimizer"] == "adamw") == (rows["schedule"] == "cosine")]
    assert fractions(half) == ["Fractional design: 2 of 4 combinations of optimizer and schedule were run."]


def test_arms_that_were_run_in_fewer_settings_are_named(source):
    rows = in_four_settings(source(FEW))
    left_out = (rows["arm"] == "no-decay") & (rows["schedule"] == "wsd") & (rows["optimizer"] == "adamw")
    assert fractions(rows[~left_out]) == [
        "Fractional design: 4 of 4 combinations of optimizer and schedule were run; no-decay in 3 of them."
    ]


def test_an_arm_that_was_not_run_in_a_setting_has_no_row_there(source):
    rows = in_four_settings(source(FEW))
    left_out = (rows["arm"] == "no-decay") & (rows["schedule"] == "wsd")
    table_shown = shown(rows[~left_out], "main")
    assert column(table_shown, "arm").count("no-decay") == column(table_shown, "arm").count("baseline") / 2
    assert "0" not in column(table_shown, "seeds")
    starts = [row for row, arm in enumerate(column(table_shown, "arm")) if arm == "baseline"]
    assert sorted(table_shown.breaks) == starts[1:]
    assert {column(table_shown, "arm")[row] for row, _ in table_shown.best} == {"unified"}


def test_an_arm_without_a_result_keeps_its_row(source):
    rows = source(FEW)
    lost = (rows["arm"] == "no-decay") & (rows["rung"] == "25k")
    rows.loc[lost, ["status", "loss"]] = ["failed", np.nan]
    assert column(shown(rows, "main"), "seeds").count("0") == 1


def test_without_a_line_in_compute_the_reason_stands_in_place_of_multipliers(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, rungs={"25k": 25_088})
    table_shown = shown(rows, "main")
    assert "multiplier" not in table_shown.columns
    assert "No compute multipliers: unified: no multiplier from one rung." in table_shown.notes


def test_two_rungs_give_no_multiplier(source):
    table_shown = shown(source(FEW, rungs={"25k": 25_088, "55k": 55_296}), "main")
    assert "multiplier" not in table_shown.columns
    assert any("no multiplier from 2 rungs, which cannot check the law" in note for note in table_shown.notes)


def test_main_has_the_note_of_scaling_on_a_law_that_is_not_unique(source):
    # By L1 a line through an arch at four equal steps may move up and down between its points.
    rungs = {name: 20_000 * 2**step for step, name in enumerate(("20k", "40k", "80k", "160k"))}
    rows = source({"baseline": 0.5, "unified": 0.4}, seeds=(0,), noise=0, rungs=rungs)
    of_main, of_scaling = (
        [note for note in shown(rows, name, loss="l1").notes if "the optimum is not unique" in note]
        for name in ("main", "scaling")
    )
    assert [note.split(":")[0] for note in of_main] == ["baseline", "unified"]
    assert of_main == of_scaling
    assert not any("not unique" in note for note in shown(rows, "main", loss="l2").notes)


# ablation


def test_ablation_marks_what_each_arm_has_and_tests_the_family(source):
    rows = source()
    table_shown = shown(rows, "ablation")
    assert column(table_shown, "arm")[0] == "baseline"
    marks = {row[0]: dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows}
    assert [marks["unified"][name] for name in ("HG", "DP", "DNP", "OR", "ER", "decay")] == [
        "✓",
        "",
        "✓",
        "✓",
        "",
        "input",
    ]
    assert marks["none"]["vectors"] == marks["none"]["decay"] == ""
    assert marks["or-norm"]["OR"] == "or-normalized"
    compared = {
        comparison.arm: comparison.loss_difference
        for comparison in analysis.compare(rows, reference="baseline", bootstrap=0)
    }
    got = {record["arm"]: record for record in records(table_shown) if record["cell"] == "all"}
    for arm, difference in compared.items():
        assert float(got[arm]["difference"]) == difference.mean
        assert float(got[arm]["p_holm"]) == difference.p_holm


def test_ablation_says_whether_the_best_arm_is_separated_from_the_next(source):
    table_shown = shown(source(noise=1e-3), "ablation")
    ((row, position),) = table_shown.best
    assert (table_shown.rows[row][0], table_shown.columns[position]) == ("unified", "all")
    assert any("unified is separated from the next, or-norm" in note for note in table_shown.notes)


def test_an_arm_that_lacks_a_cell_is_not_ranked(source):
    rows = source({"baseline": 0.0, "unified": -0.03, "or-norm": -0.01})
    table_shown = shown(rows[~((rows["arm"] == "unified") & (rows["rung"] == "150k"))], "ablation")
    ((row, _),) = table_shown.best
    assert table_shown.rows[row][0] == "or-norm"
    assert "Not over all cells, so not to be ranked beside the others: unified." in table_shown.notes


def test_no_arm_below_the_reference_is_bold(source):
    table_shown = shown(source({"baseline": 0.0, "none": 0.04}), "ablation")
    assert table_shown.best == frozenset()
    assert any("No arm lies below the reference" in note for note in table_shown.notes)


@pytest.fixture
def beside_a_grid_of_rates(sweep):
    """Every arm has one rate that is fixed, the reference 0.01; ``swept`` has 0.01 and 0.02."""

    def make(effects: dict[str, float], rates: dict[str, float]) -> pd.DataFrame:
        rows = sweep({"baseline": 0.0, "swept": 0.01, **effects}, noise=1e-3)
        rows = rows.assign(lr_status="fixed", learning_rate=rows["arm"].map(rates).fillna(0.01))
        again = rows[rows["arm"] == "swept"]
        return pd.concat([rows, again.assign(learning_rate=0.02, loss=again["loss"] + 0.1)])

    return make


def test_an_arm_at_another_rate_than_the_reference_is_ranked_beside_a_grid_of_rates(beside_a_grid_of_rates):
    rows = beside_a_grid_of_rates({"unified": -0.03}, {"unified": 0.02})
    table_shown = shown(rows, "ablation")
    ((row, position),) = table_shown.best
    assert (table_shown.rows[row][0], table_shown.columns[position]) == ("unified", "all")
    notes = " ".join(table_shown.notes)
    assert "No arm lies below the reference" not in notes
    assert "Not over all cells" not in notes
    assert "Differences of unified: to baseline at another learning rate, shown in the cells" in notes
    # Paired with swept, unified would be compared at 0.02, and the row of swept is at 0.01.
    assert "the next" not in notes


def test_arms_at_the_rate_of_the_reference_are_told_apart_beside_a_grid_of_rates(beside_a_grid_of_rates):
    notes = " ".join(shown(beside_a_grid_of_rates({"unified": -0.03}, {}), "ablation").notes)
    assert "unified is separated from the next, swept: −0.04" in notes
    assert "another learning rate" not in notes


def test_an_arm_that_lacks_a_cell_is_not_ranked_beside_a_grid_of_rates(beside_a_grid_of_rates):
    rows = beside_a_grid_of_rates({"unified": -0.03}, {"unified": 0.02})
    table_shown = shown(rows[~((rows["arm"] == "unified") & (rows["rung"] == "150k"))], "ablation")
    assert table_shown.best == frozenset()
    assert "Not over all cells, so not to be ranked beside the others: unified." in table_shown.notes


def test_main_says_whose_differences_are_to_the_reference_at_another_rate(beside_a_grid_of_rates):
    table_shown = shown(beside_a_grid_of_rates({"unified": -0.03}, {"unified": 0.02}), "main")
    at_its_rate = [row for row in records(table_shown) if row["arm"] == "unified" and row["seeds"] == "2"]
    assert {row["learning_rate"] for row in at_its_rate} == {"0.02"}
    assert all(row["difference"] for row in at_its_rate)
    assert (
        "Differences of unified: to baseline at another learning rate, shown in the cells of the arm."
        in table_shown.notes
    )


def test_ablation_of_a_plain_table_has_no_check_marks(sweep):
    table_shown = shown(sweep(), "ablation")
    assert table_shown.columns == ("arm", "25k", "55k", "83k", "150k", "all", "Holm p", "pairs")


# decay


def test_decay_has_a_row_for_each_architecture_and_policy(source):
    rows = source({"baseline": 0.0, "no-decay": 0.01, "unified": -0.03})
    both = pd.concat([rows, rows.assign(architecture="gemma")])
    table_shown = shown(both, "decay")
    assert column(table_shown, "architecture") == ["gemma"] * 3 + ["llama"] * 3
    assert column(table_shown, "decayed vectors")[:3] == ["all", "none", "input"]
    assert any("Holm over the 4 rows" in note for note in table_shown.notes)


def test_decay_has_a_column_by_rung_and_rows_for_every_setting(source):
    parts = [
        source({"baseline": 0.0, "no-decay": gain}).assign(norm_gain=name)
        for name, gain in (("g", -0.05), ("1+w", 0.05))
    ]
    rows = pd.concat(parts)
    rows.loc[(rows["rung"] == "25k") & (rows["arm"] == "no-decay"), "loss"] += 0.5
    table_shown = shown(rows, "decay", settings=["norm_gain"])
    at_25k, at_55k = (column(table_shown, rung, "by rung") for rung in ("25k", "55k"))
    assert column(table_shown, "norm_gain") == ["1+w", "1+w", "g", "g"]
    assert float(at_25k[1].split()[0]) > 0.4
    assert [at_55k[row][0] for row in (1, 3)] == ["+", "−"]
    assert at_25k[0].startswith("3.")  # the loss of the reference


def test_decay_shows_norms_where_the_source_has_them(source):
    rows = source({"baseline": 0.0, "no-decay": 0.01}).assign(vector_rms_query_input=0.5)
    assert column(shown(rows, "decay"), "query_input", "root mean square of the vectors") == ["0.500"] * 2


def test_arms_that_are_the_same_trials_are_said_to_be(source):
    rows = source({"baseline": 0.0, "no-decay": 0.0})
    rows["trial_id"] = rows["rung"] + rows["seed"].astype(str)
    rows["loss"] = rows.groupby("trial_id")["loss"].transform("first")
    assert column(shown(rows, "decay"), "Holm p")[1] == "same trials"


# overhead


def test_overhead_is_a_median_of_paired_ratios_with_their_range(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "overhead")
    first = [dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows[:2]]
    assert first[0]["step time"] == "100 ms"
    assert first[1]["step time"] == "1.10× [1.10, 1.10]"
    assert first[1]["tokens/s"] == "0.91× [0.91, 0.91]"
    assert first[0]["peak memory"] == "1024 MiB"
    assert (first[1]["scale vectors"], first[1]["share"]) == ("160", "6.13e-03")


def test_overhead_shows_allocated_memory_where_it_is_known_and_not_the_resident_size(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    rows["allocated_bytes"] = np.where(rows["arm"] == "unified", 3 * 2**20, 2 * 2**20)
    table_shown = shown(rows, "overhead")
    first = [dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows[:2]]
    assert [row["allocated memory"] for row in first] == ["2 MiB", "1.50× [1.50, 1.50]"]
    assert "peak memory" not in table_shown.columns


def test_overhead_compares_no_trials_of_different_devices(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    rows.loc[(rows["arm"] == "unified") & (rows["rung"] == "25k"), "device"] = "cpu"
    table_shown = shown(rows, "overhead")
    assert column(table_shown, "rung")[:3] == ["25k", "55k", "55k"]
    assert any("Left out: 2 pairs" in note for note in table_shown.notes)


def test_overhead_of_an_arm_that_lacks_a_trial_is_that_of_its_other_pairs(source):
    rows = source(FEW)
    table_shown = shown(rows[~((rows["arm"] == "unified") & (rows["rung"] == "150k"))], "overhead")
    assert column(table_shown, "arm").count("unified") == 3
    assert not any("Left out" in note for note in table_shown.notes)


def test_overhead_says_what_was_not_recorded(source):
    rows = source({"baseline": 0.0, "unified": -0.03}).drop(columns=["peak_memory_bytes", "n_params_total"])
    assert "Not recorded in this source: allocated memory, parameters." in shown(rows, "overhead").notes


# optimizers


def test_optimizers_has_the_rates_and_an_overall_row_for_each(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    both = pd.concat([rows, rows.assign(optimizer="muon", schedule="wsd")])
    table_shown = shown(both, "optimizers")
    assert column(table_shown, "cell") == ["25k", "55k", "83k", "150k", "all"] * 2
    assert column(table_shown, "rate", "baseline")[:5] == ["0.016"] * 4 + [""]
    assert all(", p " in text for text in column(table_shown, "difference", "unified")[4::5])


# scaling


def test_scaling_is_what_fit_and_compare_say(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    got = {record["arm"]: record for record in records(shown(rows, "scaling"))}
    for fit in analysis.fit(rows, bootstrap=20):
        assert float(got[fit.arm]["alpha"]) == fit.parameters["alpha"]
        assert float(got[fit.arm]["alpha_low"]) == fit.intervals["alpha"][0]
        assert float(got[fit.arm]["hold_out_relative_error"]) == fit.hold_out["relative_error"]
    (compared,) = analysis.compare(rows, reference="baseline", bootstrap=20)
    assert float(got["unified"]["multiplier_middle"]) == compared.compute_multipliers[0].estimate
    assert got["baseline"]["multiplier_middle"] == ""


def test_scaling_takes_any_law(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "scaling", law="power-floor", x="N")
    assert "E" in table_shown.columns
    assert "L = E + A/N^alpha" in table_shown.groups


# refusals: what is missing, never an empty table


@pytest.mark.parametrize(
    ("name", "drop", "message"),
    [
        ("decay", ["vector_decay"], "table 'decay' needs vector_decay"),
        ("optimizers", ["optimizer", "schedule"], "table 'optimizers' needs optimizer, schedule"),
        (
            "overhead",
            ["steps", "tokens_per_s", "peak_memory_bytes"],
            "'overhead' needs wall_s and steps; or tokens_per_s",
        ),
    ],
)
def test_a_source_that_lacks_what_a_table_needs_is_refused(source, name: str, drop: list[str], message: str):
    with pytest.raises(DataError, match=message):
        shown(source().drop(columns=drop), name)


@pytest.mark.parametrize("name", list(analysis.TABLES))
def test_no_table_is_made_of_trials_that_have_not_finished(source, name: str):
    rows = source({"baseline": 0.0, "no-decay": 0.0}).assign(status="pending", loss=np.nan)
    with pytest.raises(DataError, match="needs completed comparison trials; none of 16 is"):
        shown(rows, name)


def test_one_decay_policy_is_no_decay_table(source):
    with pytest.raises(DataError, match="needs arms with different decay policies; found: all"):
        shown(source({"baseline": 0.0, "or-norm": 0.0}), "decay")


def test_one_rung_is_no_scaling_table(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, rungs={"25k": 25_088})
    with pytest.raises(DataError, match="table 'scaling' has no law to show: arm 'baseline': all points"):
        shown(rows, "scaling")


def test_an_unknown_table_is_refused_with_the_nearest_name(source):
    with pytest.raises(DataError, match="table is 'mian'; nearest: 'main'"):
        shown(source(), "mian")


def test_a_table_says_which_rows_were_chosen(sweep):
    table_shown = table(sweep(), "comparison", reference="baseline", where="seed < 1", bootstrap=0)
    assert table_shown.notes[-1] == "Rows: where seed < 1 (8 left out)."


def test_a_table_shows_another_column_of_losses_and_refuses_one_of_scores(sweep):
    trials = sweep().assign(loss_validation=lambda t: t["loss"] + 1.0, accuracy=0.5)
    table_shown = table(trials, "comparison", reference="baseline", y="loss_validation", bootstrap=0)
    column = table_shown.columns.index("reference loss")
    assert float(table_shown.rows[0][column]) > 4.5
    with pytest.raises(DataError, match="y is 'accuracy'; a table shows losses"):
        table(trials, "comparison", reference="baseline", y="accuracy")
