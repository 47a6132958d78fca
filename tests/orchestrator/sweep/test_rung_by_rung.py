"""A sweep can go rung by rung: what --where asks for is tuned and compared, and the rest waits."""

from collections import Counter

import paper
import pytest
from tests.simulations import simulated

from scalevec.orchestrator.commands.analyse.compare import compare
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.simulate.planted_law import hold_simulations
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder

NAME = "simulated"
SMALL, LARGE = "rung == 'small'", "rung == 'large'"
RATES = {"learning_rate": [0.004, 0.008, 0.016], "seeds": [100]}
TUNED = {"tune": {**RATES, "rungs": ["small", "large"]}}
CARRIED = {"tune": {**RATES, "rungs": ["small"], "check_carried": "all"}}


def rates(runs_dir):
    """The chosen rate and its status of each cell by arm and rung."""
    choices = SweepFolder.of(runs_dir, NAME).tuning()["choices"]
    return {(c["arm"], c["rung"]): (c["chosen"], c["status"], c["check"] is not None) for c in choices}


def done(simulation):
    """How many trials of each stage and rung have a result."""
    results = simulation.results()
    members = SweepFolder.of(simulation.run.runs_dir, NAME).members()
    return Counter((member["stage"], member["rung"]) for member in members if member["trial_id"] in results)


def test_a_rung_is_tuned_and_compared_before_the_next_one_is_tuned(tmp_path):
    first = simulated(tmp_path, where=SMALL, **TUNED)
    assert done(first).keys() == {("tuning", "small"), ("comparison", "small")}
    assert {rung for _, rung in rates(tmp_path)} == {"small"}
    assert first.outcome.left_out > 0
    assert done(simulated(tmp_path, where=LARGE, **TUNED))["comparison", "large"] == 4


def test_a_damaged_result_of_what_is_not_asked_for_is_left_out(tmp_path):
    whole = simulated(tmp_path, **TUNED)
    of_small = next(each for each in whole.run.members() if each.cell.rung == "small")
    path = whole.run.directory(of_small.trial).result_path
    path.chmod(0o600)
    path.write_text("{")
    assert simulated(tmp_path, where=LARGE, **TUNED).outcome.left_out == 1


def test_rung_by_rung_comes_to_the_same_as_all_at_once(tmp_path):
    for where in (SMALL, LARGE):
        parts = simulated(tmp_path / "parts", where=where, **TUNED)
    whole = simulated(tmp_path / "whole", **TUNED)
    assert rates(tmp_path / "parts") == rates(tmp_path / "whole")
    assert parts.losses() == whole.losses()
    assert parts.outcome.left_out == 0


def test_a_rate_is_carried_and_checked_once_its_rung_is_asked_for(tmp_path):
    simulated(tmp_path, where=SMALL, **CARRIED)
    assert rates(tmp_path)["unified", "large"][1:] == ("carried", False)
    simulated(tmp_path, where=LARGE, **CARRIED)
    assert rates(tmp_path)["unified", "large"][2]
    simulated(tmp_path / "whole", **CARRIED)
    assert rates(tmp_path) == rates(tmp_path / "whole")


def test_no_verdict_is_due_while_a_rung_is_still_to_be_tuned(tmp_path):
    simulated(tmp_path, where=SMALL, **TUNED)
    (record,) = compare(NAME, tmp_path, given={"bootstrap": 0}).record
    assert (record["verdict"], record["interim"]) == ("incomplete", "interim: 2 of 4 pairs")
    assert SweepFolder.of(tmp_path, NAME).verdicts() == []


def test_no_rate_is_chosen_before_all_arms_of_a_rung_have_been_tried(tmp_path):
    simulated(tmp_path, where="arm == 'unified'", **TUNED)
    assert rates(tmp_path) == {}


def test_a_sweep_goes_on_from_a_rung_whose_tuning_alone_was_kept(tmp_path):
    tuned = simulated(tmp_path / "here", where=f"{SMALL} and stage == 'tuning'", **TUNED)
    paper.keep("small", SweepFolder.of(tmp_path / "here", NAME), tmp_path / "kept")
    hold_simulations(tmp_path / "there")
    paper.restore(tmp_path / "kept", SweepFolder.of(tmp_path / "there", NAME))
    gone_on = simulated(tmp_path / "there", **TUNED)
    assert len(tuned.results()) == done(gone_on)["tuning", "small"]
    for name, result in tuned.results().items():
        assert gone_on.results()[name] == result
        assert len(RunDirectory.of(tmp_path / "there", name).events()) == 1  # none of a second training


def test_a_sweep_goes_on_from_kept_rungs_and_keeps_the_time_of_its_predictions(tmp_path):
    sections = {**TUNED, "compare": {"predict": [{"arm": "unified", "sign": "lower"}]}}
    here, there = (SweepFolder.of(tmp_path / name, NAME) for name in ("here", "there"))
    first = simulated(tmp_path / "here", where=SMALL, **sections)
    for rung in ("small", "large"):
        paper.keep(rung, here, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept" / "trials").iterdir()] == ["small.jsonl.xz"]
    hold_simulations(tmp_path / "there")
    paper.restore(tmp_path / "kept", there)
    gone_on = simulated(tmp_path / "there", **sections)
    assert there.predictions() == here.predictions()
    for name, result in first.results().items():
        assert gone_on.results()[name] == result
        assert len(RunDirectory.of(tmp_path / "there", name).events()) == 1  # none of a second training


def test_of_stopped_stages_tuning_is_kept_as_far_as_it_came_and_seeds_that_all_arms_have(tmp_path):
    simulated(tmp_path / "here", where=SMALL, **TUNED)
    folder = SweepFolder.of(tmp_path / "here", NAME)
    members = [member for member in folder.members() if member["rung"] == "small"]
    tuning = [member["trial_id"] for member in members if member["stage"] == "tuning"]
    compared = {member["trial_id"]: member["seed"] for member in members if member["stage"] == "comparison"}
    first = next(iter(compared))
    for stopped in (tuning[0], first):
        RunDirectory.of(tmp_path / "here", stopped).result_path.unlink()
    paper.keep("small", folder, tmp_path / "kept")
    paper.restore(tmp_path / "kept", SweepFolder.of(tmp_path / "there", NAME))
    restored = {name for name in (*tuning, *compared) if RunDirectory.of(tmp_path / "there", name).result()}
    other_seeds = {name for name, seed in compared.items() if seed != compared[first]}
    assert other_seeds
    assert restored == {*tuning[1:], *other_seeds}


def test_an_expression_that_matches_no_trial_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="matches no trial of the sweep"):
        simulated(tmp_path, where="rung == 'zz'", **TUNED)
