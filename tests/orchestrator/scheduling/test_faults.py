"""kill -9, Ctrl-C and two schedulers: nothing is lost, nothing runs twice, and no bit changes."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hold import can_hold, hold, release
from plugin_package import SWEEP, write_plugin
from scalevec.results.claims import end_claim
from scalevec.results.run_directory import RunDirectory
from support import filled_once, finished, succeeded, two_arms, wait_until, workers_of

pytestmark = pytest.mark.slow

PATIENCE_S = 400


@pytest.fixture(scope="session")
def long_sweep(text_files) -> str:
    return two_arms("long", text_files, tokens_per_parameter=2)


def losses(folder: Path) -> dict[str, tuple[float, float]]:
    paths = folder.glob("runs/trials/*/*/result.json")
    actual = {path.parent.name: json.loads(path.read_text()) for path in paths}
    return {name: (result["loss"], result["loss_validation"]) for name, result in actual.items()}


def steps(folder: Path) -> dict[str, list[int]]:
    rows = folder.glob("runs/trials/*/*/metrics.jsonl")
    return {
        path.parent.name: [json.loads(line)["step"] for line in path.read_text().splitlines()]
        for path in rows
    }


def attempts(folder: Path) -> list[int]:
    return sorted(len(list(path.glob("claims/*.json"))) for path in folder.glob("runs/trials/*/*"))


def has_checkpoints(folder: Path, count: int) -> bool:
    return len({path.parent for path in folder.glob("runs/trials/*/*/checkpoints/step-*")}) >= count


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, long_sweep):
    """Losses of the sweep in a folder where nothing happened to it."""
    return losses(filled_once(tmp_path_factory, "undisturbed", lambda folder: finished(folder, long_sweep)))


@pytest.fixture
def disturbed(tmp_path, long_sweep) -> Path:
    (tmp_path / "long.yaml").write_text(long_sweep)
    return tmp_path


@pytest.fixture
def start_held(disturbed, start_scalevec) -> Callable[..., "subprocess.Popen[str]"]:
    """Starts ``scalevec run``; its trials stand after their first checkpoint until they are released."""

    def start(jobs: int = 2) -> "subprocess.Popen[str]":
        hold(disturbed)
        scheduler = start_scalevec("run", "long.yaml", "--jobs", jobs, change=can_hold)
        wait_until(lambda: has_checkpoints(disturbed, jobs), scheduler)
        return scheduler

    return start


def assert_whole(folder: Path, undisturbed) -> None:
    assert losses(folder) == undisturbed
    for actual in steps(folder).values():
        assert actual == list(range(1, len(actual) + 1))


def test_kill_9_of_scheduler_and_worker_changes_no_bit(disturbed, undisturbed, scalevec, start_held):
    scheduler = start_held()
    scheduler.kill()
    scheduler.wait()
    victim, *survivors = workers_of(disturbed)
    victim.kill()
    release(disturbed)
    succeeded(scalevec("run", "long.yaml"))
    assert_whole(disturbed, undisturbed)
    assert attempts(disturbed) == [1, 2]  # the survivor was adopted, not run twice
    assert len(survivors) == 1


def test_kill_9_of_a_worker_is_noticed_and_resumed(disturbed, undisturbed, start_held):
    scheduler = start_held()
    workers_of(disturbed)[0].kill()
    release(disturbed)
    _, messages = scheduler.communicate(timeout=PATIENCE_S)
    assert scheduler.returncode == 0, messages
    assert_whole(disturbed, undisturbed)
    events = "".join(path.read_text() for path in disturbed.glob("runs/trials/*/*/events.jsonl"))
    assert '"cause": "killed"' in events or '"cause":"killed"' in events


@pytest.mark.nightly
def test_kill_9_of_a_trial_with_the_optimizer_of_a_plugin_changes_no_bit(
    tmp_path, monkeypatch, text_files, scalevec_process, start_scalevec
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    text = SWEEP.format(text=text_files).replace("tokens: [1280]", "tokens: [3840]")
    (tmp_path / "s.yaml").write_text(text + "resources: {default: {checkpoint_s: 0.5}}\n")
    write_plugin(tmp_path)
    signs = ("run", "s.yaml", "--trust", "--jobs", 1, "--where", "arm == 'signs'")
    succeeded(scalevec_process(*signs))
    whole, whole_steps = losses(tmp_path), steps(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    hold(tmp_path)
    scheduler = start_scalevec(*signs, change=can_hold)
    wait_until(lambda: has_checkpoints(tmp_path, 1))
    workers_of(tmp_path)[0].kill()
    release(tmp_path)
    _, messages = scheduler.communicate(timeout=PATIENCE_S)
    assert scheduler.returncode == 0, messages
    assert (losses(tmp_path), steps(tmp_path)) == (whole, whole_steps)
    assert attempts(tmp_path) == [2]


def test_ctrl_c_writes_checkpoints_says_how_to_go_on_and_loses_nothing(
    disturbed, undisturbed, scalevec, start_held
):
    scheduler = start_held()
    scheduler.send_signal(signal.SIGINT)
    _, messages = scheduler.communicate(timeout=PATIENCE_S)
    assert scheduler.returncode == 130
    assert "To go on: scalevec run long.yaml" in messages
    assert workers_of(disturbed) == []
    assert scalevec("run", "long.yaml").returncode == 0
    assert_whole(disturbed, undisturbed)


def test_cancel_elsewhere_checkpoints_and_a_later_run_goes_on(disturbed, undisturbed, scalevec, start_held):
    scheduler = start_held()
    cancelled = succeeded(scalevec("cancel", "long"))
    assert "2 trials cancelled" in cancelled.stdout
    _, messages = scheduler.communicate(timeout=PATIENCE_S)
    assert scheduler.returncode == 1
    assert "2 trials cancelled" in messages
    assert workers_of(disturbed) == []
    assert json.loads(scalevec("status", "long", "--json").stdout)[0]["states"] == {"cancelled": 2}
    succeeded(scalevec("run", "long.yaml"))
    assert_whole(disturbed, undisturbed)


def test_stopping_a_copys_run_leaves_the_original_alone(disturbed, undisturbed, start_scalevec, start_held):
    scheduler = start_held()
    before = {process.pid for process in workers_of(disturbed)}
    assert len(before) == 2
    shutil.copytree(disturbed / "runs", disturbed / "copy")
    on_the_copy = start_scalevec("run", "long.yaml", "--runs", "copy")
    wait_until(lambda: "to run" in on_the_copy.stderr.readline())
    on_the_copy.send_signal(signal.SIGINT)
    _, messages = on_the_copy.communicate(timeout=PATIENCE_S)
    assert on_the_copy.returncode == 130, messages
    assert {process.pid for process in workers_of(disturbed)} == before
    release(disturbed)
    scheduler.communicate(timeout=PATIENCE_S)
    assert scheduler.returncode == 0
    assert attempts(disturbed) == [1, 1]
    assert_whole(disturbed, undisturbed)


def test_a_worker_past_its_lease_touches_nothing_of_a_successor(disturbed, undisturbed, scalevec, start_held):
    scheduler = start_held(jobs=1)
    sleeper = workers_of(disturbed)[0]
    sleeper.suspend()
    scheduler.kill()
    scheduler.wait()
    release(disturbed)
    directory = RunDirectory.of(disturbed / "runs", sleeper.cmdline()[-1])
    end_claim(directory, 1, "stale, as another machine sees it")
    directory.jobs_path.unlink()  # from there the process cannot be adopted either
    succeeded(scalevec("run", "long.yaml"))
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    sleeper.resume()
    sleeper.wait(PATIENCE_S)
    after = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    assert {path.name for path in after if after[path] != before.get(path)} <= {"log.txt", "0001.beat"}
    assert_whole(disturbed, undisturbed)


def test_a_second_ctrl_c_ends_everything_at_once(disturbed, start_held):
    scheduler = start_held()
    for process in workers_of(disturbed):
        os.kill(process.pid, signal.SIGSTOP)  # so that they cannot listen to the first
    scheduler.send_signal(signal.SIGINT)
    while "stopping" not in scheduler.stderr.readline():
        assert scheduler.poll() is None
    scheduler.send_signal(signal.SIGINT)
    scheduler.communicate(timeout=PATIENCE_S)
    assert scheduler.returncode == 130
    assert workers_of(disturbed) == []
