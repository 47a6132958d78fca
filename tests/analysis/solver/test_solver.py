"""The solver: derivatives, planted laws, rows in batches, and data with several optima."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis.fits.fit import fit
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import LAWS
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.solver.newton import evaluate, objective

RNG = np.random.default_rng(0)
N, D = np.exp(RNG.uniform(12, 20, 40)), np.exp(RNG.uniform(16, 24, 40))
SHARE = np.exp(RNG.uniform(-4, 0, 40))
VARIABLES = {"N": N, "D": D, "x": 6 * N * D, "C": 6 * N * D, "unique_tokens": D * SHARE}
TRUTH = {
    "power": {"A": 30.0, "alpha": 0.06},
    "power-floor": {"E": 1.7, "A": 3000.0, "alpha": 0.2},
    "chinchilla": {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28},
    "gadre": {"E": 1.8, "A": 166.0, "alpha": 0.27, "B": 367.0},
    "kaplan": {"Nc": 8.8e13, "aN": 0.076, "Dc": 5.4e13, "aD": 0.095},
    "data-constrained": {"E": 1.87, "A": 521.0, "alpha": 0.353, "B": 1488.0, "beta": 0.353, "R": 15.4},
}


def problem(name: str, options: AnalysisOptions):
    law = law_named(name)
    points = points_of(law, VARIABLES)
    if law.per_arm:
        points = replace(points, groups=np.arange(40) % 3)
    y = np.exp(np.random.default_rng(1).normal(1, 0.3, 40))
    return points.problem(y, None, options), len(points.free)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("residual", ["log", "linear"])
@pytest.mark.parametrize("loss", ["l2", "huber"])
def test_gradient_and_hessian_are_derivatives_of_the_objective(name: str, residual: str, loss: str):
    stated, k = problem(name, AnalysisOptions(loss=loss, delta=0.5, residual=residual))
    theta = np.random.default_rng(2).normal(0.3, 0.1, (1, k))
    gradient, hessian = stated.system(evaluate(stated, theta), np.zeros(1))
    aside = theta + 1e-6 * np.concatenate([np.eye(k), -np.eye(k)])
    each = [(evaluate(stated, row[None]), row) for row in aside]
    values = np.array([state.objective[0] for state, _ in each])
    slopes = np.array([stated.system(state, np.zeros(1))[0][0] for state, _ in each])
    np.testing.assert_allclose(gradient[0], (values[:k] - values[k:]) / 2e-6, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hessian[0], (slopes[:k] - slopes[k:]) / 2e-6, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("residual", ["log", "linear"])
def test_points_that_repeat_are_one_point_with_the_objective_gradient_and_hessian_of_all(residual: str):
    kinds = np.arange(40) % 7
    points = points_of(law_named("chinchilla"), {"N": N[kinds], "D": D[kinds]})
    y, copies = np.exp(RNG.normal(1, 0.3, (3, 40))), RNG.poisson(1.0, (3, 40)) * (kinds != 2)
    # Huber's loss with so wide a delta is that of least squares, and of each point by itself.
    wide = AnalysisOptions(loss="huber", delta=1e9, residual=residual)
    merged, plain = (points.problem(y, copies, options) for options in (replace(wide, loss="l2"), wide))
    assert (merged.size[0], plain.size[0]) == (7, 40)
    theta, damping = RNG.normal(0.3, 0.1, (3, 5)), np.full(3, 0.5)
    states = [evaluate(each, theta) for each in (merged, plain)]
    np.testing.assert_allclose(states[0].objective, states[1].objective, rtol=1e-12)
    pairs = zip((merged, plain), states, strict=True)
    systems = [each.system(state, damping) for each, state in pairs]
    for of_merged, of_plain in zip(*systems, strict=True):
        np.testing.assert_allclose(of_merged, of_plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TRUTH)
def test_a_planted_law_is_recovered_from_nothing(name: str):
    law = law_named(name)
    y = law.predict(TRUTH[name], VARIABLES)
    best = fit_points(points_of(law, VARIABLES), y, AnalysisOptions(loss="l2"))
    assert best.parameters() == pytest.approx(TRUTH[name], rel=1e-4)
    assert best.starts_agreeing > 1


def test_rows_do_not_depend_on_their_neighbours_in_the_batch():
    points = points_of(law_named("chinchilla"), VARIABLES)
    y = law_named("chinchilla").predict(TRUTH["chinchilla"], VARIABLES) * np.exp(RNG.normal(0, 0.01, 40))
    weights = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), 200).astype(float)
    fit = fit_points(points, y, AnalysisOptions())
    together = fit.redone(weights=weights)
    alone = [fit.redone(weights=weights[i : i + 1]).objective[0] for i in (0, 77, 199)]
    np.testing.assert_allclose(together.objective[[0, 77, 199]], alone, rtol=1e-9)
    assert together.optimal.all()


PLANTED = {"power": {"A": 40.0, "alpha": 0.1}, "power-floor": {"E": 1.0, "A": 60.0, "alpha": 0.12}}
NOT_UNIQUE = "the optimum is not unique"
OPTIONS, L2 = AnalysisOptions(loss="huber"), AnalysisOptions(loss="l2")


def two_seeds(law: str, random_seed: int, n_rungs: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """C and losses of two seeds per rung, one on each side of the law, each by a distance of its own."""
    rng = np.random.default_rng(random_seed)
    x = np.geomspace(1e12, 1e15, n_rungs)
    below, above = np.exp(-rng.uniform(0.004, 0.02, n_rungs)), np.exp(rng.uniform(0.004, 0.02, n_rungs))
    loss = law_named(law).predict(PLANTED[law], {"x": x})
    return np.repeat(x, 2), np.stack([loss * below, loss * above], axis=1).ravel()


def best(law: str, x: np.ndarray, y: np.ndarray, options: AnalysisOptions = OPTIONS):
    return fit_points(points_of(law_named(law), {"x": x}), y, options)


def rows_of(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"n_params": 1e6, "n_tokens": x / 6e6, "flops": x, "loss": y})


def warnings(table: pd.DataFrame, **options: str) -> list[str]:
    [fitted] = fit(table, bootstrap=0, hold_out="none", **{"loss": "huber", **options}).values()
    return [warning for warning in fitted.warnings if NOT_UNIQUE in warning]


def test_the_ranges_that_are_told_fit_equally_well_and_the_choice_is_among_them():
    fitted = best("power", *two_seeds("power", 0))
    low, high = fitted.equal_parameters()["alpha"]
    assert low <= fitted.parameters()["alpha"] <= high
    values = objective(fitted.problem(), fitted.equal_optima.theta)
    np.testing.assert_allclose(values, fitted.objective, rtol=1e-9)
    squares = objective(best("power", *two_seeds("power", 0), L2).problem(), fitted.equal_optima.theta)
    np.testing.assert_array_equal(fitted.theta, fitted.equal_optima.theta[np.argmin(squares)])


@pytest.mark.parametrize("law", PLANTED)
def test_a_fit_with_several_optima_says_so_with_the_range_of_its_parameters(law: str):
    [warning] = warnings(rows_of(*two_seeds(law, 0)), law=law)
    assert "alpha between 0." in warning
    words = "fit equally well; shown is the one of them with the least sum of squared residuals"
    assert warning.endswith(words)


@pytest.mark.parametrize("law", PLANTED)
def test_a_fit_with_one_optimum_has_no_such_warning(law: str):
    rng = np.random.default_rng(0)
    x = np.sort(np.exp(rng.uniform(np.log(1e12), np.log(1e15), 15)))
    y = law_named(law).predict(PLANTED[law], {"x": x}) * np.exp(rng.normal(0, 0.003, 15))
    assert not warnings(rows_of(x, y), law=law)
    assert not warnings(rows_of(*two_seeds(law, 0)), law=law, loss="l2")


def test_a_floor_at_its_bound_of_zero_is_not_another_optimum():
    x = np.geomspace(1e12, 1e15, 9)
    # Log loss bends downwards, as if the floor were negative.
    y = (40 * x**-0.1 - 0.3) * np.exp(np.random.default_rng(3).normal(0, 1e-4, 9))
    fitted = best("power-floor", x, y)
    assert fitted.parameters()["E"] < 1e-3
    assert not fitted.equal_parameters()
