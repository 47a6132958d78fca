"""The trials that verdicts, tables and figures share: their order, their cells, the same pairs for all."""

import pandas as pd

from scalevec.analysis.comparison.compare import compared
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.options import AnalysisOptions

OPTIONS = AnalysisOptions(bootstrap=0)


def test_a_setting_that_is_blank_where_one_arm_alone_was_run_is_named(sweep):
    table = pd.concat(
        [sweep().assign(optimizer="adamw", corpus="c"), sweep().assign(optimizer="sgd", corpus="c")]
    )
    table["grid"] = table["optimizer"].map(
        {"adamw": "a"}
    )  # blank with sgd, where the reference alone was run
    table = table[(table["arm"] == "baseline") | (table["optimizer"] == "adamw")]
    options = AnalysisOptions(bootstrap=0, settings=("grid",))
    assert compared_trials(table, "baseline", options).pairs("unified").one_sided == ("sgd",)


def test_the_order_of_the_rows_changes_nothing(sweep):
    table = sweep({"baseline": 0.0, "unified": -0.03, "none": 0.04})
    shuffled = pd.concat([table.iloc[:1], table.iloc[1:].sample(frac=1, random_state=1)])
    trials, others = (compared_trials(rows, "baseline", OPTIONS) for rows in (table, shuffled))
    assert others.arms[0] == "baseline"
    by_arm = {comparison.arm: comparison for comparison in compared(others)}
    assert {comparison.arm: comparison for comparison in compared(trials)} == by_arm


def test_a_cell_has_the_size_that_the_reference_has_there(sweep):
    table = sweep().assign(n_params_total=lambda rows: rows["n_params"] + 100 * (rows["arm"] == "unified"))
    trials = compared_trials(table, "baseline", AnalysisOptions(n_convention="total"))
    assert [cell.n_params for cell in trials.cells] == [25_088, 55_296, 82_944, 150_528]
