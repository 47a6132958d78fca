"""One trial on both machines of a Ray cluster, and on one of them in two processes."""

import json
from pathlib import Path

import psutil
import pytest

from cluster.test_ray_training import (
    PATIENCE_S,
    attempts,
    checkpoints,
    events,
    processes_that_name,
    start_held,
    wait_until,
    wait_until_gone,
)
from hold import release
from support import ONE_TRIAL, call_main

pytestmark = pytest.mark.slow
TRAINS = "scalevec.orchestrator.worker.train"
PROFILES = """\
spread: {{executor: ray, address: '{address}', nodes: 2}}
here: {{executor: ray, address: '{address}', processes: 2}}
large: {{executor: ray, address: '{address}', nodes: 4}}
"""


@pytest.fixture
def folder_of(tmp_path, text_files, ray_cluster, monkeypatch):
    # The only interface there is, whatever the name of this machine stands for.
    for name, value in {**ray_cluster.environment, "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(name, value)

    def folder_of(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "small.yaml").write_text(ONE_TRIAL.format(text=text_files))
        monkeypatch.setenv("SCALEVEC_PROFILES", str(folder / "profiles.yaml"))
        (folder / "profiles.yaml").write_text(PROFILES.format(address=ray_cluster.address))
        return folder

    return folder_of


@pytest.fixture
def run(folder_of):
    def run(*options: str):
        folder = folder_of(options[-1] if options else "alone")
        variables = {"SCALEVEC_CACHE_DIR": str(folder / "cache")}
        return folder, call_main(["run", "small.yaml", *options], folder, variables)

    return run


def result_in(folder: Path) -> dict:
    (path,) = folder.glob("runs/trials/*/*/result.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize("profile", ["spread", pytest.param("here", marks=pytest.mark.nightly)])
def test_two_processes_give_the_losses_of_one(profile, run):
    (alone, first), (together, second) = run(), run("--profile", profile)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    expected, actual = result_in(alone), result_in(together)
    assert (expected["world_size"], actual["world_size"]) == (1, 2)
    assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert not list((together / "runs" / "sweeps" / "small" / "ray").iterdir())


def workers_of_the_second_machine(folder: Path) -> list[psutil.Process]:
    return [each for each in processes_that_name(folder) if "--node 1" in " ".join(each.cmdline())]


@pytest.mark.parametrize("have_met", [True, False])
def test_kill_9_on_the_second_machine_ends_the_attempt_and_the_next_goes_on(have_met, run, folder_of):
    alone, _ = run()
    folder = folder_of("killed")
    process = start_held(folder, "--profile", "spread")
    wait_until(lambda: checkpoints(folder) if have_met else workers_of_the_second_machine(folder), process)
    there = workers_of_the_second_machine(folder)
    ranks = [each for each in there if each.ppid() in [agent.pid for agent in there]]
    (second,) = ranks if have_met else there
    second.kill()
    release(folder)
    _, messages = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, messages
    assert attempts(folder) == [2]
    actual, expected = result_in(folder), result_in(alone)
    assert actual["resumes"] == int(have_met)
    assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    errors = [event["error"] for event in events(folder) if "error" in event]
    assert have_met or errors == ["the worker on machine 1 ended with exit code -9"]
    wait_until_gone([rank for rank in processes_that_name(folder) if TRAINS in " ".join(rank.cmdline())])


def test_more_machines_than_there_are_is_refused(run):
    _, done = run("--profile", "large")
    assert done.returncode == 2
    assert "a: asks for 1 CPUs, 0 GPUs on each of 4 machines; the Ray cluster has n1" in done.stderr
