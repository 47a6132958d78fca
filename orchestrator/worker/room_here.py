"""Whether the device that a process was really given has room for its trial."""

import os

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.system import memory_limit
from scalevec.model.estimate import memory_of
from scalevec.orchestrator.costs.device_room import Room, what_fits
from scalevec.orchestrator.worker.failures import DefiniteError

TOLERANCE = 0.1
"""How far an estimate may be above what a trial takes: one that is closer to its room than that is tried."""


class NoRoomError(DefiniteError):
    """The device of this process is too small for its trial, as others of its kind would be."""


def require_room(trial: Trial, options: RunOptions, local_rank: int = 0, processes: int = 1) -> None:
    """Refuse a trial for which there is no room here.

    Args:
        trial: What is to be trained.
        options: How it is run.
        local_rank: Which of the trial's processes on this machine this is, and so which GPU is its own.
        processes: How many there are on this machine.

    Raises:
        NoRoomError: It needs more than TOLERANCE above what there is; with what would fit.
    """
    room = _of_card(local_rank) if options.device == "cuda" else _of_machine(processes)
    if room is not None and memory_of(trial, options).total * (1 - TOLERANCE) > room.size:
        raise NoRoomError(what_fits(trial, options, room))


def _of_card(local_rank: int) -> Room:
    card = torch.cuda.get_device_properties(local_rank)
    words = f"the {card.total_memory / 1e9:.3g} GB of the {card.name} that it was given"
    return Room(card.total_memory, words, is_certain=True)


def _of_machine(processes: int) -> Room | None:
    """A process's part of what this machine, or its cgroup, allows; None where the system does not tell."""
    limits = [limit for limit in (_of_system(), memory_limit()) if limit is not None]
    if not limits:
        return None
    size = min(limits)
    among = f", shared by {processes} processes" if processes > 1 else ""
    words = f"the {size / 1e9:.3g} GB of memory that it may use here{among}"
    return Room(size / processes, words, is_certain=True)


def _of_system() -> int | None:
    names = os.sysconf_names
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
