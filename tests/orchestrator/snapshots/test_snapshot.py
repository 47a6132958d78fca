"""What trials run from stays what it was when they were sent."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalevec.orchestrator.attempts.jobs import WORKER, WorkerExit
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.snapshots import snapshot as module
from scalevec.orchestrator.snapshots.snapshot import Snapshot, taken
from scalevec.orchestrator.snapshots.start import MACHINE_LACKS, NOT_AS_SENT, PARTS
from scalevec.orchestrator.worker.provenance import INSTALLED, code_state
from support import CHECKOUT, assert_refused, run_python, succeeded, two_arms, umask

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
    return taken(tmp_path)


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


def within(snapshot: Snapshot, code: str, *words: object) -> str:
    """What ``code`` prints in a process whose packages of ours are those of the snapshot."""
    script = f"import sys; sys.path.insert(0, {str(snapshot.root)!r})\n{code}"
    return succeeded(run_python(script, *words)).stdout


def test_every_module_of_ours_comes_from_the_snapshot(snapshot):
    files = json.loads(within(snapshot, LOADED))
    assert len(files) > 20
    assert not [path for path in files if not path.startswith(f"{snapshot.root}/scalevec/")]


def test_the_arguments_and_the_exit_code_are_those_of_the_module(snapshot):
    done = start(snapshot, *VERSION)
    assert (done.returncode, done.stdout) == (0, f"scalevec {INSTALLED.__version__}\n")
    assert start(snapshot, *VERSION[:2], "no-such-command").returncode == 2


def test_only_a_module_of_ours_is_started(snapshot, tmp_path):
    (tmp_path / "theirs.py").write_text("print('ran')")
    done = start(snapshot, "-m", "theirs", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (NOT_AS_SENT, "")
    assert "expected -m scalevec.MODULE" in done.stderr


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
    words = (f"{snapshot.root} has changed since it was taken", "scalevec run takes a new snapshot")
    assert_refused(done, NOT_AS_SENT, *words)
    assert NOT_AS_SENT == Exit.MISSING_REQUIREMENT == WorkerExit.FOREIGN_CODE


def test_a_python_without_what_we_build_on_is_told_with_its_path(snapshot, tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('numpy is damaged')")
    done = start(snapshot, *WORKER[-2:], PYTHONPATH=str(tmp_path))
    assert done.returncode == MACHINE_LACKS == WorkerExit.MACHINE_LACKS
    (told,) = done.stderr.splitlines()
    assert "lacks what scalevec.orchestrator.worker.train needs: ImportError: numpy is damaged" in told
    assert told.endswith(f"; it was started with {sys.executable}")


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
    words = f"scalevec comes from {tmp_path}/scalevec/__init__.py, not from {snapshot.root}"
    assert_refused(done, NOT_AS_SENT, words)


def test_equal_code_is_kept_once(snapshot, tmp_path, monkeypatch):
    begin_anew(monkeypatch)
    assert taken(tmp_path) == snapshot
    assert [path.name for path in snapshot.root.parent.iterdir()] == [snapshot.root.name]


def test_a_snapshot_that_has_changed_is_taken_again(snapshot, tmp_path, monkeypatch):
    (snapshot.root / "scalevec" / "__init__.py").write_text("raise SystemExit('edited')")
    begin_anew(monkeypatch)
    assert taken(tmp_path) == snapshot
    assert start(snapshot, *VERSION).returncode == 0


def test_nobody_else_reaches_a_snapshot(tmp_path):
    with umask(0):
        root = taken(tmp_path).root
    assert [path.stat().st_mode & 0o077 for path in (root.parent, root)] == [0, 0]


def test_a_snapshot_that_others_could_have_written_is_taken_again(snapshot, tmp_path, monkeypatch):
    planted = snapshot.root / "scalevec" / "__pycache__"
    planted.mkdir(exist_ok=True)
    (planted / "evil.pyc").touch()
    snapshot.root.chmod(0o770)
    begin_anew(monkeypatch)
    assert taken(tmp_path) == snapshot
    assert not (planted / "evil.pyc").exists()


def test_an_edit_changes_nothing_that_was_sent_and_all_that_a_later_run_sends(edited, tmp_path, monkeypatch):
    before = taken(tmp_path)
    kept = (before.root / "scalevec" / "analysis" / "laws.py").read_text()
    edited.write_text(kept + "EDITED = True\n")
    assert taken(tmp_path) == before  # by the process that has loaded the old code
    begin_anew(monkeypatch)
    after = taken(tmp_path)
    assert after != before
    assert (before.root / "scalevec" / "analysis" / "laws.py").read_text() == kept
    assert (after.root / "scalevec" / "analysis" / "laws.py").read_text().endswith("EDITED = True\n")


def test_a_process_from_a_snapshot_hands_it_on_and_keeps_to_the_folder_that_holds_it(snapshot, tmp_path):
    code = (
        "from scalevec.orchestrator.private import private_folder\n"
        "from scalevec.orchestrator.snapshots.snapshot import taken\n"
        "from scalevec.orchestrator.worker.provenance import code_state\n"
        "folder = private_folder(sys.argv[1])\n"
        "print(folder, taken(folder).root, code_state())"
    )
    printed = within(snapshot, code, tmp_path / "another")
    assert printed == f"{tmp_path} {snapshot.root} {code_state()}\n"


def test_what_a_process_from_a_snapshot_starts_comes_from_it_too(snapshot):
    code = (
        "from scalevec.orchestrator.snapshots.snapshot import from_the_same_code\n"
        "print(*from_the_same_code(('python', '-P', '-m', 'scalevec.orchestrator.worker.fork_server')))"
    )
    expected = f"python -P {snapshot.start} -m scalevec.orchestrator.worker.fork_server\n"
    assert within(snapshot, code) == expected


def test_what_a_snapshot_was_taken_from_is_said_by_the_worker(snapshot):
    assert json.loads((snapshot.root / "origin.json").read_text()) == dict(code_state())


def test_only_a_module_of_ours_is_started_from_the_snapshot(snapshot):
    worker = (*PYTHON, "scalevec.orchestrator.worker.train", "--job", "a")
    assert snapshot.command(worker) == (*PYTHON[:2], snapshot.start, *worker[2:])
    assert snapshot.command(("apptainer", "exec", *worker))[2:] == snapshot.command(worker)
    assert snapshot.command(snapshot.command(worker)) == snapshot.command(worker)
    assert snapshot.command((*PYTHON, "theirs")) == (*PYTHON, "theirs")
    assert snapshot.command(("sh", "-c", "true")) == ("sh", "-c", "true")


@pytest.mark.parametrize(("days", "is_kept"), [(59, True), (61, False)])
def test_a_snapshot_unused_for_two_months_is_removed(snapshot, tmp_path, monkeypatch, days, is_kept):
    older = snapshot.root.with_name("0" * 32)
    older.mkdir()
    os.utime(older, (time.time() - days * DAY_S,) * 2)
    begin_anew(monkeypatch)
    taken(tmp_path)
    assert (older.exists(), snapshot.root.exists()) == (is_kept, True)


def test_a_process_that_starts_from_a_snapshot_uses_it(snapshot):
    os.utime(snapshot.root, (0, 0))
    start(snapshot, *VERSION)
    assert time.time() - snapshot.root.stat().st_mtime < DAY_S


def test_start_knows_every_package_of_ours():
    package = CHECKOUT / "src" / "scalevec"
    assert set(PARTS) == {path.name for path in package.iterdir() if path.is_symlink()}


@pytest.mark.slow
def test_the_events_of_a_trial_name_the_snapshot_it_was_trained_from(tmp_path, text_files, scalevec_process):
    (tmp_path / "small.yaml").write_text(two_arms("small", text_files, 1, width=16, layers=1))
    succeeded(scalevec_process("run", "small.yaml"))
    kept = {path.name for path in Path(os.environ["SCALEVEC_PRIVATE_DIR"]).glob("snapshots/*")}
    paths = tmp_path.glob("runs/trials/*/*/events.jsonl")
    events = [json.loads(line) for path in paths for line in path.open()]
    [code] = {event["code"] for event in events if event["state"] == "running"}
    assert code in kept
    [environment] = json.loads(next(tmp_path.glob("runs/trials/*/*/environment.json")).read_text())
    assert {name: environment[name] for name in code_state()} == dict(code_state())
