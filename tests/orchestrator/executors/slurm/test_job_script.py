"""What a SLURM job does with its trials: which it runs, how it ends them, what it notes of them."""

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recorded_sweep import directory_of
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.executors.slurm import job_script, payload
from scalevec.orchestrator.executors.slurm.job_script import Bundle
from scalevec.orchestrator.executors.slurm.payload import Entry, JobRecord, Payload
from scalevec.results.claims import acquire
from scalevec.results.run_directory import RunDirectory

FOLDER = "20260101T000000-0011aabb"


@pytest.fixture
def in_a_job(monkeypatch):
    """This process is job 7 on node n1; returns how to make it a later start of the job."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(name, value)
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    yield lambda count: monkeypatch.setenv("SLURM_RESTART_COUNT", str(count))
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def directory(tmp_path) -> RunDirectory:
    return directory_of(tmp_path / "runs", "unified", 3)


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    return folder


def entry(directory: RunDirectory, code: str = "print('ran')") -> Entry:
    return Entry(directory.trial_id, (sys.executable, "-c", code), str(directory.path), token="t1")


def ran(directory: RunDirectory) -> int:
    log = directory.log_path
    return log.read_text().splitlines().count("ran") if log.exists() else 0


def test_a_job_notes_how_its_trials_ended(in_a_job, directory, folder):
    bundle = Bundle(folder, folder, (entry(directory), entry(directory, "raise SystemExit(3)")))
    with pytest.raises(SystemExit) as ended:
        bundle()
    assert ended.value.code == 3
    records = [JobRecord(folder, "7", index).read() for index in (0, 1)]
    fields = ("exit_code", "cause", "node", "final")
    expected = [(0, None, "n1", True), (3, None, "n1", True)]
    assert [tuple(record[name] for name in fields) for record in records] == expected


def test_a_job_whose_disk_fills_begins_no_other_trial_and_says_so_by_its_exit_code(
    in_a_job, directory, folder, monkeypatch
):
    write, written = payload.write_json, []

    def filling(path, record):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(record)
        write(path, record)

    monkeypatch.setattr(payload, "write_json", filling)
    with pytest.raises(SystemExit) as ended:
        Bundle(folder, folder, (entry(directory), entry(directory)))()
    assert ended.value.code == WorkerExit.NO_SPACE
    assert ran(directory) == 1
    assert [record["final"] for record in written] == [False]


MEETING = """
import sys, time
from pathlib import Path
mine, other = map(Path, sys.argv[1:])
mine.touch()
deadline = time.monotonic() + 300
while not other.exists():
    if time.monotonic() > deadline:
        sys.exit(9)
    time.sleep(0.01)
"""


def test_trials_of_one_gpu_run_side_by_side(in_a_job, directory, folder, tmp_path):
    """Each ends only once the other runs."""
    first, second = tmp_path / "first", tmp_path / "second"
    entries = [
        Entry("a" * 64, (sys.executable, "-c", MEETING, str(mine), str(other)), str(directory.path), "")
        for mine, other in ((first, second), (second, first))
    ]
    Bundle(folder, folder, tuple(entries), at_a_time=2)()
    assert [JobRecord(folder, "7", index).read()["exit_code"] for index in (0, 1)] == [0, 0]


def test_a_job_of_an_array_runs_the_trials_at_its_place(in_a_job, directory, folder, monkeypatch):
    other = entry(directory, "print('not ran')")
    Payload(str(folder), ((other,), (entry(directory),))).write(folder)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")
    assert job_script.main([str(folder)]) == 0
    assert directory.log_path.read_text().splitlines()[1:-1] == ["ran"]
    assert JobRecord(folder, "7_1", 0).read()["exit_code"] == 0


def test_a_job_that_fails_by_itself_says_why_where_others_can_read_it(in_a_job, directory, folder):
    Payload(str(folder), ((Entry("a" * 64, ("no such program",), str(folder / "gone"), ""),),)).write(folder)
    with pytest.raises(FileNotFoundError):
        job_script.main([str(folder)])
    assert "No such file or directory" in (folder / "7.txt").read_text()


def test_a_link_in_place_of_a_log_fails_that_trial_and_is_not_followed(in_a_job, directory, folder, tmp_path):
    (tmp_path / "private").write_text("mine\n")
    directory.log_path.symlink_to(tmp_path / "private")
    Bundle(folder, folder, (entry(directory),))()
    assert (tmp_path / "private").read_text() == "mine\n"
    assert "log.txt: is a link" in JobRecord(folder, "7", 0).read()["message"]


def test_a_job_that_is_started_again_passes_by_what_is_over(in_a_job, directory, folder):
    for start in (0, 1):
        in_a_job(start)
        Bundle(folder, folder, (entry(directory),))()
    assert ran(directory) == 1


@pytest.mark.parametrize("how", ["result", "by job", "cancelling", "cancelled"])
def test_a_trial_that_is_done_or_cancelled_is_not_run(in_a_job, directory, folder, how):
    record = JobRecord(folder, "7", 0)
    if how == "result":
        directory.write_result({"status": "completed"})
    elif how == "by job":
        record.cancel()
    else:  # by somebody who did not know of this job
        directory.append_event("queued", executor="slurm")
        directory.append_event(how, cause="cancelled")
    Bundle(folder, folder, (entry(directory),))()
    assert ran(directory) == 0
    cause, exit_code = (None, 0) if how == "result" else ("cancelled", None)
    assert (record.read()["cause"], record.read()["exit_code"]) == (cause, exit_code)
    assert how != "cancelling" or directory.state().state == "cancelled"


def test_a_trial_that_was_asked_for_again_is_run(in_a_job, directory, folder):
    for state, cause in [("cancelled", "cancelled"), ("pending", "asked for again"), ("queued", None)]:
        directory.append_event(state, cause)
    Bundle(folder, folder, (entry(directory),))()
    assert ran(directory) == 1


def claimed_elsewhere(directory: RunDirectory, token: str, monkeypatch) -> None:
    """A worker on another machine claimed the trial and was lost without a word."""
    with monkeypatch.context() as context:
        context.setattr("scalevec.results.claims.socket.gethostname", lambda: "elsewhere")
        claim = acquire(directory, {"job": token})
    directory.append_event("running", attempt=claim.attempt, step=0)


def test_the_claim_of_an_earlier_start_elsewhere_is_ended(in_a_job, directory, folder, monkeypatch):
    claimed_elsewhere(directory, "t1", monkeypatch)
    in_a_job(1)
    Bundle(folder, folder, (entry(directory),))()
    assert ran(directory) == 1
    assert acquire(directory, {}).attempt == 2
    last = directory.events()[-1]
    assert (last["state"], last["cause"], last["node"]) == ("pending", "preempted", "n1")


def test_the_claim_of_another_job_is_left_alone(in_a_job, directory, folder, monkeypatch):
    claimed_elsewhere(directory, "t2", monkeypatch)
    in_a_job(1)
    Bundle(folder, folder, (entry(directory),))()
    assert directory.events()[-1]["state"] == "running"


def test_a_trial_without_progress_is_not_started_for_ever(in_a_job, directory, folder, monkeypatch):
    for start in range(5):
        in_a_job(start)
        Bundle(folder, folder, (entry(directory),))()
        if ran(directory) == start:
            break
        (folder / "ended" / "7.0.json").unlink()  # as if the job had been lost in the middle
        claimed_elsewhere(directory, "t1", monkeypatch)
    assert ran(directory) == 3
    assert "3 attempts without a new checkpoint" in JobRecord(folder, "7", 0).read()["message"]


def test_a_lost_nodes_job_has_no_say_once_it_was_started_elsewhere(in_a_job, folder):
    in_a_job(1)
    JobRecord(folder, "7", 0).write(None, None, final=False)
    in_a_job(0)
    JobRecord(folder, "7", 0).write(76, None)
    assert JobRecord(folder, "7", 0).read()["exit_code"] is None


STOPPED_JOB = """
import os, signal, sys, threading, time
from dataclasses import replace
from pathlib import Path
from scalevec.orchestrator.executors.slurm.job_script import Bundle
from scalevec.orchestrator.executors.slurm.payload import Entry
folder, directory, code, how = sys.argv[1:]
folder = Path(folder)
bundle = Bundle(folder, folder, (Entry("a" * 64, (sys.executable, "-c", code), directory, ""),) * 2)
def tell():
    while not Path(directory, "ready").exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.Signals[how])
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(5 if bundle.checkpoint() else 6))
threading.Thread(target=tell).start()
bundle()
"""
LISTENING = """
import os, signal, sys, time
def stop(number, _):
    print('heard', signal.Signals(number).name, flush=True)
    os._exit(75)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR2, stop)
open('ready', 'w').close()
while True:
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("how", "code"), [("SIGTERM", 75), ("SIGUSR2", 5)])
def test_signals_reach_the_trial_and_the_next_is_not_begun(in_a_job, directory, folder, how, code):
    listening = LISTENING.replace("'ready'", repr(str(directory.path / "ready")))
    command = [sys.executable, "-c", STOPPED_JOB, str(folder), str(directory.path), listening, how]
    assert subprocess.run(command, timeout=600).returncode == code
    assert directory.log_path.read_text().count("heard " + how) == 1
    assert JobRecord(folder, "7", 0).read()["final"] is False
    assert JobRecord(folder, "7", 1).read() is None
