"""The time that a sweep still takes and what it costs, from its plan and the times of finished trials."""

import pytest

from recorded_sweep import RESULT, directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look.status import status as show_status
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.orchestrator.sweep import controller as ownership
from scalevec.results.claims import acquire


@pytest.fixture
def runs_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")
    return tmp_path / "runs"


@pytest.fixture
def owner(runs_dir):
    claim = acquire(ownership.owner_directory(runs_dir, "small"), {})
    yield claim
    claim.release()


def record(runs_dir, *members) -> None:
    recorded = [member_of("none", seed, **fields) for seed, fields in enumerate(members)]
    record_sweep(runs_dir, "small", recorded)


def finish(runs_dir, seed, seconds) -> None:
    directory_of(runs_dir, "none", seed).write_result(RESULT | {"wall_s": seconds})


def start(runs_dir, seed, step):
    """Begin the trial of ``seed``, which is at ``step`` of 10; its claim."""
    directory = directory_of(runs_dir, "none", seed)
    claim = acquire(directory, {})
    directory.append_event("running", attempt=1)
    directory.append_metrics({"step": step})
    return claim


def state(runs_dir) -> dict:
    (status,) = sweep_statuses("small", runs_dir)
    return status


def planned(*seconds) -> list[dict]:
    return [{"planned_s": each, "cores": 2, "gpus": 0} for each in seconds]


def test_with_a_plan_the_time_left_is_known_before_anything_is_finished(runs_dir, owner):
    record(runs_dir, *planned(10.0, 20.0, 30.0, 40.0))
    assert state(runs_dir)["seconds_left"] == 100.0


def test_without_a_plan_a_running_trial_costs_nothing_that_could_be_told(runs_dir, owner):
    record(runs_dir, {"n_params": 10**6, "n_tokens": 10**8, "cores": 1, "gpus": 0})
    claim = start(runs_dir, 0, 5)
    status = state(runs_dir)
    claim.release()
    assert status["cost"] == {"unit": "core hours", "spent": 0.0, "left": None}


def test_the_plan_is_corrected_by_what_finished_trials_took_and_by_what_runs(runs_dir, owner):
    record(runs_dir, *planned(10.0, 20.0, 30.0, 40.0))
    finish(runs_dir, 0, 20.0)
    claim = start(runs_dir, 3, 5)
    status = state(runs_dir)
    claim.release()
    assert status["seconds_left"] == pytest.approx(2 * (20 + 30 + 40 / 2))
    assert status["plan"] == {"planned_s": 100.0, "share_done": pytest.approx(0.3), "pace": 2.0}
    assert status["cost"] == {
        "unit": "core hours",
        "spent": pytest.approx((20 + 2 * 20) * 2 / 3600),
        "left": pytest.approx(2 * (20 + 30 + 20) * 2 / 3600),
    }


def test_the_longest_trial_is_waited_for_however_many_run_at_a_time(runs_dir, owner):
    record(runs_dir, *planned(1.0, 1.0, 1.0, 90.0))
    claims = [start(runs_dir, seed, 0) for seed in range(3)]
    assert state(runs_dir)["seconds_left"] == 90.0
    for claim in claims:
        claim.release()


@pytest.mark.parametrize("sizes", [{"n_params": 1000, "n_tokens": 2560}, {}])
def test_without_a_plan_the_work_of_finished_trials_says_it_if_it_is_known(runs_dir, owner, sizes):
    record(runs_dir, sizes, sizes, sizes)
    assert state(runs_dir)["seconds_left"] is None
    finish(runs_dir, 0, 100.0)
    status = state(runs_dir)
    assert status["seconds_left"] == (pytest.approx(200.0) if sizes else None)
    assert status["plan"] is None


def test_status_shows_planned_against_measured(runs_dir):
    record(runs_dir, *planned(120.0, 120.0))
    timing = {"evaluation_s": 10.0, "step_s": {"p50": 0.5}}
    directory_of(runs_dir, "none", 0).write_result({**RESULT, "wall_s": 80.0, "timing": timing})
    assert "50% of 4 min 0 s planned; so far 0.75 x that" in show_status("small", runs_dir).shown()
