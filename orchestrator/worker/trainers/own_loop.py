"""Our own training loop, as one trainer among others: it refuses a trial for which its device has no room."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import open_corpus
from scalevec.model.data.system import memory_limit
from scalevec.model.estimate import memory_of
from scalevec.model.identity import trunk_id
from scalevec.model.train import newest_step
from scalevec.model.train.loop import train
from scalevec.model.train.record import Recorder
from scalevec.orchestrator.costs import Room, what_fits
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.orchestrator.worker.plugins import load_plugins
from scalevec.orchestrator.worker.ranks import Ranks
from scalevec.results.opening import require_no_link
from scalevec.results.run_directory import RunDirectory, trunk_path
from scalevec.sweeps.plugins.locate import sent_plugins

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


class AttemptTrainer(Protocol):
    """What trains in one attempt at one trial."""

    @property
    def forks_ranks(self) -> bool:
        """Whether a trial's processes on a machine are forks of the worker; else the trainer starts them."""

    def reached(self) -> dict[str, Any]:
        """Where the attempt begins, as fields of an event: the ``step`` that it goes on from."""

    def failed(self) -> dict[str, Any]:
        """What the record of an attempt that failed says of the checkpoint at which it began."""

    def origin(self) -> dict[str, Any]:
        """What the record of the environment says of other people's code."""

    def train(self, ranks: Ranks, recorder: Recorder) -> dict[str, Any]:
        """Train to the end, at each rank; returns the result.

        Raises ``TrainingInterruptedError`` where the recorder asked to stop, and whatever else befalls it.
        """


@dataclass(frozen=True)
class OwnLoop:
    """Trains ``trial`` by ``model.train.loop``."""

    runs_dir: Path
    directory: RunDirectory
    trial: Trial
    forks_ranks: bool = True

    def reached(self) -> dict[str, Any]:
        """The step of the newest checkpoint."""
        return {"step": newest_step(self.directory.checkpoints_path)}

    def failed(self) -> dict[str, Any]:
        """Nothing: a damaged checkpoint is set aside where it is read."""
        return {}

    def origin(self) -> dict[str, Any]:
        """The digests of the plugins that were sent along."""
        plugins = {plugin.module: plugin.digest for plugin in sent_plugins()}
        return {"plugins": plugins} if plugins else {}

    def train(self, ranks: Ranks, recorder: Recorder) -> dict[str, Any]:
        """Train to the end, at each rank of the trial."""
        load_plugins(self.trial)
        corpus = open_corpus(self.runs_dir / "corpora", self.trial.corpus)
        trunk, folder = self._trunk(), self.directory.checkpoints_path
        with ranks.meet(corpus) as world:
            require_room(self.trial, ranks.options, world.rank % ranks.here, ranks.here)
            return train(self.trial, corpus, ranks.options, recorder, folder, trunk, world)

    def _trunk(self) -> Path | None:
        """Where the states of the trial's trunk are kept; None where its schedule has none."""
        if not (name := trunk_id(self.trial)):
            return None
        folder = trunk_path(self.runs_dir, name)
        require_no_link(folder)
        return folder
