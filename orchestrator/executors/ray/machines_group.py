"""A trial on several machines of a Ray cluster: a placement group with a place on each, and a task there."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray import ObjectRef

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
