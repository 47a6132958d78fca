"""``cancel`` where jobs are another user's, in a copy of a runs folder, and where its number has changed."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recorded_sweep import directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look.status import status
from scalevec.orchestrator.commands.run.cancel import cancel
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.results.claims import process_identity
from scalevec.results.run_directory import RunDirectory

PARTS = ("host", "boot_id", "pid_namespace", "pid", "process_start")


@pytest.fixture
def worker():
    """A process that stands for one that trains."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def runs(tmp_path, worker) -> Path:
    """A runs folder with a sweep of two trials: one has ``worker`` as its job, one was never sent."""
    runs_dir = tmp_path / "runs"
    record_sweep(runs_dir, "small", [member_of("none", seed) for seed in (0, 1)])
    sent, _ = (directory_of(runs_dir, "none", seed) for seed in (0, 1))
    identity = process_identity(worker.pid)
    sent.append_event("queued", executor="local", job="token")
    sent.write_job("local", "/".join(str(identity[part]) for part in PARTS), "token")
    sent.append_event("running", attempt=1, step=0)
    return runs_dir


def states(runs: Path) -> list[str]:
    return [directory_of(runs, "none", seed).state().state for seed in (0, 1)]


def the_same_with_another_number(runs: Path) -> Path:
    """As after a mount whose numbers change, or a backup that was put back in place."""
    before = runs.rename(runs.with_name("before"))
    shutil.copytree(before, runs)
    return runs


def a_copy(runs: Path) -> Path:
    return Path(shutil.copytree(runs, runs.with_name("copy")))


@pytest.mark.parametrize("changed", [a_copy, the_same_with_another_number])
def test_it_leaves_the_worker_alone_and_says_which_job_it_could_not_reach(runs, worker, changed, capsys):
    sent_from, folder = str(runs.resolve()), changed(runs)
    result = cancel("small", folder)
    assert worker.poll() is None
    assert result.code is Exit.MISSING_REQUIREMENT
    assert states(folder) == ["cancelling", "cancelled"]
    assert result.text.startswith("1 trial cancelled, 0 of them had been sent\n1 trial cancelling")
    message = capsys.readouterr().err
    assert f"1 open job sent from {sent_from} (inode " in message
    assert f"process {worker.pid} on {os.uname().nodename}" in message


def test_as_json_it_has_the_number_of_the_job(runs, worker):
    record = cancel("small", a_copy(runs)).record
    assert record["cancelled"] == [member_of("none", 1)["trial_id"]]
    assert [number.split("/")[3] for number in record["jobs_left"]] == [str(worker.pid)]


def test_where_the_job_was_sent_from_it_is_ended(runs, worker):
    a_copy(runs)
    assert cancel("small", runs).code is Exit.DONE
    assert worker.wait() == -15
    assert states(runs) == ["cancelled", "cancelled"]


def test_a_job_of_a_trial_that_has_its_result_keeps_nobody(runs):
    copy = a_copy(runs)
    directory_of(copy, "none", 0).write_result({"status": "completed", "loss": 3.0, "loss_validation": 3.0})
    assert cancel("small", copy).code is Exit.DONE


def test_status_warns_of_it_and_goes_on(runs, capsys):
    assert json.dumps(status("small", a_copy(runs)).record)
    assert "warning: 1 open job sent from" in capsys.readouterr().err


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
