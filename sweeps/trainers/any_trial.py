"""A trial that other people's code trains, and what is asked of every trial, whoever trains it.

A foreign trial is frozen dataclasses that a run directory keeps, as ``model.config.Trial`` is.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.model import identity
from scalevec.model.config import Trial
from scalevec.model.fields import ConfigurationError, PlainValues, added_field, from_dict, to_dict
from scalevec.model.identity import IDENTITY_VERSION, digest

OF_AN_ATTEMPT = ("python", "seed", "seed_index", "out", "trial_json", "gpus", "node_rank", "master")
"""Placeholders of a command that an attempt fills in: ``{python}`` is the interpreter of scalevec, or the
profile's, on the machine that trains; ``{seed}`` is :attr:`ForeignTrial.seed_value`,
``{seed_index}`` the seed of the sweep file, ``{trial_json}`` the path of the trial's record."""


@dataclass(frozen=True)
class Readings:
    """What of the trainer's output is which number. It is part of the identity: another key is another loss.

    The fields are those of the sweep file's section ``trainer``; empty, or 0: not given.
    """

    metrics: str = ""
    pattern: str = ""
    result: str = ""
    best: bool = False
    step: str = "step"
    loss: str = "loss"
    loss_validation: str = ""
    training_loss: str = ""
    tokens: str = ""
    n_params: str = ""
    unit: str = "nats"
    bytes_per_token: float = 0.0
    vocabulary: int = 0


@dataclass(frozen=True)
class SourceFile:
    """A file of the trainer, by its path relative to the sweep file's folder."""

    path: str
    digest: str


def file_digest(path: Path) -> str:
    """SHA-256 (64 hexadecimal digits) of a file, as :class:`SourceFile` has it. Raises ``OSError``."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True)
class Trainer:
    """What trains: a command, and the content of its files.

    command: argv, each word a format of ``str.format`` over the trial's :attr:`ForeignTrial.placeholders` and
        over what only an attempt knows (OF_AN_ATTEMPT).
    files: the files that the identity rests on; empty where ``code_version`` stands for their content.
    """

    command: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()
    code_version: str = ""
    readings: Readings = Readings()


@dataclass(frozen=True)
class Protocol:
    """How an attempt at a trainer's trial stops and goes on; no part of the identity.

    folder: absolute path of the sweep file's folder: the working directory. The others are fields of the
        sweep file's section ``trainer``.
    """

    folder: str = ""
    stop_signal: str = "SIGUSR2"
    stop_exit: int = 75
    checkpoint: str = ""
    resume: tuple[str, ...] = ()
    grace_s: float = 20.0
    scheduler_variables: bool = False
    writers_agreed_to: tuple[str, ...] = ()
    """The other users from whose checkpoints a person agreed to go on, which may run code of theirs."""


@dataclass(frozen=True)
class ForeignTrial:
    """A trial of a foreign trainer.

    values: every field that the sweep gives it (ladder, trial, grid, arm, tuned), by name.
    n_params: N as the sweep says. tokens: to be trained on. stream: 64 hexadecimal digits that the integer
        ``{seed}`` follows from; the arms of a cell share it.
    planted: what a simulation plants in place of training; empty where it is trained.
    """

    trainer: Trainer
    values: PlainValues
    n_params: int
    tokens: int
    seed: int
    stream: str
    planted: str = added_field("")

    def __post_init__(self) -> None:
        rate = self.values.get("learning_rate")
        if isinstance(rate, int | float) and rate < 0:
            raise ConfigurationError("learning_rate", rate, "a number that is not below zero")

    def semantic_fields(self) -> dict[str, Any]:
        """The fields that make the trial what it is, as plain JSON values."""
        return to_dict(self, identity=True) | {"identity_version": IDENTITY_VERSION}

    @property
    def batch_sequences(self) -> int:
        """One: nobody can halve the batch of another's trainer that runs out of memory."""
        return 1

    @property
    def seed_value(self) -> int:
        """The integer ``{seed}``, 0 to 2**31 - 1."""
        return int(self.stream[:16], 16) % 2**31

    @property
    def placeholders(self) -> dict[str, Any]:
        """What the trial itself fills in of a command: its fields, its budget, its size."""
        steps = {"steps": self.steps} if self.steps else {}
        return {"tokens": self.tokens, "n_params": self.n_params, **steps, **self.values}

    @property
    def steps(self) -> int:
        """Optimizer steps; 0 where no ``batch_tokens`` says how many tokens one takes."""
        batch = self.values.get("batch_tokens")
        return self.tokens // batch if isinstance(batch, int) and batch > 0 else 0


def is_foreign(fields: dict[str, Any]) -> bool:
    """Whether the semantic ``fields`` are those of a foreign trainer's trial."""
    return "trainer" in fields


AnyTrial = Trial | ForeignTrial


def semantic_fields(trial: AnyTrial) -> dict[str, Any]:
    """The fields that make ``trial`` what it is, as plain JSON values."""
    return trial.semantic_fields() if isinstance(trial, ForeignTrial) else identity.semantic_fields(trial)


def trial_id(trial: AnyTrial) -> str:
    """SHA-256 (64 hexadecimal digits) of the canonical JSON of :func:`semantic_fields`."""
    if isinstance(trial, ForeignTrial):
        return digest(trial.semantic_fields())
    return identity.trial_id(trial)


def trial_from_fields(fields: dict[str, Any]) -> AnyTrial:
    """The trial that :func:`semantic_fields` described. Raises ``ConfigurationError``."""
    if not is_foreign(fields):
        return identity.trial_from_fields(fields)
    return from_dict(ForeignTrial, {k: value for k, value in fields.items() if k != "identity_version"})


def learning_rate(trial: AnyTrial) -> float | None:
    """The peak rate of ``trial``; None where a foreign trainer has none."""
    if not isinstance(trial, ForeignTrial):
        return trial.optimizer.learning_rate
    rate = trial.values.get("learning_rate")
    return float(rate) if isinstance(rate, int | float) else None


def batches(trial: AnyTrial) -> tuple[int, ...]:
    """What beside its size decides the cost of a trial: tokens of a batch and of a sequence, or its steps."""
    if isinstance(trial, ForeignTrial):
        return (trial.steps,)
    return trial.batch_tokens, trial.sequence_length


def ours(trial: AnyTrial) -> Trial:
    """A trial that we train, where no other can come."""
    assert isinstance(trial, Trial)
    return trial


def trunk_id(trial: AnyTrial) -> str | None:
    """The trunk that ``trial`` may share (``model.identity``); a foreign trainer's has none."""
    return None if isinstance(trial, ForeignTrial) else identity.trunk_id(trial)


def branch_step(trial: AnyTrial) -> int:
    """The steps of ``trial`` that its trunk has; 0 where there is none."""
    return 0 if isinstance(trial, ForeignTrial) else identity.branch_step(trial)


def shared_trunks(trials: Mapping[str, AnyTrial]) -> dict[str, str]:
    """The trunk of each trial (by its id) that shares it with another; the others are left out."""
    named = {name: trunk for name, trial in trials.items() if (trunk := trunk_id(trial))}
    counts = Counter(named.values())
    return {name: trunk for name, trunk in named.items() if counts[trunk] > 1}
