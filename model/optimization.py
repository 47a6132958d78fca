"""The registries of optimizers and learning-rate schedules, and the parts of a trial that name one of each.

One entry of :data:`OPTIMIZERS` or :data:`SCHEDULES` is all that the rest of scalevec needs to know: the
fields of the sweep file, its JSON Schema, the identity of a trial and the estimates of memory follow from it.
The code is named as text, ``module:name``, and imported where it is used, so that nothing here loads torch.
"""

import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scalevec.model.fields import (
    ABOVE_ZERO_UP_TO_ONE,
    BELOW_ONE,
    POSITIVE,
    UP_TO_ONE,
    ZERO_OR_MORE,
    ConfigurationError,
    OptionSpec,
    PlainValues,
    PluginSource,
    Range,
    added_field,
    fields_of,
    require,
    require_choice,
    require_in,
)


@dataclass(frozen=True)
class _Registered:
    """An optimizer or a schedule: where its code is, and what can be known of it without its code."""

    factory: str
    """``module:name`` of a function; empty where this process does not know it."""
    options: Mapping[str, OptionSpec] = field(default_factory=dict)
    check: Callable[[Any], None] | None = None
    """Raises ``ConfigurationError`` for a configuration whose options cannot work together."""
    plugin: PluginSource | None = None
    """The plugin that has it (``sweeps.plugins``)."""


@dataclass(frozen=True)
class RegisteredOptimizer(_Registered):
    """An optimizer: a function (parameter groups, :class:`OptimizerConfig`) -> torch optimizer."""

    matrices_only: bool = False
    """Whether it trains the blocks' matrices alone and leaves all other parameters to AdamW."""
    state_per_parameter: float = 2
    """Numbers of state for each parameter, by the word of a plugin, whose code no plan runs."""


@dataclass(frozen=True)
class RegisteredSchedule(_Registered):
    """A learning-rate schedule: a function (trial, tokens so far) -> factor on the peak rate."""

    course: str | None = None
    """Course of the rate between warm-up and cooldown where that part does not depend on the token budget:
    schedules of one course share trunks (``model.identity.trunk_id``)."""


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


_CODE = "scalevec.model.train.optim"
_SCHEDULES = "scalevec.model.schedules"
OPTIMIZERS: dict[str, RegisteredOptimizer] = {
    "adamw": RegisteredOptimizer(f"{_CODE}:adamw", _moments(0.9, 0.95) | _epsilon(1e-8)),
    "sgd": RegisteredOptimizer(f"{_CODE}:sgd", _momentum(0.0, nesterov=False)),
    "muon": RegisteredOptimizer(
        f"{_CODE}:muon",
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
        f"{_CODE}:soap",
        {
            **_moments(0.95, 0.95),
            **_epsilon(1e-8),
            "preconditioner_steps": OptionSpec(10, "Steps between two refreshments of the basis.", POSITIVE),
            **_ADAMW_RATE,
        },
        matrices_only=True,
    ),
    "lion": RegisteredOptimizer(f"{_CODE}:lion", _moments(0.9, 0.99)),
    "adafactor": RegisteredOptimizer(
        f"{_CODE}:adafactor",
        {
            **_moments(0.9, 0.999),
            "decay_exponent": OptionSpec(0.8, "How fast the average of squares lengthens.", POSITIVE),
            "update_clip": OptionSpec(
                1.0, "Largest root mean square of the update before momentum and rate.", POSITIVE
            ),
        },
    ),
    "ademamix": RegisteredOptimizer(
        f"{_CODE}:ademamix",
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
    "adopt": RegisteredOptimizer(f"{_CODE}:adopt", _moments(0.9, 0.9999) | _epsilon(1e-6)),
}

SCHEDULES: dict[str, RegisteredSchedule] = {
    "cosine": RegisteredSchedule(f"{_SCHEDULES}:cosine", _final_fraction(0.1)),
    "wsd": RegisteredSchedule(
        f"{_SCHEDULES}:wsd",
        {
            **_final_fraction(0.0),
            "cooldown_fraction": OptionSpec(
                0.2, "Share of all tokens in the cooldown at the end.", ABOVE_ZERO_UP_TO_ONE
            ),
            "cooldown": OptionSpec("linear", "Shape of the cooldown.", choices=("linear", "1-sqrt")),
        },
        course="constant",
    ),
    "linear": RegisteredSchedule(f"{_SCHEDULES}:linear", _final_fraction(0.0)),
    "constant": RegisteredSchedule(f"{_SCHEDULES}:constant", course="constant"),
    "inverse-sqrt": RegisteredSchedule(
        f"{_SCHEDULES}:inverse_sqrt", course="inverse-sqrt", check=_needs_warmup
    ),
}

COMMON_OPTIONS: dict[str, dict[str, Range]] = {
    "optimizer": {"learning_rate": POSITIVE, "weight_decay": ZERO_OR_MORE, "clip_norm": POSITIVE},
    "schedule": {"warmup_tokens": ZERO_OR_MORE},
}
"""What every optimizer and every schedule takes, and what it may be."""


OPTIONS: dict[str, OptionSpec] = {
    name: spec
    for registered in reversed([*OPTIMIZERS.values(), *SCHEDULES.values()])
    for name, spec in registered.options.items()
}
"""Every option by its name; of one that several take, the first one's."""


@functools.cache
def imported(factory: str) -> Any:
    """The object that ``module:name`` names; its module is imported now."""
    return pkgutil.resolve_name(factory)


class _Options:
    """What the two configurations share: options that follow from the entry of ``name`` in a registry."""

    name: str
    plugin: PluginSource | None
    options: PlainValues

    @property
    def registered(self) -> _Registered:
        """Its entry; an empty one where its plugin, or that content of it, is not known to this process."""
        raise NotImplementedError

    def option(self, name: str) -> Any:
        """The option ``name``; None where this optimizer or schedule does not take it."""
        return self.options[name] if name in self.options else getattr(self, name)

    def keywords(self) -> dict[str, Any]:
        """The options that the code of a plugin is called with."""
        return {name: self.option(name) for name in self.registered.options} if self.plugin else {}

    def number(self, name: str) -> float:
        """The option ``name``, which is a number and which this optimizer or schedule takes."""
        value = self.option(name)
        assert value is not None, f"{self.name} does not take {name}"
        return float(value)

    def _check(self, part: str, registry: Mapping[str, _Registered]) -> None:
        """Name the plugin, give options their defaults, refuse what cannot be."""
        if self.plugin is None:
            require_choice(part, self.name, registry)
            object.__setattr__(self, "plugin", registry[self.name].plugin)
        registered = self.registered
        if registered.factory:
            self._fill_in(registered.options, COMMON_OPTIONS[part])
        for name, allowed in COMMON_OPTIONS[part].items():
            require_in(allowed, name, getattr(self, name))
        if registered.check is not None:
            registered.check(self)

    def _fill_in(self, takes: Mapping[str, OptionSpec], common: Iterable[str]) -> None:
        """Give the options that are taken their defaults; refuse others, and values that cannot be."""
        declared = [field.name for field in fields_of(type(self)) if field.name in OPTIONS]
        others = {name: spec.default for name, spec in takes.items() if name not in declared}
        object.__setattr__(self, "options", PlainValues(others | self.options))
        for option in (*declared, *self.options):
            value = self.option(option)
            if option not in takes and value is not None:
                allowed = f"no such option of {self.name}; its options: {', '.join([*common, *takes])}"
                raise ConfigurationError(option, value, allowed)
            if option in takes and value is None:
                object.__setattr__(self, option, takes[option].default)
        for option, spec in takes.items():
            spec.check(option, self.option(option))


@dataclass(frozen=True)
class OptimizerConfig(_Options):
    """An optimizer and its options.

    Of the options in :data:`OPTIMIZERS` those are None that the optimizer does not take; those that are not
    given have its own defaults.

    name: a key of :data:`OPTIMIZERS`.
    learning_rate: the peak of the schedule.
    weight_decay: acts as p <- p (1 - learning_rate * weight_decay).
    clip_norm: largest norm of the gradient; larger gradients are scaled down to it.
    plugin: the plugin that has the optimizer.
    options: the options that have no field below, as those of plugins.
    """

    name: str = "adamw"
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    plugin: PluginSource | None = added_field(None)  # noqa: RUF009 (it makes a field)
    options: PlainValues = added_field(PlainValues())  # noqa: RUF009
    beta1: float | None = added_field(None)
    beta2: float | None = added_field(None)
    epsilon: float | None = added_field(None)
    momentum: float | None = added_field(None)
    nesterov: bool | None = added_field(None)
    newton_schulz_steps: int | None = added_field(None)
    update_scale: str | None = added_field(None)
    adamw_rate_factor: float | None = added_field(None)
    preconditioner_steps: int | None = added_field(None)
    decay_exponent: float | None = added_field(None)
    update_clip: float | None = added_field(None)
    beta3: float | None = added_field(None)
    alpha: float | None = added_field(None)
    slow_warmup_steps: int | None = added_field(None)

    def __post_init__(self) -> None:
        self._check("optimizer", OPTIMIZERS)

    @property
    def registered(self) -> RegisteredOptimizer:
        """Its entry in :data:`OPTIMIZERS`."""
        entry = OPTIMIZERS.get(self.name)
        return entry if entry and entry.plugin == self.plugin else RegisteredOptimizer("")


@dataclass(frozen=True)
class ScheduleConfig(_Options):
    """The course of the learning rate; warm-up in tokens, so that budgets of one sweep can share it.

    Options, ``plugin`` and ``options`` are as in :class:`OptimizerConfig`.

    name: a key of :data:`SCHEDULES`.
    warmup_tokens: tokens over which the rate rises linearly to its peak.
    """

    name: str = "cosine"
    warmup_tokens: int = 0
    plugin: PluginSource | None = added_field(None)  # noqa: RUF009 (it makes a field)
    options: PlainValues = added_field(PlainValues())  # noqa: RUF009
    final_fraction: float | None = added_field(None)
    cooldown_fraction: float | None = added_field(None)
    cooldown: str | None = added_field(None)

    def __post_init__(self) -> None:
        self._check("schedule", SCHEDULES)

    @property
    def registered(self) -> RegisteredSchedule:
        """Its entry in :data:`SCHEDULES`."""
        entry = SCHEDULES.get(self.name)
        return entry if entry and entry.plugin == self.plugin else RegisteredSchedule("")
