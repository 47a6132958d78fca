import numpy as np
import pandas as pd
import pytest

from scalevec.analysis import DataError
from scalevec.analysis.power.detectable import NoiseFigure, PlannedRung, detectable, detected, pilot_noise
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.noise import Component
from scalevec.analysis.statistics.sample import PairedSample

NOISE = NoiseFigure(0.01, 0.35, "given")


def ladder(seeds: int = 2, n_rungs: int = 4) -> list[PlannedRung]:
    return [PlannedRung(str(n), n, 16 * n, seeds) for n in np.geomspace(3e4, 3e5, n_rungs)]


def share_found(difference: float, cells: np.ndarray, rungs: np.ndarray | None = None) -> float:
    """How often the comparison of pairs with this difference is significant."""
    rng = np.random.default_rng(0)
    draws = (rng.normal(-difference, NOISE.sd, len(cells)) for _ in range(400))
    estimates = (inference.overall(PairedSample.of(pairs, cells, rungs=rungs)) for pairs in draws)
    return np.mean([estimate.p_value() < 0.05 for estimate in estimates])


def test_the_difference_is_found_as_often_as_the_power_says():
    design = detectable(ladder(), NOISE).design
    assert share_found(design.difference, np.repeat(np.arange(4), 2)) == pytest.approx(0.8, abs=0.05)


def test_many_degrees_of_freedom_give_the_textbook_effect():
    assert detected([Component(1.0, 100_000)], 0.05) == pytest.approx(1.95996 + 0.84162, abs=1e-3)


def test_one_seed_detects_nothing_and_says_that_a_second_would():
    design = detectable(ladder(seeds=1), NOISE)
    assert design.design.difference is None
    assert "second seed" in design.text
    assert design.more.difference is not None


def test_one_seed_at_many_rungs_has_the_verdict_that_a_comparison_gives_it():
    design = detectable(ladder(seeds=1, n_rungs=12), NOISE)
    assert (design.design.df, design.design.between) == (11, "rungs")
    assert "11 degrees of freedom, from the spread between rungs" in design.text
    assert share_found(design.design.difference, np.arange(12)) == pytest.approx(0.8, abs=0.05)


def test_the_multiplier_of_a_plan_states_its_convention():
    words = "multiplier: 0.35 nats/token per e-fold of compute assumed; C: 6 x N x tokens"
    assert words in detectable(ladder(), NOISE).text


def test_settings_have_noise_of_their_own_and_budgets_have_not():
    """Two seeds of three settings at one rung: three degrees of freedom; of three budgets: one."""
    settings = [PlannedRung("r", 3e4, 5e5, 2, setting) for setting in ("adamw", "muon", "soap")]
    budgets = [PlannedRung("r", 3e4, tokens, 2) for tokens in (5e5, 1e6, 2e6)]
    assert [detectable(rungs, NOISE).design.df for rungs in (settings, budgets)] == [3, 1]


def test_settings_are_seen_together_as_often_as_the_power_says():
    rungs = [PlannedRung(str(n), n, 16 * n, 2, setting) for n in (3e4, 6e4) for setting in "ab"]
    difference = detectable(rungs, NOISE).design.difference
    sizes = np.repeat(["small", "small", "large", "large"], 2)
    assert share_found(difference, np.repeat(np.arange(4), 2), sizes) == pytest.approx(0.8, abs=0.05)


def test_noise_that_falls_with_size_is_that_of_each_rung():
    falling = NoiseFigure(0.01, 0.35, "given", n_params=3e4, exponent=0.5)
    plans = ([PlannedRung("r", n, 16 * n, 3)] for n in (3e4, 3e6))
    small, large = (detectable(plan, falling).design.difference for plan in plans)
    assert small == pytest.approx(10 * large)


def test_a_range_of_noise_is_a_range_of_differences():
    rough = NoiseFigure(0.01, 0.35, "given", spread=2.0)
    design = detectable(ladder(), rough)
    assert design.design.range == pytest.approx((design.design.difference / 2, design.design.difference * 2))
    assert "in brackets at 1/2 and 2 times that" in design.text
    assert detectable(ladder(), NOISE).design.range is None


def test_parts_of_a_design_detect_less():
    whole, part = ladder(), ladder(n_rungs=4)[:2]
    analysis = detectable(whole, NOISE, parts={"unified-dp, in fewer cells": part})
    assert analysis.parts[0].difference > analysis.design.difference
    assert "unified-dp, in fewer cells: detects a difference of" in analysis.text


def test_a_multiplier_follows_from_the_slope_and_is_absent_without_one():
    design = detectable(ladder(), NOISE).design
    assert np.log(design.multiplier) * NOISE.slope == pytest.approx(design.difference)
    assert detectable(ladder(), NoiseFigure(0.01, None, "given")).design.multiplier is None


def test_a_pilot_gives_the_noise_of_its_pairs(sweep):
    actual = pilot_noise(sweep(seeds=tuple(range(40)), noise=0.004), "baseline")
    assert actual.sd == pytest.approx(0.004, rel=0.15)
    assert actual.slope == pytest.approx(0.09 * 3.5, rel=0.2)


def test_pairs_of_a_pilot_that_share_a_trunk_count_once(sweep):
    """Three budgets with the same noise know no more of it than one."""
    item = sweep(seeds=(0, 1, 2))
    trunk = item["arm"] + item["rung"] + item["seed"].astype(str)
    budgets = [item.assign(n_tokens=item["n_tokens"] * factor, cluster=trunk) for factor in (1, 2, 4)]
    alone, together = (pilot_noise(table, "baseline") for table in (item, pd.concat(budgets)))
    assert together.sd == pytest.approx(alone.sd)
    assert together.source == alone.source == "a pilot with 8 degrees of freedom"


def test_a_pilot_with_one_seed_has_no_noise_figure(sweep):
    with pytest.raises(DataError, match="no noise figure"):
        pilot_noise(sweep(seeds=(0,)), "baseline")


def test_a_pilot_without_the_reference_is_answered_with_the_nearest_arm(sweep):
    message = "the pilot: reference is 'basline', which is no arm; nearest: 'baseline'"
    with pytest.raises(DataError, match=message):
        pilot_noise(sweep(), "basline")


@pytest.mark.parametrize(("rungs", "options"), [([], {}), (ladder(), {"n_arms": 0}), (ladder(seeds=0), {})])
def test_designs_without_power_are_refused(rungs, options):
    with pytest.raises(DataError, match="no power"):
        detectable(rungs, NOISE, **options)
