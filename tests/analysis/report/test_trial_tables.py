"""Every trial and every pair of a report, short on the page and whole for programs."""

from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.data.tidy import checked
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.report.trial_tables import pair_records, trials_table


def row(table, number: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[number], strict=True))


def test_a_trial_has_its_short_name_and_loss_on_the_page_and_all_of_both_for_programs(sweep):
    results = sweep().assign(trial_id=[f"{number:064x}" for number in range(16)], wall_s=5400.0)
    trials = compared_trials(results, "baseline", AnalysisOptions())
    table = trials_table(checked(results), trials)
    shown = row(table, 1)
    assert (shown["trial"], shown["loss"], shown["hours"]) == ("0" * 12, "3.8962", "1.5")
    assert table.records[1]["trial_id"] == f"{1:064x}"
    assert table.records[1]["loss"] == results.loc[1, "loss"]


def test_a_pair_has_both_losses_and_one_whose_arm_diverged_has_no_difference(sweep, diverge):
    results = diverge(sweep(), "unified", "25k", 1)
    first, second = pair_records(compared_trials(results, "baseline", AnalysisOptions()))[:2]
    losses = results.loc[[0, 2], "loss"].to_numpy()
    assert (first["loss_reference"], first["pair"]) == (losses[0], "complete")
    assert first["difference"] == losses[1] - losses[0]
    assert (second["loss_arm"], second["difference"], second["pair"]) == (None, None, "arm diverged")
