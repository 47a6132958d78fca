"""A trial, fully specified: frozen dataclasses of the standard library, checked when they are made.

Every field here is semantic (see ``model.fields``): two trials that differ in one of them are two
trials. What changes no bit of the result (names, device, intervals of checkpoints) is a ``RunOptions``.
"""

import re
from dataclasses import dataclass, field

from scalevec.model.fields import (
    POSITIVE,
    ZERO_OR_MORE,
    PluginSource,
    added_field,
    require,
    require_choice,
    require_in,
)

# Others take these from here too.
from scalevec.model.fields import ConfigurationError as ConfigurationError
from scalevec.model.optimization import OPTIMIZERS as OPTIMIZERS
from scalevec.model.optimization import SCHEDULES as SCHEDULES
from scalevec.model.optimization import OptimizerConfig as OptimizerConfig
from scalevec.model.optimization import ScheduleConfig as ScheduleConfig
from scalevec.model.strategies import (
    OUTPUT_NORMS,
    PRESETS,
    REPARAMETERIZATIONS,
    ScaleVectorStrategy,
    canonical,
)

ARCHITECTURES = tuple(OUTPUT_NORMS)
EMBEDDING_SCALES = ("none", "sqrt-width")
NORM_GAINS = ("g", "1+w")
ACTIVATIONS = ("swiglu", "geglu")
OF_ARCHITECTURE: dict[str, dict[str, str]] = {
    "llama": {},
    "gemma": {"embedding_scale": "sqrt-width", "norm_gain": "1+w", "activation": "geglu"},
}
"""Architecture -> fields of a model that a sweep file means by its name, where it does not give them itself.

The fields of a model, as records hold them, have no such values: there a field that is left out means what it
meant before it existed.
"""
ATTENTIONS = {
    "full": "scalevec.model.attention:Attention",
}
"""Attention by its name: ``module:class`` of a sublayer made from a :class:`ModelConfig`."""
PRECISIONS = ("float32", "bfloat16", "bfloat16-residual")
BALANCINGS = ("loss", "bias", "none")
PER = ("sequence", "batch")
EVALUATION_TOKENS = 4_000_000
"""Tokens of each held-out split on which a trial is evaluated, where nothing else is said."""
EVALUATED_AT_ONCE = 4096
"""Tokens of a small batch's evaluation."""
MEASURES = ("preconditioner", "sharpness")
"""What can be measured along a run (``model.theory.measure``)."""


def _require_positive(where: str, config: object, names: tuple[str, ...]) -> None:
    for name in names:
        require_in(POSITIVE, f"{where}{name}", getattr(config, name))


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
        is_even = self.head_width % 2 == 0
        require(is_even, "heads", self.heads, "an even width of each head (rotary embedding)")
        grouped = self.heads % self.kv_heads == 0
        require(grouped, "kv_heads", self.kv_heads, f"a divisor of the number of heads, {self.heads}")

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.width // self.heads


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward sublayer.

    n_experts: routed experts of a layer; top_k: how many of them each token passes.
    feed_forward: hidden channels of one routed expert. shared_experts: experts that every token passes
        besides, held as one gated unit of ``shared_hidden`` channels.
    shared_feed_forward: hidden channels of one shared expert; 0: those of a routed one.
    balancing: ``loss`` adds ``loss_coefficient`` times the imbalance to the training loss (never to an
        evaluated one); ``bias`` adds to each expert's probability a bias that only the choice sees and that
        moves by ``bias_rate`` after every optimizer step (no auxiliary loss); ``none`` does neither. What
        has no meaning under a policy is kept at its default.
    dense_layers: so many first layers keep the dense feed-forward.
    over: the loss of balance is the ``sum`` of the layers' imbalances or, as is usual, their ``mean``.
    per: the choices among experts are to be balanced within each ``sequence``, or over the whole ``batch``
        (of an optimizer step, however it is cut; then a micro-batch goes forward twice, once to be counted).
    """

    n_experts: int
    top_k: int
    feed_forward: int
    shared_experts: int = 0
    balancing: str = "loss"
    loss_coefficient: float = 0.01
    bias_rate: float = 0.001
    dense_layers: int = 0
    over: str = added_field("sum")
    per: str = added_field("sequence")
    shared_feed_forward: int = added_field(0)

    def __post_init__(self) -> None:
        _require_positive("experts.", self, ("n_experts", "top_k", "feed_forward"))
        _require_positive("experts.", self, ("loss_coefficient", "bias_rate"))
        at_most = f"at most n_experts, {self.n_experts}"
        require(self.top_k <= self.n_experts, "experts.top_k", self.top_k, at_most)
        require_in(ZERO_OR_MORE, "experts.shared_experts", self.shared_experts)
        require_in(ZERO_OR_MORE, "experts.dense_layers", self.dense_layers)
        shared = self.shared_feed_forward
        require(shared >= 0, "experts.shared_feed_forward", shared, "zero (as feed_forward) or more")
        if not self.shared_experts or shared == self.feed_forward:
            object.__setattr__(self, "shared_feed_forward", 0)
        require_choice("experts.balancing", self.balancing, BALANCINGS)
        require_choice("experts.over", self.over, ("sum", "mean"))
        require_choice("experts.per", self.per, PER)
        meaningless = () if self.balancing == "loss" else ("loss_coefficient", "over", "per")
        for name in (*meaningless, *(() if self.balancing == "bias" else ("bias_rate",))):
            object.__setattr__(self, name, getattr(type(self), name))

    @property
    def shared_hidden(self) -> int:
        """Hidden channels of all shared experts together."""
        return self.shared_experts * (self.shared_feed_forward or self.feed_forward)

    @property
    def active_hidden(self) -> int:
        """Hidden channels that a token passes in one layer, those of shared experts included."""
        return self.top_k * self.feed_forward + self.shared_hidden


@dataclass(frozen=True)
class ModelConfig:
    """Everything that decides which tensors a model has and what function they compute.

    architecture: where the norms are. ``llama``: RMSNorm before each sublayer. ``gemma``, as Gemma 3: before
        and after each sublayer and on queries and keys, head by head, before the rotary embedding.
    experts: a mixture of experts; None for a dense model. ``shape.feed_forward`` is the hidden width of
        the dense layers; where there is none, it must be what a token passes in a mixture,
        ``experts.active_hidden``.
    embedding_scale: what the embedding is multiplied by where the residual stream begins: ``none``, or
        ``sqrt-width`` (Gemma), with which it begins at an RMS of about one.
    norm_gain: how scale vectors are stored: as they are (``g``: decay pulls them to 0), or by their distance
        from their start (``1+w``, Gemma: decay pulls them to 1). Of a reparameterized vector magnitude and
        direction are so stored; ``er`` is the same under both, since it starts at zero.
    activation: of the gated units: ``swiglu``, or ``geglu`` (Gemma; GELU by its tanh formula).
    attention: one of :data:`ATTENTIONS`; ``full`` is causal softmax attention over the whole sequence.
    """

    shape: Shape
    vocabulary_size: int
    scale_vectors: ScaleVectorStrategy = field(default_factory=lambda: PRESETS["baseline"])
    architecture: str = "llama"
    tied_embeddings: bool = False
    norm_epsilon: float = 1e-5
    rope_base: float = 10_000.0
    experts: Experts | None = added_field(None)  # noqa: RUF009 (it makes a field)
    embedding_scale: str = added_field("none")
    norm_gain: str = added_field("g")
    activation: str = added_field("swiglu")
    attention: str = added_field("full")

    def __post_init__(self) -> None:
        require_choice("architecture", self.architecture, ARCHITECTURES)
        require_choice("embedding_scale", self.embedding_scale, EMBEDDING_SCALES)
        require_choice("norm_gain", self.norm_gain, NORM_GAINS)
        require_choice("activation", self.activation, ACTIVATIONS)
        require_choice("attention", self.attention, ATTENTIONS)
        strategy = self.scale_vectors
        parts = REPARAMETERIZATIONS.get(strategy.reparameterization)
        # Parts that start at zero are stored alike under either norm_gain.
        starts_at_zero = parts is not None and parts.beta == parts.alpha == 0.0
        if not strategy.has_vectors or starts_at_zero:
            object.__setattr__(self, "norm_gain", type(self).norm_gain)
        require(self.vocabulary_size >= 2, "vocabulary_size", self.vocabulary_size, "2 or more")
        _require_positive("", self, ("norm_epsilon", "rope_base"))
        if self.experts is not None:
            self._check_experts(self.experts)

    def _check_experts(self, experts: Experts) -> None:
        layers, dense = self.shape.layers, experts.dense_layers
        require(dense < layers, "experts.dense_layers", dense, f"less than the layers, {layers}")
        passed = experts.active_hidden
        agrees = dense > 0 or self.shape.feed_forward == passed
        allowed = f"{passed}, the hidden width that a token passes in a mixture, without dense layers"
        require(agrees, "feed_forward", self.shape.feed_forward, allowed)

    @property
    def embedding_factor(self) -> float:
        """What the embedding is multiplied by where the residual stream begins."""
        return self.shape.width**0.5 if self.embedding_scale == "sqrt-width" else 1.0

    def canonical_strategy(self, weight_decay: float = 0.1) -> ScaleVectorStrategy:
        """The scale-vector strategy with the fields that cannot matter in this model at their defaults.

        ``weight_decay`` is the optimizer's.
        """
        return canonical(
            self.scale_vectors,
            weight_decay=weight_decay,
            architecture=self.architecture,
            is_mixture=self.experts is not None,
        )


@dataclass(frozen=True)
class Trial:
    """One training job, fully specified; the trial id is made from its fields (``model.identity``).

    Args:
        model: The decoder: shape, vocabulary, scale vectors, architecture, experts.
        optimizer: The optimizer, its peak learning rate, weight decay and options.
        schedule: The course of the learning rate; its warm-up is in tokens.
        corpus: Fingerprint of the prepared corpus, 64 hexadecimal digits.
        sequence_length: Tokens of one sequence.
        batch_tokens: Tokens per optimizer step, a multiple of ``sequence_length``.
        tokens: Tokens to train on in all, a multiple of ``batch_tokens``.
        seed: Number of the repetition, 0 to 2**63 - 1; the stream follows from it.
        precision: ``float32``; ``bfloat16`` for matrix products under autocast; ``bfloat16-residual`` for
            these and for the residual stream.
        evaluation_tokens: Tokens at the beginning of the validation and of the test split on which the
            terminal losses are taken, at most; 0 takes the whole splits.
        stream: What the initial weights and the order of the data follow from, 64 hexadecimal digits, shared
            by the arms of a cell; empty: that of the trial's own fields (``model.identity.stream_of``).

    Raises:
        ConfigurationError: A value that is not allowed, with its field and what is allowed.
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
    evaluation_tokens: int = EVALUATION_TOKENS
    stream: str = ""

    def __post_init__(self) -> None:
        require_choice("precision", self.precision, PRECISIONS)
        _require_positive("", self, ("sequence_length", "batch_tokens", "tokens"))
        require(0 <= self.seed < 2**63, "seed", self.seed, "an integer from 0 to 2**63 - 1")
        evaluated = self.evaluation_tokens
        require(evaluated >= 0, "evaluation_tokens", evaluated, "zero (all) or more")
        is_stream = re.fullmatch("([0-9a-f]{64})?", self.stream) is not None
        allowed = "64 hexadecimal digits, or empty: of the trial's own fields"
        require(is_stream, "stream", self.stream, allowed)
        whole = self.batch_tokens % self.sequence_length == 0
        allowed = f"a multiple of sequence_length {self.sequence_length}"
        require(whole, "batch_tokens", self.batch_tokens, allowed)
        whole = self.tokens % self.batch_tokens == 0
        require(whole, "tokens", self.tokens, f"a multiple of batch_tokens {self.batch_tokens}")
        warmup = self.schedule.warmup_tokens
        require(warmup <= self.tokens, "warmup_tokens", warmup, f"at most the trained tokens, {self.tokens}")
        room = (self.tokens - warmup) / self.tokens
        allowed = f"at most {room:.4g}, what the warm-up of {warmup} leaves of the run's {self.tokens} tokens"
        fits = warmup + self.cooldown_tokens <= self.tokens
        require(fits, "cooldown_fraction", self.schedule.option("cooldown_fraction"), allowed)

    @property
    def plugins(self) -> tuple[PluginSource, ...]:
        """The plugins whose code trains it, each once."""
        parts = (self.optimizer.plugin, self.schedule.plugin, self.model.scale_vectors.plugin)
        return tuple(dict.fromkeys(plugin for plugin in parts if plugin is not None))

    @property
    def product_precision(self) -> str:
        """Of the matrix products: ``float32`` or ``bfloat16``."""
        return self.precision.removesuffix("-residual")

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return self.tokens // self.batch_tokens

    @property
    def batch_sequences(self) -> int:
        """Sequences in one batch."""
        return self.batch_tokens // self.sequence_length

    @property
    def cooldown_tokens(self) -> int:
        """Tokens in the cooldown at the end, a whole number of batches; 0 for a schedule without one."""
        fraction = self.schedule.option("cooldown_fraction")
        return 0 if fraction is None else max(round(fraction * self.steps), 1) * self.batch_tokens


@dataclass(frozen=True)
class RunOptions:
    """How a trial is run, none of which is part of its identity.

    micro_batch: sequences in one forward pass; 0 takes the whole batch, or what a process has of it. It
        never changes what is computed, only the order of the sums, and is recorded with the result.
    processes: processes that train the trial together, on a device each; a batch is shared out among them.
        As the micro-batch it changes the order of the sums alone.
    shard: whether each process keeps but its share of the parameters and of what belongs to them.
    checkpoint_s: seconds between two checkpoints.
    metrics_steps: steps between two rows of scale-vector statistics; losses are kept for every step.
    keep: which checkpoints stay once the trial is completed: ``none``, ``weights`` or ``all``.
    branch_steps: steps before the cooldown after which the state is kept for a trunk (``model.identity``).
    measure: which of MEASURES are taken along the run, at its first and last step and every
        ``measure_steps``; they change no bit of it, and their time does not count as training time.
    recompute: what of the forward pass is done again in the backward pass instead of being kept: ``none``, or
        ``block`` (all but the input of each block: less memory, about a third more time).
    compiled: whether blocks are compiled for training (``model.train.step``); a run that goes on
        from a checkpoint goes on as that was trained.
    """

    device: str = "cpu"
    micro_batch: int = 0
    processes: int = 1
    shard: bool = False
    checkpoint_s: float = 180.0
    metrics_steps: int = 50
    keep: str = "none"
    branch_steps: tuple[int, ...] = ()
    measure: tuple[str, ...] = ()
    measure_steps: int = 100
    recompute: str = "none"
    compiled: bool = False

    def __post_init__(self) -> None:
        require(self.micro_batch >= 0, "micro_batch", self.micro_batch, "zero (the whole batch) or more")
        _require_positive("", self, ("processes", "checkpoint_s", "metrics_steps", "measure_steps"))
        require(self.processes > 1 or not self.shard, "shard", self.shard, "false with one process")
        require_choice("keep", self.keep, ("none", "weights", "all"))
        require_choice("recompute", self.recompute, ("none", "block"))
        for name in self.measure:
            require_choice("measure", name, MEASURES)

    def needs_counting_pass(self, trial: Trial) -> bool:
        """Whether a batch goes forward once more, since a pass sees but a part of it (``Experts.per``)."""
        experts, part = trial.model.experts, trial.batch_sequences // self.processes
        is_cut = self.processes > 1 or 0 < self.micro_batch < part
        return experts is not None and experts.per == "batch" and is_cut

    def evaluated_at_once(self, trial: Trial) -> int:
        """Sequences that an evaluation of ``trial`` takes at once: those of a training pass.

        Small batches are slow, and forward passes alone hold little: without a micro-batch it takes
        EVALUATED_AT_ONCE tokens where a process's part of a batch has fewer.
        """
        part = trial.batch_sequences // self.processes
        return self.micro_batch or max(part, EVALUATED_AT_ONCE // trial.sequence_length)


SHARDED_OPTIMIZERS = ("adamw", "muon", "sgd")
"""Those that are known to take the same steps over shares of parameters."""


def require_whole_parts(trial: Trial, options: RunOptions) -> None:
    """Raise :class:`ConfigurationError` where ``options.processes`` cannot train ``trial`` together."""
    sequences = trial.batch_sequences
    divides = sequences % options.processes == 0
    allowed = f"a divisor of the {sequences} sequences of a batch"
    require(divides, "processes", options.processes, allowed)
    if options.shard:
        name = trial.optimizer.name
        listed = ", ".join(SHARDED_OPTIMIZERS)
        require(name in SHARDED_OPTIMIZERS, "optimizer", name, f"with shard: {listed}")
        measured = ", ".join(options.measure)
        require(not measured, "measure", measured, "nothing with shard: it needs whole parameters")
