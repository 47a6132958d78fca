"""A runs directory as Python objects: its sweeps, their results, its trials."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sources.sources import open_sweep, recorded_states, sweep_folder
from scalevec.orchestrator.sources.trained import TrainedTrial
from scalevec.results.files import names_in
from scalevec.results.run_directory import is_trial_id
from scalevec.results.sweep_folder import sweep_names

if TYPE_CHECKING:
    import pandas as pd

SHORTEST_PREFIX = 4


def only_match(prefix: str, names: Iterable[str], what: str, digits_of: str) -> str:
    """Return the one of ``names`` that starts with ``prefix``.

    ``what`` and ``digits_of`` say in the message of ``InvalidInputError`` what they are names of.
    """
    matching = [name for name in names if name.startswith(prefix)] if len(prefix) >= SHORTEST_PREFIX else []
    if len(matching) != 1:
        raise InvalidInputError(
            f"{len(matching) or 'no'} {what} match prefix {prefix!r}; give at least {SHORTEST_PREFIX} "
            f"hexadecimal digits of the {digits_of}, enough to be unique"
        )
    return matching[0]


@dataclass(frozen=True)
class SweepOfRuns:
    """One sweep of a runs directory; ``scalevec.open("runs").sweep("quickstart")`` returns one."""

    name: str
    runs_dir: Path

    def results(self) -> "pd.DataFrame":
        """Return the tidy results, as :meth:`Runs.results` does."""
        return open_sweep(self.name, self.runs_dir).rows

    def trials(self) -> list[TrainedTrial]:
        """Return the trials that have begun: their fields, metrics, results and kept models."""
        return [TrainedTrial(trial.path) for trial, _ in recorded_states(self.name, self.runs_dir)]

    def trial(self, prefix: str) -> TrainedTrial:
        """Return one trial, as :meth:`Runs.trial` does."""
        return Runs(self.runs_dir).trial(prefix)

    def curves(self) -> "pd.DataFrame":
        """Return the training loss (nats/token) of the comparison trials, one row per logged step.

        Columns: trial_id, arm, rung, seed, tokens, loss.
        """
        from scalevec.orchestrator.sources.measured import training_curves

        return training_curves(open_sweep(self.name, self.runs_dir), self.runs_dir)


class Runs:
    """What a runs directory holds; ``scalevec.open("runs")`` returns one.

    Reading it is safe while trials are running, and from several processes at once.

    Args:
        path: the directory given to ``scalevec run`` as ``--runs``.

    Raises:
        InvalidInputError: ``path`` is no directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise InvalidInputError(f"{self.path}: no such directory; `scalevec run SWEEP` makes one")

    def __repr__(self) -> str:
        return f"Runs({str(self.path)!r})"

    def sweeps(self) -> list[str]:
        """Return the names of the sweeps, sorted."""
        return sweep_names(self.path)

    def results(self, sweep: str) -> "pd.DataFrame":
        """Return the tidy results of a sweep: one row per trial, whatever its state.

        ``loss`` is in nats/token on the test split and missing until the trial has completed. The frame can
        be given to :func:`scalevec.fit`, :func:`scalevec.compare` and the rest of the analysis as it is.

        Args:
            sweep: a name out of :meth:`sweeps`, or the path of its sweep file.

        Raises:
            InvalidInputError: no such sweep has been run here.
        """
        return open_sweep(sweep, self.path).rows

    def sweep(self, name: str) -> SweepOfRuns:
        """Return one sweep, which may still be running.

        Raises:
            InvalidInputError: there is no sweep of that name here.
        """
        return SweepOfRuns(sweep_folder(name, self.path).name, self.path)

    def trial(self, prefix: str) -> TrainedTrial:
        """Return one trial: its fields, events, metrics, result and, where weights were kept, its model.

        Args:
            prefix: the first hexadecimal digits of its id: at least four, enough to be unique.

        Raises:
            InvalidInputError: no trial, or more than one, has such an id.
        """
        folder = self.path / "trials" / prefix[:2]
        names = [name for name in names_in(folder) if is_trial_id(name)]
        return TrainedTrial.of(self.path, only_match(prefix, names, f"trials in {self.path}", "id"))
