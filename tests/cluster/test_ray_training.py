"""Real training on Ray: killed, stopped, and to the last bit what this machine alone computes."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster.ray_daemons import environment_in
from hold import hold, release
from support import SCALEVEC, finished, succeeded, take_our_names, two_arms, wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 900


@pytest.fixture(scope="session")
def sweep(text_files) -> str:
    return two_arms("shared", text_files, tokens_per_parameter=15, seeds=(0, 1), width=16, layers=1)


@pytest.fixture(scope="session")
def on_this_machine(tmp_path_factory, sweep) -> dict[str, tuple[float, float]]:
    return losses(finished(tmp_path_factory.mktemp("local"), sweep))


@pytest.fixture
def folder(tmp_path, sweep) -> Path:
    (tmp_path / "small.yaml").write_text(sweep)
    return tmp_path


@pytest.fixture
def on_the_cluster(folder, ray_cluster, monkeypatch) -> Path:
    """A folder with the sweep and a profile that names the cluster."""
    for name, value in ray_cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SCALEVEC_PROFILES", str(folder / "profiles.yaml"))
    (folder / "profiles.yaml").write_text(f"cluster: {{executor: ray, address: '{ray_cluster.address}'}}\n")
    return folder


@pytest.fixture
def own_ray(folder, monkeypatch) -> Iterator[Path]:
    """A folder with the sweep, for a Ray of the sweep's own that keeps to another folder, of a short name."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:
        for name, value in environment_in(Path(short)).items():
            monkeypatch.setenv(name, value)
        yield folder


def losses(folder: Path) -> dict[str, tuple[float, float]]:
    actual = {path.parent.name: json.loads(path.read_text()) for path in results(folder)}
    return {name: (result["loss"], result["loss_validation"]) for name, result in actual.items()}


def results(folder: Path) -> list[Path]:
    return list(folder.glob("runs/trials/*/*/result.json"))


def start(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """``scalevec run`` in a session of its own, as in a terminal of its own."""
    command = [str(SCALEVEC), "run", "small.yaml", *options]
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(folder / "cache")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    process = start(folder, *options)
    output, errors = process.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def checkpoints(folder: Path) -> int:
    return len({path.parent for path in folder.glob("runs/trials/*/*/checkpoints/step-*")})


def processes_that_name(folder: Path) -> list[psutil.Process]:
    actual = psutil.process_iter(["cmdline"])
    return [process for process in actual if str(folder) in " ".join(process.info["cmdline"] or [])]


def attempts(folder: Path) -> list[int]:
    return [len(list(path.glob("claims/*.json"))) for path in folder.glob("runs/trials/*/*")]


def events(folder: Path) -> list[dict]:
    return [event for trial in folder.glob("runs/trials/*/*") for event in events_of(trial)]


def events_of(trial: Path) -> list[dict]:
    return [json.loads(line) for line in (trial / "events.jsonl").read_text().splitlines()]


def start_held(folder: Path, *options: str) -> "subprocess.Popen[str]":
    """As :func:`start`; the trials stand after their first checkpoint until they are released."""
    hold(folder)
    return start(folder, *options)


def in_mid_training(folder: Path, raylet: int) -> list[psutil.Process]:
    """The workers on the node of ``raylet`` whose trials have a checkpoint to go on from."""
    workers = psutil.Process(raylet).children(recursive=True)
    begun = {path.parent.parent for path in folder.glob("runs/trials/*/*/checkpoints/step-*")}
    running = {last["pid"] for trial in begun if (last := events_of(trial)[-1])["state"] == "running"}
    return [worker for worker in workers if worker.pid in running]


def wait_until_gone(workers: list[psutil.Process]) -> None:
    """The kernel ends workers whose parent was killed, a moment later."""
    assert not psutil.wait_procs(workers, PATIENCE_S)[1]


def test_a_cluster_computes_what_this_machine_computes_and_says_nothing_of_itself(
    on_the_cluster, on_this_machine
):
    done = succeeded(run(on_the_cluster, "--profile", "cluster"))
    assert losses(on_the_cluster) == on_this_machine
    assert attempts(on_the_cluster) == [1] * len(on_this_machine)
    assert "(raylet)" not in done.stdout + done.stderr
    assert ".cc:" not in done.stderr


@pytest.mark.nightly
def test_a_node_is_lost_in_the_middle_of_training(on_the_cluster, on_this_machine, ray_cluster):
    process = start_held(on_the_cluster, "--profile", "cluster")
    raylet = ray_cluster.raylet_of("n2")
    wait_until(lambda: in_mid_training(on_the_cluster, raylet), process)
    workers = in_mid_training(on_the_cluster, raylet)
    ray_cluster.kill_node("n2")
    wait_until_gone(workers)
    release(on_the_cluster)
    errors = process.communicate(timeout=PATIENCE_S)[1]
    ray_cluster.add_node("n2")
    assert process.returncode == 0, errors
    assert losses(on_the_cluster) == on_this_machine
    faults = [event for event in events(on_the_cluster) if event.get("cause") == "node_failure"]
    assert {event["node"] for event in faults} == {"n2"}


@pytest.mark.nightly
def test_ctrl_c_writes_checkpoints_and_a_ray_of_its_own_leaves_nothing(own_ray, on_this_machine):
    process = start_held(own_ray, "--executor", "ray", "--jobs", "2")
    wait_until(lambda: checkpoints(own_ray) >= 1, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    errors = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 130, errors
    release(own_ray)
    wait_until(lambda: not processes_that_name(Path(os.environ["RAY_TMPDIR"])))
    assert not list(Path(os.environ["RAY_TMPDIR"]).glob("scalevec-*"))
    succeeded(run(own_ray, "--executor", "ray", "--jobs", "2"))
    assert losses(own_ray) == on_this_machine


@pytest.mark.nightly
def test_workers_start_in_a_project_whose_packages_have_our_names(own_ray, monkeypatch, on_this_machine):
    take_our_names(own_ray)
    monkeypatch.setenv("PYTHONPATH", ".")
    succeeded(run(own_ray, "--executor", "ray", "--jobs", "2"))
    assert losses(own_ray) == on_this_machine


def test_a_killed_scheduler_takes_a_ray_of_its_own_along(own_ray):
    process = start_held(own_ray, "--executor", "ray", "--jobs", "1")
    wait_until(lambda: checkpoints(own_ray) >= 1, process)
    assert processes_that_name(Path(os.environ["RAY_TMPDIR"]))
    process.kill()
    process.communicate()
    wait_until(lambda: not processes_that_name(Path(os.environ["RAY_TMPDIR"])))
    wait_until(lambda: not processes_that_name(own_ray / "runs"))


@pytest.mark.nightly
def test_a_lost_head_ends_the_run_with_the_command_to_go_on(own_ray, on_this_machine):
    process = start_held(own_ray, "--executor", "ray")
    wait_until(lambda: checkpoints(own_ray) > 0, process)
    children = psutil.Process(process.pid).children(recursive=True)
    (head,) = [child for child in children if "gcs_server" in child.name()]
    head.kill()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3, errors
    assert "the head of the Ray cluster (on this machine) has not answered for 30 s" in errors
    assert "To go on: scalevec run small.yaml --executor ray" in errors
    release(own_ray)
    assert run(own_ray, "--executor", "ray").returncode == 0
    assert losses(own_ray) == on_this_machine
