"""What to add to a sweep: the seeds that shorten an interval most per hour, told to be after the plan."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.simulations import simulated

from scalevec.analysis import fit
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.power.law_at_points import LawAtPoints, laws_at_points
from scalevec.analysis.power.next_trials import (
    ExtendableSize,
    NextTrials,
    Purpose,
    halves_of_laws,
    halves_of_pairs,
    next_trials,
)
from scalevec.orchestrator.commands.run.next import next as next_command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.simulate.runs_folder import hold_simulations


def ladder(*hours: float, seeds: int = 3) -> list[ExtendableSize]:
    return [
        ExtendableSize(f"rung {number}", f"rung {number}", 1e6 * 4**number, 2e7 * 4**number, seeds, cost)
        for number, cost in enumerate(hours)
    ]


def pairs(rungs: int, seeds: int = 3, split: float = 0.0) -> ComparedTrials:
    """Pairs of equal noise at every rung of a ladder; ``split``: what the test text adds to all of them."""
    rng, rows = np.random.default_rng(0), []
    for size in ladder(*[1.0] * rungs):
        for arm, seed in itertools.product(("baseline", "unified"), range(seeds)):
            row = {"arm": arm, "rung": size.rung, "n_params": size.n_params, "n_tokens": size.n_tokens}
            row |= {
                "seed": seed,
                "stream": f"{size.rung} {seed}",
                "loss": 3.0 + 0.001 * rng.standard_normal(),
            }
            away = np.random.default_rng(1).standard_normal(64)
            blocks = row["loss"] + (arm == "unified") * split * (away - away.mean())
            rows.append(
                row | {"loss_blocks": json.dumps(blocks.tolist()), "block_tokens": json.dumps([1] * 64)}
            )
    return compared_trials(pd.DataFrame(rows), "baseline", AnalysisOptions())


def chosen_for(
    sizes: list[ExtendableSize], hours: float, is_trend: bool = False, **of_pairs: Any
) -> NextTrials:
    trials = pairs(sum(size.seeds > 0 for size in sizes), **of_pairs)
    purpose: Purpose = "scaling" if is_trend else "difference"
    return next_trials(sizes, halves_of_pairs(sizes, trials, is_trend), hours, purpose)


def test_the_cheaper_of_two_equally_noisy_rungs_gets_the_first_seeds():
    chosen = chosen_for(ladder(1.0, 16.0), 4.0)
    assert chosen.seeds["rung 0"] > chosen.seeds["rung 1"] == 0
    assert chosen.after < chosen.before


def test_the_hours_are_not_exceeded():
    chosen = chosen_for(ladder(1.0, 3.0), 10.0)
    assert sum(chosen.seeds[f"rung {n}"] * cost for n, cost in enumerate((1.0, 3.0))) == chosen.hours <= 10.0


def test_where_the_test_split_is_what_limits_no_seed_helps_much():
    chosen = chosen_for(ladder(1.0, 1.0), 20.0, split=0.1)
    assert chosen.after > 0.95 * chosen.before


def test_scaling_is_helped_most_by_the_ends_of_the_ladder():
    chosen = chosen_for(ladder(1.0, 1.0, 1.0), 6.0, is_trend=True)
    assert min(chosen.seeds["rung 0"], chosen.seeds["rung 2"]) > chosen.seeds["rung 1"]


def test_a_rung_that_is_new_takes_two_seeds_at_once():
    above = ExtendableSize("above", "above", 1e9, 2e10, 0, 0.5)
    chosen = chosen_for([*ladder(1.0, 1.0), above], 1.0, is_trend=True)
    assert chosen.seeds["above"] == 2


def test_a_design_without_a_repeated_seed_is_refused():
    with pytest.raises(DataError, match="no rung has two seeds"):
        chosen_for(ladder(1.0, 1.0, seeds=1), 4.0, seeds=1)


def test_hours_that_are_none_are_refused():
    with pytest.raises(DataError, match="hours is -1"):
        chosen_for(ladder(1.0), -1.0)


@pytest.fixture(scope="module")
def laws():
    """A law in N and D of runs on a grid of both, wanted at twice the largest N and D."""
    rng = np.random.default_rng(0)
    n, d = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 6.4e7, 4), np.geomspace(2e7, 1.28e9, 4)))
    n, d = np.repeat(n, 2), np.repeat(d, 2)
    loss = (1.7 + 400 * n**-0.34 + 410 * d**-0.28) * np.exp(0.002 * rng.standard_normal(len(n)))
    rows = pd.DataFrame({"n_params": n, "n_tokens": d, "loss": loss, "seed": np.tile([0, 1], 16)})
    point = pd.DataFrame({"N": [1.28e8], "D": [2.56e9]})
    options = AnalysisOptions(law="chinchilla", cluster="row", bootstrap=400)
    draws = {name: values.to_numpy() for name, values in fit(rows, options).only.draws.items()}
    drawn = law_named("chinchilla").predict(draws, {"N": np.array([1.28e8]), "D": np.array([2.56e9])})
    return laws_at_points(rows, [point], options), drawn


def corners(**hours: float) -> list[ExtendableSize]:
    """Cells far from the wanted point and near it, of two seeds each, and one that is new."""
    sizes = {"far": (1e6, 2e7, 2), "near": (6.4e7, 1.28e9, 2), "new": (1.28e8, 2.56e9, 0)}
    return [ExtendableSize(name, name, *sizes[name], cost) for name, cost in hours.items()]


def chosen_for_laws(laws: Sequence[LawAtPoints], hours: float, **costs: float) -> NextTrials:
    sizes = corners(**costs)
    return next_trials(sizes, halves_of_laws(sizes, laws, 0.95), hours, "prediction")


def test_the_interval_before_is_that_of_the_bootstrap(laws):
    designs, drawn = laws
    # t with 16 degrees of freedom: two seeds in each of 16 cells.
    assert chosen_for_laws(designs, 1.0, far=1.0).before == pytest.approx(2.12 * drawn.std(), rel=0.2)


def test_a_prediction_is_helped_most_where_its_point_is_near(laws):
    chosen = chosen_for_laws(laws[0], 6.0, far=1.0, near=1.0)
    assert chosen.seeds["near"] > chosen.seeds["far"]
    assert chosen.after < chosen.before


def test_no_cell_is_given_more_than_ten_seeds_for_a_law(laws):
    """What is wrong with its form does not average out."""
    chosen = chosen_for_laws(laws[0], 50.0, far=0.01, near=0.01)
    assert chosen.seeds == {"far": 10, "near": 10}


def test_a_new_cell_at_the_point_is_taken_unless_it_costs_too_much(laws):
    cheap = chosen_for_laws(laws[0], 4.0, near=1.0, new=1.0)
    dear = chosen_for_laws(laws[0], 4.0, near=1.0, new=50.0)
    assert cheap.seeds["new"] >= 2
    assert dear.seeds["new"] == 0


def test_a_prediction_without_a_point_is_refused():
    with pytest.raises(DataError, match="give one: --at"):
        laws_at_points(pd.DataFrame(), [], AnalysisOptions())


def test_where_tokens_vary_other_budgets_are_candidates(tmp_path):
    hold_simulations(tmp_path)
    simulated(tmp_path, tokens_per_parameter=[10, 20, 40], compare={"law": "chinchilla"})
    result = next_command("simulated", tmp_path, "prediction", ["N=1e7,D=2e8"], hours=5.0)
    new = [name for name in result.record["seeds"] if name.endswith("(a new budget)")]
    assert len(new) == 4
    assert "of the laws at the points" in result.text


def test_points_belong_to_a_prediction(tmp_path):
    with pytest.raises(InvalidInputError, match="--at is given for scaling"):
        next_command("simulated", tmp_path, "scaling", ["N=1e7"])


def test_a_sweep_is_told_what_to_add_and_that_it_comes_after_the_plan(tmp_path):
    hold_simulations(tmp_path)
    simulated(tmp_path)
    result = next_command("simulated", tmp_path, hours=1.0)
    assert result.record["status"] == "after the plan"
    assert set(result.record["seeds"]) == {"small", "large"}
    assert "exploratory, after the plan" in result.text
