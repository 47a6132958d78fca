"""The trials of a sweep with a ``trainer``: their size, their budget, and the content of their code."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.model.fields import ConfigurationError, PlainValues
from scalevec.model.identity import digest, stream
from scalevec.sweeps.expansion.trials import tokens_of
from scalevec.sweeps.imported_modules import with_imports
from scalevec.sweeps.trainers import command, formula
from scalevec.sweeps.trainers.foreign_trial import OF_AN_ATTEMPT, ForeignTrial, Trainer
from scalevec.sweeps.trainers.source_files import (
    files_of_words,
    matching,
    module_files,
    scripts_of_words,
    source_files,
)

if TYPE_CHECKING:  # pydantic is imported only where a sweep is read
    from scalevec.sweeps.sections.rungs import Rung
    from scalevec.sweeps.sections.schema import Sweep
    from scalevec.sweeps.sections.trainer import TrainerSection


@dataclass(frozen=True)
class ForeignBudget:
    """What makes the trials of a cell: N, tokens over N, and the trainer without the files of its arguments.

    unit: tokens come in whole units. resume: the words of ``Protocol.resume``. first: the first value of each
        tuned field, for a trial before tuning. planted: what a simulation plants in place of training; empty
        where it trains.
    """

    n_params: int
    tokens_per_parameter: float
    unit: int
    trainer: Trainer
    names: tuple[str, ...]
    folder: Path
    resume: tuple[str, ...]
    first: Mapping[str, Any]
    planted: str = ""

    def trial(self, values: Mapping[str, Any], seed: int, base: str) -> ForeignTrial:
        """The trial of the flat ``values``. Raises ``ConfigurationError``."""
        given = {**self.first, **values}
        batch = given.get("batch_tokens", 1)
        if batch <= 0:
            raise ConfigurationError("batch_tokens", batch, "a positive number")
        tokens = tokens_of(self.tokens_per_parameter * self.n_params, batch, self.unit)
        of_seed = stream(base, seed)
        trial = ForeignTrial(
            self.trainer, PlainValues(given), self.n_params, tokens, seed, of_seed, self.planted
        )
        if self.trainer.code_version:
            self._known_words(trial)
            return trial
        names = self.file_names(trial)
        return replace(trial, trainer=replace(self.trainer, files=source_files(self.folder, names)))

    def file_names(self, trial: ForeignTrial) -> tuple[str, ...]:
        """The files below the sweep's folder on which ``trial`` rests. Raises ``ConfigurationError``."""
        words = self._known_words(trial)
        later = {*OF_AN_ATTEMPT, *self.first}
        varied = [word for word in self._asked if later & set(command.placeholders_of(word))]
        names = (*self.names, *files_of_words(self.folder, words), *scripts_of_words(self.folder, varied))
        return tuple(with_imports(self.folder, names, words))

    @property
    def _asked(self) -> tuple[str, ...]:
        return (*self.trainer.command, *self.resume)

    def _known_words(self, trial: ForeignTrial) -> tuple[str, ...]:
        """What is known of the command before an attempt. Raises ``ConfigurationError``."""
        return command.known_before(self._asked, trial.placeholders)


def trainer_of(section: "TrainerSection") -> Trainer:
    """The trainer that the section describes, without its files."""
    version = "" if section.code_version is None else str(section.code_version)
    return Trainer(section.command or (), section.function or "", (), version, section.readings())


def named_files(section: "TrainerSection", folder: Path) -> tuple[str, ...]:
    """The files that every trial rests on: those under ``files``, and the package of a function."""
    named = [name for pattern in section.files or () for name in matching(folder, pattern)]
    return (*named, *(module_files(folder, section.function) if section.function else ()))


def n_params_of(sweep: "Sweep", rung: "Rung", values: Mapping[str, Any]) -> int:
    """N of ``rung`` at the ``values`` before an arm's. Raises ``ConfigurationError``."""
    given = rung.given().get("n_params")
    if given is None and sweep.n_params is None:
        allowed = "a number at the rung, or a formula n_params for the whole sweep"
        raise ConfigurationError("n_params", None, allowed)
    return formula.value_of(str(sweep.n_params), values) if given is None else int(given)


def stream_base_of(n_params: int, values: Mapping[str, Any]) -> str:
    """What the streams of a cell follow from: N and the ``values`` before an arm's, but for the rate."""
    kept = {name: value for name, value in values.items() if name != "learning_rate"}
    return digest({"foreign": 1, "n_params": n_params, "values": kept})
