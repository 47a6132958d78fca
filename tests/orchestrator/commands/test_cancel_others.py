"""``cancel`` where the jobs are those of another user of the same runs folder."""

import json
import os
from pathlib import Path

import pytest

from recorded_sweep import directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.run.cancel import cancel
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.claims import process_identity
from scalevec.results.run_directory import RunDirectory

PARTS = ("host", "boot_id", "pid_namespace", "pid", "process_start")


@pytest.fixture
def as_a_user(monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def sent_by(tmp_path: Path, user: str, **identity: object) -> RunDirectory:
    """The run directory of a sweep's only trial, whose job is a process of this machine."""
    runs_dir = tmp_path / "runs"
    record_sweep(runs_dir, "small", [member_of("none", 0)])
    directory = directory_of(runs_dir, "none", 0)
    directory.append_event("queued", executor="local", job="token")
    process = process_identity(os.getpid()) | identity
    directory.write_job("local", "/".join(str(process[part]) for part in PARTS), "token")
    [path] = directory.path.glob("job*.json*")
    name = json.dumps(directory.job()["user"])
    path.write_text(path.read_text().replace(f'"user": {name}', f'"user": "{user}"'))
    assert directory.job()["user"] == user
    return directory


def test_it_is_refused_with_the_owners_name_and_nothing_is_written(tmp_path, as_a_user):
    directory = sent_by(tmp_path, "alice")
    before = directory.events()
    with pytest.raises(InvalidInputError, match=r"belongs to alice, .*; nothing was cancelled"):
        cancel("small", tmp_path / "runs")
    assert directory.events() == before


def test_a_job_that_is_gone_keeps_nobody_from_cancelling_its_trial(tmp_path, as_a_user):
    directory = sent_by(tmp_path, "alice", process_start="0")
    cancel("small", tmp_path / "runs")
    assert directory.state().state == "cancelled"
