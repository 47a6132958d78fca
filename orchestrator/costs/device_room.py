"""Whether the device of a trial has room for it, and what would fit where it has none."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scalevec.model.config import RunOptions, Trial
from scalevec.model.estimate import memory_of
from scalevec.model.train.devices import DEVICES, device_named
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.costs.rates import MeasuredDevice


@dataclass(frozen=True)
class Room:
    """The memory for one process of a trial."""

    size: float
    """Bytes."""
    words: str
    is_certain: bool
    """Whether the card is known, not assumed; what a process on the CPU takes is known less well."""


def room_of(
    request: ResourceRequest, card: str | None, measured: MeasuredDevice | None = None
) -> Room | None:
    """Return the room for one process: on a GPU, or memory_gb. None where nobody says how much there is.

    The GPU is of type ``card``, else the ``measured`` one of this machine, else an H100. A share of it has
    that share of its memory.
    """
    if request.gpus and measured is not None and card is None:
        return _share_of(request, measured.memory_bytes, measured.name, is_certain=True)
    if request.gpus:
        device = device_named(card) or DEVICES["h100"]
        return _share_of(request, device.memory, device.name, is_certain=device_named(card) is not None)
    if request.memory_gb is None:
        return None
    return Room(request.memory_gb * 1e9, f"memory_gb, {request.memory_gb:g}", is_certain=False)


def _share_of(request: ResourceRequest, memory: int, name: str, *, is_certain: bool) -> Room:
    share = min(request.gpus, 1.0)
    words = f"the {memory * share / 1e9:.3g} GB of {'its share of ' * (share < 1)}one {name}"
    return Room(memory * share, words, is_certain)


def recompute_for(trials: Iterable[Trial], options: RunOptions, room: Room | None) -> str:
    """Return ``block`` where one of ``trials`` has no room without it: the arms of a rung are run alike."""
    if room is None:
        return "none"
    again = replace(options, recompute="block")
    for trial in trials:
        needed = memory_of(trial, options).total
        # Measurements may need more than training: then it would be in vain.
        if needed > room.size and memory_of(trial, again).total < needed:
            return "block"
    return "none"


def what_fits(trial: Trial, options: RunOptions, room: Room) -> str:
    """Return what a trial that has no room would fit with: words for a person."""
    memory = memory_of(trial, options)
    needed = memory.total
    if memory.measurements > memory.training:
        measured = memory.measurements / 1e9
        return (
            f"needs {needed / 1e9:,.3g} GB, more than {room.words}, {measured:,.3g} GB of it to be measured"
        )
    start = f"needs {needed / 1e9:,.3g} GB, more than {room.words}"
    part = trial.batch_sequences // options.processes
    sequences = min(options.micro_batch or part, part)
    while sequences > 1:
        sequences //= 2
        for recompute in dict.fromkeys((options.recompute, "block")):
            smaller = replace(options, micro_batch=sequences, recompute=recompute)
            if (size := memory_of(trial, smaller).total) <= room.size:
                how = f"micro_batch: {sequences} with recompute: {recompute}"
                return f"{start}; {how} fits ({size / 1e9:,.3g} GB)"
    return (
        f"{start}, even with one sequence at a time and recompute: block; a larger card has room, or several "
        "with shard: true"
    )
