"""A private Ray cluster of two nodes on this machine, ``n1`` (with one GPU that is not there) and ``n2``."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.needs import require_package
from hold import can_hold
from scalevec.results.extras import install_command

INSTALL = install_command("ray")
CPUS = 2
PATIENCE_S = 300


@dataclass
class RayCluster:
    """``environment`` is what a driver needs to find and to be let into the cluster."""

    cluster: Any
    environment: dict[str, str]
    nodes: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add_node(self, name: str) -> None:
        """One more node of this machine."""
        # Ray itself waits for half a minute.
        node = self.nodes[name] = self.cluster.add_node(wait=False, num_cpus=CPUS, node_name=name)
        self.cluster._wait_for_node(node, timeout=PATIENCE_S)

    def raylet_of(self, name: str) -> int:
        """The process from which all that a node runs descends."""
        return int(self.nodes[name].all_processes["raylet"][0].process.pid)

    def kill_node(self, name: str) -> None:
        """kill -9 of everything that makes up a node."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Ray keeps its files and its token in a folder of the test."""
    require_package("ray", INSTALL)
    environment = environment_in(tmp_path_factory.mktemp("ray"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        head = {"num_cpus": CPUS, "num_gpus": 1, "node_name": "n1", "include_dashboard": True}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        built = RayCluster(cluster, environment)
        try:
            built.add_node("n2")
            yield built
        finally:
            cluster.shutdown()


def environment_in(folder: Path) -> dict[str, str]:
    """The variables that make Ray keep to ``folder``, and let its trials be held.

    Without its memory monitor, which kills tasks where others have filled the machine's memory, and with its
    workers at the priority of other processes: at 15 they wait for every trial of SLURM beside them.
    """
    variables = {"HOME": str(folder), "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    variables |= {"RAY_memory_monitor_refresh_ms": "0", "RAY_worker_niceness": "0"}
    return variables | {"PYTHONPATH": can_hold(os.environ)["PYTHONPATH"]}
