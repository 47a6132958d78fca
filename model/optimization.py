"""The registries of optimizers and learning-rate schedules, and the parts of a trial that name one of each.

One entry of :data:`OPTIMIZERS` or :data:`SCHEDULES` is all that the rest of scalevec needs to know: the
fields of the sweep file, its JSON Schema, the identity of a trial and the estimates of memory follow from it.
The code is named as text, ``module:name``, and imported where it is used, so that nothing here loads torch.
"""

import functools
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from scalevec.model.fields import (
    ConfigurationError,
    PlainValues,
    PluginSource,
    added_field,
    require,
    require_choice,
)

T = TypeVar("T")

Range = tuple[str, Callable[[float], bool]]
"""What is allowed, in words, and whether a number is."""
POSITIVE: Range = ("a positive number", lambda value: 0 < value < math.inf)
ZERO_OR_MORE: Range = ("zero or more", lambda value: 0 <= value < math.inf)
BELOW_ONE: Range = ("a number in [0, 1)", lambda value: 0 <= value < 1)
UP_TO_ONE: Range = ("a number in [0, 1]", lambda value: 0 <= value <= 1)
ABOVE_ZERO_UP_TO_ONE: Range = ("a number in (0, 1]", lambda value: 0 < value <= 1)


@dataclass(frozen=True)
class OptionSpec:
    """An option of an optimizer or a schedule."""

    default: float | int | bool | str
    """The value where none is given; its type is that of the option."""
    help: str
    allowed: Range | None = None
    """Of an option that is a number."""
    choices: tuple[str, ...] = ()
    """Of an option that is a name."""

    def check(self, name: str, value: Any) -> None:
        """Raise ``ConfigurationError`` for a ``value`` that the option ``name`` cannot have."""
        if self.allowed is not None:
            require(self.allowed[1](value), name, value, self.allowed[0])
        if self.choices:
            require_choice(name, value, self.choices)


@dataclass(frozen=True)
class RegisteredOptimizer:
    """An optimizer: where its code is, and what can be known of it without its code."""

    factory: str
    """``module:name`` of a function (parameter groups, :class:`OptimizerConfig`) -> torch optimizer."""
    options: Mapping[str, OptionSpec] = field(default_factory=dict)
    matrices_only: bool = False
    """Whether it trains the blocks' matrices alone and leaves all other parameters to AdamW."""
    check: Callable[["OptimizerConfig"], None] | None = None
    """Raises ``ConfigurationError`` for options that cannot work together."""
    state_per_parameter: float = 2
    """Numbers of state for each parameter, by the word of a plugin, whose code no plan runs."""
    plugin: PluginSource | None = None
    """The plugin that has it (``sweeps.plugins``)."""


@dataclass(frozen=True)
class RegisteredSchedule:
    """A learning-rate schedule: where its formula is, and what can be known of it without that."""

    factory: str
    """``module:name`` of a function (trial, tokens so far) -> factor on the peak rate."""
    options: Mapping[str, OptionSpec] = field(default_factory=dict)
    course: str | None = None
    """Course of the rate between warm-up and cooldown where that part does not depend on the token budget:
    schedules of one course share trunks (``model.schedules``)."""
    check: Callable[["ScheduleConfig"], None] | None = None
    """Raises ``ConfigurationError`` for options that cannot work together."""
    plugin: PluginSource | None = None


def _moments(beta1: float, beta2: float) -> dict[str, OptionSpec]:
    return {
        "beta1": OptionSpec(beta1, "Decay of the average of the gradient, per step.", BELOW_ONE),
        "beta2": OptionSpec(beta2, "Decay of the average of its square, per step.", BELOW_ONE),
    }


def _epsilon(default: float) -> dict[str, OptionSpec]:
    return {"epsilon": OptionSpec(default, "Added to the denominator of the update.", POSITIVE)}


def _momentum(default: float, *, nesterov: bool) -> dict[str, OptionSpec]:
    return {
        "momentum": OptionSpec(default, "Decay of the momentum, per step.", BELOW_ONE),
        "nesterov": OptionSpec(nesterov, "Whether the momentum is Nesterov's."),
    }


_ADAMW_RATE = {
    "adamw_rate_factor": OptionSpec(
        1.0, "Learning rate of what AdamW trains beside Muon or SOAP, over that of the matrices.", POSITIVE
    )
}


def _final_fraction(default: float) -> dict[str, OptionSpec]:
    return {"final_fraction": OptionSpec(default, "Learning rate at the end over its peak.", UP_TO_ONE)}


def _needs_beta1(config: "OptimizerConfig") -> None:
    if config.number("slow_warmup_steps") > 0:
        allowed = "a number in (0, 1) where slow_warmup_steps is given (the slow average starts from it)"
        require(config.number("beta1") > 0, "beta1", config.number("beta1"), allowed)


def _needs_warmup(config: "ScheduleConfig") -> None:
    allowed = "a positive number of tokens (inverse-sqrt falls as the root of warm-up over tokens)"
    require(config.warmup_tokens > 0, "warmup_tokens", config.warmup_tokens, allowed)


_CODE = "scalevec.model.train"
OPTIMIZERS: dict[str, RegisteredOptimizer] = {
    "adamw": RegisteredOptimizer(f"{_CODE}.optim:adamw", _moments(0.9, 0.95) | _epsilon(1e-8)),
    "sgd": RegisteredOptimizer(f"{_CODE}.optim:sgd", _momentum(0.0, nesterov=False)),
    "muon": RegisteredOptimizer(
        f"{_CODE}.muon:muon",
        {
            **_momentum(0.95, nesterov=True),
            "newton_schulz_steps": OptionSpec(5, "Steps of the orthogonalization.", POSITIVE),
            "update_scale": OptionSpec(
                "match-rms-adamw",
                "Scale of the update: the size of AdamW's, or by the matrix's shape as first published.",
                choices=("match-rms-adamw", "original"),
            ),
            **_ADAMW_RATE,
            **_moments(0.9, 0.95),
            **_epsilon(1e-8),
        },
        matrices_only=True,
    ),
    "soap": RegisteredOptimizer(
        f"{_CODE}.library:soap",
        {
            **_moments(0.95, 0.95),
            **_epsilon(1e-8),
            "preconditioner_steps": OptionSpec(10, "Steps between two refreshments of the basis.", POSITIVE),
            **_ADAMW_RATE,
        },
        matrices_only=True,
    ),
    "lion": RegisteredOptimizer(f"{_CODE}.library:lion", _moments(0.9, 0.99)),
    "adafactor": RegisteredOptimizer(
        f"{_CODE}.library:adafactor",
        {
            **_moments(0.9, 0.999),
            "decay_exponent": OptionSpec(0.8, "How fast the average of squares lengthens.", POSITIVE),
            "update_clip": OptionSpec(
                1.0, "Largest root mean square of the update before momentum and rate.", POSITIVE
            ),
        },
    ),
    "ademamix": RegisteredOptimizer(
        f"{_CODE}.library:ademamix",
        {
            **_moments(0.9, 0.999),
            "beta3": OptionSpec(0.9999, "Decay of the slow average of the gradient, per step.", BELOW_ONE),
            **_epsilon(1e-8),
            "alpha": OptionSpec(5.0, "Weight of the slow average.", ZERO_OR_MORE),
            "slow_warmup_steps": OptionSpec(
                0, "Steps over which the slow average comes in; 0: from the start.", ZERO_OR_MORE
            ),
        },
        check=_needs_beta1,
    ),
    "adopt": RegisteredOptimizer(f"{_CODE}.library:adopt", _moments(0.9, 0.9999) | _epsilon(1e-6)),
}

SCHEDULES: dict[str, RegisteredSchedule] = {
    "cosine": RegisteredSchedule("scalevec.model.schedules:cosine", _final_fraction(0.1)),
    "wsd": RegisteredSchedule(
        "scalevec.model.schedules:wsd",
        {
            **_final_fraction(0.0),
            "cooldown_fraction": OptionSpec(
                0.2, "Share of all tokens in the cooldown at the end.", ABOVE_ZERO_UP_TO_ONE
            ),
            "cooldown": OptionSpec("linear", "Shape of the cooldown.", choices=("linear", "1-sqrt")),
        },
        course="constant",
    ),
    "linear": RegisteredSchedule("scalevec.model.schedules:linear", _final_fraction(0.0)),
    "constant": RegisteredSchedule("scalevec.model.schedules:constant", course="constant"),
    "inverse-sqrt": RegisteredSchedule(
        "scalevec.model.schedules:inverse_sqrt", course="inverse-sqrt", check=_needs_warmup
    ),
}

COMMON_OPTIONS = {
    "optimizer": ("learning_rate", "weight_decay", "clip_norm"),
    "schedule": ("warmup_tokens",),
}
"""What every optimizer and every schedule takes."""


def _specs_of(options: Iterable[Mapping[str, OptionSpec]]) -> dict[str, OptionSpec]:
    """Every option by its name; of one that several take, the first one's."""
    specs: dict[str, OptionSpec] = {}
    for name, spec in (item for named in options for item in named.items()):
        specs.setdefault(name, spec)
    return specs


OPTIMIZER_OPTIONS = _specs_of(registered.options for registered in OPTIMIZERS.values())
SCHEDULE_OPTIONS = _specs_of(registered.options for registered in SCHEDULES.values())
OPTION_CHOICES: dict[str, tuple[str, ...]] = {
    name: spec.choices for name, spec in (OPTIMIZER_OPTIONS | SCHEDULE_OPTIONS).items() if spec.choices
}
"""The options that are names, and what they may be."""


@functools.cache
def imported(factory: str) -> Any:
    """The object that ``module:name`` names; its module is imported now."""
    return pkgutil.resolve_name(factory)


def _with_fields(options: Mapping[str, OptionSpec]) -> Callable[[type[T]], type[T]]:
    """Declare a field for each of ``options``: None, and so outside the identity, where it is not taken."""

    def add(config: type[T]) -> type[T]:
        for name, spec in options.items():
            config.__annotations__[name] = type(spec.default) | None
            setattr(config, name, added_field(None))
        return config

    return add


class _Options:
    """What the two configurations share: options that follow from the entry of ``name`` in a registry."""

    name: str
    plugin: PluginSource | None
    options: PlainValues

    def option(self, name: str) -> Any:
        """The option ``name``; None where this optimizer or schedule does not take it."""
        return self.options[name] if name in self.options else getattr(self, name)

    def keywords(self, takes: Mapping[str, OptionSpec]) -> dict[str, Any]:
        """What the code of a plugin is called with: the options that it ``takes``."""
        return {name: self.option(name) for name in takes} if self.plugin else {}

    def number(self, name: str) -> float:
        """The option ``name``, which is a number and which this optimizer or schedule takes."""
        value = self.option(name)
        assert value is not None, f"{self.name} does not take {name}"
        return float(value)

    def _fill_in(self, part: str, options: Iterable[str], takes: Mapping[str, OptionSpec]) -> None:
        """Give the options that are taken their defaults; refuse others, and values that cannot be."""
        of_plugin = {name: spec.default for name, spec in takes.items() if name not in options}
        object.__setattr__(self, "options", PlainValues(of_plugin | self.options))
        for option in (*options, *self.options):
            value = self.option(option)
            if option not in takes and value is not None:
                known = ", ".join([*COMMON_OPTIONS[part], *takes])
                raise ConfigurationError(
                    option, value, f"no such option of {self.name}; its options: {known}"
                )
            if option in takes and value is None:
                object.__setattr__(self, option, takes[option].default)
        for option, spec in takes.items():
            spec.check(option, self.option(option))


@dataclass(frozen=True)
@_with_fields(OPTIMIZER_OPTIONS)
class OptimizerConfig(_Options):
    """An optimizer and its options.

    Beside the fields below it has one for each option in :data:`OPTIMIZERS`: None where the optimizer does
    not take it, the optimizer's own default where it is not given.

    name: a key of :data:`OPTIMIZERS`.
    learning_rate: the peak of the schedule.
    weight_decay: acts as p <- p (1 - learning_rate * weight_decay).
    clip_norm: largest norm of the gradient; larger gradients are scaled down to it.
    plugin: the plugin that has the optimizer; options: those of its options that none of ours has.
    """

    name: str = "adamw"
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    plugin: PluginSource | None = added_field(None)  # noqa: RUF009 (it makes a field)
    options: PlainValues = added_field(PlainValues())  # noqa: RUF009

    def __post_init__(self) -> None:
        if self.plugin is None:
            require_choice("optimizer", self.name, OPTIMIZERS)
            object.__setattr__(self, "plugin", OPTIMIZERS[self.name].plugin)
        registered = self.registered
        if registered.factory:
            self._fill_in("optimizer", OPTIMIZER_OPTIONS, registered.options)
        for name, (allowed, is_allowed) in _OPTIMIZER_RANGES.items():
            require(is_allowed(getattr(self, name)), name, getattr(self, name), allowed)
        if registered.check is not None:
            registered.check(self)

    @property
    def registered(self) -> RegisteredOptimizer:
        """Its entry; an empty one where its plugin, or that content of it, is not known to this process."""
        entry = OPTIMIZERS.get(self.name)
        return entry if entry and entry.plugin == self.plugin else RegisteredOptimizer("")


_OPTIMIZER_RANGES = {"learning_rate": POSITIVE, "weight_decay": ZERO_OR_MORE, "clip_norm": POSITIVE}


@dataclass(frozen=True)
@_with_fields(SCHEDULE_OPTIONS)
class ScheduleConfig(_Options):
    """The course of the learning rate; warm-up in tokens, so that budgets of one sweep can share it.

    Beside the fields below it has one for each option in :data:`SCHEDULES`, as :class:`OptimizerConfig` has.

    name: a key of :data:`SCHEDULES`.
    warmup_tokens: tokens over which the rate rises linearly to its peak.
    """

    name: str = "cosine"
    warmup_tokens: int = 0
    plugin: PluginSource | None = added_field(None)  # noqa: RUF009 (it makes a field)
    options: PlainValues = added_field(PlainValues())  # noqa: RUF009

    def __post_init__(self) -> None:
        if self.plugin is None:
            require_choice("schedule", self.name, SCHEDULES)
            object.__setattr__(self, "plugin", SCHEDULES[self.name].plugin)
        registered = self.registered
        if registered.factory:
            self._fill_in("schedule", SCHEDULE_OPTIONS, registered.options)
        require(ZERO_OR_MORE[1](self.warmup_tokens), "warmup_tokens", self.warmup_tokens, ZERO_OR_MORE[0])
        if registered.check is not None:
            registered.check(self)

    @property
    def registered(self) -> RegisteredSchedule:
        """Its entry, as :attr:`OptimizerConfig.registered`."""
        entry = SCHEDULES.get(self.name)
        return entry if entry and entry.plugin == self.plugin else RegisteredSchedule("")
