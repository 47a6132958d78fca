"""Does the gain grow, hold or shrink with scale? A question apart from a lower loss at these sizes."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import AnalysisOptions, compare, comparison_text
from scalevec.analysis.comparison.arm_laws import held_out_difference
from scalevec.analysis.comparison.growth import Growth, answers
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.report.verdict_table import verdict_table

SIZES = {f"{n}k": 1000 * n for n in (25, 55, 83, 150, 300, 600)}


def laws(
    change: float, gain: float = 1.5, noise: float = 1e-4, sizes=SIZES, miss: float = 0.0
) -> pd.DataFrame:
    """Rows on power laws; the arm's multiplier is ``gain`` at 1e12 FLOPs, ``change`` times that a decade on.

    ``miss`` is added to the arm's loss at the largest rung.
    """
    rng = np.random.default_rng(3)
    rows = []
    for rung, n in sizes.items():
        compute = 6 * 16 * n**2
        factor = gain * change ** np.log10(compute / 1e12)
        for arm, scale in (("baseline", 1.0), ("unified", factor)):
            for seed in (0, 1, 2):
                loss = 40 * (scale * compute) ** -0.1 * np.exp(rng.normal(0, noise))
                loss += miss * (arm == "unified") * (n == max(sizes.values()))
                rows.append(
                    {"arm": arm, "rung": rung, "seed": seed, "n_params": n, "n_tokens": 16 * n, "loss": loss}
                )
    return pd.DataFrame(rows)


def only(table: pd.DataFrame, **options):
    (comparison,) = compare(table, reference="baseline", bootstrap=200, **options)
    return comparison


@pytest.mark.parametrize(("change", "answer"), [(1.3, "grows"), (1.0, "holds"), (1 / 1.3, "shrinks")])
def test_the_change_of_the_multiplier_answers_the_question(change, answer):
    comparison = only(laws(change))
    assert comparison.scaling == answer
    assert comparison.trend["multiplier_per_decade"]["estimate"] == pytest.approx(change, rel=0.03)
    assert f"{answer} with scale: a factor of" in comparison.scaling_sentence


def test_better_at_these_sizes_is_not_better_with_scale():
    comparison = only(laws(1.0))
    assert (comparison.verdict, comparison.scaling) == ("better", "holds")


def test_a_change_that_the_noise_hides_cannot_be_told():
    comparison = only(laws(1.0, noise=2e-2))
    assert comparison.scaling == "cannot be told"
    assert "not within 10 %, and no change is significant" in comparison.scaling_sentence


def test_two_rungs_tell_nothing():
    comparison = only(laws(1.3, sizes={"25k": 25_000, "600k": 600_000}))
    assert comparison.scaling == "cannot be told"
    assert "2 rungs cannot check a law" in comparison.scaling_sentence


def test_an_incomplete_plan_tells_nothing():
    table = laws(1.3)
    table["status"] = np.where(table.index == 0, "pending", "completed")
    assert "interim" not in only(table).scaling_sentence
    assert only(table).scaling == "cannot be told"


def test_a_failed_hold_out_withholds_the_answer_and_what_is_extrapolated():
    comparison = only(laws(1.0, gain=1.5, miss=-0.05))
    assert comparison.hold_out["fails"]
    assert comparison.scaling == "cannot be told"
    assert "the hold-out fails: at 600k the difference is" in comparison.scaling_sentence
    assert any("the hold-out fails" in text for text in comparison.warnings)
    extrapolated = [m for m in comparison.compute_multipliers if m.extrapolated]
    assert [(m.estimate, m.interval, m.note) for m in extrapolated] == [
        (None, None, "withheld: the hold-out fails")
    ]
    inside = [m for m in comparison.compute_multipliers if not m.extrapolated]
    assert all(m.estimate for m in inside)


def test_a_hold_out_within_its_prediction_interval_withholds_nothing():
    comparison = only(laws(1.0))
    low, high = comparison.hold_out["interval"]
    assert low < comparison.hold_out["observed"] < high
    assert not comparison.hold_out["fails"]


@pytest.mark.nightly
def test_the_prediction_interval_covers_as_often_as_it_says():
    """400 draws at a noise of 0.2 %: 95 % with a standard error of 1.1 %."""
    table, options = laws(1.0), AnalysisOptions(bootstrap=100)
    inside = 0
    for draw in range(400):
        noise = np.random.default_rng(draw).normal(0, 2e-3, len(table))
        noisy = table.assign(loss=table["loss"] * np.exp(noise))
        pairs = compared_trials(noisy, "baseline", options).pairs("unified")
        inside += not held_out_difference(pairs, options)["fails"]
    assert inside / 400 > 0.92


def test_holm_over_the_arms_raises_the_bar():
    alone, many = Growth(1.2, 0.07, 20), [Growth(1.2, 0.07, 20)] * 3
    assert answers([alone], [0.95])[0][0] == "grows"
    assert {answer for answer, _ in answers(many, [0.95] * 3)} == {"cannot be told"}


def test_the_two_answers_stand_side_by_side():
    comparison = only(laws(1.3))
    header, line = verdict_table([comparison]).splitlines()[1:3]
    assert header.endswith("at these sizes  with scale")
    assert line.split()[-2:] == ["better", "grows"]
    assert comparison.scaling_sentence in comparison_text([comparison])
