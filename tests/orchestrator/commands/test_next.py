"""What to add to a sweep: the seeds that shorten an interval most per hour, told to be after the plan."""

import itertools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.simulations import simulated

from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.errors import DataError
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.power.next_trials import ExtendableSize, NextTrials, next_trials
from scalevec.orchestrator.commands.run.next import next as next_command
from scalevec.orchestrator.executors.simulate.planted_law import hold_simulations


def ladder(*hours: float, seeds: int = 3) -> list[ExtendableSize]:
    named = ((f"rung {number}", cost) for number, cost in enumerate(hours))
    return [ExtendableSize(name, name, seeds, cost) for name, cost in named]


def pairs(rungs: int, seeds: int = 3, split: float = 0.0) -> ComparedTrials:
    """Pairs of equal noise at every rung of a ladder; ``split``: what the test text adds to all of them."""
    rng, rows = np.random.default_rng(0), []
    for number, size in enumerate(ladder(*[1.0] * rungs)):
        for arm, seed in itertools.product(("baseline", "unified"), range(seeds)):
            row = {"arm": arm, "rung": size.rung, "n_params": 1e6 * 4**number, "n_tokens": 2e7 * 4**number}
            loss = 3.0 + 0.001 * rng.standard_normal()
            row |= {"seed": seed, "stream": f"{size.rung} {seed}", "loss": loss}
            away = np.random.default_rng(1).standard_normal(64)
            blocks = row["loss"] + (arm == "unified") * split * (away - away.mean())
            row |= {"loss_blocks": json.dumps(blocks.tolist()), "block_tokens": json.dumps([1] * 64)}
            rows.append(row)
    return compared_trials(pd.DataFrame(rows), "baseline", AnalysisOptions())


def chosen_for(sizes: list[ExtendableSize], hours: float, **of_pairs: Any) -> NextTrials:
    return next_trials(sizes, pairs(len(sizes), **of_pairs), hours)


def test_the_cheaper_of_two_equally_noisy_rungs_gets_the_first_seeds():
    chosen = chosen_for(ladder(1.0, 16.0), 4.0)
    assert chosen.seeds["rung 0"] > chosen.seeds["rung 1"] == 0
    assert chosen.after < chosen.before


def test_the_hours_are_not_exceeded():
    chosen = chosen_for(ladder(1.0, 3.0), 10.0)
    assert sum(chosen.seeds[f"rung {n}"] * cost for n, cost in enumerate((1.0, 3.0))) == chosen.hours <= 10.0


def test_rounded_losses_whose_differences_are_equal_have_the_noise_of_their_rounding():
    rows = [
        {"arm": arm, "n_params": n, "n_tokens": 20 * n, "seed": seed, "loss": level + 0.01 * seed - gain}
        for n, level in ((1e6, 3.5), (4e6, 3.0))
        for seed in range(3)
        for arm, gain in (("baseline", 0.0), ("unified", 0.02))
    ]
    trials = compared_trials(pd.DataFrame(rows).round(2), "baseline", AnalysisOptions())
    sizes = [ExtendableSize(name, name, 3, 1.0) for name in trials.rows["rung"].unique()]
    chosen = next_trials(sizes, trials, 20.0)
    assert 0 < chosen.after < chosen.before


def test_where_the_test_split_is_what_limits_no_seed_helps_much():
    chosen = chosen_for(ladder(1.0, 1.0), 20.0, split=0.1)
    assert chosen.after > 0.95 * chosen.before


def test_a_design_without_a_repeated_seed_is_refused():
    with pytest.raises(DataError, match="no size has two seeds with a result"):
        chosen_for(ladder(1.0, 1.0, seeds=1), 4.0, seeds=1)


def test_hours_that_are_none_are_refused():
    with pytest.raises(DataError, match="hours is -1"):
        chosen_for(ladder(1.0), -1.0)


def test_a_sweep_is_told_what_to_add_and_that_it_comes_after_the_plan(tmp_path):
    hold_simulations(tmp_path)
    simulated(tmp_path)
    result = next_command("simulated", tmp_path, hours=1.0)
    assert result.record["status"] == "after the plan"
    assert set(result.record["seeds"]) == {"small", "large"}
    assert "exploratory, after the plan" in result.text


def test_a_sweep_whose_laws_cannot_be_checked_is_told_to_add_a_size(tmp_path):
    hold_simulations(tmp_path)
    simulated(tmp_path)
    result = next_command("simulated", tmp_path, hours=1.0)
    why = result.record["scale"]["unified"]
    assert "2 rungs" in why
    assert f"scale, unified: {why}; add a size beyond large" in result.text.splitlines()
