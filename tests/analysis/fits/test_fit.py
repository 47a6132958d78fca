"""Fits of one law: what is recovered, resampled, said and refused; along isoFLOP lines; of the wrong form."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis import planted
from tests.analysis.planted import EXPONENT, HOFFMANN, isoflops

from scalevec.analysis import DataError, fit, rolling
from scalevec.analysis.fits import hold_out
from scalevec.analysis.fits.hold_out import SIGNIFICANT
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.solver.newton import newton
from scalevec.analysis.statistics.noise import noise_by_mean, pooled_noise


def grid(noise: float = 0.0) -> pd.DataFrame:
    """Six sizes x five budgets."""
    return planted.grid(np.geomspace(1e7, 1e10, 6), np.geomspace(1e9, 1e11, 5), noise)


def ladder(loss, sizes=(2.5e4, 5.5e4, 8.3e4, 1.5e5, 2e5, 4e5)) -> pd.DataFrame:
    n_params = np.array(sizes)
    table = pd.DataFrame({"n_params": n_params, "n_tokens": 16 * n_params})
    table["loss"] = loss(6 * table["n_params"] * table["n_tokens"])
    return table


@settings(max_examples=8, deadline=None)
@given(st.floats(0.02, 1.0), st.floats(0.5, 5.0), st.sampled_from(["N", "D", "C"]))
def test_a_planted_power_law_is_recovered(alpha: float, scale: float, x: str):
    middle = {"N": 1e5, "D": 1.6e6, "C": 9.6e11}[x]
    power = {"N": 0.5, "D": 0.5, "C": 1.0}[x]
    table = ladder(lambda c: scale * (c / 9.6e11) ** (-alpha * power))
    (fitted,) = fit(table, law="power", x=x, bootstrap=0).values()
    assert fitted.parameters["alpha"] == pytest.approx(alpha, rel=1e-8)
    predicted = fitted.predict({x: middle} if x == "C" else {"N": 1e5, "D": 1.6e6})
    assert predicted.value[0] == pytest.approx(scale, rel=1e-8)


@pytest.mark.parametrize("loss", ["huber", "l2"])
@pytest.mark.parametrize("residual", ["log", "linear"])
def test_a_planted_law_in_two_variables_is_recovered_by_every_loss(loss: str, residual: str):
    (fitted,) = fit(grid(), law="chinchilla", loss=loss, residual=residual, bootstrap=0).values()
    for name, value in HOFFMANN.items():
        assert fitted.parameters[name] == pytest.approx(value, rel=1e-4)


def test_each_arm_is_fitted_in_the_order_of_the_table():
    table = pd.concat([ladder(lambda c, a=a: c**-a).assign(arm=name) for name, a in (("z", 0.1), ("a", 0.2))])
    fits = fit(table, bootstrap=0).values()
    assert [(f.arm, round(f.parameters["alpha"], 6)) for f in fits] == [("z", 0.1), ("a", 0.2)]


def test_a_start_that_stops_early_is_not_called_optimal():
    table = grid(noise=0.01)
    variables = {"N": table["n_params"].to_numpy(), "D": table["n_tokens"].to_numpy()}
    points = points_of(law_named("chinchilla"), variables)
    problem = points.problem(table["loss"].to_numpy(), None, AnalysisOptions())
    hoffmann = np.array([[0.5, 0.2, 0.1, 0.3, 0.1]])
    assert not newton(problem, hoffmann, iterations=1).optimal[0]
    assert newton(problem, hoffmann).optimal[0]


def test_one_outlier_moves_a_huber_fit_less_than_least_squares():
    table = ladder(lambda c: 30 * c**-0.1)
    table.loc[2, "loss"] *= 1.3
    huber, l2 = (fit(table, loss=loss, bootstrap=0).only.parameters["alpha"] for loss in ("huber", "l2"))
    assert abs(huber - 0.1) < 1e-3 < abs(l2 - 0.1)


def test_a_short_ladder_is_told_to_compare_levels(sweep):
    for law in ("power", "power-floor"):
        (fitted,) = fit(sweep({"baseline": 0.0}, noise=0.01), law=law, bootstrap=100).values()
        assert any("compare levels, not exponents" in warning for warning in fitted.warnings)


def test_a_long_clean_ladder_identifies_its_irreducible_loss():
    sizes = np.repeat(np.geomspace(1e5, 1e9, 9), 2)
    noise = np.exp(np.random.default_rng(0).normal(0, 1e-3, 18))
    table = ladder(lambda c: (1.8 + 60 * c**-0.12) * noise, sizes)
    (fitted,) = fit(table, law="power-floor", bootstrap=200).values()
    assert not any("irreducible" in warning for warning in fitted.warnings)
    assert fitted.parameters["E"] == pytest.approx(1.8, abs=0.1)


def test_an_irreducible_loss_at_its_bound_is_said():
    bent = ladder(lambda c: 5.0 * (c / 1e12) ** (-0.1 - 0.01 * np.log(c / 1e10)))
    (fitted,) = fit(bent, law="power-floor", bootstrap=0).values()
    assert any("no irreducible loss" in warning for warning in fitted.warnings)
    assert fitted.optimality < 1e-6


def test_the_bootstrap_resamples_clusters_and_repeats_itself():
    table = pd.concat([grid(noise=noise).assign(run=range(30)) for noise in (0.02, 0.01)])
    wide, again = (fit(table, law="chinchilla", bootstrap=100, cluster="run").only for _ in range(2))
    assert wide.n_clusters == 30
    assert wide.intervals == again.intervals
    low, high = wide.intervals["alpha"]
    assert low < wide.parameters["alpha"] < high


def test_a_hold_out_that_leaves_too_few_rungs_says_why():
    (fitted,) = fit(ladder(lambda c: 30 * c**-0.1, sizes=(1e5, 2e5)), bootstrap=0).values()
    assert "not predicted" in fitted.hold_out["reason"]


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (grid()[lambda t: t["n_params"] == t["n_params"].min()], {"x": "N"}, "leaves A, alpha free"),
        (ladder(lambda c: c**-0.1, (1e5, 2e5)), {"law": "power-floor"}, "2 distinct points for 3 parameters"),
        (grid(), {"cluster": "runs"}, "no column 'runs'"),
    ],
)
def test_points_that_cannot_be_fitted_are_refused(table: pd.DataFrame, options, message: str):
    with pytest.raises(DataError, match=message):
        fit(table, **options)


@pytest.mark.parametrize("status", ["fixed", "censored"])
def test_rates_that_were_not_tuned_are_said(sweep, status: str):
    table = sweep({"baseline": 0.0})
    some = fit(table.assign(lr_status=["tuned", status] * 4), bootstrap=0).only.warnings
    assert any(f"learning rates of 8 trials: 4 {status}" in warning for warning in some)
    assert not any("learning rates" in warning for warning in fit(table, bootstrap=0).only.warnings)


def test_rows_of_tuning_alone_are_answered_with_what_is_fitted():
    table = grid().assign(stage=["tuning"] * 10 + ["comparison"] * 20)
    message = r"no comparison trial among the 10 rows, all of stage tuning: a law is fitted to trials of"
    with pytest.raises(DataError, match=message):
        fit(table[:10], law="chinchilla")
    with pytest.raises(DataError, match=r"the 10 rows that where \"stage == 'tuning'\" chose, all of stage"):
        fit(table, law="chinchilla", where="stage == 'tuning'")


def test_a_hold_out_where_the_law_of_the_others_overflows_is_not_predicted():
    sizes = np.array([1e4, 2e4, 3e4, 4e4, 5e4, 6e4, 1e9])
    loss = 2 + np.exp(np.minimum(sizes / 5e4, 1)) / 100
    table = pd.DataFrame({"n_params": sizes, "n_tokens": 20 * sizes, "loss": loss})
    law = "E + A*exp(N/w); positive E, A, w; start w = 5e4"
    assert "larger than any number" in rolling(table, AnalysisOptions(law=law))[-1]["reason"]


def test_a_hold_out_by_a_column_leaves_blanks_in_the_fit(sweep):
    table = sweep(seeds=(0, 1, 2))
    table["seed"] = table["seed"].astype("Int64").where(table["rung"] != "25k")
    held = fit(table[table["arm"] == "baseline"], bootstrap=0, hold_out="seed").only.hold_out
    assert held["n_points"] == 3


def test_the_exponent_of_the_optimal_size_is_recovered():
    (fitted,) = fit(isoflops(), law="isoflop", bootstrap=0).values()
    assert fitted.parameters["a"] == pytest.approx(EXPONENT, abs=0.003)
    assert fitted.formula == "N* = G C^a"
    assert len(fitted.optima) == 5
    assert abs(fitted.hold_out["relative_error"]) < 0.02


def test_one_budget_is_refused():
    with pytest.raises(DataError, match="needs two budgets"):
        fit(isoflops().iloc[:9], law="isoflop")


def test_budgets_of_the_column_flops_are_the_lines_of_a_table():
    """Counted FLOPs are not 6ND: by 6ND one budget counts as several, and the exponent is another one."""
    budgets, truth = np.repeat([1e18, 3e18, 1e19, 3e19, 1e20, 3e20], 9), 0.43
    best = 0.3 * budgets**truth
    sizes = best * np.tile(np.geomspace(0.2, 5, 9), 6)
    tokens = budgets / 6 / sizes / (1 + 6e6 / sizes)
    table = pd.DataFrame({"n_params": sizes, "n_tokens": tokens, "flops": budgets})
    loss = 2.5 + 0.05 * np.log(sizes / best) ** 2
    (fitted,) = fit(table.assign(loss=loss), law="isoflop", bootstrap=0).values()
    assert fitted.parameters["a"] == pytest.approx(truth, rel=1e-9)
    assert [optimum.budget for optimum in fitted.optima] == pytest.approx(np.unique(budgets))
    assert fitted.options.c_convention == "given"
    first = fitted.optima[0]
    assert first.d_star == pytest.approx(1e18 / 6 / first.n_star / (1 + 6e6 / first.n_star), rel=0.02)
    assert first.tokens_per_parameter == pytest.approx(first.d_star / first.n_star)
    assert f"{first.d_star:.4g} ({first.tokens_per_parameter:.3g} tokens per parameter)" in fitted.summary()


def test_six_nd_holds_where_flops_are_of_single_rows():
    table = isoflops()
    counted = table.assign(flops=range(1, len(table) + 1))
    plain, with_flops = (fit(each, law="isoflop", bootstrap=0).only for each in (table, counted))
    assert plain.parameters == with_flops.parameters


X = np.repeat(np.geomspace(1e15, 1e18, 5), 3)


def lack_of_fit(law: str, x: np.ndarray, loss: np.ndarray) -> float | None:
    return hold_out.lack_of_fit(points_of(law_named(law), {"x": x}), loss)


def losses(floor: float, seed: int) -> np.ndarray:
    return (floor + 1200.0 * X**-0.16) * np.exp(np.random.default_rng(seed).normal(0, 1e-3, len(X)))


def test_the_right_law_is_rejected_as_often_as_stated():
    p_values = [lack_of_fit("power", X, losses(0.0, seed)) for seed in range(300)]
    assert np.mean(np.array(p_values) < 0.1) < 0.15
    assert np.mean(np.array(p_values) < 0.5) > 0.4
    assert np.mean(np.array(p_values) < SIGNIFICANT) < 0.03


@pytest.mark.parametrize("chosen", [np.arange(15) % 3 == 0, np.unique(X)[1] >= X])
def test_one_seed_a_rung_and_as_many_rungs_as_parameters_cannot_tell(chosen: np.ndarray):
    assert lack_of_fit("power", X[chosen], losses(0.0, 0)[chosen]) is None


def test_noise_that_goes_with_the_loss_is_told_and_none_is_below_the_pooled():
    cells = np.repeat(np.arange(6.0), 50)
    values = np.random.default_rng(0).standard_normal(300) * 4 ** (cells / 5)
    sds = noise_by_mean(values, cells, np.exp(cells))(np.exp([0.0, 5.0, 10.0]))
    assert sds[0] == pytest.approx(pooled_noise(values, cells).sd)
    assert sds[1:] == pytest.approx([4, 16], rel=0.3)
    assert np.ptp(noise_by_mean(np.tile([-1.0, 1.0], 150), cells, np.exp(cells))(np.exp(cells))) == 0
