"""What needs daemons: a real SLURM, a real Ray cluster, a real PostgreSQL. Run by ``make test-cluster``.

A plain ``pytest`` passes this folder by (``norecursedirs`` in pyproject.toml).
"""

import os
import subprocess
from pathlib import Path

import pytest

from cluster.needs import missing, only_loopback
from cluster.postgres_daemon import postgres, postgres_url  # noqa: F401 (fixtures)
from cluster.ray_daemons import ray_cluster  # noqa: F401 (fixture)
from cluster.slurm_daemons import slurm, slurm_commands, slurm_without_accounting  # noqa: F401 (fixtures)
from cluster.trunk_sweep import trunk_sweep, trunks_on_this_machine  # noqa: F401 (fixtures)
from contracts.bench import ProcessBench
from hold import can_hold
from scalevec.orchestrator.executors.profiles import Profile
from support import SCALEVEC


@pytest.fixture(scope="session", autouse=True)
def namespace() -> None:
    """Daemons are started only where nothing but loopback is there for them to listen on."""
    if not only_loopback():
        missing("a network with loopback alone", "these tests are run by `make test-cluster`")


@pytest.fixture
def make_bench(slurm_commands, tmp_path):  # noqa: F811
    benches = []

    def make(folder: Path = tmp_path, **profile) -> ProcessBench:
        benches.append(ProcessBench("slurm", folder, Profile(poll_s=0.2, **profile)))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def scalevec(scalevec_process):
    """Daemons meet the command as a process."""
    return scalevec_process


@pytest.fixture
def start_on_slurm(slurm_commands, tmp_path):  # noqa: F811
    """Starts ``scalevec run small.yaml`` on SLURM with a profile; all its jobs are gone afterwards."""
    running = []

    def begin(profile: str) -> "subprocess.Popen[str]":
        # The only interface there is, whatever the name of this machine stands for.
        environment = can_hold(os.environ) | {"GLOO_SOCKET_IFNAME": "lo"}
        environment["SCALEVEC_CACHE_DIR"] = str(tmp_path / "cache")
        command = [str(SCALEVEC), "run", "small.yaml", "--executor", "slurm", "--profile", profile]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        running.append(subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()
    slurm_commands.run("scancel", "--user=root")
