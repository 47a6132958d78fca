"""``cancel --removed``: what an edit took out of the sweep file, before or after the next run."""

from pathlib import Path

import pytest
import yaml

from recorded_sweep import directories_in
from scalevec.orchestrator.commands.run.cancel import cancel
from scalevec.orchestrator.errors import Exit
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP, simulated

ONE_ARM = {"arms": {"baseline": SWEEP["arms"]["baseline"]}}
NAME = SWEEP["name"]


@pytest.fixture
def runs(tmp_path) -> Path:
    return tmp_path / "runs"


def sent(runs: Path, **sections) -> list[RunDirectory]:
    """The run directories of the sweep, all of whose trials wait."""
    simulated(runs, **sections)
    directories = directories_in(runs)
    for directory in directories:
        directory.result_path.unlink(missing_ok=True)
        directory.append_event("queued", executor="elsewhere")
    return directories


def cancel_removed(runs: Path, **sections) -> list[str]:
    """The arms of the trials that were cancelled when the file has these sections."""
    arms = {member["trial_id"]: member["arm"] for member in SweepFolder.of(runs, NAME).members() or []}
    path = runs.parent / "my.yaml"
    path.write_text(yaml.safe_dump(SWEEP | sections, sort_keys=False))
    assert cancel(str(path), runs, removed=True).code is Exit.DONE
    cancelled = filter(is_cancelled, directories_in(runs))
    return sorted(arms.get(directory.trial_id, "of no sweep") for directory in cancelled)


def is_cancelled(directory: RunDirectory) -> bool:
    return directory.state().state == "cancelled"


def test_an_edited_file_counts_before_it_is_run(runs):
    sent(runs)
    assert cancel_removed(runs, **ONE_ARM) == ["unified"] * 4


def test_a_file_that_was_not_edited_cancels_nothing(runs):
    sent(runs)
    assert cancel_removed(runs) == []


def test_what_another_sweep_holds_is_left_alone(runs):
    sent(runs, name="other")
    sent(runs)
    assert cancel_removed(runs, **ONE_ARM) == []


def test_trials_that_another_sweep_made_first_are_found(runs):
    sent(runs, name="other")
    sent(runs)
    SweepFolder.of(runs, "other").write_members([])
    assert cancel_removed(runs, **ONE_ARM) == ["unified"] * 4


def test_a_tuning_under_way_keeps_the_rates_by_which_it_extended_its_grid(runs):
    tune = {"learning_rate": [0.002, 0.004, 0.008], "rungs": ["small"], "extend": 2, "check_carried": True}
    sections = {"tune": tune, "simulate": {"learning_rate": {"optimum": 0.02, "at": 1e5}}}
    sent(runs, **sections)
    folder = SweepFolder.of(runs, NAME)
    members = folder.members() or []
    assert max(member["learning_rate"] for member in members if member["lr_status"] == "grid") > 0.008
    assert any(member["lr_status"] == "check" for member in members)
    tuning = [member for member in members if member["stage"] == "tuning"]
    folder.write_members(tuning)
    folder.tuning_path.unlink()
    for member in members:
        if member not in tuning:
            RunDirectory.of(runs, member["trial_id"]).append_event("failed", cause="error")
    assert cancel_removed(runs, **sections) == []
    fewer = {**sections, "tune": {**tune, "learning_rate": [0.002, 0.006]}}
    assert cancel_removed(runs, **fewer)


RATES = {"rungs": ["small", "middle", "large"], "larger_rungs": "predicted"}
THREE = {
    "ladder": [*SWEEP["ladder"], {"name": "middle", "width": 96, "layers": 2}],
    "simulate": {"learning_rate": {"optimum": 0.02, "at": 1e5, "exponent": -0.3}},
}


def rates_at(runs: Path, rung: str) -> set[float]:
    return {
        member["learning_rate"]
        for member in SweepFolder.of(runs, NAME).members() or []
        if (member["stage"], member["rung"]) == ("tuning", rung)
    }


def test_a_tuning_under_way_keeps_the_rates_around_what_it_predicted(runs):
    tune = {**RATES, "learning_rate": [0.005, 0.01, 0.02, 0.04]}
    sections = {**THREE, "tune": tune}
    sent(runs, **sections)
    assert not rates_at(runs, "large") <= set(tune["learning_rate"])
    folder = SweepFolder.of(runs, NAME)
    folder.write_members([member for member in folder.members() or [] if member["stage"] == "tuning"])
    folder.tuning_path.unlink()
    cancelled = cancel_removed(runs, **sections)
    members = {member["trial_id"]: member for member in folder.members() or []}
    assert [name for name in members if is_cancelled(RunDirectory.of(runs, name))] == []
    assert set(cancelled) <= {"of no sweep"}


def test_rates_that_are_chosen_again_are_kept_on_the_grid_of_the_file(runs):
    tune = {"learning_rate": [0.01, 0.02, 0.04], "rungs": ["small"]}
    planted = {"simulate": {"learning_rate": {"optimum": 0.02, "at": 1e5}}}
    sent(runs, tune=tune, **planted)
    folder = SweepFolder.of(runs, NAME)
    frozen = folder.tuning()
    again = {**tune, "learning_rate": [0.015, 0.03, 0.06]}
    folder.tuning_path.unlink()
    sent(runs, tune=again, **planted)
    folder.write_members([member for member in folder.members() or [] if member["stage"] == "tuning"])
    folder.write_tuning(frozen)
    cancel_removed(runs, tune=again, **planted)
    members = folder.members() or []
    assert members
    assert not any(is_cancelled(RunDirectory.of(runs, member["trial_id"])) for member in members)


def test_the_name_of_a_sweep_stands_for_what_was_last_sent(runs):
    sent(runs)
    sent(runs, **ONE_ARM)
    assert "4 trials cancelled" in cancel(NAME, runs, removed=True).text


def test_where_a_name_finds_nothing_it_says_what_it_looked_at(runs, capsys):
    sent(runs)
    cancel(NAME, runs, removed=True)
    assert "using the last submitted version of" in capsys.readouterr().err
