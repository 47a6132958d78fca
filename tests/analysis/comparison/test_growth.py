"""Does the gain grow, hold or shrink with scale? A question apart from a lower loss at these sizes."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from tests import comparisons

from scalevec.analysis import AnalysisOptions, comparison_text
from scalevec.analysis.comparison.arm_laws import held_out_difference
from scalevec.analysis.comparison.growth import Growth, answers
from scalevec.analysis.comparison.trials import compared_trials
from scalevec.analysis.report.verdict_table import verdict_table

only = partial(comparisons.only, bootstrap=200)

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
@pytest.mark.parametrize("n_rungs", [6, 3])
@pytest.mark.parametrize("ratio", [1.0, 6.0, 1 / 6])
@pytest.mark.parametrize("split", [0.0, 0.02])
def test_the_prediction_interval_covers_as_often_as_it_says(n_rungs, ratio, split):
    """400 draws at a noise of 0.2 % at the largest rung: 95 % with a standard error of 1.1 %."""
    table = laws(1.0, noise=0.0, sizes=dict(list(SIZES.items())[:n_rungs]))
    table["stream"] = table["rung"] + table["seed"].astype(str)
    sizes = np.log(table["n_params"])
    sd = 2e-3 * ratio ** ((sizes.max() - sizes) / np.ptp(sizes))
    inside = 0
    for draw in range(400):
        rng = np.random.default_rng(draw)
        noisy = table.assign(loss=table["loss"] * np.exp(sd * rng.standard_normal(len(table))))
        inside += not prediction(in_blocks(noisy, rng, split) if split else noisy)["fails"]
    assert inside / 400 > 0.92


def test_without_a_hold_out_the_answer_and_what_is_extrapolated_say_so():
    comparison = only(laws(1.0, gain=1.5, miss=-0.05), hold_out="none")
    assert comparison.hold_out["reason"] == "none was asked for"
    told = only(laws(1.3), hold_out="none")
    assert told.scaling == "grows"
    assert told.scaling_sentence.endswith("But no hold-out checks the laws (none was asked for).")
    extrapolated = [m for m in comparison.compute_multipliers if m.extrapolated]
    assert extrapolated
    assert all("no hold-out checks the laws" in m.note for m in extrapolated)
    assert "hold-out (none): none was asked for" in comparison_text([comparison])


def test_a_hold_out_that_could_have_failed_needs_no_remark():
    assert "no hold-out" not in only(laws(1.3)).scaling_sentence


def in_blocks(table: pd.DataFrame, rng: np.random.Generator, sd: float, n_blocks: int = 64) -> pd.DataFrame:
    """``table`` with its losses by block of a test text, on which the arms differ by chance."""
    texts = {arm: rng.normal(0, sd, n_blocks) for arm in table["arm"].unique()}
    blocks = [loss + texts[arm] for arm, loss in zip(table["arm"], table["loss"], strict=True)]
    means = [block.mean() for block in blocks]
    return table.assign(loss=means, loss_blocks=blocks, block_tokens=[np.ones(n_blocks)] * len(table))


def prediction(table: pd.DataFrame, **options):
    chosen = AnalysisOptions(bootstrap=100, **options)
    return held_out_difference(compared_trials(table, "baseline", chosen).pairs("unified"), chosen)


def test_a_noisier_rung_that_is_held_out_widens_its_prediction():
    table = laws(1.0, noise=1e-3)
    held = (table["n_params"] == 600_000) & (table["arm"] == "unified")
    noisy = table.assign(loss=table["loss"] + 0.02 * (table["seed"] - 1) * held)
    assert np.ptp(prediction(noisy)["interval"]) > 5 * np.ptp(prediction(table)["interval"])


def test_the_test_split_is_in_a_prediction():
    table = laws(1.0, noise=1e-4)
    rng = np.random.default_rng(0)
    by_block = table.assign(
        loss_blocks=[
            loss + (n / 6e5) * rng.normal(0, 0.05, 64)
            for loss, n in zip(table["loss"], table["n_params"], strict=True)
        ],
        block_tokens=[np.ones(64)] * len(table),
    )
    by_block["loss"] = [block.mean() for block in by_block["loss_blocks"]]
    without = by_block.drop(columns=["loss_blocks", "block_tokens"])
    assert np.ptp(prediction(by_block)["interval"]) > np.ptp(prediction(without)["interval"])


def test_pairs_that_share_a_trunk_have_a_prediction():
    """Two budgets of each run: clusters that repeat each other."""
    table = laws(1.0, noise=1e-3)
    longer = table.assign(n_tokens=1.05 * table["n_tokens"], loss=table["loss"] * 1.05**-0.1)
    both = pd.concat([table, longer], ignore_index=True)
    both["cluster"] = both["rung"] + both["seed"].astype(str)
    assert prediction(both)["interval"] is not None


def test_holm_over_the_arms_raises_the_bar():
    alone, many = Growth(1.2, 0.07, 20), [Growth(1.2, 0.07, 20)] * 3
    assert answers([alone], [0.95], [{}])[0][0] == "grows"
    assert {answer for answer, _ in answers(many, [0.95] * 3, [{}] * 3)} == {"cannot be told"}


def test_the_two_answers_stand_side_by_side():
    comparison = only(laws(1.3))
    header, line = verdict_table([comparison]).splitlines()[1:3]
    assert header.endswith("at these sizes  with scale")
    assert line.split()[-2:] == ["better", "grows"]
    assert comparison.scaling_sentence in comparison_text([comparison])
