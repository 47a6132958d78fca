"""A trial, fully specified: frozen dataclasses of the standard library, checked when they are made.

Every field here is semantic (see ``model.fields``): two trials that differ in one of them are two
trials. What changes no bit of the result (names, device, intervals of checkpoints) is a ``RunOptions``.
"""

from dataclasses import dataclass, field

from model.fields import ConfigurationError, require, require_choice
from model.strategies import PRESETS, ScaleVectorStrategy, canonical

__all__ = [
    "ConfigurationError",
    "ModelConfig",
    "OptimizerConfig",
    "RunOptions",
    "ScheduleConfig",
    "Shape",
    "Trial",
]

ARCHITECTURES = ("llama",)
OPTIMIZERS = ("adamw",)
SCHEDULES = ("cosine",)
PRECISIONS = ("float32", "bfloat16")
MEASURES = ("preconditioner", "sharpness")
"""What can be measured along a run (``model.theory.measurements``)."""


def _require_positive(where: str, config: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(config, name)
        require(0 < value < float("inf"), f"{where}{name}", value, "a positive number")


@dataclass(frozen=True)
class Shape:
    """The size of a decoder: ``width`` channels, ``layers`` blocks, ``feed_forward`` hidden channels.

    ``kv_heads`` below ``heads`` is grouped-query attention; both are counts of heads.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int

    def __post_init__(self) -> None:
        _require_positive("", self, ("width", "layers", "heads", "kv_heads", "feed_forward"))
        divides = self.width % self.heads == 0
        require(divides, "heads", self.heads, f"a divisor of the width {self.width}")
        require(
            self.head_width % 2 == 0, "heads", self.heads, "an even width of each head (rotary embedding)"
        )
        grouped = self.heads % self.kv_heads == 0
        require(grouped, "kv_heads", self.kv_heads, f"a divisor of the number of heads, {self.heads}")

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


@dataclass(frozen=True)
class ModelConfig:
    """Everything that decides which tensors a model has and what function they compute."""

    shape: Shape
    vocabulary_size: int
    scale_vectors: ScaleVectorStrategy = field(default_factory=lambda: PRESETS["baseline"])
    architecture: str = "llama"
    tied_embeddings: bool = False
    norm_epsilon: float = 1e-5
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        require_choice("architecture", self.architecture, ARCHITECTURES)
        require(self.vocabulary_size >= 2, "vocabulary_size", self.vocabulary_size, "2 or more")
        _require_positive("", self, ("norm_epsilon", "rope_base"))


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer and its options. ``weight_decay`` acts as p <- p (1 - learning_rate * weight_decay)."""

    name: str = "adamw"
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    clip_norm: float = 1.0
    """Largest norm of the gradient; larger gradients are scaled down to it."""

    def __post_init__(self) -> None:
        require_choice("optimizer", self.name, OPTIMIZERS)
        _require_positive("", self, ("learning_rate", "epsilon", "clip_norm"))
        require(0 <= self.weight_decay < float("inf"), "weight_decay", self.weight_decay, "zero or more")
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, name, value, "a number in [0, 1)")


@dataclass(frozen=True)
class ScheduleConfig:
    """The course of the learning rate; warm-up in tokens, so that budgets of one sweep can share it."""

    name: str = "cosine"
    warmup_tokens: int = 0
    final_fraction: float = 0.1
    """Learning rate at the end over its peak."""

    def __post_init__(self) -> None:
        require_choice("schedule", self.name, SCHEDULES)
        require(self.warmup_tokens >= 0, "warmup_tokens", self.warmup_tokens, "zero or more")
        require(0 <= self.final_fraction <= 1, "final_fraction", self.final_fraction, "a number in [0, 1]")


@dataclass(frozen=True)
class Trial:
    """One training job, fully specified.

    ``corpus`` is a fingerprint; ``tokens`` are trained in whole batches.
    """

    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    corpus: str
    sequence_length: int
    batch_tokens: int
    tokens: int
    seed: int
    precision: str = "float32"

    def __post_init__(self) -> None:
        require_choice("precision", self.precision, PRECISIONS)
        _require_positive("", self, ("sequence_length", "batch_tokens", "tokens"))
        require(0 <= self.seed < 2**63, "seed", self.seed, "an integer from 0 to 2**63 - 1")
        whole = self.batch_tokens % self.sequence_length == 0
        require(
            whole, "batch_tokens", self.batch_tokens, f"a multiple of sequence_length {self.sequence_length}"
        )
        whole = self.tokens % self.batch_tokens == 0
        require(whole, "tokens", self.tokens, f"a multiple of batch_tokens {self.batch_tokens}")
        warmup = self.schedule.warmup_tokens
        require(warmup <= self.tokens, "warmup_tokens", warmup, f"at most the trained tokens, {self.tokens}")

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return self.tokens // self.batch_tokens

    @property
    def batch_sequences(self) -> int:
        """Sequences in one batch."""
        return self.batch_tokens // self.sequence_length

    @property
    def canonical_strategy(self) -> ScaleVectorStrategy:
        """The scale-vector strategy with the fields that cannot matter here at their defaults."""
        return canonical(self.model.scale_vectors, decays_anything=self.optimizer.weight_decay > 0)


@dataclass(frozen=True)
class RunOptions:
    """How a trial is run, none of which is part of its identity.

    micro_batch: sequences in one forward pass; 0 takes the whole batch. It never changes what is
        computed, only the order of the sums, and is recorded with the result.
    checkpoint_s: seconds between two checkpoints.
    metrics_steps: steps between two rows of scale-vector statistics; losses are kept for every step.
    keep: which checkpoints stay once the trial is completed: ``none``, ``weights`` or ``all``.
    measure: which of MEASURES are taken along the run, at its first and last step and every
        ``measure_steps``; they change no bit of it, and their time does not count as training time.
    """

    device: str = "cpu"
    micro_batch: int = 0
    checkpoint_s: float = 180.0
    metrics_steps: int = 50
    keep: str = "none"
    measure: tuple[str, ...] = ()
    measure_steps: int = 100

    def __post_init__(self) -> None:
        require(self.micro_batch >= 0, "micro_batch", self.micro_batch, "zero (the whole batch) or more")
        _require_positive("", self, ("checkpoint_s", "metrics_steps", "measure_steps"))
        require_choice("keep", self.keep, ("none", "weights", "all"))
        for name in self.measure:
            require_choice("measure", name, MEASURES)
