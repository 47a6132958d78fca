"""One trial whose records nobody can read: it is said, and the rest of the sweep goes on."""

from pathlib import Path

import pytest

from faulty_simulation import FaultySimulation
from recorded_sweep import directories_in
from scalevec.orchestrator.commands.run.cancel import cancel
from scalevec.orchestrator.commands.run.retry import retry
from scalevec.orchestrator.errors import Exit
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from simulations import SWEEP, Simulated, simulated

EVENTS, TRIAL = "events.jsonl", "trial.json"


@pytest.fixture
def runs(tmp_path) -> Path:
    """Of a simulated sweep all of whose trials are there and wait."""
    simulated(tmp_path / "runs")
    for directory in directories_in(tmp_path / "runs"):
        directory.result_path.unlink()
        directory.append_event("pending", cause="preempted")
    return tmp_path / "runs"


def break_one(runs: Path, name: str) -> RunDirectory:
    directory = directories_in(runs)[0]
    path = directory.path / name
    path.write_bytes(b"{garbage\n" + path.read_bytes())
    return directory


def states(runs: Path) -> list[str]:
    recorded = []
    for directory in directories_in(runs):
        try:
            recorded.append(directory.state().state)
        except CorruptRecordError:
            recorded.append("unreadable")
    return sorted(recorded)


@pytest.mark.parametrize("name", [EVENTS, TRIAL])
def test_run_counts_it_as_failed_and_trains_the_others(runs, name):
    broken = break_one(runs, name)
    run: Simulated = simulated(runs)
    assert len(run.results()) == 7
    (reason,) = run.outcome.failed.values()
    assert str(broken.path / name) in reason
    assert f"move {broken.path} away" in reason


def test_a_trial_that_becomes_unreadable_while_it_runs_is_given_up_alone(runs, monkeypatch):
    real, spoiled = FaultySimulation._end, []

    def end(executor, number):
        ended = real(executor, number)
        if not spoiled:  # its result is lost too, so that its events are asked
            spoiled.append(break_one(runs, EVENTS))
            spoiled[0].result_path.unlink(missing_ok=True)
        return ended

    monkeypatch.setattr(FaultySimulation, "_end", end)
    run = simulated(runs, slots=1)
    assert set(run.outcome.failed) == {spoiled[0].trial_id}
    assert len(run.results()) == 7


def test_cancel_calls_off_the_others(runs, capsys):
    broken = break_one(runs, EVENTS)
    assert cancel(SWEEP["name"], runs).write() is Exit.SOME_FAILED
    printed = capsys.readouterr()
    assert "7 trials cancelled" in printed.out
    assert str(broken.events_path) in printed.err
    assert f"move {broken.path} away" in printed.err
    assert states(runs) == ["cancelled"] * 7 + ["unreadable"]


def test_retry_gives_the_others_another_chance(runs, capsys):
    for directory in directories_in(runs):
        directory.append_event("failed", cause="error")
    broken = break_one(runs, EVENTS)
    assert retry(SWEEP["name"], runs).write() is Exit.SOME_FAILED
    printed = capsys.readouterr()
    assert "7 failed trials will run again" in printed.out
    assert str(broken.events_path) in printed.err
    assert states(runs) == ["pending"] * 7 + ["unreadable"]


def test_cancel_says_of_which_job_it_cannot_know(runs, capsys):
    first, *_ = directories_in(runs)
    first.append_event("queued", executor="local")
    first.jobs_path.write_text("{\n")
    cancel(SWEEP["name"], runs)
    assert f"{first.jobs_path}: line 1 is not whole JSON" in capsys.readouterr().err
    assert states(runs) == ["cancelled"] * 8
