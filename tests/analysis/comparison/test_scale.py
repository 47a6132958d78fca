"""Line 2: what becomes of a difference with scale, and what forbids a law to say it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

import comparisons
from scalevec.analysis import AnalysisOptions, comparison_text
from scalevec.analysis.comparison.differences import Part
from scalevec.analysis.comparison.pair_laws import held_out_difference
from scalevec.analysis.comparison.scale import KeptSigns, kept_signs
from scalevec.analysis.comparison.trials import compared_trials

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
                row = {"arm": arm, "rung": rung, "seed": seed, "n_params": n, "n_tokens": 16 * n}
                rows.append({**row, "loss": loss})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("change", "answer"), [(1.3, "grows"), (1.0, "constant"), (1 / 1.3, "shrinks")])
def test_the_change_of_the_multiplier_answers_the_question(change, answer):
    comparison = only(laws(change))
    assert (comparison.with_scale.code, comparison.with_scale.measure) == (answer, "multiplier")
    assert comparison.trend["multiplier_per_decade"]["estimate"] == pytest.approx(change, rel=0.03)


def test_a_small_change_that_is_significant_grows():
    assert only(laws(1.05, noise=1e-5)).with_scale.code == "grows"


def test_a_deficit_that_grows_is_said_as_one():
    line = only(laws(1 / 1.3, gain=0.6)).with_scale
    assert (line.code, line.text[:13]) == ("grows", "deficit grows")


def test_a_change_that_the_noise_hides_is_not_resolved():
    table = laws(1.0, gain=4.0, noise=2e-2)
    comparison = only(table.assign(stream=table["rung"] + table["seed"].astype(str)))
    assert comparison.verdict == "better"
    assert comparison.with_scale.code == "not_resolved"


def test_without_a_difference_there_is_no_word_on_scale():
    assert only(laws(1.0, gain=1.0)).with_scale.text == "says nothing: no difference resolved at any size"


def test_two_rungs_have_the_trend_in_nats_alone():
    comparison = only(laws(1.3, sizes={"25k": 25_000, "600k": 600_000}))
    assert comparison.with_scale.measure == "nats"


def test_an_incomplete_plan_tells_nothing():
    table = laws(1.3)
    table["status"] = np.where(table.index == 0, "pending", "completed")
    comparison = only(table)
    assert {comparison.with_scale.code, comparison.at_sizes.code} == {"withheld"}


def test_a_failed_hold_out_withholds_the_multipliers_and_leaves_the_trend_in_nats():
    comparison = only(laws(1.0, gain=1.5, miss=-0.05))
    assert comparison.hold_out["fails"]
    assert comparison.compute_multipliers == ()
    assert comparison.with_scale.measure == "nats"
    assert f"multiplier withheld: {comparison.withheld}" in comparison.with_scale.text


def test_a_law_without_the_floor_that_the_losses_have_is_withheld():
    """A constant multiplier above a floor would look as if it shrank."""
    table = laws(1.0, gain=1.5)
    comparison = only(table.assign(loss=table["loss"] + 1.8), law="power")
    assert comparison.withheld == "the law power misses the runs of baseline and unified"
    assert (comparison.compute_multipliers, comparison.with_scale.measure) == ((), "nats")


def test_a_hold_out_within_its_prediction_interval_withholds_nothing():
    comparison = only(laws(1.0))
    low, high = comparison.hold_out["interval"]
    assert low < comparison.hold_out["observed"] < high
    assert (comparison.hold_out["fails"], comparison.hold_out["laws_fail"]) == (False, [])
    assert comparison.withheld == ""


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


def test_without_a_hold_out_what_rests_on_the_laws_alone_says_so():
    comparison = only(laws(1.0, gain=1.5), hold_out="none")
    assert comparison.with_scale.text.endswith(", by laws that no hold-out checks)")
    assert "no hold-out checks" not in only(laws(1.0, gain=1.5)).with_scale.text
    assert comparison.hold_out["reason"] == "none was asked for"
    extrapolated = [m for m in comparison.compute_multipliers if m.extrapolated]
    assert extrapolated
    assert all("no hold-out checks the laws" in m.note for m in extrapolated)
    assert "hold-out (none): none was asked for" in comparison_text([comparison])


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


def test_it_is_counted_how_often_a_difference_keeps_its_sign_at_the_next_size():
    part = Part("25k", 1e12, 3, 0.01, None, None, None, None, False, ())
    four = [replace(part, mean=mean) for mean in (0.02, 0.01, -0.01, -0.02)]
    expected = [KeptSigns(kept, steps, 3, 4) for kept, steps in ((2, 3), (1, 1), (0, 0))]
    assert kept_signs([four, four[:2], []]) == expected


def test_many_sizes_of_one_run_each_are_not_called_one_size():
    sizes = np.geomspace(1e7, 1e9, 8).round()
    rng, rows = np.random.default_rng(0), []
    for arm, slope in (("base", 0.0), ("new", -0.01)):
        for number, size in enumerate(sizes):
            loss = 1.8 + 400 * (120 * size**2) ** -0.13 + slope * (number + 1) + rng.normal(0, 0.003)
            rows.append({"arm": arm, "n_params": size, "n_tokens": 20 * size, "loss": loss})
    comparison = comparisons.compare(pd.DataFrame(rows), "base", bootstrap=0).only
    assert comparison.at_sizes.text == "lower on average over 8 sizes"
    assert (comparison.with_scale.code, comparison.with_scale.measure) == ("grows", "nats")
