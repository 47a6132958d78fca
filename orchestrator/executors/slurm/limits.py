"""How many jobs a user may have in SLURM's queue: what cluster and profile say, and what sbatch refuses."""

import re
import time
from collections.abc import Mapping

from scalevec.orchestrator.executors.profiles import Profile

PROBE_S = 600.0
"""Seconds after a refusal, or a try of more, until more is tried again."""


def largest_array(settings: Mapping[str, str]) -> int:
    """How many tasks one array may have."""
    limits = [int(settings.get("MaxArraySize", "1001"))]
    limits += [int(n) for n in re.findall(r"max_array_tasks=(\d+)", settings.get("SchedulerParameters", ""))]
    return max(1, min(limits))


def most_submitted(settings: Mapping[str, str], profile: Profile) -> int:
    """How many jobs may be in the queue at a time: what the profile says, else half of the cluster's."""
    return profile.max_submitted or max(1, int(settings.get("MaxJobCount", "10000")) // 2)


class QueueRoom:
    """How many jobs of one executor the queue takes: ``most``, until it refuses some.

    A user, an account and a quality of service may each have a limit, which others use up too: none is asked
    for. What was refused is halved, and a quarter more is tried every PROBE_S.
    """

    def __init__(self, most: int) -> None:
        self.most = self._taken = most
        self._probe_at = 0.0

    def free(self, in_queue: int) -> int:
        """How many more are tried now beside those ``in_queue``."""
        if self._taken < self.most and time.monotonic() >= self._probe_at:
            self._taken = min(self.most, self._taken + max(1, self._taken // 4))
            self._probe_at = time.monotonic() + PROBE_S
        return self._taken - in_queue

    def refused(self, jobs: int, in_queue: int) -> None:
        """SLURM has not taken so many beside those ``in_queue``."""
        self._taken = max(1, in_queue + jobs // 2)
        self._probe_at = time.monotonic() + PROBE_S
