"""A sweep keeps its plan: looks bind once results are known, verdicts stand, dropped trials are named."""

import re

import pytest

from scalevec import sweeps
from scalevec.orchestrator.commands.analyse.compare import compare
from scalevec.orchestrator.commands.run.plan import plan
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from simulations import Silent, simulated, sweep_run

NAME = "simulated"
TUNED = {"tune": {"learning_rate": [0.01, 0.02, 0.04], "rungs": ["small"], "seeds": [100]}}


def verdict_of(runs_dir):
    (record,) = compare(NAME, runs_dir, given={"bootstrap": 0}).record
    return record


def fail(runs_dir, arm, rung, seed):
    """Make a finished trial one that failed."""
    for member in SweepFolder.of(runs_dir, NAME).members():
        if (member["arm"], member["rung"], member["seed"]) == (arm, rung, seed):
            directory = RunDirectory.of(runs_dir, member["trial_id"])
            directory.result_path.unlink()
            directory.append_event("failed", cause="out_of_memory")


@pytest.mark.parametrize(
    ("first", "late"), [([2, 5], {"looks": [2, 3]}), ([2, 5], {}), (None, {"looks": [2, 3]})]
)
def test_looks_that_are_declared_or_edited_after_the_first_result_are_refused(tmp_path, first, late):
    simulated(tmp_path, compare={"looks": first} if first else {})
    declared = re.escape(str(first or "none"))
    with pytest.raises(InvalidInputError, match=f"looks is .*before the first result: {declared}"):
        simulated(tmp_path, compare=late)
    assert SweepFolder.of(tmp_path, NAME).resolved()["compare"].get("looks") == first


def retuned(runs_dir, **sections):
    """The same sweep with rates that are chosen again, as it stands before anything is trained."""
    return sweep_run(runs_dir, retune=True, **TUNED, **sections)


def test_choosing_rates_again_forgets_no_result(tmp_path):
    simulated(tmp_path, **TUNED)
    with pytest.raises(InvalidInputError, match="declared before the first result: none"):
        retuned(tmp_path, compare={"looks": [2, 3]}).write_file()
    retuned(tmp_path, compare={"predict": [LOWER]}).write_file()
    (kept,) = predictions_of(tmp_path)
    assert kept["known"] == [{"with_result": 8}]


def test_looks_may_be_edited_while_no_arm_has_a_result(tmp_path):
    folder = SweepFolder.of(tmp_path, NAME)
    folder.write_resolved({"compare": {"looks": [2, 5]}})
    simulated(tmp_path, compare={"looks": [2, 3]})
    assert folder.resolved()["compare"]["looks"] == [2, 3]


def test_declared_looks_go_on_with_the_seeds_that_the_file_adds(tmp_path):
    arms = {"unified": {"gain": 1.0}}
    simulated(tmp_path, compare={"looks": [2, 3]}, simulate={"arms": arms})
    assert verdict_of(tmp_path)["interim"] == "interim: look at 2 of 3 seeds"
    simulated(tmp_path, compare={"looks": [2, 3]}, simulate={"arms": arms}, seeds=[0, 1, 2])
    assert verdict_of(tmp_path)["plan"]["look"] == 3


def test_a_verdict_that_was_shown_stands_beside_an_exploratory_estimate(tmp_path):
    simulated(tmp_path)
    before = verdict_of(tmp_path)
    simulated(tmp_path, seeds=[0, 1, 2])
    after = verdict_of(tmp_path)
    assert (after["verdict"], after["loss_difference"]) == (before["verdict"], before["loss_difference"])
    assert after["plan"]["exploratory"]["pairs"] == 6
    (kept,) = SweepFolder.of(tmp_path, NAME).verdicts()
    assert (kept["verdict"], len(kept["pairs"])) == (before["verdict"], 4)


def test_seeds_added_before_anyone_saw_a_verdict_are_part_of_it(tmp_path):
    simulated(tmp_path)
    simulated(tmp_path, seeds=[0, 1, 2])
    assert verdict_of(tmp_path)["pairs"] == 6


def test_damaged_verdicts_are_said_and_left_alone(tmp_path, capsys):
    simulated(tmp_path)
    verdict_of(tmp_path)
    path = SweepFolder.of(tmp_path, NAME).verdicts_path
    path.write_bytes(damaged := path.read_bytes()[:40])
    assert verdict_of(tmp_path)["verdict"]
    assert "verdicts.json" in capsys.readouterr().err
    assert path.read_bytes() == damaged


def test_a_failed_trial_that_the_file_drops_is_named_with_its_cause(tmp_path):
    simulated(tmp_path, seeds=[0, 1, 2])
    fail(tmp_path, "unified", "small", 1)
    assert verdict_of(tmp_path)["verdict"] == "incomplete"
    simulated(tmp_path, seeds=[0, 1, 2], exclude=[{"rung": "small", "seed": 1, "arm": "unified"}])
    record = verdict_of(tmp_path)
    assert record["verdict"] != "incomplete"
    assert any("unified small, seed 1 (failed: out_of_memory)" in fact for fact in record["facts"])


def test_a_place_that_comes_back_is_not_dropped_any_more(tmp_path):
    simulated(tmp_path)
    simulated(tmp_path, seeds=[0])
    assert len(SweepFolder.of(tmp_path, NAME).dropped()) == 4
    simulated(tmp_path)
    assert SweepFolder.of(tmp_path, NAME).dropped() == []


def test_a_name_that_another_sweep_had_is_warned_of(tmp_path, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(Silent, "message", lambda _, text: told.append(text))
    simulated(tmp_path)
    simulated(tmp_path, seeds=[0])
    assert not any("was run before" in text for text in told)
    ladder = [{"name": "huge", "width": 256, "layers": 4}]
    simulated(tmp_path, arms={"baseline": {}, "other": {}}, ladder=ladder)
    assert any("was run before with other arms and rungs alone" in text for text in told)


LOWER = {"arm": "unified", "sign": "lower"}


def predictions_of(runs_dir):
    return SweepFolder.of(runs_dir, NAME).predictions()


def test_predictions_are_kept_once_with_hash_and_time_before_any_result(tmp_path):
    simulated(tmp_path, compare={"predict": [LOWER]})
    (first,) = predictions_of(tmp_path)
    assert first["predictions"] == [{"reference": "baseline", **LOWER}]
    assert first["known"] == [{"with_result": 0}]
    simulated(tmp_path, compare={"predict": [LOWER]})
    assert predictions_of(tmp_path) == [first]


def test_a_changed_list_of_predictions_stands_beside_the_first_with_what_was_known(tmp_path):
    simulated(tmp_path, compare={"predict": [LOWER]})
    later = LOWER | {"sign": "higher", "where": "rung == 'small'"}
    simulated(tmp_path, compare={"predict": [later]})
    first, second = predictions_of(tmp_path)
    assert (first["predictions"][0]["sign"], second["predictions"][0]["sign"]) == ("lower", "higher")
    assert second["known"] == [{"with_result": 4}]
    shown = verdict_of(tmp_path)["predictions"]
    assert [(entry["sign"], entry["stands"]) for entry in shown] == [("higher", True), ("lower", False)]


def test_a_list_of_predictions_that_comes_back_stands_again(tmp_path):
    (lower, higher) = [LOWER], [LOWER | {"sign": "higher"}]
    for predicted in (lower, higher, lower):
        simulated(tmp_path, compare={"predict": predicted})
    assert [record["predictions"][0]["sign"] for record in predictions_of(tmp_path)] == ["higher", "lower"]
    (again,) = (entry for entry in verdict_of(tmp_path)["predictions"] if entry["stands"])
    assert (again["sign"], again["with_result"]) == ("lower", 0)


def test_predictions_that_were_edited_after_they_were_kept_are_left_out_and_said(tmp_path, capsys):
    simulated(tmp_path, compare={"predict": [LOWER]})
    (path,) = SweepFolder.of(tmp_path, NAME).predictions_path.iterdir()
    path.write_text(path.read_text().replace("lower", "higher"))
    assert verdict_of(tmp_path)["predictions"] == ()
    assert "was edited after it was kept" in capsys.readouterr().err


def test_predictions_are_no_part_of_a_trial(tmp_path):
    plain, predicted = simulated(tmp_path / "a"), simulated(tmp_path / "b", compare={"predict": [LOWER]})
    assert plain.results().keys() == predicted.results().keys()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("rung == 'smal'", "matches no trial of unified and baseline; rungs: small, large"),
        ("size == 3", "where 'size == 3': no column 'size'"),
        ("arm == 'unified'", "matches no trial of baseline; rungs: small, large"),
    ],
)
def test_a_prediction_of_no_cell_is_refused_at_its_line(tmp_path, where, message):
    match = re.escape("compare.predict[0].where: ") + ".*" + re.escape(message)
    with pytest.raises(sweeps.SweepError, match=match):
        simulated(tmp_path, compare={"predict": [LOWER | {"where": where}]})
    assert not (tmp_path / "sweeps").exists()


def test_a_plan_shows_what_is_predicted_on_one_line(tmp_path):
    simulated(tmp_path, compare={"predict": [LOWER]})
    text = plan(NAME, tmp_path, executor="simulate").shown()
    assert "predicted, and kept when the sweep first runs: unified lower than baseline" in text
