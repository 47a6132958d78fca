"""What to add to a sweep: the seeds that shorten an interval most per hour, told to be after the plan."""

import numpy as np
import pandas as pd
import pytest
from tests.simulations import simulated

from scalevec.analysis import predict
from scalevec.analysis.errors import DataError
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.power.law_at_points import laws_at_points
from scalevec.analysis.power.next_trials import ExtendableCell, next_trials
from scalevec.analysis.power.noise_figure import NoiseFigure
from scalevec.orchestrator.commands.run.next import next as next_command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.simulate.runs_folder import hold_simulations

NOISE = NoiseFigure(0.01, None, "given")


def ladder(*hours: float, seeds: int = 3) -> list[ExtendableCell]:
    return [
        ExtendableCell(f"rung {number}", 1e6 * 4**number, 2e7 * 4**number, seeds, cost)
        for number, cost in enumerate(hours)
    ]


def test_the_cheaper_of_two_equally_noisy_rungs_gets_the_first_seeds():
    chosen = next_trials(ladder(1.0, 16.0), NOISE, hours=4.0)
    assert chosen.seeds["rung 0"] > chosen.seeds["rung 1"] == 0
    assert chosen.after < chosen.before


def test_the_hours_are_not_exceeded():
    chosen = next_trials(ladder(1.0, 3.0), NOISE, hours=10.0)
    assert sum(chosen.seeds[f"rung {n}"] * cost for n, cost in enumerate((1.0, 3.0))) == chosen.hours <= 10.0


def test_where_the_test_split_is_what_limits_no_seed_helps_much():
    limited = NoiseFigure(0.001, None, "given", split=0.01)
    chosen = next_trials(ladder(1.0, 1.0), limited, hours=20.0)
    assert chosen.after > 0.95 * chosen.before


def test_scaling_is_helped_most_by_the_ends_of_the_ladder():
    chosen = next_trials(ladder(1.0, 1.0, 1.0), NOISE, 6.0, "scaling")
    assert min(chosen.seeds["rung 0"], chosen.seeds["rung 2"]) > chosen.seeds["rung 1"]


def test_a_rung_that_is_new_takes_two_seeds_at_once():
    above = ExtendableCell("above", 1e9, 2e10, 0, 0.5)
    chosen = next_trials([*ladder(1.0, 1.0), above], NOISE, 1.0, "scaling")
    assert chosen.seeds["above"] == 2


def test_a_design_without_a_repeated_seed_is_refused():
    with pytest.raises(DataError, match="no rung has two seeds"):
        next_trials(ladder(1.0, 1.0, seeds=1), NOISE, 4.0)


def test_hours_that_are_none_are_refused():
    with pytest.raises(DataError, match="hours is -1"):
        next_trials(ladder(1.0), NOISE, -1.0)


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
    [forecast] = predict(rows, point, options=options)
    return laws_at_points(rows, [point], options), forecast.points[0]


def corners(**hours: float) -> list[ExtendableCell]:
    """Cells far from the wanted point and near it, of two seeds each, and one that is new."""
    sizes = {"far": (1e6, 2e7, 2), "near": (6.4e7, 1.28e9, 2), "new": (1.28e8, 2.56e9, 0)}
    return [ExtendableCell(name, *sizes[name], cost) for name, cost in hours.items()]


def test_the_interval_before_is_that_of_predict(laws):
    designs, point = laws
    chosen = next_trials(corners(far=1.0), NOISE, 1.0, "prediction", laws=designs)
    low, high = point.confidence
    assert chosen.before == pytest.approx((high - low) / 2, rel=0.2)


def test_a_prediction_is_helped_most_where_its_point_is_near(laws):
    chosen = next_trials(corners(far=1.0, near=1.0), NOISE, 6.0, "prediction", laws=laws[0])
    assert chosen.seeds["near"] > chosen.seeds["far"]
    assert chosen.after < chosen.before


def test_no_cell_is_given_more_than_ten_seeds_for_a_law(laws):
    """What is wrong with its form does not average out."""
    chosen = next_trials(corners(far=0.01, near=0.01), NOISE, 50.0, "prediction", laws=laws[0])
    assert chosen.seeds == {"far": 10, "near": 10}


def test_a_new_cell_at_the_point_is_taken_unless_it_costs_too_much(laws):
    cheap = next_trials(corners(near=1.0, new=1.0), NOISE, 4.0, "prediction", laws=laws[0])
    dear = next_trials(corners(near=1.0, new=50.0), NOISE, 4.0, "prediction", laws=laws[0])
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
