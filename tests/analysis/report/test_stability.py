"""The map of learning rates: what diverged, was censored or carried."""

from scalevec.analysis.data.tidy import checked
from scalevec.analysis.report.stability import MOST_RATES, stability_map


def cells(table, choices=()) -> dict[tuple[str, str, str], tuple[str, str]]:
    shown = stability_map(checked(table), choices)
    return {
        (rung, arm, rate): (cell.kind, cell.text)
        for rung, arm, row in shown.rows
        for rate, cell in zip(shown.rates, row, strict=True)
        if cell
    }


def test_a_diverged_trial_stands_at_its_rung_arm_and_rate(sweep, diverge):
    table = diverge(sweep().assign(learning_rate=0.02), "unified", "55k", 1)
    shown = cells(table)
    assert shown["55k", "unified", "0.02"] == ("diverged", "1 of 2 diverged")
    assert shown["55k", "baseline", "0.02"] == ("completed", "2")


def test_carried_and_censored_rates_are_named(sweep):
    table = sweep().assign(learning_rate=0.02)
    table.loc[table["rung"] == "83k", "lr_status"] = "carried"
    table.loc[table["rung"] == "150k", "lr_status"] = "censored"
    shown = cells(table)
    assert shown["83k", "unified", "0.02"] == ("carried", "2, carried")
    assert shown["150k", "unified", "0.02"] == ("censored", "2, censored")


def test_the_record_of_tuning_adds_its_grid_where_a_missing_loss_is_a_divergence(sweep, choice):
    shown = cells(sweep().assign(learning_rate=0.016), [choice("baseline", losses=[3.95, 3.9, None])])
    assert shown["25k", "baseline", "0.032"] == ("diverged", "1 of 1 diverged")
    assert shown["25k", "baseline", "0.016"] == ("completed", "3")


def test_very_many_rates_share_columns(sweep):
    table = sweep(seeds=tuple(range(20)))
    table["learning_rate"] = [0.01 * (1 + seed) for seed in table["seed"]]
    shown = stability_map(checked(table), ())
    assert len(shown.rates) == MOST_RATES
    assert shown.rates[0] == "0.01 to 0.02"


def test_without_learning_rates_there_is_no_map(sweep):
    assert stability_map(checked(sweep()), ()) is None
