"""What is asked of every trial, whoever trains it: of our own loop's, and of one of other people's code.

Both are frozen dataclasses that a run directory keeps, and answer to the same names.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from scalevec.model import identity
from scalevec.model.accounting import active_matrices, count_parameters, flops_per_token
from scalevec.model.config import Trial
from scalevec.model.fields import ConfigurationError, PlainValues, added_field, from_dict, to_dict
from scalevec.model.identity import IDENTITY_VERSION, digest
from scalevec.sweeps.fields import place_of
from scalevec.sweeps.ladders import FLOPS_PER_PARAMETER_AND_TOKEN

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


class OwnTrial(Trial):
    """A trial of our own loop, with the answers that a foreign trial gives too."""

    semantic_fields = identity.semantic_fields
    """The fields that make it what it is, as plain JSON values."""
    trial_id = identity.trial_id
    """SHA-256 (64 hexadecimal digits) of the canonical JSON of these."""
    trunk_id = identity.trunk_id
    """The trunk that it may share with others; None where it has none."""
    branch_step = identity.branch_step
    """Its steps that the trunk has; 0 where there is none."""

    @property
    def n_params(self) -> int:
        """N."""
        return active_matrices(self.model)

    @property
    def learning_rate(self) -> float:
        """The peak rate."""
        return self.optimizer.learning_rate

    @property
    def batches(self) -> tuple[int, ...]:
        """What beside its size and budget decides its cost: tokens of a batch and of a sequence, or steps."""
        return self.batch_tokens, self.sequence_length

    @property
    def training_flops(self) -> int:
        """FLOPs of the training alone."""
        return flops_per_token(self.model, self.sequence_length) * self.tokens

    def size_columns(self) -> dict[str, int]:
        """The columns of a tidy row that count parameters."""
        return count_parameters(self.model).columns()

    place_of = staticmethod(place_of)
    """The path in the semantic fields of what a field of a sweep file decides."""

    def own_fields(self) -> dict[str, Any]:
        """The fields that a trainer of the sweep gives a meaning."""
        return {}


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

    batch_sequences: ClassVar[int] = 1
    """Nobody can halve the batch of another's trainer that runs out of memory."""

    def semantic_fields(self) -> dict[str, Any]:
        """The fields that make it what it is, as plain JSON values."""
        return to_dict(self, identity=True) | {"identity_version": IDENTITY_VERSION}

    def trial_id(self) -> str:
        """SHA-256 (64 hexadecimal digits) of the canonical JSON of these."""
        return digest(self.semantic_fields())

    def trunk_id(self) -> str | None:
        """None: what it trains first may depend on anything."""
        return None

    def branch_step(self) -> int:
        """No steps of a trunk."""
        return 0

    @property
    def learning_rate(self) -> float | None:
        """The peak rate; None where the trainer has none of this name."""
        rate = self.values.get("learning_rate")
        return float(rate) if isinstance(rate, int | float) else None

    @property
    def batches(self) -> tuple[int, ...]:
        """Its steps."""
        return (self.steps,)

    @property
    def training_flops(self) -> int:
        """C = 6 N D."""
        return FLOPS_PER_PARAMETER_AND_TOKEN * self.n_params * self.tokens

    def size_columns(self) -> dict[str, int]:
        """N, which is all that is known of its model."""
        return {"n_params": self.n_params, "n_params_scale_vectors": 0}

    def place_of(self, field: str) -> str:
        """Where the values of all fields are."""
        return f"values.{field}"

    def own_fields(self) -> dict[str, Any]:
        """The values of all its fields."""
        return dict(self.values)

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


AnyTrial = OwnTrial | ForeignTrial


def is_foreign(fields: dict[str, Any]) -> bool:
    """Whether the semantic ``fields`` are those of a foreign trainer's trial."""
    return "trainer" in fields


def trial_from_fields(fields: dict[str, Any]) -> AnyTrial:
    """The trial of these semantic ``fields``. Raises ``ConfigurationError``."""
    values = {name: value for name, value in fields.items() if name != "identity_version"}
    return from_dict(ForeignTrial, values) if is_foreign(fields) else from_dict(OwnTrial, values)


def shared_trunks(trials: Mapping[str, AnyTrial]) -> dict[str, str]:
    """The trunk of each trial (by its id) that shares it with another; the others are left out."""
    named = {name: trunk for name, trial in trials.items() if (trunk := trial.trunk_id())}
    counts = Counter(named.values())
    return {name: trunk for name, trunk in named.items() if counts[trunk] > 1}
