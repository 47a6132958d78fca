"""What a trial says of its optimizer and its schedule: the names, and the options that each of them takes.

An option that an optimizer or a schedule does not take is None, stays out of the identity and is refused
where it is given. One that is not given gets the default of its optimizer or schedule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from model.fields import ConfigurationError, later, require, require_choice

Option = float | int | bool | str

_MOMENTS: dict[str, Option] = {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8}

OPTIMIZERS: dict[str, Mapping[str, Option]] = {
    "adamw": _MOMENTS,
    "sgd": {"momentum": 0.0, "nesterov": False},
    "muon": {
        "momentum": 0.95,
        "nesterov": True,
        "newton_schulz_steps": 5,
        "update_scale": "match-rms-adamw",
        "adamw_rate_factor": 1.0,
        **_MOMENTS,
    },
    "soap": {
        "beta1": 0.95,
        "beta2": 0.95,
        "epsilon": 1e-8,
        "preconditioner_steps": 10,
        "adamw_rate_factor": 1.0,
    },
    "lion": {"beta1": 0.9, "beta2": 0.99},
    "adafactor": {"beta1": 0.9, "beta2": 0.999, "decay_exponent": 0.8, "update_clip": 1.0},
    "ademamix": {
        "beta1": 0.9,
        "beta2": 0.999,
        "beta3": 0.9999,
        "epsilon": 1e-8,
        "alpha": 5.0,
        "slow_warmup_steps": 0,
    },
    "adopt": {"beta1": 0.9, "beta2": 0.9999, "epsilon": 1e-6},
}
"""Name -> its options with their defaults. What they do is said in ``model.training.optimizers``."""

SCHEDULES: dict[str, Mapping[str, Option]] = {
    "cosine": {"final_fraction": 0.1},
    "wsd": {"final_fraction": 0.0, "cooldown_fraction": 0.2, "cooldown": "linear"},
    "linear": {"final_fraction": 0.0},
    "constant": {},
    "inverse-sqrt": {},
}
"""Name -> its options with their defaults. Their formulas are in ``model.training.schedules``."""

OPTION_CHOICES: dict[str, tuple[str, ...]] = {
    "update_scale": ("match-rms-adamw", "original"),
    "cooldown": ("linear", "1-sqrt"),
}
"""The options that are names, and what they may be."""

COMMON_OPTIONS = {
    "optimizer": ("learning_rate", "weight_decay", "clip_norm"),
    "schedule": ("warmup_tokens",),
}
"""What every optimizer and every schedule takes."""
_RANGES: tuple[tuple[str, Callable[[float], bool], tuple[str, ...]], ...] = (
    (
        "a positive number",
        lambda value: 0 < value < float("inf"),
        (
            *("learning_rate", "clip_norm", "epsilon", "newton_schulz_steps", "adamw_rate_factor"),
            *("preconditioner_steps", "decay_exponent", "update_clip"),
        ),
    ),
    (
        "zero or more",
        lambda value: 0 <= value < float("inf"),
        ("weight_decay", "warmup_tokens", "alpha", "slow_warmup_steps"),
    ),
    ("a number in [0, 1)", lambda value: 0 <= value < 1, ("beta1", "beta2", "beta3", "momentum")),
    ("a number in [0, 1]", lambda value: 0 <= value <= 1, ("final_fraction",)),
    ("a number in (0, 1]", lambda value: 0 < value <= 1, ("cooldown_fraction",)),
)
"""What is allowed, whether a value is, and of which fields that is asked."""


def _fill_in(part: str, config: object, names: Mapping[str, Mapping[str, Option]], name: str) -> None:
    """Give the options that ``name`` takes their defaults; refuse those that it does not take."""
    require_choice(part, name, names)
    takes = names[name]
    for option in dict.fromkeys(option for options in names.values() for option in options):
        value = getattr(config, option)
        if option in takes and value is None:
            object.__setattr__(config, option, takes[option])
        if option not in takes and value is not None:
            known = ", ".join([*COMMON_OPTIONS[part], *takes])
            raise ConfigurationError(option, value, f"no such option of {name}; its options: {known}")


def _check(config: object) -> None:
    """Refuse a value that its field cannot have."""
    for allowed, is_allowed, names in _RANGES:
        for name in names:
            value = getattr(config, name, None)
            require(value is None or is_allowed(value), name, value, allowed)
    for name, choices in OPTION_CHOICES.items():
        value = getattr(config, name, None)
        if value is not None:
            require_choice(name, value, choices)


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer and its options. ``weight_decay`` acts as p <- p (1 - learning_rate * weight_decay).

    Fields of type ``... | None`` are options of some optimizers only (:data:`OPTIMIZERS`): None where the
    optimizer does not take them, its own default where they are not given.
    """

    name: str = "adamw"
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    beta1: float | None = later(None)
    beta2: float | None = later(None)
    epsilon: float | None = later(None)
    clip_norm: float = 1.0
    """Largest norm of the gradient; larger gradients are scaled down to it."""
    momentum: float | None = later(None)
    nesterov: bool | None = later(None)
    newton_schulz_steps: int | None = later(None)
    update_scale: str | None = later(None)
    """How Muon scales its update: to the size of AdamW's, or by the matrix's shape as first published."""
    adamw_rate_factor: float | None = later(None)
    """Learning rate of what AdamW trains beside Muon or SOAP, over that of the matrices."""
    preconditioner_steps: int | None = later(None)
    """Steps between two refreshments of SOAP's basis."""
    decay_exponent: float | None = later(None)
    """How fast Adafactor's average of squares lengthens."""
    update_clip: float | None = later(None)
    """Largest root mean square of Adafactor's update before momentum and rate."""
    beta3: float | None = later(None)
    alpha: float | None = later(None)
    """Weight of AdEMAMix's slow average."""
    slow_warmup_steps: int | None = later(None)
    """Steps over which AdEMAMix's slow average comes in; 0: it is there from the start."""

    def __post_init__(self) -> None:
        _fill_in("optimizer", self, OPTIMIZERS, self.name)
        _check(self)
        if self.slow_warmup_steps:
            between = "a number in (0, 1) where slow_warmup_steps is given (the slow average starts from it)"
            require(self.number("beta1") > 0, "beta1", self.beta1, between)

    def number(self, name: str) -> float:
        """The option ``name``, which this optimizer takes and which is a number."""
        value = getattr(self, name)
        assert value is not None, f"{self.name} does not take {name}"
        return float(value)


@dataclass(frozen=True)
class ScheduleConfig:
    """The course of the learning rate; warm-up in tokens, so that budgets of one sweep can share it.

    Fields of type ``... | None`` are options of some schedules only (:data:`SCHEDULES`), as in
    :class:`OptimizerConfig`.
    """

    name: str = "cosine"
    warmup_tokens: int = 0
    final_fraction: float | None = later(None)
    """Learning rate at the end over its peak."""
    cooldown_fraction: float | None = later(None)
    """Share of all tokens in the cooldown at the end."""
    cooldown: str | None = later(None)
    """Shape of the cooldown."""

    def __post_init__(self) -> None:
        _fill_in("schedule", self, SCHEDULES, self.name)
        _check(self)
        if self.name == "inverse-sqrt":
            allowed = "a positive number of tokens (inverse-sqrt falls as the root of warm-up over tokens)"
            require(self.warmup_tokens > 0, "warmup_tokens", self.warmup_tokens, allowed)
