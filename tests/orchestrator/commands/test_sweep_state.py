"""The record of a sweep's state: losses and laws by cell, why trials wait or failed, time and cost."""

import json
import shutil

import pytest
from tests.simulations import Silent, simulated

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec import sweeps
from scalevec.orchestrator.commands.look.screen import missing, screen
from scalevec.orchestrator.commands.look.status import status as show_status
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.sweep import controller as ownership
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.claims import acquire
from scalevec.results.sweep_folder import SweepFolder

NAME = "simulated"
TUNED = {"tune": {"learning_rate": [0.004, 0.008], "rungs": ["small"], "seeds": [100]}}


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")


@pytest.fixture
def runs_dir(tmp_path):
    """A recorded sweep of one arm with two seeds."""
    record_sweep(tmp_path / "runs", "small", [member_of("none", seed) for seed in (0, 1)])
    return tmp_path / "runs"


def cells_of(runs_dir) -> dict:
    (status,) = sweep_statuses(NAME, runs_dir)
    return {(cell["rung"], cell["arm"]): cell for cell in status["cells"] if cell["stage"] == "comparison"}


def without(simulation, *rungs) -> dict:
    """Take away what is known of these rungs; return their losses by rung and arm."""
    known = {}
    for member in simulation.run.members():
        if member.cell.rung in rungs:
            directory = simulation.run.directory(member.trial)
            known.setdefault((member.cell.rung, member.cell.arm), []).append(directory.result()["loss"])
            shutil.rmtree(directory.path)
    return {rung_and_arm: sum(losses) / len(losses) for rung_and_arm, losses in known.items()}


def test_the_mean_loss_of_each_cell_is_that_of_its_completed_trials(tmp_path):
    simulation = simulated(tmp_path)
    cells = cells_of(tmp_path)
    assert list(cells) == [(rung, arm) for rung in ("small", "large") for arm in ("baseline", "unified")]
    known = without(simulation, "large")
    for rung_and_arm, loss in known.items():
        assert cells[rung_and_arm]["loss"] == pytest.approx(loss)
        expected = cells[rung_and_arm] | {"states": {"pending": 2}, "loss": None}
        assert cells_of(tmp_path)[rung_and_arm] == expected


def test_to_watch_is_no_look_no_arm_is_compared_with_another(tmp_path):
    simulated(tmp_path)
    (status,) = sweep_statuses(NAME, tmp_path)
    looks = ("difference", "p_value", "interval", "verdict")
    assert not [word for word in looks if word in json.dumps(status)]


def test_before_tuning_has_chosen_the_compared_trials_count_in_all_but_the_stage(tmp_path):
    with pytest.raises(InvalidInputError):  # nothing is trained
        simulated(tmp_path, where="arm == 'none of them'", **TUNED)
    sweep = sweeps.load(SweepFolder.of(tmp_path, NAME).sweep_path)
    tuning = SweepRun(sweep, tmp_path, Silent(), nominal_corpus(sweep))
    tuning.write_members(tuning.members())
    (status,) = sweep_statuses(NAME, tmp_path)
    assert (status["trials"], status["to_come"], missing(status), status["stage"]) == (4, 8, 12, "tuning")
    waiting = {each["reason"]: each["trials"] for each in status["waiting"]}
    assert waiting["for the rates that tuning chooses"] == 8
    planned = sum(
        entry["planned_s"] for entry in (*tuning.folder.members(), *tuning.folder.to_come().entries())
    )
    assert status["plan"]["planned_s"] == pytest.approx(planned)
    assert status["cost"] == {"unit": "core hours", "spent": 0.0, "left": pytest.approx(planned / 3600)}


def test_once_tuned_it_says_what_was_chosen_and_nothing_is_to_come(tmp_path):
    simulated(tmp_path, **TUNED)
    (status,) = sweep_statuses(NAME, tmp_path)
    assert status["to_come"] == 0
    expected = {(arm, rung) for arm in ("baseline", "unified") for rung in ("small", "large")}
    assert {(choice["arm"], choice["rung"]) for choice in status["chosen"]} == expected
    assert "tuned    learning rate at small: baseline " in screen([status], 110).plain


def test_a_failed_trial_shows_its_error_before_the_rule_that_gave_it_up(runs_dir):
    directory = directory_of(runs_dir, "none", 0)
    directory.append_event("pending", cause="error", error="RuntimeError: no such layer")
    directory.append_event("failed", cause="error", reason="3 attempts without a new checkpoint")
    text = show_status("small", runs_dir).shown()
    cause = "RuntimeError: no such layer (3 attempts without a new checkpoint)"
    assert f"failed   {directory.trial_id[:8]}  none a seed 0: {cause}" in text


def test_without_an_error_on_record_the_last_line_of_the_log_tells(runs_dir):
    directory = directory_of(runs_dir, "none", 0)
    directory.log_path.write_text("loading\nIllegal instruction\n")
    directory.append_event("pending", cause="killed")
    directory.append_event("failed", cause="killed", reason="3 attempts without a new checkpoint")
    assert "none a seed 0: Illegal instruction (3 attempts" in show_status("small", runs_dir).shown()


def test_the_reasons_for_which_trials_wait(runs_dir):
    (status,) = sweep_statuses("small", runs_dir)
    expected = [{"reason": "for somebody to run the sweep", "trials": 2, "jobs": [], "remedy": ""}]
    assert status["waiting"] == expected
    directory_of(runs_dir, "none", 1).append_event("pending", cause="out_of_memory")
    claim = acquire(ownership.owner_directory(runs_dir, "small"), {})
    (status,) = sweep_statuses("small", runs_dir)
    claim.release()
    actual = sorted(each["reason"] for each in status["waiting"])
    assert actual == ["for a free slot", "to be tried again after out of memory"]


def test_arms_that_share_a_trial_both_show_it(runs_dir):
    record_sweep(runs_dir, "small", [member_of("none", 0), member_of("none", 0) | {"arm": "as none"}])
    complete(directory_of(runs_dir, "none", 0))
    (status,) = sweep_statuses("small", runs_dir)
    expected = [("none", {"completed": 1}), ("as none", {"completed": 1})]
    assert [(cell["arm"], cell["states"]) for cell in status["cells"]] == expected
    assert status["trials"] == 1


def test_cells_of_one_rung_are_told_apart_by_what_varies(runs_dir):
    members = [
        member_of("none", seed, schedule=schedule, tokens_per_parameter=ratio)
        for seed, (schedule, ratio) in enumerate([("cosine", 4), ("wsd", 4), ("wsd", 16)])
    ]
    record_sweep(runs_dir, "small", members)
    (status,) = sweep_statuses("small", runs_dir)
    assert [" ".join(cell["setting"].values()) for cell in status["cells"]] == ["cosine 4", "wsd 16", "wsd 4"]


def test_a_setting_with_parts_tells_cells_apart_too(runs_dir):
    members = [
        member_of("none", seed) | {"setting": {"embedding": {"scale": scale}}}
        for seed, scale in enumerate([1, 8])
    ]
    record_sweep(runs_dir, "small", members)
    (status,) = sweep_statuses("small", runs_dir)
    expected = [{"embedding": "{'scale': 1}"}, {"embedding": "{'scale': 8}"}]
    assert [cell["setting"] for cell in status["cells"]] == expected
