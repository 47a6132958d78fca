"""What befalls the tasks of a campaign on a Ray cluster."""

import psutil

from campaign import FAULTS_EVERYWHERE, Campaign, Fault, kill_the_parent_of_a_worker
from cluster.ray_daemons import RayCluster

NODE = "n2"
"""The other one, ``n1``, is the head: without it there is no cluster."""


class RayFaults:
    """The faults that need to know ``cluster``, and the others, by name."""

    def __init__(self, cluster: RayCluster) -> None:
        self.cluster = cluster

    def by_name(self) -> dict[str, Fault]:
        return FAULTS_EVERYWHERE | {
            "kill -9 of a Ray worker": kill_the_parent_of_a_worker,
            "kill -9 of a node": self.lose_a_node,
        }

    def lose_a_node(self, campaign: Campaign) -> bool:
        """While it trains; then another of its name joins."""
        workers = campaign.workers()
        if not any(self._is_of_the_node(worker) for worker in workers):
            return False
        self.cluster.kill_node(NODE)
        self.cluster.add_node(NODE)
        return True

    def _is_of_the_node(self, worker: psutil.Process) -> bool:
        try:
            return self.cluster.raylet_of(NODE) in {parent.pid for parent in worker.parents()}
        except psutil.NoSuchProcess:
            return False
