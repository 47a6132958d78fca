"""What needs daemons: a real SLURM, a real Ray cluster, a real PostgreSQL. Run by ``make test-cluster``.

A plain ``pytest`` passes this folder by (``norecursedirs`` in pyproject.toml).
"""

import pytest

from cluster.needs import missing, only_loopback
from cluster.postgres_daemon import postgres, postgres_url  # noqa: F401 (fixtures)
from cluster.ray_daemons import ray_cluster  # noqa: F401 (fixture)
from cluster.slurm_daemons import slurm, slurm_commands, slurm_without_accounting  # noqa: F401 (fixtures)
from cluster.trunk_sweep import trunk_sweep, trunks_on_this_machine  # noqa: F401 (fixtures)


@pytest.fixture(scope="session", autouse=True)
def namespace() -> None:
    """Daemons are started only where nothing but loopback is there for them to listen on."""
    if not only_loopback():
        missing("a network with loopback alone", "these tests are run by `make test-cluster`")


@pytest.fixture
def scalevec(scalevec_process):
    """Daemons meet the command as a process."""
    return scalevec_process
