"""A runs directory as Python objects."""

import pytest

import scalevec
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder

FIRST, SECOND = "ab12" + "0" * 60, "ab13" + "0" * 60


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder of runs with one sweep of two trials, one of which has completed."""
    monkeypatch.setenv("SCALEVEC_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    for trial_id in (FIRST, SECOND):
        RunDirectory.of(folder, trial_id).create({"tokens": 1000}, {})
    first = RunDirectory.of(folder, FIRST)
    first.append_metrics({"step": 1, "loss": 4.0})
    first.write_result({"status": "completed", "loss": 3.5})
    member = {"stage": "comparison", "arm": "baseline", "rung": "tiny-25k", "seed": 0}
    members = [{"trial_id": trial_id, **member} for trial_id in (FIRST, SECOND)]
    SweepFolder.of(folder, "small").write_members(members)
    return scalevec.open(folder)


def test_its_sweeps_are_listed(runs):
    assert runs.sweeps() == ["small"]


def test_results_are_a_frame_with_one_row_per_trial_whatever_its_state(runs):
    results = runs.results("small")
    assert dict(zip(results.trial_id, results.status, strict=True)) == {FIRST: "completed", SECOND: "pending"}
    assert results.loss.dropna().tolist() == [3.5]


@pytest.mark.parametrize("read", ["results", "sweep"])
def test_a_sweep_that_was_not_run_is_refused_with_those_that_were(runs, read):
    with pytest.raises(InvalidInputError, match="allowed: small"):
        getattr(runs, read)("other")


def test_a_trial_is_found_by_the_first_digits_of_its_id(runs):
    assert runs.trial("ab12").metrics() == [{"step": 1, "loss": 4.0}]


@pytest.mark.parametrize(
    ("prefix", "message"),
    [("ab1", "no trials in .* match prefix 'ab1'; give at least 4"), ("cd12", "no trials in .* match")],
)
def test_a_prefix_without_a_trial_is_refused(runs, prefix, message):
    with pytest.raises(InvalidInputError, match=message):
        runs.trial(prefix)


def test_an_ambiguous_prefix_is_refused_with_the_number_of_matches(tmp_path):
    for last in "01":
        RunDirectory.of(tmp_path, "ab12" + last * 60).create({}, {})
    with pytest.raises(InvalidInputError, match=r"2 trials in .* match prefix 'ab12'"):
        scalevec.open(tmp_path).trial("ab12")


def test_a_folder_that_is_not_there_is_refused_with_what_makes_it(tmp_path):
    with pytest.raises(InvalidInputError, match=r"absent: no such directory; `scalevec run SWEEP` makes one"):
        scalevec.open(tmp_path / "absent")


def test_a_sweep_has_its_results_its_trials_and_their_curves(runs):
    sweep = runs.sweep("small")
    assert sweep.results().equals(runs.results("small"))
    assert [trial.trial_id for trial in sweep.trials()] == [FIRST, SECOND]
    assert sweep.curves()[["trial_id", "arm", "loss"]].to_numpy().tolist() == [[FIRST, "baseline", 4.0]]
