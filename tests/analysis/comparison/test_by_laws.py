"""Arms that share no trial, compared by the laws fitted to each."""

import numpy as np
import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis import DataError
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.report.text import verdict_table

WIDTHS = np.geomspace(100, 1000, 112)
OPTIONS = AnalysisOptions(law="chinchilla", cluster="run", loss="l2", bootstrap=100)


def arm(
    name: str, gain: float = 1.0, noise: float = 2e-3, random_seed: int = 0, **law: float
) -> pd.DataFrame:
    """Checkpoints of 14 runs at sizes of their own; ``gain`` is the compute multiplier, ``noise`` a run's."""
    rng = np.random.default_rng([random_seed, len(name), ord(name[0])])
    sizes = (np.geomspace(1e7, 1e9, 14) * np.exp(rng.uniform(-0.1, 0.1, 14))).round()
    n, run = np.repeat(sizes, 4), np.repeat(np.arange(14), 4)
    d = (n * np.tile([5.0, 12.0, 30.0, 75.0], 14) * np.exp(rng.uniform(-0.3, 0.3, 14))[run]).round()
    truth = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28, **law}
    s = gain**0.5
    loss = truth["E"] + truth["A"] / (s * n) ** truth["alpha"] + truth["B"] / (s * d) ** truth["beta"]
    loss = loss * np.exp(noise * rng.standard_normal(14)[run] + noise / 3 * rng.standard_normal(56))
    names = [f"{name} {number}" for number in run]
    return pd.DataFrame({"arm": name, "n_params": n, "n_tokens": d, "loss": loss, "run": names})


def table(*arms: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(arms, ignore_index=True)


def compared(rows: pd.DataFrame, **changes) -> list[analysis.Comparison]:
    return analysis.compare_arms(rows, reference="base", options=OPTIONS, by="laws", **changes)[1]


@pytest.mark.parametrize("law", ["chinchilla", "chinchilla-shared"])
def test_without_noise_the_planted_multipliers_and_differences_are_found(law: str):
    rows = table(arm("base", noise=0), arm("faster", 1.22, noise=0))
    comparison = compared(rows, law=law, tokens_per_parameter=20.0)[0]
    for multiplier in comparison.compute_multipliers:
        # The arm is the reference at 1.22 times the compute, shared by N and D: on the line, exactly.
        assert multiplier.estimate == pytest.approx(1.22, rel=2e-3 if law == "chinchilla-shared" else 1e-6)
    at = comparison.by_rung[0]
    gains = (1.22**0.5, 1)
    truth = [1.69 + 406.4 / (s * at.n_params) ** 0.34 + 410.7 / (s * at.n_tokens) ** 0.28 for s in gains]
    assert at.mean == pytest.approx(truth[0] - truth[1], rel=5e-3 if law == "chinchilla-shared" else 1e-6)
    assert at.n_tokens == pytest.approx(20 * at.n_params)


def test_with_noise_a_better_arm_is_called_and_an_equal_one_is_not():
    verdicts = {c.arm: c for c in compared(table(arm("base"), arm("same"), arm("faster", 1.22)))}
    assert verdicts["faster"].verdict == "better"
    assert verdicts["same"].verdict == "undecided"
    low, high = verdicts["faster"].compute_multipliers[0].interval
    assert 1 < low < 1.22 < high
    assert "by their laws" in verdicts["faster"].sentence
    assert verdicts["faster"].loss_difference.p_holm >= verdicts["faster"].loss_difference.p_value


def test_laws_that_cross_on_the_line_give_no_verdict():
    comparison = compared(table(arm("base"), arm("o", E=1.0, B=900.0)))[0]
    estimates = [point.mean for point in comparison.by_rung]
    assert estimates[0] > 0 > estimates[-1]
    assert comparison.verdict == "undecided"
    assert "The laws cross: at N" in comparison.sentence


def test_arms_are_equivalent_within_a_margin_that_the_noise_allows():
    rows = table(arm("base"), arm("same", random_seed=1))
    assert compared(rows, margin=0.1)[0].verdict == "equivalent"
    assert compared(rows, margin=1e-4)[0].verdict == "undecided"


def test_a_run_that_arms_share_counts_as_one_and_its_noise_goes_out_of_the_difference():
    base = arm("base", noise=0)
    noise = np.exp(5e-3 * np.repeat(np.random.default_rng(0).standard_normal(14), 4))
    base = base.assign(loss=base.loss * noise)
    other = base.assign(arm="other", loss=base.loss * 0.99, n_tokens=base.n_tokens + 1)
    apart = other.assign(run="other " + other.run)
    lengths = [np.ptp(compared(table(base, rows))[0].loss_difference.interval) for rows in (other, apart)]
    assert lengths[0] < 0.1 * lengths[1]


def test_the_standard_error_of_independent_runs_is_that_of_least_squares():
    def runs(name: str) -> pd.DataFrame:
        n, noise = np.geomspace(1e7, 1e9, 40).round(), np.random.default_rng(len(name)).standard_normal(40)
        loss = 20 * (120 * n**2) ** -0.05 * np.exp(0.01 * noise)
        names = [f"{name} {number}" for number in range(40)]
        return pd.DataFrame({"arm": name, "n_params": n, "n_tokens": 20 * n, "loss": loss, "run": names})

    rows = table(runs("base"), runs("other"))
    difference = compared(rows, law="power")[0].loss_difference
    expected = pytest.approx(0.01 * np.exp(np.log(rows["loss"]).mean()) * (2 / 40) ** 0.5, rel=0.2)
    assert difference.standard_error == expected


def test_a_prediction_stands_with_its_arm_where_laws_compare_that():
    base = arm("base")
    paired = base.assign(arm="paired", run="paired " + base.run, loss=base.loss * 0.99)
    rows = table(base, paired, arm("apart"))
    predicted = [{"arm": name, "reference": "base", "sign": "lower"} for name in ("apart", "paired")]
    rows.attrs["predictions"] = [{"at": "2026-01-02T03:04:05", "predictions": predicted, "known": [{}, {}]}]
    both = analysis.compare_arms(rows, reference="base", options=OPTIONS)
    shown = [(c.arm, c.basis, [p.words for p in c.predictions]) for kind in both for c in kind]
    expected = [("paired", "pairs", ["paired lower than base"]), ("apart", "laws", ["apart lower than base"])]
    assert shown == expected
    assert both[1][0].predictions[0].reason == "no pair is complete"


def test_a_few_runs_or_checkpoints_without_a_run_give_no_interval_and_say_why():
    few = table(*(arm(name).query("n_params < 2e8") for name in ("base", "other")))
    comparison = compared(few)[0]
    assert comparison.loss_difference.interval is None
    assert "independent runs for 5 parameters" in comparison.at_sizes.text
    assert comparison.verdict == "undecided"
    unnamed = table(arm("base"), arm("other")).drop(columns="run")
    comparison = compared(unnamed, cluster="cluster")[0]
    assert "name their run by --cluster" in comparison.at_sizes.text


@pytest.mark.parametrize(
    ("rows", "changes", "why"),
    [
        (table(arm("base"), arm("o")), {"law": "power"}, "lie on no line in C: take a law in N and D"),
        (table(arm("base"), arm("o")).assign(w=WIDTHS), {"law": "E + A/w^a"}, "has no line"),
        (table(arm("base"), arm("o").eval("n_params = n_params * 1e4")), {}, "have no size in common"),
        (table(arm("base")), {}, "a comparison needs another one"),
        (
            table(arm("base"), arm("o").eval("n_tokens = 2 * n_tokens")),
            {"law": "A/N^a"},
            "times the tokens of .base. at equal N",
        ),
        (table(arm("base").assign(corpus="c4"), arm("o").assign(corpus="pile")), {}, "arms differ in corpus"),
        (table(arm("base"), arm("o")), {"law": "isoflop"}, "two budgets|no line"),
    ],
)
def test_what_no_laws_compare_is_refused_with_the_reason(rows, changes, why):
    with pytest.raises(DataError, match=why):
        compared(rows, **changes)


def test_the_terminal_says_that_no_pairs_check_the_laws():
    rows = table(arm("base"), arm("other", random_seed=1), arm("fast", 1.3))
    shown = verdict_table(compared(rows, bootstrap=40))
    assert "by the law chinchilla of each, which no pairs check" in shown
    assert [" better " in line for line in shown.splitlines() if line.startswith("fast ")] == [True]
