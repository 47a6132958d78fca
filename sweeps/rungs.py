"""The ladder of a sweep file: presets by name, inline shapes, mixtures, or a rule that makes the rungs."""

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from model.config import ConfigurationError, Experts, ModelConfig, Shape
from sweeps import ladders
from sweeps.entries import Count, Given, Items, Label, Number, as_problem, problem
from sweeps.errors import not_among, refused

Layers = Annotated[int, Field(ge=1, le=10_000)]
Positive = Annotated[Number, Field(gt=0)]
WholeOrNone = Annotated[int, Field(ge=0, le=1_000_000)]
LISTED, GENERATED = "[listed]", "[generated]"
"""Tags of the two forms of a ladder; they are no part of a field's place."""


class ExpertsFields(Given):
    """A mixture of experts; what is left out has a default (``model.config.Experts``, ``sweeps.ladders``)."""

    n_experts: Count
    top_k: Count
    feed_forward: Count | None = None
    """Hidden channels of one expert; left out: the rung's, shared among the experts that a token passes."""
    shared_experts: WholeOrNone = 0
    balancing: Literal["loss", "bias", "none"] = "loss"
    loss_coefficient: Positive | None = None
    bias_rate: Positive | None = None
    dense_layers: WholeOrNone = 0


class Rung(Given):
    """One size of the ladder; a shape's heads and hidden width have defaults (``sweeps.ladders``).

    ``batch_tokens`` and ``learning_rate`` stand where no other section gives them.
    """

    name: Label
    width: Count
    layers: Layers
    heads: Count | None = None
    kv_heads: Count | None = None
    feed_forward: Count | None = None
    experts: ExpertsFields | None = None
    batch_tokens: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> "Rung":
        try:
            ModelConfig(self.shape, vocabulary_size=2, experts=self.mixture)
        except ConfigurationError as error:
            raise _problem(error, self) from None
        return self

    @cached_property
    def _size(self) -> ladders.Size:
        given = (self.width, self.layers, self.heads, self.kv_heads, self.feed_forward)
        if self.experts is None:
            return ladders.Size(ladders.shape(*given))
        return ladders.mixture(*given, experts=_values(self.experts))

    @property
    def shape(self) -> Shape:
        """The shape with its defaults filled in."""
        return self._size.shape

    @property
    def mixture(self) -> Experts | None:
        """The experts with their defaults filled in, None for a dense model."""
        return self._size.experts

    def trial_fields(self) -> dict[str, Any]:
        """The fields of a trial that the rung itself gives."""
        return {name: value for name, value in self.given().items() if name in RUNG_FIELDS and value}


RUNG_FIELDS = ("batch_tokens", "learning_rate")


def _values(experts: ExpertsFields) -> dict[str, Any]:
    return {name: value for name, value in experts.given().items() if value is not None}


def _problem(error: ConfigurationError, rung: Rung) -> Exception:
    """``error`` at the field that it names, of the rung or of its experts, if the file gives that."""
    section, _, name = error.field.rpartition(".")
    if section != "experts" or rung.experts is None:
        return as_problem(error, rung.given())
    given = [name] if name in rung.experts.given() else []
    return problem(refused(error.value, error.allowed), "experts", *given)


def _preset(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise problem(refused(value, "the name of a preset, or a mapping {name, width, layers}"))
    if value not in ladders.PRESETS:
        raise problem(not_among(value, ladders.PRESETS, "unknown preset"))
    return _rung(value, ladders.PRESETS[value])


def _rung(name: str, size: ladders.Size, **fields: Any) -> Rung:
    """The rung of ``size`` with everything written out."""
    shape = {field: getattr(size.shape, field) for field in ("width", "layers", "heads", "kv_heads")}
    if size.experts is None or size.experts.dense_layers:
        shape["feed_forward"] = size.shape.feed_forward
    if size.experts is not None:
        given = {field: getattr(size.experts, field) for field in _MADE}
        fields["experts"] = ExpertsFields(**given)
    return Rung(name=name, **shape, **fields)


_MADE = tuple(ExpertsFields.model_fields)


class Generator(Given):
    """``{from: 1e7, to: 2e9, rungs: 8}``: sizes at equal steps of log N; the rules are ``sweeps.ladders``'.

    With ``experts`` each rung is the mixture whose token passes about as much.
    """

    smallest: Annotated[Number, Field(ge=1e4, le=1e12, alias="from")]
    largest: Annotated[Number, Field(ge=1e4, le=1e12, alias="to")]
    rungs: Annotated[int, Field(ge=2, le=100)]
    experts: ExpertsFields | None = None

    @model_validator(mode="after")
    def _check(self) -> "Generator":
        if self.smallest >= self.largest:
            raise problem(refused(self.largest, f"more than from, {self.smallest}"), "to")
        try:
            self.made()
        except ConfigurationError as error:
            raise _problem_of_rule(error) from None
        return self

    def made(self) -> tuple[Rung, ...]:
        """The rungs, written out. Raises ``ConfigurationError``."""
        return tuple(
            _rung(
                made.name,
                self._size(made.shape),
                batch_tokens=made.batch_tokens,
                learning_rate=made.learning_rate,
            )
            for made in ladders.generated(self.smallest, self.largest, self.rungs)
        )

    def _size(self, shape: Shape) -> ladders.Size:
        if self.experts is None:
            return ladders.Size(shape)
        return ladders.mixture(shape.width, shape.layers, experts=_values(self.experts))


def _problem_of_rule(error: ConfigurationError) -> Exception:
    return problem(refused(error.value, error.allowed), *error.field.split("."))


def _form(value: Any) -> str:
    return GENERATED if isinstance(value, dict | Generator) else LISTED


def _rungs(value: Any) -> tuple[Rung, ...]:
    rungs: tuple[Rung, ...] = value.made() if isinstance(value, Generator) else value
    return rungs


if TYPE_CHECKING:
    Ladder = tuple[Rung, ...]
else:
    Ladder = Annotated[
        Annotated[
            Items[Annotated[Rung, BeforeValidator(_preset, json_schema_input_type=str | Rung)]], Tag(LISTED)
        ]
        | Annotated[Generator, Tag(GENERATED)],
        Discriminator(_form),
        AfterValidator(_rungs),
    ]
"""A list of rungs, or the rule that makes it; a loaded sweep holds the rungs."""
