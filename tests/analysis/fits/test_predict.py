"""Predictions of a planted law: at points, for budgets, and how far from the data they say they are."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import DataError, fit, predict
from scalevec.analysis.laws import law_named

TRUTH = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}


def planted(n, d) -> np.ndarray:
    return law_named("chinchilla").predict(TRUTH, {"N": np.asarray(n, float), "D": np.asarray(d, float)})


def best_size(budget: float) -> float:
    """N* of the planted law, by setting the derivative along C = 6ND to zero."""
    ratio = 0.34 * 406.4 / (0.28 * 410.7)
    return float(ratio ** (1 / 0.62) * (budget / 6) ** (0.28 / 0.62))


def grid(noise: float = 0.0, seeds: int = 1) -> pd.DataFrame:
    """Four sizes by three token budgets, on no isoFLOP line."""
    n, d = (np.repeat(a.ravel(), seeds) for a in np.meshgrid([1e7, 5e7, 2e8, 1e9], [1e8, 1.3e9, 1e10]))
    loss = planted(n, d) * np.exp(np.random.default_rng(0).normal(0, noise, len(n)))
    seed = np.tile(range(seeds), len(n) // seeds)
    run = [str(row) for row in range(len(n))]
    return pd.DataFrame({"n_params": n, "n_tokens": d, "loss": loss, "seed": seed, "cluster": run})


def isoflops(noise: float, width: float = 3.0) -> pd.DataFrame:
    """Nine sizes around the best of five budgets."""
    budgets = np.repeat(np.geomspace(1e19, 1e21, 5), 9)
    n = np.array([best_size(c) for c in budgets]) * np.tile(np.geomspace(1 / width, width, 9), 5)
    loss = planted(n, budgets / 6 / n) * np.exp(np.random.default_rng(1).normal(0, noise, len(n)))
    return pd.DataFrame({"n_params": n, "n_tokens": budgets / 6 / n, "flops": budgets, "loss": loss})


def test_the_planted_loss_and_best_size_are_predicted():
    at = pd.DataFrame({"N": [7e9, 7e10], "D": [1e11, 2e12]})
    [forecast] = predict(grid(), at, [1e22, 1e24], law="chinchilla", bootstrap=0)
    assert [point.value for point in forecast.points] == pytest.approx(planted(at["N"], at["D"]), rel=1e-6)
    for budget, (best,) in forecast.budgets.items():
        assert best.n.value == pytest.approx(best_size(budget), rel=1e-6)
        assert best.n.value * best.d.value * 6 == pytest.approx(budget)
        assert best.tokens_per_parameter.value == pytest.approx(best.d.value / best.n.value)
        assert best.loss.value == pytest.approx(planted(best.n.value, best.d.value), rel=1e-6)


@pytest.mark.parametrize("law", ["gadre", "kaplan", "overtraining", "E + A/N^a + B/D^b; positive E, A, B"])
def test_every_law_in_n_and_d_is_lowest_at_its_best_size(law):
    [forecast] = predict(grid(), flops=[1e22], law=law, bootstrap=0)
    [best] = forecast.budgets[1e22]
    n = best.n.value * np.array([0.99, 1.0, 1.01])
    near = forecast.fit.predict(N=n, D=1e22 / 6 / n, C=np.full(3, 1e22))
    assert np.argmin(near) == 1
    assert near[1] == pytest.approx(best.loss.value, rel=1e-9)


def test_the_interval_of_one_run_adds_its_own_noise_to_that_of_the_law():
    [forecast] = predict(grid(3e-3, seeds=3), law="chinchilla", bootstrap=200)
    for point in forecast.points:
        (law_low, law_high), (run_low, run_high) = point.confidence, point.prediction
        of_law, of_run = np.log(law_high / law_low), np.log(run_high / run_low)
        # t with 24 degrees of freedom times the noise pooled within cells, near 3e-3.
        assert np.sqrt(of_run**2 - of_law**2) / 2 / 2.064 == pytest.approx(3e-3, rel=0.35)


def test_distance_is_counted_in_decades_from_the_range_of_the_data():
    at = pd.DataFrame({"N": [1e10, 1e8, 1e6], "D": [1e11, 1e9, 1e8]})
    [forecast] = predict(grid(), at, law="chinchilla", bootstrap=0)
    beyond, inside, below = (point.decades for point in forecast.points)
    assert beyond == pytest.approx({"N": 1, "D": 1, "C": 2, "D/N": 0})
    assert set(inside.values()) == {0.0}
    assert below == pytest.approx({"N": -1, "D": 0, "C": -1, "D/N": 0})


def test_without_points_the_law_is_asked_at_once_twice_and_ten_times_the_largest_compute():
    [forecast] = predict(grid(), law="chinchilla", bootstrap=0)
    assert [point.decades["C"] for point in forecast.points] == pytest.approx([0, np.log10(2), 1])
    assert forecast.points == forecast.fit.ahead


def test_compute_is_taken_from_n_and_d_and_d_from_compute():
    along_c, given = pd.DataFrame({"N": [1e9], "D": [2e10]}), pd.DataFrame({"C": [1.2e20]})
    rows = isoflops(0.0).iloc[4::9]
    (by_both,), (by_c,) = (predict(rows, at, law="power", bootstrap=0)[0].points for at in (along_c, given))
    assert by_both.value == pytest.approx(by_c.value)
    at = pd.DataFrame({"N": [1e9], "C": [1.2e20]})
    [of_two] = predict(grid(), at, law="chinchilla", bootstrap=0)[0].points
    assert of_two.at == pytest.approx({"N": 1e9, "D": 2e10})


def test_surface_and_isoflops_stand_side_by_side_and_their_disagreement_is_a_warning():
    [forecast] = predict(isoflops(1e-3), flops=[1e22], law="chinchilla", bootstrap=200)
    surface, parabolas = forecast.budgets[1e22]
    assert (surface.by, parabolas.by) == ("surface", "isoflop")
    for best in (surface, parabolas):
        assert best.n.interval[0] < best_size(1e22) < best.n.interval[1]
        assert best.decades["C"] == pytest.approx(1)
    assert not forecast.warnings
    # One exponent for N and D is the wrong form: its N* grows as C^0.5, that of the parabolas as C^0.45.
    [apart] = predict(isoflops(0.0), flops=[1e24], law="gadre", bootstrap=0)
    assert "by the surface" in apart.warnings[-1]


def test_isoflop_intervals_come_from_the_noise_of_runs_not_from_the_scatter_of_vertices():
    # Two budgets: no scatter is left around a power law, but the runs' noise moves both vertices.
    noisy = isoflops(3e-3)
    ends = noisy[noisy["flops"].isin([noisy["flops"].min(), noisy["flops"].max()])]
    [fitted] = fit(ends, law="isoflop", bootstrap=200)
    low, high = fitted.intervals["a"]
    assert low < 0.28 / 0.62 < high
    assert "18 whole runs around the parabolas" in fitted.interval_note


def test_the_degrees_of_freedom_of_isoflops_are_those_of_whole_runs():
    rows = isoflops(3e-3)
    (by_row,), (by_run,), (by_size,) = (
        fit(rows.assign(run=run), law="isoflop", cluster="run", bootstrap=100)
        for run in (np.arange(45), np.arange(45) // 2, np.tile(range(9), 5))
    )
    # Five parabolas take three each of the 45 points; two points per run leave about half of the rest.
    assert "t with 30 degrees of freedom, from the residuals of 45 whole runs" in by_row.interval_note
    assert "t with 15.3 degrees of freedom, from the residuals of 23 whole runs" in by_run.interval_note
    assert by_size.intervals == {}
    assert "9 independent runs" in by_size.interval_note


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({"N": [1e9]}, "a point needs D, which law chinchilla reads; given: N"),
        ({"N": [1e9], "D": [np.nan]}, "point 1: D is nan; allowed: finite numbers above zero"),
        ({"N": [1e9, 0.0], "D": [1e9, 1e9]}, "point 2: N is 0"),
        ({"N": [1e9], "D": ["many"]}, "point 1: D is many"),
        ({"N": [], "D": []}, "has no rows"),
    ],
)
def test_a_point_that_is_none_is_refused(at, message):
    with pytest.raises(DataError, match=message):
        predict(grid(), pd.DataFrame(at), law="chinchilla", bootstrap=0)


@pytest.mark.parametrize(
    ("flops", "changes", "message"),
    [
        (np.nan, {"law": "chinchilla"}, "a budget is nan"),
        (-1e20, {"law": "chinchilla"}, "a budget is -1e\\+20"),
        (1e22, {"law": "power"}, "needs a law in N and D; law power reads C"),
        (1e22, {"law": "E + A/(N*D)^a; positive E, A"}, "has no best size there"),
    ],
)
def test_a_budget_without_a_best_size_is_refused(flops, changes, message):
    with pytest.raises(DataError, match=message):
        predict(grid(), flops=[flops], bootstrap=0, **changes)


def test_a_forecast_is_plain_json():
    [forecast] = predict(grid(), flops=[1e22], law="chinchilla", bootstrap=0)
    record = forecast.to_dict()
    assert record["budgets"][0]["optima"][0]["n"]["value"] == forecast.budgets[1e22][0].n.value
    assert record.keys() >= {"arm", "hold_out", "points", "budgets", "warnings"}
    assert dataclasses.asdict(forecast.fit)["hold_out"] == record["hold_out"]
