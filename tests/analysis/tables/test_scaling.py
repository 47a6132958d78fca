"""The table of laws says what fit and compare say."""

from tests.shown_tables import records, shown

from comparisons import only
from scalevec import analysis


def test_scaling_is_what_fit_and_compare_say(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, random_seed=1)
    got = {record["arm"]: record for record in records(shown(rows, "scaling"))}
    for fit in analysis.fit(rows, bootstrap=20).values():
        assert float(got[fit.arm]["alpha"]) == fit.parameters["alpha"]
        assert float(got[fit.arm]["alpha_low"]) == fit.intervals["alpha"][0]
        assert float(got[fit.arm]["hold_out_relative_error"]) == fit.hold_out["relative_error"]
    compared = only(rows, bootstrap=20)
    assert float(got["unified"]["multiplier"]) == compared.compute_multipliers[0].estimate
    assert got["baseline"]["multiplier"] == ""


def test_scaling_takes_any_law(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "scaling", law="power-floor", x="N")
    assert "E" in table_shown.columns
    assert table_shown.notes[0].startswith("Law: L = E + A/N^alpha (")


def test_where_a_loss_is_only_a_bound_there_is_no_multiplier_as_in_a_comparison(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, random_seed=1).assign(lr_status="tuned")
    rows.loc[rows["n_params"] == rows["n_params"].max(), "lr_status"] = "censored"
    [row] = [record for record in records(shown(rows, "scaling")) if record["arm"] == "unified"]
    assert row["multiplier"] == ""
    assert only(rows, bootstrap=20).withheld == "a loss of baseline and unified is only a bound"
