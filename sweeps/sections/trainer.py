"""The section ``trainer`` of a sweep file: the command of other people's code that trains."""

import signal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StringConstraints

from scalevec.model.fields import ConfigurationError
from scalevec.sweeps.errors import refused
from scalevec.sweeps.fields import TRIAL_FIELDS, numeric_fields
from scalevec.sweeps.sections.entries import (
    Given,
    Label,
    ListsOfFields,
    Number,
    Positive,
    Several,
    TuneLists,
    problem,
)
from scalevec.sweeps.trainers import formula
from scalevec.sweeps.trainers.any_trial import OF_AN_ATTEMPT, Protocol, Readings, Trainer
from scalevec.sweeps.trainers.command import OF_A_BUDGET
from scalevec.sweeps.trainers.source_files import matching, names_files_below

KINDS: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
FIELD_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,39}$"
SOURCE_PATTERN = "[^/]"
_SHAPE = ("width", "layers", "heads", "kv_heads", "feed_forward")
PLAIN_TYPES: dict[str, type] = {
    **dict.fromkeys(_SHAPE, int),
    **{
        name: kind
        for name, kind in numeric_fields().items()
        if not TRIAL_FIELDS.get(name, "").startswith("model.")
    },
}
"""Our own fields that are plain numbers: every trainer may be given them, none has a default."""
_OF_RESULTS = ("N", "D", "C", "arm", "rung", "stage", "vector_branches", "vector_placement",
               "vector_reparameterization", "vector_decay", "vector_gain")  # fmt: skip
"""Variables of laws, what tells cells apart, and columns of results that a field of this name would fill.

A field that is called like any other column has one of its own, as ``field_NAME``.
"""


def _below_out(value: str) -> str:
    path = Path(value)
    if path.is_absolute() or ".." in path.parts or "{" in value:
        raise problem(refused(value, "a path inside {out}, as seen from there"))
    if set(value) & set("*?["):
        raise problem(refused(value, "one file inside {out}; a pattern of several is not read"))
    return value


def _pattern(value: str) -> str:
    if not names_files_below(value):
        raise problem(refused(value, "a pattern of files inside {out}, such as checkpoints/*.pt or **/*.pt"))
    return value


def _signal(value: str) -> str:
    if value not in signal.Signals.__members__ or value in ("SIGKILL", "SIGSTOP"):
        raise problem(refused(value, "the name of a signal that can be caught, such as SIGUSR2"))
    return value


def _formula(value: str) -> str:
    try:
        formula.names_in(value)
    except ConfigurationError as error:
        raise problem(refused(error.value, error.allowed)) from None
    return value


def _no_fraction(value: object) -> object:
    if isinstance(value, float):
        raise problem(refused(value, "a whole number, or text in quotes: 1.10 would be 1.1"))
    return value


def _not_reserved(value: str) -> str:
    if value in RESERVED:
        allowed = "another name (a column of the results or a word of sweep files is called so)"
        raise problem(refused(value, allowed))
    return value


Words = Annotated[Several[str], Field(min_length=1)]
Sources = Annotated[Several[Annotated[str, StringConstraints(pattern=SOURCE_PATTERN)]], Field(min_length=1)]
BelowOut = Annotated[str, AfterValidator(_below_out)]
Formula = Annotated[str, AfterValidator(_formula)]
FieldName = Annotated[str, StringConstraints(pattern=FIELD_PATTERN), AfterValidator(_not_reserved)]
FieldKind = Literal["int", "float", "str", "bool"]


class TrainerSection(Given):
    """What trains in place of our own loop, how it is stopped, and which of its numbers is the loss."""

    command: Annotated[tuple[str, ...], Strict(False), Field(min_length=1)]
    """The command as a list of words, never a shell; {width}, {out}, {seed}, ... are filled in."""
    files: Sources | None = None
    """Files, folders or patterns whose content is part of what a trial is, beside those the command names."""
    code_version: Annotated[int | str | None, BeforeValidator(_no_fraction)] = None
    """Stands for the content of all these files: trials stay the same while it does."""
    metrics: BelowOut | None = None
    """JSON-lines or CSV file of one row per log step, inside {out}."""
    pattern: str | None = None
    """Regular expression with groups (?P<step>...), (?P<loss>...) for lines of standard output."""
    result: BelowOut | None = None
    """JSON file of the terminal numbers, inside {out}; without it the last row of the metrics."""
    best: bool = False
    """Whether the smallest loss of the rows counts, in place of the last."""
    step: Annotated[str, Field(min_length=1)] = "step"
    """Key of the step in a row."""
    loss: Annotated[str, Field(min_length=1)] = "loss"
    """Key of the loss on the test text."""
    loss_validation: str | None = None
    """Key of the loss on the text that tuning may see."""
    training_loss: str | None = None
    """Key of the training loss, for curves."""
    tokens: str | None = None
    """Key of the tokens trained on, held against the plan."""
    n_params: str | None = None
    """Key of the parameter count in the result, held against the ladder."""
    unit: Literal["nats", "bits", "bits-per-byte", "perplexity"] = "nats"
    """Unit of all losses."""
    bytes_per_token: Positive | None = None
    """Of the text, with unit: bits-per-byte."""
    vocabulary: Annotated[int, Field(ge=2)] | None = None
    """Size of the vocabulary: the first loss is held against its logarithm."""
    stop_signal: Annotated[str, AfterValidator(_signal)] = "SIGUSR2"
    """What asks the command to stop."""
    stop_exit: Annotated[int, Field(ge=1, le=255)] = 75
    """The exit code by which it says that it will go on."""
    checkpoint: Annotated[str, AfterValidator(_pattern)] | None = None
    """Pattern of files inside {out} that an attempt goes on from."""
    resume: Words | None = None
    """Arguments that are added where there is such a file."""
    grace_s: Annotated[Number, Field(gt=0, le=3600)] = 20.0
    """Seconds that the command has to end once it was asked to."""
    scheduler_variables: bool = False
    """Whether the command sees SLURM_*."""

    @property
    def words(self) -> tuple[str, ...]:
        """All words that may have placeholders."""
        return (*self.command, *(self.resume or ()))

    def trainer(self) -> Trainer:
        """What trains, without its files."""
        version = "" if self.code_version is None else str(self.code_version)
        readings = Readings(**self._given_of(Readings))
        return Trainer(self.command, (), version, readings)

    def named_files(self, folder: Path) -> tuple[str, ...]:
        """What every trial rests on below ``folder``: those under ``files``."""
        return tuple(name for pattern in self.files or () for name in matching(folder, pattern))

    def protocol(self, folder: Path) -> Protocol:
        """How an attempt stops and goes on; ``folder`` is that of the sweep file."""
        return Protocol(folder=str(folder.resolve()), **self._given_of(Protocol))

    def _given_of(self, kind: type[Any]) -> dict[str, Any]:
        fields = kind.__dataclass_fields__
        return {name: value for name, value in self.given().items() if name in fields and value is not None}


class ForeignRung(Given):
    """One size of a foreign trainer's ladder: N, and any of its fields."""

    name: Label
    """Name of the rung."""
    n_params: Annotated[int, Field(ge=1, le=10**18)] | None = None
    """N, the matrix parameters without embeddings; without it the sweep's formula n_params says it."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Token budget of this rung, where the sweep gives none: of all rungs or of none."""

    def trial_fields(self) -> dict[str, Any]:
        """The fields of a trial that the rung itself gives."""
        return {name: value for name, value in self.given().items() if name not in ForeignRung.model_fields}


_SECTIONS = (Given, TuneLists, ListsOfFields, ForeignRung)
RESERVED = frozenset((*OF_AN_ATTEMPT, *OF_A_BUDGET, *_OF_RESULTS)).union(
    *(dir(section) for section in _SECTIONS), *(section.model_fields for section in _SECTIONS)
)
"""Names that no field may have: they mean something where a field would stand."""


def types_of(declared: dict[str, str]) -> dict[str, type]:
    """The types of all fields that trials of a sweep with these own fields may have."""
    return PLAIN_TYPES | {name: KINDS[kind] for name, kind in declared.items()}
