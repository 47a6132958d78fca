"""``submit`` on a real Ray cluster: a job of Ray runs the stages, and every command works from elsewhere."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from cluster.test_ray_training import losses
from hold import hold, release
from support import SCALEVEC, finished, two_arms

pytestmark = pytest.mark.slow

PATIENCE_S = 300


@pytest.fixture
def scalevec(ray_cluster, tmp_path, text_files, monkeypatch):
    """The command, in a folder with a sweep and the profile of a cluster."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name, value in ray_cluster.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "profiles.yaml").write_text(f"cluster: {{executor: ray, address: '{ray_cluster.address}'}}\n")
    sweep = two_arms("sent", text_files, tokens_per_parameter=15, width=16, layers=1)
    (tmp_path / "sent.yaml").write_text(sweep)
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(SCALEVEC), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return call


def status(scalevec) -> dict[str, object]:
    answer: dict[str, object] = json.loads(scalevec("status", "sent", "--json").stdout)[0]
    return answer


def until(condition, folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        log = folder / "runs/sweeps/sent/controller/log.txt"
        assert time.monotonic() < deadline, log.read_text() if log.exists() else "no log"
        time.sleep(0.5)


def test_a_sweep_is_sent_and_trained_without_us(scalevec, tmp_path, tmp_path_factory):
    hold(tmp_path)
    sent = scalevec("submit", "sent.yaml", "--profile", "cluster", "--trust")
    assert sent.returncode == 0, sent.stderr
    assert "controller submitted, job scalevec-" in sent.stdout
    again = scalevec("submit", "sent.yaml", "--profile", "cluster")
    assert "already queued" in again.stdout, again.stderr
    until(lambda: status(scalevec)["states"].get("running"), tmp_path)
    assert status(scalevec)["queue"]["controller"]["state"] == "RUNNING"
    release(tmp_path)
    until(lambda: status(scalevec)["states"] == {"completed": 2}, tmp_path)
    local = finished(tmp_path_factory.mktemp("local"), (tmp_path / "sent.yaml").read_text())
    assert losses(tmp_path) == losses(local)
    until(lambda: status(scalevec)["queue"]["controller"] is None or ended_well(scalevec), tmp_path)


def ended_well(scalevec) -> bool:
    return bool(status(scalevec)["queue"]["controller"]["exit_code"] == 0)


def test_a_sweep_that_was_sent_is_cancelled_from_elsewhere_and_sent_again(scalevec, tmp_path):
    hold(tmp_path)
    assert scalevec("submit", "sent.yaml", "--profile", "cluster", "--trust").returncode == 0
    until(lambda: status(scalevec)["states"].get("running"), tmp_path)
    cancelled = scalevec("cancel", "sent")
    assert "2 trials cancelled" in cancelled.stdout, cancelled.stderr
    assert status(scalevec)["states"] == {"cancelled": 2}
    release(tmp_path)
    again = scalevec("submit", "sent.yaml", "--profile", "cluster", "--trust")
    assert "controller submitted" in again.stdout, again.stderr
    until(lambda: status(scalevec)["states"] == {"completed": 2}, tmp_path)


def test_a_cluster_without_a_job_server_is_named(scalevec, tmp_path):
    (tmp_path / "profiles.yaml").write_text("cluster: {executor: ray}\n")
    refused = scalevec("submit", "sent.yaml", "--profile", "cluster", "--trust")
    assert refused.returncode == 2
    assert "a profile with its 'address'" in refused.stderr
    assert not (tmp_path / "runs/sweeps").exists()
