"""Fits as their users ask: fixed and bounded parameters, rolling hold-outs, laws side by side, auto."""

import numpy as np
import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis import AnalysisOptions, DataError, compare, fit
from scalevec.analysis.fits.arm_data import with_default_law
from scalevec.analysis.laws import law_named

SIZES = np.repeat(np.geomspace(1e7, 1e10, 6), 4)
TOKENS = SIZES * np.tile([5, 20, 80, 320], 6)
TRUTH = 1.69 + 406.4 / SIZES**0.34 + 410.7 / TOKENS**0.28
NOISE = np.exp(np.random.default_rng(0).normal(0, 1e-3, 24))
TABLE = pd.DataFrame({"n_params": SIZES, "n_tokens": TOKENS, "run": np.arange(24), "loss": TRUTH * NOISE})
WRITTEN = "E + A/N^alpha + B/D^beta"


def fitted(table: pd.DataFrame = TABLE, **options) -> analysis.Fit:
    return analysis.fit(table, **{"law": "chinchilla", "bootstrap": 0, "loss": "l2", **options}).only


@pytest.mark.parametrize("law", ["chinchilla", f"{WRITTEN}; positive E, A, B"])
def test_a_fixed_parameter_is_not_fitted_and_has_no_interval(law: str):
    fit = fitted(law=f"{law}; fix E = 1.6", bootstrap=40, hold_out="none")
    assert fit.parameters["E"] == 1.6
    assert "fix E = 1.6" in fit.summary()
    assert sorted(fit.intervals) == ["A", "B", "alpha", "beta"]
    assert "20 degrees of freedom" in fit.interval_note  # 24 points, four parameters
    assert fit.optimality < 1e-9


def test_a_bound_that_does_not_bind_changes_nothing():
    free, bounded = fitted(), fitted(law="chinchilla; bounds alpha = 0.1:1, E = 0.5:, beta = :2")
    assert bounded.parameters == pytest.approx(free.parameters, rel=1e-6)


def test_a_bound_that_binds_is_reached_named_and_has_no_interval():
    fit = fitted(law="chinchilla; bounds alpha = 0.1:0.3", bootstrap=40)
    assert fit.parameters["alpha"] == pytest.approx(0.3, rel=1e-6)
    assert "alpha lies at its bound of 0.3: the points ask for more" in fit.warnings
    assert fit.optimality < 1e-9
    assert "alpha" not in fit.intervals
    assert "none for alpha, at its bound" in fit.interval_note
    at_the_bound = fitted(law="chinchilla; fix alpha = 0.3")
    assert fit.objective == pytest.approx(at_the_bound.objective, rel=1e-6)


def test_intervals_end_at_a_bound():
    free = fitted(bootstrap=200)
    _, high = free.intervals["alpha"]
    bound = (free.parameters["alpha"] + high) / 2
    fit = fitted(law=f"chinchilla; bounds alpha = :{bound}", bootstrap=200)
    assert fit.intervals["alpha"][1] == pytest.approx(bound)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"law": "chinchilla; fix E=1, F=1"}, r"fix 'F=1': expected a name of the formula \(E, A, N, alpha"),
        ({"law": "chinchilla; fix E"}, r"fix 'E': expected a finite number"),
        ({"law": "chinchilla; fix N=3"}, "N is a column, no parameter"),
        ({"law": "chinchilla; bounds alpha=1:0.1"}, "the low one first"),
        ({"law": "chinchilla; bounds alpha=:"}, "the low one first"),
        ({"law": "chinchilla-shared; fix E=1"}, "takes no fixed or bounded parameters"),
    ],
)
def test_what_cannot_be_fixed_or_bounded_is_refused(options: dict[str, object], why: str):
    with pytest.raises(DataError, match=why):
        fitted(**options)


def test_each_next_rung_is_predicted_by_the_law_of_the_smaller_ones():
    records = analysis.rolling(TABLE, analysis.AnalysisOptions(law="chinchilla", loss="l2"))
    assert [record["rungs"] for record in records] == [1, 2, 3, 4, 5]
    assert "leaves A, alpha free" in records[0]["reason"]
    assert records[1]["reason"].endswith(" free")  # which, of a flat line of laws, is a matter of bits
    three = TABLE[SIZES[12] * 1.01 > SIZES]
    by_hand = fitted(three, hold_out="largest").hold_out
    assert records[2]["relative_error"] == pytest.approx(by_hand["relative_error"])
    assert records[-1]["relative_error"] == pytest.approx(fitted().hold_out["relative_error"])


def test_laws_are_ranked_by_the_steps_that_all_of_them_predict():
    laws = ["kaplan", "chinchilla", "chinchilla; fix E = 1.69"]
    fits = analysis.fits_of_laws(TABLE, laws, analysis.AnalysisOptions(loss="l2", bootstrap=0))
    assert {fit.rolling["steps"] for fit in fits} == {3}
    lines = analysis.laws_text(fits).splitlines()
    assert [line.split("  ")[1].strip() for line in lines[1:4]][-1] == "kaplan"
    errors = [fit.rolling["mean_absolute_error"] for fit in fits]
    assert errors[0] > 10 * errors[1]


def test_an_upper_bound_alone_leaves_a_coefficient_above_zero():
    assert law_named("power-floor; bounds E = :1").ranges["E"] == (0.0, 1.0)


def test_what_is_the_larger_of_two_is_not_sought_as_if_linear():
    assert law_named("max(E, A/N^a) + B").linear == ("B",)


def arms(floor: float, noise: float, sizes: int = 5, n_arms: int = 1, random_seed: int = 0) -> pd.DataFrame:
    """Arms of 20 tokens per parameter on one law each, three seeds a size."""
    rng = np.random.default_rng(random_seed)
    n = np.repeat(np.geomspace(2e7, 2e9, sizes).round(), 3)
    parts = []
    for arm in range(n_arms):
        loss = (floor + (40 - arm) * (120 * n**2) ** -0.12) * np.exp(noise * rng.standard_normal(len(n)))
        columns = {"arm": str(arm), "n_params": n, "n_tokens": 20 * n, "seed": np.tile([0, 1, 2], sizes)}
        parts.append(pd.DataFrame(columns).assign(loss=loss))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("table", "law"),
    [
        (arms(1.8, 1e-3), "power-floor"),
        (arms(0.0, 1e-3), "power"),
        (arms(1.8, 1e-3, sizes=3), "power"),
        (arms(1.8, 1e-3, n_arms=2), "power-floor"),
        (arms(0.0, 1e-3, n_arms=2), "power"),
        (arms(1.8, 1.2e-2, n_arms=6), "power-floor-shared"),
    ],
)
def test_the_default_law_has_a_floor_where_the_data_identify_one(table: pd.DataFrame, law: str):
    assert with_default_law(AnalysisOptions(), table).law == law


def test_a_fit_and_a_comparison_say_which_law_was_chosen():
    table = arms(1.8, 1e-3, n_arms=2)
    assert fit(table, bootstrap=0)["0"].options.law == "power-floor"
    assert compare(table, reference="0", bootstrap=0).only.options.law == "power-floor"


def test_an_arm_that_diverged_at_most_sizes_takes_no_floor_from_the_others():
    table = arms(1.8, 1e-3, n_arms=2)
    cut = table[(table["arm"] == "0") | (table["n_params"] < 1e8)]
    fits = fit(cut, bootstrap=0)
    assert fits["0"].options.law == "power-floor-shared"
    assert fits["0"].parameters["E"] == pytest.approx(1.8, rel=0.02)
