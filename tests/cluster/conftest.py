"""What needs daemons: a real SLURM, a real Ray cluster, a real PostgreSQL. Run by ``make test-cluster``.

A plain ``pytest`` passes this folder by (``norecursedirs`` in pyproject.toml).
"""

from pathlib import Path

import pytest

from cluster.needs import missing, only_loopback
from cluster.postgres_daemon import postgres, postgres_url  # noqa: F401 (fixtures)
from cluster.ray_daemons import ray_cluster  # noqa: F401 (fixture)
from cluster.slurm_daemons import slurm, slurm_commands, slurm_without_accounting  # noqa: F401 (fixtures)
from cluster.trunk_sweep import trunk_sweep, trunks_on_this_machine  # noqa: F401 (fixtures)
from contracts.bench import ProcessBench
from scalevec.orchestrator.executors.profiles import Profile


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
