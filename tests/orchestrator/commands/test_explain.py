"""explain: why a trial ran, what happened to it, and which code ran it."""

import json
from pathlib import Path

import pytest

from recorded_sweep import choice_of, directory_of, member_of, record_sweep
from scalevec.orchestrator.cli.output import json_text
from scalevec.orchestrator.commands.look import explain as explaining
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.worker.provenance import environment
from scalevec.results.sweep_folder import SweepFolder

SETTING = {"optimizer": "adamw", "schedule": "cosine", "tokens_per_parameter": 4}
CHOICE = choice_of(
    "none", "a", setting=SETTING, grid=[0.01, 0.02, 0.04], losses=[3.6, 3.5, None], vertex=0.02, chosen=0.02
)


@pytest.fixture
def runs_dir(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")
    runs_dir = tmp_path / "runs"
    tuning = member_of("none", 100, stage="tuning", lr_status="grid")
    folder = record_sweep(runs_dir, "small", [member_of("none", 0), member_of("none", 1), tuning])
    folder.write_tuning({"version": 1, "choices": [CHOICE, CHOICE | {"arm": "baseline"}]})
    record_sweep(runs_dir, "other", [member_of("none", 0, rung="first")])
    for seed in (0, 1, 100):
        directory_of(runs_dir, "none", seed)
    directory_of(runs_dir, "baseline", 0)
    return runs_dir


@pytest.fixture
def trial(runs_dir):
    return directory_of(runs_dir, "none", 0)


def explained(trial, runs_dir) -> dict:
    return json.loads(json_text(explaining.explain(trial.trial_id[:12], runs_dir).record))


def told(trial, runs_dir) -> str:
    return explaining.explain(trial.trial_id, runs_dir).text


def test_every_sweep_that_holds_the_trial_is_named_with_its_place(trial, runs_dir):
    memberships = explained(trial, runs_dir)["members_of"]
    actual = [(member["sweep"], member["stage"], member["rung"], member["seed"]) for member in memberships]
    assert actual == [("other", "comparison", "first", 0), ("small", "comparison", "a", 0)]
    assert memberships[0]["tuning"] == []
    assert memberships[1]["tuning"] == [CHOICE | {"axis": "log", "check": None, "predicted": None}]


def test_a_tuned_value_is_told_with_the_losses_it_comes_from(trial, runs_dir):
    text = told(trial, runs_dir)
    assert "ran for sweep small: comparison of arm none at a, seed 0" in text
    assert "learning_rate = 0.02 (tuned): " in text
    assert "(0.01: 3.6000, 0.02: 3.5000, 0.04: diverged)" in text
    assert "its test loss is used by: scalevec fit, compare, report small" in text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("carried", "carried by a power law in N from the tuned rungs\n"),
        ("censored", "at the edge of the grid\n"),
    ],
)
def test_a_carried_value_is_told_as_such(trial, runs_dir, status, text):
    carried = CHOICE | {"grid": [], "losses": [], "seeds": [], "vertex": None, "status": status}
    SweepFolder.of(runs_dir, "small").write_tuning({"version": 1, "choices": [carried]})
    assert text in told(trial, runs_dir)


def test_a_tuning_trial_is_told_what_it_helped_to_choose(runs_dir):
    text = told(directory_of(runs_dir, "none", 100), runs_dir)
    assert "its validation loss helped to choose learning_rate = 0.02 (tuned; " in text
    assert "its test loss is used" not in text


def test_each_fault_comes_with_the_log_lines_of_its_own_attempt(trial, runs_dir):
    for attempt, word in ((1, "first"), (2, "second")):
        trial.append_event("queued", executor="local")
        trial.append_event("running", attempt=attempt, step=0)
        with trial.log_path.open("a") as log:
            log.write(f"{word} attempt begins\n\nTraceback of the {word}\n  here\nError: {word}\n")
        trial.append_event("pending", cause="error", error=f"Error: {word}")
    faults = [event for event in explained(trial, runs_dir)["events"] if event.get("cause") == "error"]
    assert [fault["log"]["lines"] for fault in faults] == [
        ["Traceback of the first", "  here", "Error: first"],
        ["Traceback of the second", "  here", "Error: second"],
    ]
    assert [fault["log"]["line"] for fault in faults] == [5, 10]
    assert f"log: {trial.log_path}:10\n    | Traceback of the second" in told(trial, runs_dir)


def test_a_fault_that_said_nothing_has_no_lines_of_an_earlier_one(trial, runs_dir):
    trial.log_path.write_text("an earlier word\n")
    trial.append_event("queued", executor="local")
    trial.append_event("pending", cause="killed", exit_code=-9)
    event = explained(trial, runs_dir)["events"][-1]
    assert event["log"] == {"path": str(trial.log_path), "line": 1, "lines": []}
    assert "cause killed, exit_code -9" in told(trial, runs_dir)


def test_resumes_are_counted_with_the_steps_they_began_from(trial, runs_dir):
    for attempt, step in ((1, 0), (2, 4), (3, 8)):
        trial.append_event("running", attempt=attempt, step=step)
        trial.append_event("pending", cause="preempted", step=step + 4)
    assert explained(trial, runs_dir)["resumed"] == [4, 8]
    assert "resumed 2 times (from step 4, 8)" in told(trial, runs_dir)


def test_each_attempt_has_its_code_and_its_versions(trial, runs_dir):
    now = environment() | {"device": "cpu"}
    older = {**now, "commit": "0" * 40, "dirty": True, "host": "elsewhere", "attempt": 1}
    trial.write_environment(older | {"versions": {"torch": "1.0"}})
    trial.write_environment(now | {"attempt": 2})
    attempts = explained(trial, runs_dir)["attempts"]
    expected = [(1, "1.0"), (2, now["versions"]["torch"])]
    assert [(each["attempt"], each["torch"]) for each in attempts] == expected
    text = told(trial, runs_dir)
    assert "attempt 1 on elsewhere (cpu): commit 000000000000 with uncommitted changes" in text


def test_the_newest_job_is_shown(trial, runs_dir):
    trial.write_job("slurm", "17_3", "token")
    assert explained(trial, runs_dir)["job"]["job"] == "17_3"
    assert "newest job: 17_3 of slurm" in told(trial, runs_dir)


@pytest.mark.parametrize("prefix", ["", "0", "zzzz", "../../..", "f" * 64, "/etc/passwd"])
def test_what_is_no_trial_is_refused(runs_dir, prefix):
    with pytest.raises(InvalidInputError, match="no trials in"):
        explaining.explain(prefix, runs_dir)


TIMING = {
    "step_s": {"p5": 0.1, "p50": 0.2, "p95": 0.4},
    "data_s": 1.0,
    "checkpoints_s": 2.0,
    "evaluation_s": 3.0,
    "mfu": 0.31,
}
RESULT = {"wall_s": 57.0, "peak_memory_bytes": 400_000_000, "timing": TIMING}


def test_what_a_trial_took_is_said_beside_what_its_sweep_planned() -> None:
    time, step, memory = explaining.accounts(RESULT, planned_s=90.0)
    shares = "data 1 s, checkpoints 2 s, evaluation 3 s"
    assert time == f"  time: 1 min 0 s, planned 1 min 30 s; of it {shares}"
    assert step == "  step: 0.2 s (5 % to 95 %: 0.1 to 0.4); 31% of the device's peak"
    assert memory == "  memory: 400 MB"
    assert explaining.accounts(RESULT)[0] == f"  time: 1 min 0 s; of it {shares}"


@pytest.mark.parametrize("odd", [None, "text", -1, -1e300, float("nan"), 10**400, [], [1], {"a": 1}])
def test_a_damaged_result_has_accounts_or_none(odd: object) -> None:
    results = [RESULT | {name: odd} for name in RESULT]
    results += [RESULT | {"timing": TIMING | {name: odd}} for name in TIMING]
    results += [RESULT | {"timing": TIMING | {"step_s": {"p5": odd, "p50": odd, "p95": odd}}}]
    for result in results:
        assert len(explaining.accounts(result)) in (0, 2, 3)
