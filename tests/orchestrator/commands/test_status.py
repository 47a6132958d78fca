"""What status says is what the run directories hold."""

import json
from pathlib import Path

import pytest

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.cli.output import json_text
from scalevec.orchestrator.commands.look import status as looking
from scalevec.results.claims import acquire
from scalevec.results.index.store import ResultsIndex
from support import succeeded

ARMS = ("baseline", "none")


@pytest.fixture
def runs_dir(tmp_path, monkeypatch) -> Path:
    """Two arms with three seeds each: seed 0 is completed, seed 1 was made, seed 2 is only named."""
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")
    runs_dir = tmp_path / "runs"
    record_sweep(runs_dir, "small", [member_of(arm, seed) for arm in ARMS for seed in range(3)])
    for arm in ARMS:
        complete(directory_of(runs_dir, arm, 0))
        directory_of(runs_dir, arm, 1)
    return runs_dir


def status(runs_dir, source=None) -> list[dict]:
    return json.loads(json_text(looking.status(source, runs_dir).record))


def test_status_counts_states_and_asks_the_index_the_second_time(runs_dir, monkeypatch):
    (first,) = status(runs_dir)
    assert first["trials"] == 6
    assert first["states"] == {"completed": 2, "pending": 4}
    monkeypatch.setattr(ResultsIndex, "_write", lambda *_: pytest.fail("wrote again"))
    assert status(runs_dir, "small") == [first]


def test_status_looks_at_running_trials_themselves(runs_dir):
    directory = directory_of(runs_dir, "none", 1)
    claim = acquire(directory, {})
    directory.append_event("running", attempt=1)
    status(runs_dir)
    directory.append_metrics({"step": 4})
    (running,) = status(runs_dir)[0]["running"]
    expected = ("none", 4, 10, True)
    assert (running["arm"], running["step"], running["steps"], running["worker_alive"]) == expected
    claim.release()
    assert not status(runs_dir)[0]["running"][0]["worker_alive"]


def test_a_trial_that_cannot_be_read_is_counted_as_such_with_its_reason(runs_dir):
    directory = directory_of(runs_dir, "baseline", 1)
    directory.events_path.write_text("{}\n")
    (report,) = status(runs_dir)
    assert report["states"] == {"completed": 2, "pending": 3, "unreadable": 1}
    assert "events.jsonl" in report["problems"][directory.trial_id]
    assert f"{directory.trial_id[:8]} unreadable" in looking.status(None, runs_dir).shown()


def test_another_login_sees_what_it_may_only_read(as_nobody):
    """The sweep file is not there for it, and neither is the right to write among the runs."""
    runs_dir = as_nobody.folder / "runs"
    record_sweep(runs_dir, "small", [member_of("none", seed) for seed in range(2)])
    complete(directory_of(runs_dir, "none", 0))
    done = succeeded(as_nobody.scalevec("status", "small", "--runs", runs_dir))
    assert "small: comparison, 1 of 2 trials done, 1 waiting" in done.stdout
    assert sorted(path.name for path in runs_dir.iterdir()) == ["sweeps", "trials"]
