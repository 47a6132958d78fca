"""Reading commands on a sweep of which a record is damaged or was never made."""

import json
import shutil
from pathlib import Path

import pytest

from damaged_runs import TUNE, whole_runs
from scalevec.orchestrator.sources.runs import Runs
from scalevec.orchestrator.sources.sources import compare_section, tuning_choices
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from simulations import SWEEP, simulated
from support import assert_refused, call_main, filled_once, succeeded

NAME = SWEEP["name"]


@pytest.fixture
def runs(tmp_path, tmp_path_factory) -> Path:
    whole = filled_once(tmp_path_factory, "whole runs", lambda folder: whole_runs(folder / "runs")) / "runs"
    shutil.copytree(whole, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def folder(runs) -> SweepFolder:
    return SweepFolder.of(runs, NAME)


@pytest.fixture
def trial(runs) -> RunDirectory:
    """A comparison trial."""
    members = SweepFolder.of(runs, NAME).members()
    compared = next(member for member in members if member["stage"] == "comparison")
    return RunDirectory.of(runs, compared["trial_id"])


@pytest.fixture
def told(runs, tmp_path):
    """Run a command, which must end well, and return what it printed: the result, the messages."""

    def call(*words: str) -> tuple[str, str]:
        cache = {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}
        done = succeeded(call_main([*words, "--runs", str(runs)], tmp_path, cache))
        return done.stdout, done.stderr

    return call


def edit(path: Path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_the_row_of_a_trial_that_never_ran_has_its_cell(runs, trial):
    shutil.rmtree(trial.path)
    rows = Runs(runs).results(NAME)
    (row,) = rows[rows["trial_id"] == trial.trial_id].to_dict("records")
    other = rows[(rows["rung"] == row["rung"]) & (rows["status"] == "completed")].iloc[0]
    assert row["status"] == "pending"
    for name in ("n_params", "n_tokens", "optimizer", "schedule", "corpus", "architecture", "precision"):
        assert row[name] == other[name]


@pytest.mark.parametrize("words", [["table", "comparison"], ["table", "ablation"], ["fit"]])
def test_a_trial_of_one_side_that_never_ran_leaves_the_rest_readable(told, trial, words):
    shutil.rmtree(trial.path)
    assert "baseline" in told(words[0], NAME, *words[1:], "--bootstrap", "20")[0]


def test_a_trial_that_never_ran_counts_as_missing_for_the_verdict(told, trial):
    shutil.rmtree(trial.path)
    (comparison,) = json.loads(told("compare", NAME, "--json")[0])
    assert comparison["verdict"] == "incomplete"


def test_status_goes_on_where_a_result_is_gone(told, trial):
    told("status")
    trial.result_path.unlink()
    (status,) = json.loads(told("status", "--json")[0])
    assert trial.trial_id not in status["problems"]


def test_trials_of_which_nothing_tells_the_cell_are_left_out_and_said(told, runs, folder):
    rung = folder.members()[-1]["rung"]
    for member in (members := folder.members()):
        if member["rung"] == rung:
            member.pop("n_tokens")
            shutil.rmtree(RunDirectory.of(runs, member["trial_id"]).path, ignore_errors=True)
    folder.write_members(members)
    answer, _ = told("compare", NAME)
    assert "4 trials without a result left out: no record says of which size and token budget" in answer
    told("table", NAME, "comparison")


@pytest.mark.parametrize("cell", ["zz", None, -1, 99, True])
def test_a_damaged_entry_of_members_is_said_with_its_place(cell, runs, folder, tmp_path):
    edit(folder.members_path, lambda members: members["trials"]["cell"].__setitem__(0, cell))
    done = call_main(["results", NAME, "--runs", str(runs)], tmp_path, {})
    assert_refused(done, 2, f"{folder.members_path}: trial 1 is of no cell")


@pytest.mark.parametrize("columns", [[], {}, {"cell": []}, {"cell": [0], "trial_id": []}, {"cell": 0}])
def test_members_that_are_no_columns_are_refused(columns, runs, folder, tmp_path):
    edit(folder.members_path, lambda members: members.update(trials=columns))
    done = call_main(["results", NAME, "--runs", str(runs)], tmp_path, {})
    assert_refused(done, 2, f"{folder.members_path}: is no list of trials by cells")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tuning: tuning.pop("choices"), "choices: Input should be a valid array"),
        (
            lambda tuning: tuning["choices"][0].update(chosen="zz"),
            "choices.0.chosen: Input should be a valid",
        ),
        (lambda tuning: tuning["choices"][0].update(more=1), "choices.0.more: Unexpected"),
        (
            lambda tuning: tuning["choices"][0]["grid"].pop(),
            "choices.0: has 2 values in its grid and 3 losses",
        ),
        (lambda tuning: tuning["choices"][0].update(chosen=-1.0), "choices.0: -1.0 is not on its axis, log"),
        (lambda tuning: tuning.update(version=9), "has version 9; this scalevec reads 1"),
    ],
)
def test_damaged_choices_are_said_and_left_out(told, folder, capsys, change, problem):
    edit(folder.tuning_path, change)
    assert tuning_choices(folder) == []
    messages = capsys.readouterr().err
    assert problem in messages
    assert "the choices of sweep simulated are left out" in messages
    assert "this plan is one before tuning" in told("plan", NAME)[1]


def test_a_run_with_damaged_choices_is_refused_rather_than_tuned_again(folder, runs, tmp_path):
    edit(folder.tuning_path, lambda tuning: tuning["choices"][0].pop("chosen"))
    done = call_main(["run", NAME, "--runs", str(runs), "--executor", "simulate"], tmp_path, {})
    assert_refused(done, 2, f"choices.0.chosen: Field required; restore {folder.tuning_path}")


def test_a_run_writes_members_again_that_nobody_can_read(folder, runs, tmp_path, capsys):
    whole = folder.members()
    folder.members_path.write_text("{")
    simulated(runs, tune=TUNE)
    assert "members.json: is not whole JSON" in capsys.readouterr().err
    assert {member["trial_id"] for member in folder.members()} == {member["trial_id"] for member in whole}


@pytest.mark.parametrize("section", [None, {"x": "zz"}, {"level": "high"}, {"reference": 7}])
def test_options_that_were_damaged_are_taken_from_the_kept_sweep_file(folder, capsys, section):
    whole = compare_section(folder)
    edit(folder.resolved_path, lambda resolved: resolved.update(compare=section))
    assert compare_section(folder) == whole
    assert "has no usable section compare" in capsys.readouterr().err
    folder.sweep_path.write_bytes(b"\xe9")
    assert compare_section(folder) == {}
    assert "options of the comparison are the defaults" in capsys.readouterr().err


def test_a_damaged_environment_is_said_and_the_report_is_written_without_its_trial(told, trial):
    trial.environment_path.write_text('["zz"]')
    assert f"{trial.environment_path}: entry 1 is no environment" in told("report", NAME)[1]
    assert f"{trial.environment_path}: entry 1 is no environment" in told("explain", trial.trial_id)[1]
    assert f"{trial.environment_path}: entry 1 is no environment" in told("results", NAME)[1]


def test_a_damaged_result_is_said_and_its_trial_counts_as_missing(told, trial):
    edit(trial.result_path, lambda result: result.update(loss="abc"))
    out, messages = told("compare", NAME, "--json")
    assert f"{trial.result_path}: has loss = 'abc', not a value of type float" in messages
    assert json.loads(out)[0]["verdict"] == "incomplete"
    assert "the result is left out" in told("explain", trial.trial_id)[1]


def test_damaged_measurements_are_said_and_those_of_other_trials_are_used(told, trial):
    with trial.metrics_path.open("a") as metrics:
        metrics.write('{"step": 300, "tokens": 1, "loss": "low"}\n')
    assert "line 4: 'loss' is no number; its measurements are left out" in told("report", NAME)[1]


def test_a_sweep_that_cannot_be_read_hides_no_other(told, runs, folder):
    simulated(runs, name="second", seeds=[0])
    folder.members_path.write_text("{")
    out, messages = told("status")
    assert f"{folder.members_path}: is not whole JSON" in messages
    assert "second: 4 of 4 trials done" in out
