"""A trial and its stream from the flat fields of a sweep file; cells of trials, and which are dropped."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from scalevec.model.config import (
    OF_ARCHITECTURE,
    OPTIMIZERS,
    SCHEDULES,
    ConfigurationError,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
)
from scalevec.model.fields import PlainValues, fields_of, is_left_out, to_dict
from scalevec.model.identity import stream, stream_base
from scalevec.model.strategies import PRESETS as STRATEGIES
from scalevec.sweeps.errors import Problem, shown
from scalevec.sweeps.fields import (
    DEFAULT_BATCH_SEQUENCES,
    DEFAULT_WARMUP_FRACTION,
    OF_STRATEGY,
    TRIAL_FIELDS,
    WARMUP_FRACTION,
)
from scalevec.sweeps.ladders import Size
from scalevec.sweeps.trainers import command
from scalevec.sweeps.trainers.any_trial import OF_AN_ATTEMPT, AnyTrial, ForeignTrial, OwnTrial, Trainer
from scalevec.sweeps.trainers.source_files import files_of_words, scripts_of_words, source_files, with_imports
from scalevec.sweeps.yaml_source import SweepSource

MOST_ROUNDED = 0.05
"""Of a budget, by which it may be changed so that all tuned batches divide it."""
ENDLESS = 10**15
"""Training tokens of a corpus that is only named: no trial sees its text twice."""


@dataclass(frozen=True)
class CorpusFacts:
    """A corpus as trials see it: its fingerprint, its vocabulary, the tokens of its splits.

    held_out_tokens: those of the validation and the test split; before they are known, what is aimed at.
    """

    fingerprint: str
    vocabulary_size: int
    training_tokens: int
    held_out_tokens: tuple[int, int] = (500_000, 500_000)


NO_CORPUS = CorpusFacts("", 2, ENDLESS)
"""A foreign trainer's: its text is its own affair."""


@dataclass(frozen=True)
class Budget:
    """What a cell fixes beside the trial fields: the size, N, tokens over N, the corpus.

    unit: tokens come in whole units; 1 where the batch alone decides.
    """

    size: Size
    n_params: int
    tokens_per_parameter: float
    corpus: CorpusFacts
    unit: int = 1

    def trial(self, values: Mapping[str, Any], seed: int, base: str) -> OwnTrial:
        """The trial of the flat ``values``, in whole batches, with a stream of this base.

        Raises ``ConfigurationError``.
        """
        groups = grouped(values)
        batch = batch_tokens(values)
        tokens = tokens_of(self.tokens_per_parameter * self.n_params, batch, self.unit)
        if {"warmup_tokens", WARMUP_FRACTION} <= values.keys():
            given, allowed = values["warmup_tokens"], f"one of warmup_tokens and {WARMUP_FRACTION}"
            raise ConfigurationError("warmup_tokens", given, allowed)
        if "warmup_tokens" not in values:
            groups["schedule"]["warmup_tokens"] = _warmup(values, tokens, batch)
        return OwnTrial(
            model=_part(
                ModelConfig,
                shape=self.size.shape,
                vocabulary_size=self.corpus.vocabulary_size,
                experts=self.size.experts,
                **groups["model"],
            ),
            optimizer=_part(OptimizerConfig, **groups["optimizer"]),
            schedule=_part(ScheduleConfig, **groups["schedule"]),
            corpus=self.corpus.fingerprint,
            tokens=tokens,
            seed=seed,
            stream=stream(base, seed),
            **groups[""] | {"batch_tokens": batch},
        )


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
            command.known_before(self._asked, trial.placeholders)
            return trial
        names = self.file_names(trial)
        return replace(trial, trainer=replace(self.trainer, files=source_files(self.folder, names)))

    def file_names(self, trial: ForeignTrial) -> tuple[str, ...]:
        """The files below the sweep's folder on which ``trial`` rests. Raises ``ConfigurationError``."""
        words = command.known_before(self._asked, trial.placeholders)
        later = {*OF_AN_ATTEMPT, *self.first}
        varied = [word for word in self._asked if later & set(command.placeholders_of(word))]
        names = (*self.names, *files_of_words(self.folder, words), *scripts_of_words(self.folder, varied))
        return tuple(with_imports(self.folder, names, words))

    @property
    def _asked(self) -> tuple[str, ...]:
        """The words of which something may be known before an attempt."""
        return (*self.trainer.command, *self.resume)


@dataclass(frozen=True)
class Cell:
    """The trials of one arm that differ only in their seed and in the tuned fields.

    n_params: N, non-embedding matrix parameters without scale vectors.
    setting: optimizer, schedule, the budget as given and every field of grid and zip, as plain values.
    template: the trial of seed 0 with the learning rate as given.
    seeds: comparison seeds. tune_seeds: tuning seeds, empty where the rung is not tuned.
    tune_grid: tuned field -> ascending values; empty where nothing is tuned, and the same for all arms.
    tuned_arm: the arm whose values of the tuned fields it takes: its own, or the reference (``tune.share``).
    """

    arm: str
    rung: str
    n_params: int
    setting: dict[str, Any]
    template: AnyTrial
    seeds: tuple[int, ...]
    tune_seeds: tuple[int, ...]
    tune_grid: dict[str, tuple[Any, ...]]
    tuned_arm: str
    budget: Budget | ForeignBudget
    values: Mapping[str, Any]
    """The flat trial fields that the sweep file gives."""
    stream_base: str
    """What the streams of this cell follow from beside the seed, the same for all its arms."""

    # Dictionaries have no hash; what is left tells cells apart well enough, and is hashed once.
    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.arm, self.rung, self.template, self.seeds, self.tune_seeds))

    def trial(self, seed: int, **tuned_fields: Any) -> AnyTrial:
        """The trial of ``seed`` with ``tuned_fields`` changed. Raises ``ConfigurationError``."""
        if not tuned_fields:
            return replace(self.template, seed=seed, stream=stream(self.stream_base, seed))
        typed = {name: _number(value, self.tune_grid.get(name, ())) for name, value in tuned_fields.items()}
        return self.budget.trial(merged([self.values, typed]), seed, self.stream_base)


def _number(value: float, grid: Sequence[float]) -> float:
    """``value`` as the field's own kind of number: a NumPy number or a vertex between two integers is not."""
    return round(value) if any(type(tried) is int for tried in grid) else float(value)


def epochs(trial: AnyTrial, corpus: CorpusFacts) -> float:
    """How often ``trial`` goes through the training split."""
    return trial.tokens / corpus.training_tokens


def evaluated_tokens(trial: OwnTrial, corpus: CorpusFacts) -> int:
    """On how many tokens ``trial`` is evaluated in the end, of both held-out splits."""
    return sum(min(trial.evaluation_tokens or tokens, tokens) for tokens in corpus.held_out_tokens)


def merged(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Flat trial fields, later layers over earlier ones; either form of the warm-up replaces the other."""
    values: dict[str, Any] = {}
    for layer in layers:
        if "warmup_tokens" in layer or WARMUP_FRACTION in layer:
            values.pop("warmup_tokens", None)
            values.pop(WARMUP_FRACTION, None)
        values.update(layer)
    return values


def grouped(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The flat ``values`` by the part of a trial that holds them; ``warmup_fraction`` is in none.

    With ``architecture`` those that it means and that are not given themselves.
    """
    groups: dict[str, dict[str, Any]] = {"": {}, "model": {}, "optimizer": {}, "schedule": {}}
    of_strategy = {}
    for name, value in values.items():
        if name == WARMUP_FRACTION:
            continue
        if name.startswith(OF_STRATEGY):
            of_strategy[name.removeprefix(OF_STRATEGY)] = value
            continue
        above, _, field = TRIAL_FIELDS[name].rpartition(".")
        part, _, of_plugin = above.partition(".")
        if of_plugin:
            groups[part]["options"] = PlainValues({**groups[part].get("options", {}), field: value})
        else:
            groups[part][field] = value
    if of_strategy:
        strategy = groups["model"].get("scale_vectors", STRATEGIES["baseline"])
        groups["model"]["scale_vectors"] = replace(strategy, **of_strategy)
    groups["model"] = OF_ARCHITECTURE.get(values.get("architecture", ""), {}) | groups["model"]
    for part, registry in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
        entry = registry.get(groups[part].get("name", ""))
        if entry is not None and entry.plugin is not None:
            groups[part]["plugin"] = entry.plugin  # the same options of other content are another part
    return groups


def batch_tokens(values: Mapping[str, Any]) -> int:
    """The batch of the flat ``values``. Raises ``ConfigurationError``."""
    for name in ("sequence_length", "batch_tokens"):
        if values.get(name, 1) <= 0:
            raise ConfigurationError(name, values[name], "a positive number")
    default = DEFAULT_BATCH_SEQUENCES * values.get("sequence_length", 0)
    return int(values.get("batch_tokens", default))


def tokens_of(wanted: float, batch: int, unit: int) -> int:
    """The budget in whole batches; where batches are tuned, the same for all of them.

    Raises ``ConfigurationError``.
    """
    tokens = whole_batches(wanted, batch if unit == 1 else unit)
    if unit == 1 and not tokens:
        raise ConfigurationError("batch_tokens", batch, f"at most the budget of {wanted:,.0f} tokens")
    if unit > 1 and (abs(tokens - wanted) > MOST_ROUNDED * wanted or tokens % batch):
        raise ConfigurationError(
            "batch_tokens",
            batch,
            f"batches of which a whole number makes up the budget of {wanted:,.0f} tokens "
            f"(those to be tried have the least common multiple {unit:,})",
        )
    return tokens


def _warmup(values: Mapping[str, Any], tokens: int, batch: int) -> int:
    fraction = values.get(WARMUP_FRACTION, DEFAULT_WARMUP_FRACTION)
    if not 0 <= fraction <= 1:
        raise ConfigurationError(WARMUP_FRACTION, fraction, "a number in [0, 1]")
    return whole_batches(fraction * tokens, batch)


def whole_batches(tokens: float, batch: int) -> int:
    """``tokens`` rounded to whole batches."""
    return round(tokens / batch) * batch


@lru_cache(maxsize=4096, typed=True)
def _part(kind: Any, **fields: Any) -> Any:
    """One frozen part of a trial, made once for all trials that share it."""
    return kind(**fields)


def base_of(size: Size, corpus: CorpusFacts, values: Mapping[str, Any]) -> str:
    """The base of the streams of the flat ``values``, whatever the arm, the seed and the token budget.

    Values that only an arm makes whole (options of an optimizer that each arm names) count as they are.
    """
    groups = grouped(values)
    of_size = {"shape": size.shape, "vocabulary_size": corpus.vocabulary_size, "experts": size.experts}
    optimizer = _plain(OptimizerConfig, groups["optimizer"])
    of_trial = {"corpus": corpus.fingerprint, **groups[""]}
    of_trial.setdefault("batch_tokens", DEFAULT_BATCH_SEQUENCES * values["sequence_length"])
    return stream_base(
        {
            **_defaults(OwnTrial),
            **of_trial,
            "model": _model(optimizer["weight_decay"], **of_size | groups["model"]),
            "optimizer": optimizer,
            "schedule": _schedule(groups["schedule"], values),
        }
    )


@lru_cache(maxsize=4096, typed=True)
def _model(weight_decay: float, **given: Any) -> dict[str, Any]:
    model = _plain(ModelConfig, given)
    try:
        strategy = ModelConfig(**given).canonical_strategy(weight_decay)
    except ConfigurationError:
        return model
    return {**model, "scale_vectors": to_dict(strategy, identity=True)}


def _schedule(given: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule; a warm-up that is a share of the budget stays one, so that budgets share the stream."""
    if "warmup_tokens" in given:
        return _plain(ScheduleConfig, given)
    schedule = _plain(ScheduleConfig, {**given, "warmup_tokens": 1})
    del schedule["warmup_tokens"]
    return schedule | {WARMUP_FRACTION: values.get(WARMUP_FRACTION, DEFAULT_WARMUP_FRACTION)}


def _plain(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """The part of a trial with the values ``given`` and its defaults, as plain values."""
    try:
        return to_dict(kind(**given), identity=True)
    except ConfigurationError:
        return _defaults(kind) | {name: _as_plain(value) for name, value in given.items()}


def _as_plain(value: Any) -> Any:
    return to_dict(value, identity=True) if hasattr(value, "__dataclass_fields__") else value


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The fields of ``kind`` that need not be given, but for later ones, at their defaults."""
    with_default = (field for field in fields_of(kind) if field.default is not MISSING)
    defaults = {field.name: field.default for field in with_default if not is_left_out(field, field.default)}
    factories = {field.name: field.default_factory for field in fields_of(kind)}
    return defaults | {name: _as_plain(make()) for name, make in factories.items() if make is not MISSING}


CELL_FIELDS = ("arm", "rung", "seed", "stage")


class Exclusion:
    """The rules of ``exclude``, which drop trials; remembers which of their values matched anything."""

    def __init__(self, rules: Sequence[Mapping[str, Sequence[Any]]]) -> None:
        self._rules = rules
        self._seen: set[tuple[int, str, int]] = set()
        self._used: set[int] = set()

    def left(self, view: Mapping[str, Any], stage: str, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """The ``seeds`` that no rule drops from the cell whose fields are ``view``."""
        dropped: set[int] = set()
        cell = {**view, "stage": stage}
        for position, rule in enumerate(self._rules if seeds else ()):
            matched = [self._matches(position, name, cell.get(name)) for name in rule if name != "seed"]
            gone = {seed for seed in seeds if "seed" not in rule or self._matches(position, "seed", seed)}
            if all(matched) and gone:
                self._used.add(position)
                dropped |= gone
        return tuple(seed for seed in seeds if seed not in dropped)

    def _matches(self, position: int, name: str, actual: Any) -> bool:
        values = enumerate(self._rules[position][name])
        hits = {(position, name, i) for i, value in values if _same(value, actual)}
        self._seen |= hits
        return bool(hits)

    def problems(self, source: SweepSource) -> Iterator[Problem]:
        """Values and rules that matched no trial: most likely mistyped."""
        for position, rule in enumerate(self._rules):
            where = ("exclude", position)
            values = [(name, i, value) for name in rule for i, value in enumerate(rule[name])]
            never = [(name, value) for name, i, value in values if (position, name, i) not in self._seen]
            for name, value in never:
                yield source.problem((*where, name), f"{shown(value)} matches no trial of the sweep")
            if not never and position not in self._used:
                yield source.problem(where, "matches no trial of the sweep")


def _same(first: Any, second: Any) -> bool:
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)
