"""What to add to a sweep: the seeds that shorten an interval most per hour, told to be after the plan."""

import pytest
from tests.simulations import simulated

from scalevec.analysis.errors import DataError
from scalevec.analysis.power.next_trials import ExtendableCell, next_trials
from scalevec.analysis.power.noise_figure import NoiseFigure
from scalevec.orchestrator.commands.run.next import next as next_command
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


def test_a_sweep_is_told_what_to_add_and_that_it_comes_after_the_plan(tmp_path):
    hold_simulations(tmp_path)
    simulated(tmp_path)
    result = next_command("simulated", tmp_path, hours=1.0)
    assert result.record["status"] == "after the plan"
    assert set(result.record["seeds"]) == {"small", "large"}
    assert "exploratory, after the plan" in result.text
