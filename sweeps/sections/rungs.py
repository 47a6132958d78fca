"""The ladder of a sweep file: presets by name, inline shapes, mixtures, or a rule that makes the rungs."""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from scalevec.model.config import ConfigurationError, ModelConfig
from scalevec.sweeps import ladders
from scalevec.sweeps.errors import not_among, refused
from scalevec.sweeps.sections import entries

Layers = Annotated[int, Field(ge=1, le=10_000)]
WholeOrNone = Annotated[int, Field(ge=0, le=1_000_000)]


class ExpertsFields(entries.Given):
    """A mixture of experts; what is left out has a default (``model.config.Experts``, ``sweeps.ladders``)."""

    n_experts: entries.Count
    """Routed experts per layer."""
    top_k: entries.Count
    """Routed experts that a token passes."""
    feed_forward: entries.Count | None = None
    """Hidden channels of one expert; left out: the rung's, shared among the experts that a token passes."""
    shared_experts: WholeOrNone = 0
    """Experts that every token passes."""
    shared_feed_forward: WholeOrNone = 0
    """Hidden channels of one shared expert; 0: those of the others."""
    balancing: Literal["loss", "bias", "none"] = "loss"
    """How the load of the experts is balanced."""
    loss_coefficient: entries.Positive | None = None
    """Weight of the auxiliary loss, with balancing: loss."""
    bias_rate: entries.Positive | None = None
    """Step of the router's biases per optimizer step, with balancing: bias."""
    dense_layers: WholeOrNone = 0
    """First layers that keep the dense feed-forward."""
    over: Literal["sum", "mean"] = "sum"
    """With balancing: loss, whether the layers' imbalances are summed or, as is usual, averaged."""
    per: Literal["sequence", "batch"] = "sequence"
    """With balancing: loss, whether the choices are balanced within each sequence or over the batch."""


class RungOptions(entries.Given):
    """A rung by the name of a preset, with what else it says.

    ``sequence_length``, ``batch_tokens`` and ``learning_rate`` stand where no other section gives them.
    """

    name: entries.Label
    """Name of the rung; without a shape, of the preset that has it."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Token budget of this rung, where the sweep gives none: of all rungs or of none."""
    sequence_length: entries.Count | None = None
    """Tokens per sequence at this rung, where it is not the corpus's."""
    batch_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens per optimizer step at this rung."""
    learning_rate: entries.Positive | None = None
    """Peak learning rate at this rung."""


class Rung(RungOptions):
    """One size of the ladder; a shape's heads and hidden width have defaults (``sweeps.ladders``)."""

    width: entries.Count
    """Channels of the residual stream."""
    layers: Layers
    """Blocks."""
    heads: entries.Count | None = None
    """Attention heads; of 16 channels up to width 128, of 64 channels above."""
    kv_heads: entries.Count | None = None
    """Heads of keys and values; as many as heads."""
    feed_forward: entries.Count | None = None
    """Hidden channels of the feed-forward; 8/3 of the width, rounded up to a multiple of 8."""
    experts: ExpertsFields | None = None
    """A mixture of experts in place of the feed-forward."""

    @model_validator(mode="after")
    def _check(self) -> "Rung":
        try:
            ModelConfig(self.size.shape, vocabulary_size=2, experts=self.size.experts)
        except ConfigurationError as error:
            raise entries.as_problem(error, self) from None
        return self

    @cached_property
    def size(self) -> ladders.Size:
        """The shape and the experts, with their defaults filled in."""
        given = (self.width, self.layers, self.heads, self.kv_heads, self.feed_forward)
        return ladders.size_of(*given, _values(self.experts))

    def trial_fields(self) -> dict[str, Any]:
        """The fields of a trial that the rung itself gives."""
        names = ("sequence_length", "batch_tokens", "learning_rate")
        return {name: value for name, value in self.given().items() if name in names and value}


def _values(experts: ExpertsFields | None) -> dict[str, Any] | None:
    if experts is None:
        return None
    return {name: value for name, value in experts.given().items() if value is not None}


def _preset(value: Any) -> Any:
    """A preset's name, alone or in a mapping without a shape, as the whole rung."""
    if isinstance(value, Rung):  # of a rule
        return value
    if isinstance(value, dict):
        size = ladders.PRESETS.get(str(value.get("name")))
        return value if size is None or _SHAPE & set(value) else {**_written(size), **value}
    if not isinstance(value, str):
        raise entries.problem(refused(value, "the name of a preset, or a mapping {name, width, layers}"))
    if value not in ladders.PRESETS:
        raise entries.problem(not_among(value, ladders.PRESETS, "unknown preset"))
    return _rung(value, ladders.PRESETS[value])


def _rung(name: str, size: ladders.Size, **fields: Any) -> Rung:
    """The rung of ``size`` with everything written out."""
    return Rung(name=name, **_written(size), **fields)


def _written(size: ladders.Size) -> dict[str, Any]:
    shape: dict[str, Any] = {field: getattr(size.shape, field) for field in _HEADED}
    if size.experts is None or size.experts.dense_layers:
        shape["feed_forward"] = size.shape.feed_forward
    if size.experts is not None:
        given = {field: getattr(size.experts, field) for field in ExpertsFields.model_fields}
        shape["experts"] = ExpertsFields(**given)
    return shape


_HEADED = ("width", "layers", "heads", "kv_heads")
_SHAPE = {*_HEADED, "feed_forward", "experts"}


class Generator(entries.Given):
    """``{from: 1e7, to: 2e9, rungs: 8}``: sizes at equal steps of log N; the rules are ``sweeps.ladders``'.

    With ``experts`` each rung is the mixture whose token passes about as much.
    """

    smallest: Annotated[entries.Number, Field(ge=1e4, le=1e12, alias="from")]
    """N of the smallest rung."""
    largest: Annotated[entries.Number, Field(ge=1e4, le=1e12, alias="to")]
    """N of the largest rung."""
    rungs: Annotated[int, Field(ge=2, le=100)]
    """Number of rungs."""
    experts: ExpertsFields | None = None
    """A mixture of experts at every rung."""

    @model_validator(mode="after")
    def _check(self) -> "Generator":
        if self.smallest >= self.largest:
            raise entries.problem(refused(self.largest, f"more than from, {self.smallest}"), "to")
        try:
            self.rungs_of_rule()
        except ConfigurationError as error:
            raise entries.as_problem(error, self) from None
        return self

    def rungs_of_rule(self) -> tuple[Rung, ...]:
        """The rungs, written out. Raises ``ConfigurationError``."""
        rungs = []
        for shape in ladders.generated(self.smallest, self.largest, self.rungs):
            n_params = ladders.matrices(ladders.Size(shape))
            batch, rate = ladders.rule_batch_tokens(n_params), ladders.rule_learning_rate(n_params)
            size = ladders.size_of(shape.width, shape.layers, experts=_values(self.experts))
            name = ladders.name_of(n_params)
            rungs.append(_rung(name, size, batch_tokens=batch, learning_rate=rate))
        return tuple(rungs)


def _of_rule(value: Any) -> Any:
    return Generator.model_validate(value).rungs_of_rule() if isinstance(value, dict) else value


_Listed = entries.Items[
    Annotated[Rung, BeforeValidator(_preset, json_schema_input_type=str | RungOptions | Rung)]
]
Ladder = Annotated[
    tuple[Rung, ...],
    entries.validated_as(_Listed),
    BeforeValidator(_of_rule, json_schema_input_type=_Listed | Generator),
]
"""A list of rungs, or the rule that makes it; a loaded sweep holds the rungs."""
