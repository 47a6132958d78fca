"""Predictions of a planted law: at points, for budgets, and how far from the data they say they are."""

import numpy as np
import pandas as pd
import pytest
from tests.analysis import planted
from tests.analysis.planted import EXPONENT, best_size, hoffmann, isoflops

from scalevec.analysis import DataError, Fit, fit, rolling
from scalevec.analysis.laws import law_named


def points(noise: float = 0.0, seeds: int = 1) -> pd.DataFrame:
    """Four sizes by three token budgets, on no isoFLOP line."""
    table = planted.grid(np.repeat([1e7, 5e7, 2e8, 1e9], seeds), [1e8, 1.3e9, 1e10], noise)
    return table.assign(seed=np.tile(range(seeds), 12), cluster=[str(row) for row in range(12 * seeds)])


def flops_given(noise: float) -> pd.DataFrame:
    rows = isoflops(noise, width=3.0)
    return rows.assign(flops=np.repeat(np.geomspace(1e19, 1e21, 5), 9))


def asked(table: pd.DataFrame, law: str = "chinchilla", **options) -> Fit:
    return fit(table, law=law, **{"bootstrap": 0, **options}).only


def test_the_planted_loss_and_best_size_are_predicted():
    at = pd.DataFrame({"N": [7e9, 7e10], "D": [1e11, 2e12]})
    fitted = asked(points())
    assert fitted.predict(at)["value"].tolist() == pytest.approx(hoffmann(at["N"], at["D"]), rel=1e-6)
    for best in fitted.best(1e22, 1e24).itertuples():
        assert pytest.approx(best_size(best.flops), rel=1e-6) == best.N
        assert pytest.approx(best.flops) == best.N * best.D * 6
        assert best.tokens_per_parameter == pytest.approx(best.D / best.N)
        assert best.value == pytest.approx(hoffmann(best.N, best.D), rel=1e-6)


@pytest.mark.parametrize("law", ["gadre", "kaplan", "E + A/N^a + B/D^b; positive E, A, B"])
def test_every_law_in_n_and_d_is_lowest_at_its_best_size(law):
    fitted = asked(points(), law)
    [best] = fitted.best(1e22).itertuples()
    n = best.N * np.array([0.99, 1.0, 1.01])
    near = law_named(law).predict(fitted.parameters, {"N": n, "D": 1e22 / 6 / n, "C": np.full(3, 1e22)})
    assert np.argmin(near) == 1
    assert near[1] == pytest.approx(best.value, rel=1e-9)


def test_the_interval_of_one_run_adds_its_own_noise_to_that_of_the_law():
    fitted = asked(points(3e-3, seeds=3), bootstrap=200)
    widths = {
        kind: np.log(table["high"] / table["low"])
        for kind in ("law", "run")
        for table in [fitted.predict(interval=kind)]
    }
    # t with 24 degrees of freedom times the noise pooled within cells, near 3e-3.
    inside = (widths["run"][0] ** 2 - widths["law"][0] ** 2) ** 0.5 / 2 / 2.064
    assert inside == pytest.approx(3e-3, rel=0.35)
    assert (widths["run"] > widths["law"]).all()


def test_distance_is_counted_in_decades_from_the_range_of_the_data():
    at = pd.DataFrame({"N": [1e10, 1e8, 1e6], "D": [1e11, 1e9, 1e8]})
    predicted = asked(points()).predict(at)
    assert list(zip(predicted["decades"], predicted["beyond"], strict=True)) == [(2, "C"), (0, ""), (-1, "N")]


def test_without_points_the_law_is_asked_at_once_twice_and_ten_times_the_largest_compute():
    fitted = asked(points())
    predicted = fitted.predict()
    assert predicted["decades"].tolist() == pytest.approx([0, np.log10(2), 1])
    assert [point["value"] for point in fitted.to_dict()["predictions"]] == predicted["value"].tolist()


def test_compute_is_taken_from_n_and_d_and_d_from_compute():
    of_compute = asked(flops_given(0.0).iloc[4::9], "power")
    values = [of_compute.predict(at)["value"][0] for at in ({"N": 1e9, "D": 2e10}, {"C": 1.2e20})]
    assert values[0] == pytest.approx(values[1])
    assert asked(points()).predict({"N": 1e9, "C": 1.2e20})["D"][0] == pytest.approx(2e10)


def on_a_line(random_seed: int = 5, floor: float = 1.7) -> pd.DataFrame:
    """Five sizes of twenty tokens per parameter, three seeds each; noise of 0.2 %."""
    rng = np.random.default_rng(random_seed)
    n = np.repeat(np.geomspace(3e7, 3e9, 5).round(), 3)
    loss = (floor + 406 / n**0.34 + 410 / (20 * n) ** 0.28) * np.exp(0.002 * rng.standard_normal(15))
    return pd.DataFrame({"n_params": n, "n_tokens": 20 * n, "seed": np.tile([0, 1, 2], 5), "loss": loss})


def test_a_law_that_misses_its_hold_out_says_nothing_beyond_the_data():
    fitted = asked(on_a_line(), "power", bootstrap=200)
    assert fitted.hold_out["fails"]
    predicted = fitted.predict()
    assert predicted["value"].isna().tolist() == [False, True, True]
    assert predicted["low"].isna().all()
    assert "refuted by its hold-out" in predicted["note"][2]
    assert "alpha" not in fitted.intervals
    assert "A" in fitted.intervals


def test_a_law_in_compute_has_no_interval_off_the_line_of_its_runs():
    fitted = asked(on_a_line(), "power-floor", bootstrap=200)
    on, off = fitted.predict({"N": [1e9, 1e8], "D": [2e10, 2e11]}).itertuples()
    assert on.low < on.value < on.high
    assert np.isnan(off.low)
    assert off.note.endswith("with 100 times the tokens per parameter of the runs there")
    constant = asked(on_a_line().assign(n_tokens=1e10), "power-floor", x="N", bootstrap=200)
    on, off = constant.predict({"N": [1e10, 1e8], "D": [1e10, 2e9]}).itertuples()
    assert on.low < on.value < on.high
    assert "with 0.2 times the tokens of the runs there" in off.note


def test_a_law_that_holds_covers_ten_times_its_largest_compute():
    fitted = asked(on_a_line(), "power-floor", bootstrap=200)
    predicted = fitted.predict()
    n = 3e9 * 10**0.5
    assert not fitted.refuted
    assert predicted["low"][2] < 1.7 + 406 / n**0.34 + 410 / (20 * n) ** 0.28 < predicted["high"][2]


def test_the_interval_beyond_has_the_error_of_rolling_hold_outs():
    fitted = asked(on_a_line(), "power-floor", bootstrap=200)
    half = np.log(fitted.predict()["high"] / fitted.predict()["value"])
    steps = [
        step["relative_error"]
        for step in rolling(on_a_line(), fitted.fitted.data.options)
        if "predicted" in step
    ]
    assert half[2] > np.sqrt(np.mean(np.square(np.log1p(steps[-2:]))))


@pytest.mark.parametrize(
    ("law", "why"),
    [("power", "alpha is zero or below, so that the loss does not fall with N"), ("A*N^-B", "does not fall")],
)
def test_a_law_whose_loss_may_rise_is_not_extrapolated(law, why):
    n = np.repeat([1e6, 4e6, 1.6e7, 6.4e7], 2)
    loss = 0.83 * (n / 1e6) ** 0.01 * np.exp(np.random.default_rng(0).normal(0, 1e-3, 8))
    table = pd.DataFrame({"n_params": n, "n_tokens": 1e8, "seed": [0, 1] * 4, "loss": loss})
    fitted = asked(table, law, bootstrap=100, **({"x": "N"} if law == "power" else {}))
    [point] = fitted.predict({"N": 1e9}).itertuples()
    assert np.isnan(point.value)
    assert why in point.note
    assert any(why in warning for warning in fitted.warnings)


def test_a_fit_has_its_draws_a_table_and_a_plot():
    fitted = asked(on_a_line(), "power-floor", bootstrap=50)
    assert list(fitted.draws) == ["E", "A", "alpha"]
    assert len(fitted.draws) == fitted.n_bootstrap
    assert fitted.to_frame()["value"].tolist() == list(fitted.parameters.values())
    axes = fitted.plot(color="C3", factor=2.0)
    assert axes.lines[0].get_color() == "C3"
    assert axes.lines[0].get_xdata().max() == pytest.approx(2 * 6 * 3e9 * 20 * 3e9)


def test_the_best_size_by_a_surface_and_by_isoflops_has_an_interval_that_holds_the_truth():
    for law in ("chinchilla", "isoflop"):
        [best] = asked(flops_given(1e-3), law, bootstrap=200).best(1e22).itertuples()
        assert best.N_low < best_size(1e22) < best.N_high


def test_isoflop_intervals_come_from_the_noise_of_runs_not_from_the_scatter_of_vertices():
    # Two budgets: no scatter is left around a power law, but the runs' noise moves both vertices.
    noisy = flops_given(3e-3)
    ends = noisy[noisy["flops"].isin([noisy["flops"].min(), noisy["flops"].max()])]
    [fitted] = fit(ends, law="isoflop", bootstrap=200).values()
    low, high = fitted.intervals["a"]
    assert low < EXPONENT < high
    assert "18 whole runs around the parabolas" in fitted.interval_note
    assert "N* beyond the range is covered less often than it says" in fitted.interval_note


def test_the_degrees_of_freedom_of_isoflops_are_those_of_whole_runs():
    rows = flops_given(3e-3)
    by_row, by_run, by_size = (
        fit(rows.assign(run=run), law="isoflop", cluster="run", bootstrap=100).only
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
        ({"N": [1e9], "D": [np.nan]}, "point 1: D is nan; allowed: finite numbers above zero"),
        ({"N": [1e9, 0.0], "D": [1e9, 1e9]}, "point 2: N is 0"),
        ({"N": [1e9], "D": ["many"]}, "point 1: D is many"),
        ({"N": [], "D": []}, "has no rows"),
    ],
)
def test_a_point_that_is_none_is_refused(at, message):
    with pytest.raises(DataError, match=message):
        asked(points()).predict(pd.DataFrame(at))


@pytest.mark.parametrize(
    ("flops", "changes", "message"),
    [
        (-1e20, {"law": "chinchilla"}, "point 1: C is -1e\\+20"),
        (1e22, {"law": "E + A/(N*D)^a; positive E, A"}, "has no best size there"),
    ],
)
def test_a_budget_without_a_best_size_is_refused(flops, changes, message):
    with pytest.raises(DataError, match=message):
        asked(points(), **changes).best(flops)
