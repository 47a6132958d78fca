"""Fits and comparisons as lines of text: conventions, units, four lines for each arm and one table."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import Comparison, DataError, compare, comparison_text, fit
from scalevec.analysis.report.text import verdict_table


def test_a_fit_says_which_rows_were_chosen_and_how_many_were_left_out(sweep):
    (fitted,) = fit(sweep({"baseline": 0.0}), where="seed < 1", bootstrap=0).values()
    assert fitted.options.where == "seed < 1"
    assert fitted.excluded == {"where": 4}
    assert "rows: where seed < 1 (4 left out)" in fitted.summary()


def test_of_results_of_a_sweep_it_is_known_what_n_and_the_loss_are(sweep):
    rows = sweep(random_seed=1).assign(sweep="mine", trial_id=lambda rows: rows.index.astype(str))
    text = comparison_text(compare(rows, "baseline", bootstrap=50, law="power").values())
    assert "N: non-embedding matrix parameters" in text
    assert "nats/token" in fit(rows, bootstrap=0, law="power")["baseline"].summary()


def test_a_fit_states_the_units_of_its_parameters(sweep):
    table = sweep({"baseline": 0.0})
    (fitted,) = fit(table, law="power-floor", x="N", bootstrap=0, unit="nats-per-token").values()
    units = {"E": "nats/token", "A": "nats/token x parameters^alpha", "alpha": "none"}
    assert fitted.units == fitted.to_dict()["units"] == units
    assert f"A {fitted.parameters['A']:.6g} nats/token x parameters^alpha" in fitted.summary()
    (other,) = fit(table.assign(accuracy=table["loss"]), y="accuracy", bootstrap=0).values()
    assert other.units["A"] == "unit of accuracy x FLOPs^alpha"


def test_a_table_with_compute_alone_serves_a_law_in_compute():
    table = pd.DataFrame({"flops": np.geomspace(1e15, 1e18, 6)}).assign(loss=lambda t: 30 * t.flops**-0.06)
    (fitted,) = fit(table, law="power", bootstrap=0).values()
    assert fitted.parameters["alpha"] == pytest.approx(0.06)
    assert fitted.options.c_convention == "given"
    assert "C: the column flops as it is" in fitted.summary()


def test_any_positive_column_may_be_described():
    table = pd.DataFrame({"n_params": np.geomspace(1e6, 1e9, 6)}).assign(n_tokens=lambda t: 20 * t.n_params)
    table["best_batch"] = 3.0 * table["n_tokens"] ** 0.4
    (fitted,) = fit(table, law="power", x="D", y="best_batch", bootstrap=0).values()
    assert fitted.parameters["alpha"] == pytest.approx(-0.4)
    assert fitted.formula == "best_batch = A/D^alpha"


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"y": "best"}, "no column 'best'"),
        ({"best": [1.0, -1.0, 2.0, 3.0]}, {"y": "best"}, "column 'best', row 2: -1"),
        ({"best": 1.0}, {"y": "best", "law": "chinchilla"}, "describes the loss"),
        ({"best": ["1", "x", "2", "3"]}, {"y": "best"}, "row 2: 'x' is not a number"),
        ({}, {"hold_out": "rng == 3"}, "no column 'rng'"),
    ],
)
def test_bad_columns_and_options_get_one_message(changes, options, message: str):
    table = pd.DataFrame({"n_params": [1e5, 2e5, 4e5, 8e5], "n_tokens": [2e6, 4e6, 8e6, 16e6]})
    table = table.assign(loss=[4.0, 3.8, 3.6, 3.4], **changes)
    with pytest.raises(DataError, match=message):
        fit(table, **options)


def test_rows_are_held_out_by_any_column_or_expression(sweep):
    table = sweep({"baseline": 0.0}).assign(part=[0, 0, 0, 0, 1, 1, 0, 0])
    by_column = fit(table, hold_out="part", bootstrap=0).only.hold_out
    by_expression = fit(table, hold_out="rung == '83k'", bootstrap=0).only.hold_out
    assert by_column["rung"] == by_expression["rung"] == "83k"
    assert by_column["relative_error"] == by_expression["relative_error"]
    assert fit(table, hold_out="none", bootstrap=0).only.hold_out == {}


@pytest.fixture(scope="module")
def comparison(sweep) -> Comparison:
    table = sweep({"baseline": 0.0, "new": -0.05}, noise=1e-5)
    return compare(table, reference="baseline", bootstrap=50, law="power").only


def test_an_arm_has_four_lines_before_the_table(comparison):
    lines = verdict_table([comparison]).splitlines()
    assert lines[0] == "new"
    text = " ".join(" ".join(lines).split())
    for label, line in comparison.lines.items():
        assert f"{label}: {' '.join(line.text.split())}" in text


def test_the_table_has_difference_interval_p_verdict_and_scope(comparison):
    lines = verdict_table([comparison]).splitlines()
    head, header, line = lines[lines.index("") + 1 :][:3]
    assert head == "loss: arm minus baseline; p by Holm over the arms"
    columns = ["arm", "difference", "95 % interval", "p", "verdict", "scope"]
    assert re.split(r"\s{2,}", header) == columns
    assert line.split()[:2] == ["new", "−0.0500"]
    assert re.split(r"\s{2,}", line)[-2:] == [comparison.verdict, comparison.scope.text]


def test_an_arm_without_pairs_has_no_numbers(comparison):
    absent = dict.fromkeys(("mean", "interval", "p_value", "p_holm"))
    nothing = dataclasses.replace(comparison.loss_difference, **absent)
    line = verdict_table([dataclasses.replace(comparison, loss_difference=nothing)]).splitlines()[-2]
    assert line.split()[1:4] == ["-", "-", "-"]


def test_of_more_than_two_arms_the_table_comes_first_and_lines_where_they_are_asked_for(sweep):
    arms = {"baseline": 0.0, "none": 0.02, "new": -0.05, "other": 0.0}
    comparisons = list(compare(sweep(arms, noise=1e-4), reference="baseline", bootstrap=0).values())
    alone = verdict_table(comparisons).splitlines()
    assert alone[0] == "loss: arm minus baseline; p by Holm over the arms; 25k to 150k"
    assert [line.split()[0] for line in alone[1:]] == ["arm", "none", "new", "other", "With"]
    asked = verdict_table(comparisons, arms=["new"]).splitlines()
    assert asked[len(alone) + 1] == "new"
    assert sum("at sizes:" in line for line in asked) == 1
