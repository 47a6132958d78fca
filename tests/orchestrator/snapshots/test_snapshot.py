"""What trials run from stays what it was when they were sent."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalevec.orchestrator.attempts.jobs import Job, WorkerExit
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm.submission import Submitter
from scalevec.orchestrator.snapshots import snapshot as module
from scalevec.orchestrator.snapshots.snapshot import Snapshot, code_name, taken
from scalevec.orchestrator.snapshots.start import NOT_AS_SENT, PARTS
from scalevec.orchestrator.worker.provenance import OUR_PACKAGES, code_state
from scalevec.results.run_directory import RunDirectory
from support import CHECKOUT, two_arms

DAY_S = 24 * 3600.0
VERSION = ("-m", "scalevec.orchestrator.cli.main", "--version")
PYTHON = (sys.executable, "-P", "-m")
LOADED = """\
import json, sys
import scalevec.orchestrator.attempts.retry_policy, scalevec.sweeps, scalevec.analysis.laws
names = [name for name in sys.modules if name.partition(".")[0] == "scalevec"]
print(json.dumps(sorted({sys.modules[name].__file__ for name in names})))
"""


def begin_anew(monkeypatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(module, "_taken", {})
    module._live_contents.cache_clear()


@pytest.fixture(autouse=True)
def none_taken(monkeypatch) -> Iterator[None]:
    begin_anew(monkeypatch)
    yield
    module._live_contents.cache_clear()


@pytest.fixture
def snapshot(tmp_path) -> Snapshot:
    return taken(tmp_path / "runs")


@pytest.fixture
def edited(tmp_path, monkeypatch) -> Path:
    """A file of ours in the checkout that this process runs from, which may be edited."""
    copy = tmp_path / "checkout"
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "HOME", copy)
    return copy / "analysis" / "laws.py"


def start(snapshot: Snapshot, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", snapshot.start, *words]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def test_every_module_of_ours_comes_from_the_snapshot(snapshot, tmp_path):
    (tmp_path / "looks.py").write_text(LOADED)
    done = start(snapshot, "-u", "-m", "looks", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    assert len(files) > 20
    assert not [path for path in files if not path.startswith(f"{snapshot.root}/scalevec/")]


def test_the_arguments_and_the_exit_code_are_those_of_the_module(snapshot, tmp_path):
    (tmp_path / "ends.py").write_text("import sys; print(sys.argv[1:], __name__); sys.exit(7)")
    done = start(snapshot, "-m", "ends", "-u", "a b", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (7, "['-u', 'a b'] __main__\n")


@pytest.mark.parametrize("change", ["edited", "added", "removed"])
def test_a_snapshot_that_has_changed_starts_nothing(snapshot, change):
    path = snapshot.root / "scalevec" / "model" / "config.py"
    if change == "edited":
        path.write_text(path.read_text() + "\n")
    elif change == "added":
        path.with_name("more.py").touch()
    else:
        path.unlink()
    done = start(snapshot, *VERSION)
    assert done.returncode == NOT_AS_SENT == Exit.MISSING_REQUIREMENT == WorkerExit.FOREIGN_CODE
    assert f"{snapshot.root} has changed since it was taken" in done.stderr
    assert "scalevec run takes a new snapshot" in done.stderr


def test_what_python_and_editors_leave_in_a_snapshot_is_no_change(snapshot):
    folder = snapshot.root / "scalevec" / "model"
    (folder / ".config.py.swp").touch()
    (folder / "__pycache__").mkdir(exist_ok=True)
    (folder / "__pycache__" / "other.cpython-399.pyc").touch()
    assert start(snapshot, *VERSION).returncode == 0


def test_a_package_of_ours_that_a_hook_brings_in_first_starts_nothing(snapshot, tmp_path):
    (tmp_path / "scalevec").mkdir()
    (tmp_path / "scalevec" / "__init__.py").touch()
    (tmp_path / "sitecustomize.py").write_text("import scalevec")
    done = start(snapshot, *VERSION, PYTHONPATH=str(tmp_path))
    assert done.returncode == NOT_AS_SENT
    assert f"scalevec comes from {tmp_path}/scalevec/__init__.py, not from {snapshot.root}" in done.stderr


def test_equal_code_is_kept_once(snapshot, tmp_path, monkeypatch):
    begin_anew(monkeypatch)
    assert taken(tmp_path / "runs") == snapshot
    assert code_name() == snapshot.root.name
    assert [path.name for path in snapshot.root.parent.iterdir()] == [snapshot.root.name]


def test_a_snapshot_that_has_changed_is_taken_again(snapshot, tmp_path, monkeypatch):
    (snapshot.root / "scalevec" / "__init__.py").write_text("raise SystemExit('edited')")
    begin_anew(monkeypatch)
    assert taken(tmp_path / "runs") == snapshot
    assert start(snapshot, *VERSION).returncode == 0


def test_nobody_else_may_write_a_snapshot(tmp_path):
    usual = os.umask(0)
    try:
        root = taken(tmp_path / "runs").root
    finally:
        os.umask(usual)
    paths = [root.parent, root, *root.rglob("*")]
    assert not [path for path in paths if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)]
    assert root.parents[1].stat().st_mode & stat.S_ISVTX


def test_a_folder_of_snapshots_where_others_may_write_is_refused(snapshot, tmp_path, monkeypatch):
    snapshot.root.parent.chmod(0o777)
    begin_anew(monkeypatch)
    with pytest.raises(PermissionError, match="nobody else may write there"):
        taken(tmp_path / "runs")


def test_an_edit_changes_nothing_that_was_sent_and_all_that_is_sent_by_a_later_run(
    edited, tmp_path, monkeypatch
):
    before = taken(tmp_path / "runs")
    kept = (before.root / "scalevec" / "analysis" / "laws.py").read_text()
    edited.write_text(kept + "EDITED = True\n")
    assert taken(tmp_path / "runs") == before  # by the process that has loaded the old code
    begin_anew(monkeypatch)
    after = taken(tmp_path / "runs")
    assert after != before
    assert (before.root / "scalevec" / "analysis" / "laws.py").read_text() == kept
    assert (after.root / "scalevec" / "analysis" / "laws.py").read_text().endswith("EDITED = True\n")


def test_a_process_from_a_snapshot_hands_it_on(snapshot, tmp_path):
    (tmp_path / "takes.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "from scalevec.orchestrator.snapshots.snapshot import code_name, taken\n"
        "from scalevec.orchestrator.worker.provenance import code_state\n"
        "print(taken(Path(sys.argv[1])).root, taken(Path(sys.argv[2])).root.name, code_name(), code_state())"
    )
    others = tmp_path / "others"
    done = start(snapshot, "-m", "takes", str(tmp_path / "runs"), str(others), PYTHONPATH=str(tmp_path))
    name = snapshot.root.name
    assert done.stdout == f"{snapshot.root} {name} {name} {code_state()}\n", done.stderr


def test_what_a_process_from_a_snapshot_starts_comes_from_it_too(snapshot, tmp_path):
    (tmp_path / "starts.py").write_text(
        "from scalevec.orchestrator.snapshots.snapshot import from_the_same_code\n"
        "print(*from_the_same_code(('python', '-P', '-m', 'scalevec.orchestrator.worker.fork_server')))"
    )
    done = start(snapshot, "-m", "starts", PYTHONPATH=str(tmp_path))
    expected = f"python -P {snapshot.start} -m scalevec.orchestrator.worker.fork_server\n"
    assert done.stdout == expected, done.stderr


def test_what_a_snapshot_was_taken_from_is_said_by_the_worker(snapshot):
    assert json.loads((snapshot.root / "origin.json").read_text()) == dict(code_state())


def test_only_a_module_of_ours_is_started_from_the_snapshot(snapshot):
    worker = (*PYTHON, "scalevec.orchestrator.worker.train", "--job", "a")
    assert snapshot.command(worker) == (*PYTHON[:2], snapshot.start, *worker[2:])
    assert snapshot.command(("apptainer", "exec", *worker))[2:] == snapshot.command(worker)
    assert snapshot.command(snapshot.command(worker)) == snapshot.command(worker)
    assert snapshot.command((*PYTHON, "theirs")) == (*PYTHON, "theirs")
    assert snapshot.command(("sh", "-c", "true")) == ("sh", "-c", "true")


@pytest.fixture
def slurm_is_found(tmp_path, monkeypatch) -> None:
    """What submitit looks for before it takes a machine for one with SLURM; nothing here calls it."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("slurm_is_found")
def test_a_job_of_slurm_is_unpickled_and_runs_its_trials_from_the_snapshot(snapshot, tmp_path):
    submitter = Submitter(Site(tmp_path / "runs", "small", 1, Profile()))
    job = Job("a" * 64, (*PYTHON, "scalevec.orchestrator.worker.train"), tmp_path, token="t")
    assert (
        submitter._submitit(tmp_path / "f", [[job]], snapshot).python
        == f"{sys.executable} -P {snapshot.start}"
    )
    [entry] = submitter._payload(tmp_path / "f", [job], snapshot).entries
    assert entry.command == snapshot.command(job.command)


@pytest.fixture
def used_before(snapshot) -> Path:
    """A snapshot from which jobs were sent between ten and five days ago."""
    older = snapshot.root.with_name("0" * 32)
    older.mkdir()
    (older / "origin.json").write_text("{}")
    for path, days in ((older / "origin.json", 10), (older, 5)):
        os.utime(path, (time.time() - days * DAY_S,) * 2)
    return older


def later_run(tmp_path, monkeypatch) -> None:
    begin_anew(monkeypatch)
    taken(tmp_path / "runs")


def sent(tmp_path: Path, trial_id: str, days_ago: float) -> RunDirectory:
    directory = RunDirectory.of(tmp_path / "runs", trial_id)
    directory.create({}, {})
    directory.write_job("slurm", "7/0@t", "token")
    [path] = directory.path.glob("job*.json*")
    then = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - days_ago * DAY_S))
    path.write_text(path.read_text().replace(directory.job()["time"], then))
    return directory


@pytest.mark.parametrize(("days_ago", "is_kept"), [(7, True), (12, False), (1, False)])
def test_a_snapshot_that_no_open_job_was_sent_with_is_removed(
    used_before, snapshot, tmp_path, monkeypatch, days_ago, is_kept
):
    sent(tmp_path, "a" * 64, days_ago)
    later_run(tmp_path, monkeypatch)
    assert used_before.exists() is is_kept
    assert snapshot.root.exists()


def test_a_trial_with_its_result_needs_no_snapshot(used_before, tmp_path, monkeypatch):
    sent(tmp_path, "a" * 64, 7).result_path.write_text("{}")
    later_run(tmp_path, monkeypatch)
    assert not used_before.exists()


def test_where_a_job_cannot_be_read_every_snapshot_stays(used_before, tmp_path, monkeypatch):
    [path] = sent(tmp_path, "a" * 64, 1).path.glob("job*.json*")
    path.write_text("{\n")
    later_run(tmp_path, monkeypatch)
    assert used_before.exists()


def test_a_snapshot_of_today_stays(used_before, tmp_path, monkeypatch):
    os.utime(used_before)
    later_run(tmp_path, monkeypatch)
    assert used_before.exists()


def test_start_knows_every_package_of_ours():
    assert set(PARTS) == set(OUR_PACKAGES)


@pytest.mark.slow
def test_the_events_of_a_trial_name_the_snapshot_that_it_was_trained_from(
    tmp_path, text_files, scalevec_process
):
    (tmp_path / "small.yaml").write_text(two_arms("small", text_files, 1, width=16, layers=1))
    done = scalevec_process("run", "small.yaml")
    assert done.returncode == 0, done.stderr
    [root] = tmp_path.glob("runs/snapshots/*/*")
    events = [
        json.loads(line) for path in tmp_path.glob("runs/trials/*/*/events.jsonl") for line in path.open()
    ]
    assert {event["code"] for event in events if event["state"] == "running"} == {root.name}
    [environment] = json.loads(next(tmp_path.glob("runs/trials/*/*/environment.json")).read_text())
    assert {name: environment[name] for name in code_state()} == dict(code_state())
