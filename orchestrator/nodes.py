"""Machines on which trials fail for no reason of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

FAULTS_OF_A_NODE = ("killed", "node_failure")
ERRORS_OF_A_NODE = ("AcceleratorError", "CUDA error", "OSError: [Errno 5]")
"""Errors that say more of the machine than of the trial: a broken GPU, a broken disk."""
BAD_AFTER = 2

Event = Mapping[str, Any]


class NodeWatch:
    """Counts the trials that failed on each machine; ``BAD_AFTER`` different ones make it bad.

    Never more than half of the machines seen are bad: then it is not the machines.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._failed: dict[str, set[str]] = {}

    def learn(self, trial_id: str, events: Sequence[Event]) -> None:
        """Take in what the events of one trial say; doing so again changes nothing."""
        node: str | None = None
        for event in events:
            if event["state"] == "running":
                node = event.get("node") or event.get("host")
            if node is not None:
                self._seen.add(node)
            if _is_of_the_node(event) and (where := event.get("node") or node):
                self._failed.setdefault(where, set()).add(trial_id)

    @property
    def bad(self) -> tuple[str, ...]:
        """The machines to avoid, those with most failures first."""
        found = [node for node, trials in self._failed.items() if len(trials) >= BAD_AFTER]
        found.sort(key=lambda node: (-len(self._failed[node]), node))
        return tuple(found[: len(self._seen | self._failed.keys()) // 2])


def _is_of_the_node(event: Event) -> bool:
    if event["state"] != "pending":
        return False
    error = str(event.get("error", ""))
    return event.get("cause") in FAULTS_OF_A_NODE or any(name in error for name in ERRORS_OF_A_NODE)
