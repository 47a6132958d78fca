"""Our own training loop, as one trainer among others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scalevec.model.config import Trial
from scalevec.model.data.corpus import open_corpus
from scalevec.model.identity import trunk_id
from scalevec.model.train import newest_step
from scalevec.model.train.loop import train
from scalevec.model.train.record import Recorder
from scalevec.orchestrator.worker.preflight import load_plugins
from scalevec.orchestrator.worker.ranks import Ranks
from scalevec.results.opening import require_no_link
from scalevec.results.run_directory import RunDirectory, trunk_path
from scalevec.sweeps.plugins.locate import sent_plugins


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
            return train(self.trial, corpus, ranks.options, recorder, folder, trunk, world)

    def _trunk(self) -> Path | None:
        """Where the states of the trial's trunk are kept; None where its schedule has none."""
        if not (name := trunk_id(self.trial)):
            return None
        folder = trunk_path(self.runs_dir, name)
        require_no_link(folder)
        return folder
