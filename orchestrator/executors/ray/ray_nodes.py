"""The nodes of the Ray cluster that this process is connected to, and a trial on several of them."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.executors.ray.connection import is_listening
from scalevec.orchestrator.worker.failures import AttemptFailedError, as_record, report_path
from scalevec.results.files import write_json
from scalevec.results.opening import make_folder

if TYPE_CHECKING:
    from ray import ObjectRef


GIGABYTE = 1e9


@dataclass(frozen=True)
class Node:
    """A node that answers; ``resources`` by Ray's names, memory in bytes."""

    id: str
    name: str
    host: str
    resources: Mapping[str, float]

    def describe(self, further: Collection[str] = ()) -> str:
        """Its name and what it has, for a person; ``further`` are resources beside Ray's own."""
        return f"{self.name} with {describe(self.resources, further)}"


def alive() -> list[Node]:
    """The nodes that Ray counts as alive now, by name."""
    nodes = (
        Node(node["NodeID"], _name(node), node["NodeManagerHostname"], node["Resources"])
        for node in _all()
        if node["Alive"]
    )
    return sorted(nodes, key=lambda node: (node.name, node.id))


def name_of(node_id: str) -> str | None:
    """What a person calls a node, dead or alive; None where the cluster never had it."""
    return next((_name(node) for node in _all() if node["NodeID"] == node_id), None)


def is_gone(node_id: str) -> bool:
    """Whether a node is dead. Ray takes some seconds to notice, so its daemon is asked."""
    node = next((node for node in _all() if node["NodeID"] == node_id and node["Alive"]), None)
    return node is None or not is_listening((node["NodeManagerAddress"], node["NodeManagerPort"]))


def _all() -> list[dict[str, Any]]:
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return nodes


def _name(node: Mapping[str, Any]) -> str:
    """The name that the node was started with, else that of its machine."""
    was_named = node["NodeName"] and node["NodeName"] != node["NodeManagerAddress"]
    return str(node["NodeName"] if was_named else node["NodeManagerHostname"])


def could_run(node: Node, wanted: Mapping[str, float]) -> bool:
    """Whether ``node``, if nothing else ran there, has what is ``wanted``."""
    return all(node.resources.get(name, 0.0) >= amount for name, amount in wanted.items())


def describe(resources: Mapping[str, float], further: Collection[str] = ()) -> str:
    """Processors, GPUs, ``further`` resources and memory in words."""
    parts = [f"{resources.get('CPU', 0.0):g} CPUs", f"{resources.get('GPU', 0.0):g} GPUs"]
    parts += [f"{resources.get(name, 0.0):g} {name}" for name in further]
    memory = resources.get("memory", 0.0)
    return ", ".join([*parts, f"{memory / GIGABYTE:.3g} GB of memory"] if memory else parts)


_BY_RAYS_NAMES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


@dataclass(frozen=True)
class MachinesGroup:
    """The tasks on all machines but the first, and the group that holds their places."""

    followers: "tuple[ObjectRef[int], ...]"
    group: Any
    meeting: Path

    def end(self) -> None:
        """Give the places back, once the first machine's task is over; what still runs there is killed."""
        from ray.util import remove_placement_group

        remove_placement_group(self.group)
        for path in self.meeting.parent.glob(f"{self.meeting.stem}*"):
            with suppress(FileNotFoundError):
                path.unlink()

    def tell_of_lost(self) -> None:
        """Tell the first machine of tasks that ended without a word of their own: it would wait for them."""
        import ray
        from ray.exceptions import RayError

        for node, follower in enumerate(self.followers, 1):
            if not ray.wait([follower], timeout=0)[0]:
                continue
            try:
                ended = f"with exit code {code}" if (code := ray.get(follower)) != WorkerExit.RESULT else None
            except RayError as error:
                ended = f"by {type(error).__name__}"
            path, message = report_path(self.meeting, node), f"the worker on machine {node} ended {ended}"
            if ended and not path.exists():
                make_folder(path.parent)
                problem = AttemptFailedError(message, "node_failure")
                write_json(path, as_record(problem, message, is_lost=False))

    def kill(self) -> None:
        """End the tasks at once."""
        import ray

        for follower in self.followers:
            with suppress(ValueError):  # of a task that has just ended
                ray.cancel(follower, force=True)


def send_group(
    send: Callable[[int, Mapping[str, Any]], "ObjectRef[int]"],
    options: Mapping[str, Any],
    nodes: int,
    meeting: Path,
) -> "tuple[ObjectRef[int], MachinesGroup]":
    """Send a task to each of ``nodes`` machines, all at once or none; the first is returned by itself.

    Args:
        send: Sends the task of a machine (from 0) with the options that Ray is given.
        options: What Ray is asked for on each machine.
        nodes: How many machines.
        meeting: The file by which the tasks find each other.
    """
    from ray.util import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    named = {name: options[option] for option, name in _BY_RAYS_NAMES.items() if options.get(option)}
    bundle = {**named, **(options.get("resources") or {})}
    # Ray heeds the labels of the places, and takes none from a task that has one.
    asked, labels = {**options}, options.get("label_selector")
    asked.pop("label_selector", None)
    selectors = {"bundle_label_selector": [dict(labels) for _ in range(nodes)]} if labels else {}
    group = placement_group([dict(bundle) for _ in range(nodes)], strategy="STRICT_SPREAD", **selectors)
    references = [
        send(node, {**asked, "scheduling_strategy": PlacementGroupSchedulingStrategy(group, node)})
        for node in range(nodes)
    ]
    return references[0], MachinesGroup(tuple(references[1:]), group, meeting)
