"""Closed forms for the parameters and training FLOPs of a model, without building it and without torch."""

from dataclasses import dataclass, field
from functools import lru_cache

from scalevec.model.config import Experts, ModelConfig, Shape
from scalevec.model.strategies import (
    ATTENTION_INPUT_MAPS,
    FEED_FORWARD_INPUT_MAPS,
    NORMED_MAPS,
    OUTPUT_NORMS,
    ScaleVectorStrategy,
)

ATTENTION_MAPS = (*ATTENTION_INPUT_MAPS, "output")
FEED_FORWARD_MAPS = (*FEED_FORWARD_INPUT_MAPS, "down")


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters of a model by group; every parameter is in exactly one of the six fields.

    matrices: the linear maps of the blocks that a token passes, the head excluded: the N of scaling laws
        here. Of a mixture these are the *active* ones (attention, router, ``top_k`` and the shared experts),
        so that budgets in tokens per parameter and 6 N D mean what they mean for a dense model.
    token_embedding: the embedding; with tied embeddings it is the head as well and counted once, here.
    head: the untied head, 0 where it is tied.
    scale_vectors_input, scale_vectors_output: scale vectors by role, magnitudes and directions included; of
        a mixture those of all experts.
    matrices_idle: the matrices of the experts that a token does not pass; 0 without a mixture.
    """

    matrices: int
    token_embedding: int
    head: int
    scale_vectors_input: int
    scale_vectors_output: int
    matrices_idle: int = 0

    @property
    def matrices_total(self) -> int:
        """The linear maps of the blocks, those of every expert included."""
        return self.matrices + self.matrices_idle

    @property
    def embedding(self) -> int:
        """Token embedding and untied head."""
        return self.token_embedding + self.head

    @property
    def scale_vectors(self) -> int:
        """Scale vectors of both roles."""
        return self.scale_vectors_input + self.scale_vectors_output

    @property
    def total(self) -> int:
        """All parameters."""
        return self.active + self.matrices_idle

    @property
    def active(self) -> int:
        """All parameters but the matrices that a token does not pass."""
        return self.matrices + self.embedding + self.scale_vectors

    def columns(self) -> dict[str, int]:
        """Return the counts under the names that plans, run directories and tables give them."""
        return {
            "n_params": self.matrices,
            "n_params_embedding": self.embedding,
            "n_params_scale_vectors": self.scale_vectors,
            "n_params_total": self.total,
            "n_params_active": self.active,
        }


def map_shapes(shape: Shape, hidden: int | None = None) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of each linear map of a block; ``hidden`` other channels than the shape's own."""
    width, kv = shape.width, shape.kv_heads * shape.head_width
    hidden = shape.feed_forward if hidden is None else hidden
    return {
        "query": (width, width),
        "key": (kv, width),
        "value": (kv, width),
        "output": (width, width),
        "gate": (hidden, width),
        "up": (hidden, width),
        "down": (width, hidden),
    }


@lru_cache(maxsize=4096)
def count_parameters(config: ModelConfig) -> ParameterCounts:
    """Count the parameters of a model by group, without building it.

    Args:
        config: The model.

    Returns:
        The counts; ``matrices`` is the N of scaling laws here: non-embedding matrices that a token passes,
        scale vectors left out.

    Source: N without embeddings is that of Kaplan et al. (arXiv 2001.08361).
    """
    embedding = config.vocabulary_size * config.shape.width
    matrices, idle = _matrices(config.shape, config.experts)
    inputs, outputs = _scale_vectors(config)
    return ParameterCounts(
        matrices=matrices,
        token_embedding=embedding,
        head=0 if config.tied_embeddings else embedding,
        scale_vectors_input=inputs,
        scale_vectors_output=outputs,
        matrices_idle=idle,
    )


@lru_cache(maxsize=4096)
def _matrices(shape: Shape, experts: Experts | None) -> tuple[int, int]:
    """Parameters of the linear maps of all blocks, (passed by a token, not passed)."""
    sizes = map_shapes(shape)
    attention = shape.layers * _entries(sizes, ATTENTION_MAPS)
    if experts is None:
        return attention + shape.layers * _entries(sizes, FEED_FORWARD_MAPS), 0
    mixtures = shape.layers - experts.dense_layers
    dense = experts.dense_layers * _entries(sizes, FEED_FORWARD_MAPS)
    router = experts.n_experts * shape.width
    expert = _entries(map_shapes(shape, experts.feed_forward), FEED_FORWARD_MAPS)
    passed = _entries(map_shapes(shape, experts.active_hidden), FEED_FORWARD_MAPS)
    active = attention + dense + mixtures * (router + passed)
    return active, mixtures * (experts.n_experts - experts.top_k) * expert


def _entries(sizes: dict[str, tuple[int, int]], names: tuple[str, ...]) -> int:
    return sum(sizes[name][0] * sizes[name][1] for name in names)


@dataclass
class _Widths:
    """The widths of scale vectors by their role."""

    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def of_role(self, role: str) -> list[int]:
        """Those of input-norm or of output-norm vectors."""
        return self.inputs if role == "input" else self.outputs

    def add(self, other: "_Widths", times: int = 1) -> None:
        """Count ``other``'s too, ``times`` over."""
        self.inputs += other.inputs * times
        self.outputs += other.outputs * times


def _scale_vectors(config: ModelConfig) -> tuple[int, int]:
    """Parameters of the scale vectors of the whole model, (role input, role output)."""
    shape, strategy, experts = config.shape, config.scale_vectors, config.experts
    sizes = map_shapes(shape)
    mixtures = 0 if experts is None else shape.layers - experts.dense_layers
    total = _Widths(inputs=[shape.width] if strategy.branches != "none" else [])
    total.add(_sublayer(config, sizes, ATTENTION_MAPS), shape.layers)
    total.add(_sublayer(config, sizes, FEED_FORWARD_MAPS), shape.layers - mixtures)
    if experts is not None:
        total.add(_mixture(config, experts), mixtures)
    if strategy.has_output_vector("head"):
        total.of_role(strategy.output_role("head")).append(config.vocabulary_size)
    return _stored(total.inputs, strategy), _stored(total.outputs, strategy)


def _sublayer(config: ModelConfig, sizes: dict[str, tuple[int, int]], names: tuple[str, ...]) -> _Widths:
    """Of a dense sublayer with the maps ``names``: their own vectors and the one that they share."""
    strategy, shape = config.scale_vectors, config.shape
    total = _own_vectors(config, sizes, names)
    if strategy.has_shared_vector(tuple(name for name in names if name in NORMED_MAPS)):
        total.inputs.append(shape.width)
    for name in names:
        if strategy.has_norm_vector(name, config.architecture):
            total.outputs.append(shape.head_width if name in ATTENTION_INPUT_MAPS else sizes[name][0])
    return total


def _own_vectors(config: ModelConfig, sizes: dict[str, tuple[int, int]], names: tuple[str, ...]) -> _Widths:
    strategy, head = config.scale_vectors, config.shape.head_width
    total = _Widths(inputs=[sizes[name][1] for name in names if strategy.has_own_input_vector(name)])
    for name in names:
        if strategy.has_output_vector(name):
            width = head if strategy.shares_heads(name) else sizes[name][0]
            split = [head] * (width // head) if strategy.splits_heads(name) else [width]
            total.of_role(strategy.output_role(name)).extend(split)
    return total


def _mixture(config: ModelConfig, experts: Experts) -> _Widths:
    """Of one mixture, by the rules of ``ScaleVectorStrategy.experts`` and ``router``."""
    strategy, width = config.scale_vectors, config.shape.width
    total = _Widths()
    if strategy.has_shared_vector(FEED_FORWARD_INPUT_MAPS):
        shared = strategy.router == "branch" or strategy.experts == "shared" or experts.shared_experts
        total.inputs += [width] if shared else []
        total.inputs += [width] * experts.n_experts if strategy.experts == "own" else []
    elif strategy.branches != "none" and strategy.router == "branch":
        total.inputs.append(width)
    if strategy.experts != "none":
        routed = _own_vectors(config, map_shapes(config.shape, experts.feed_forward), FEED_FORWARD_MAPS)
        total.add(routed, experts.n_experts if strategy.experts == "own" else 1)
    if experts.shared_experts:
        sizes = map_shapes(config.shape, experts.shared_hidden)
        total.add(_own_vectors(config, sizes, FEED_FORWARD_MAPS))
    if "down" in OUTPUT_NORMS[config.architecture] and strategy.branches != "none":
        total.outputs.append(width)
    return total


def _stored(widths: list[int], strategy: ScaleVectorStrategy) -> int:
    """Parameters that hold vectors of these widths: a reparameterized vector has a magnitude beside it."""
    magnitudes = 0 if strategy.reparameterization == "none" else len(widths)
    return sum(widths) + magnitudes


def flops_per_token(config: ModelConfig, sequence_length: int) -> int:
    """Training FLOPs of one token, counted: three times (forward, backward by input and by weight) the
    multiplications and additions of all matrix products: the linear maps, the head, attention scores and
    the mixing of values.

    Scores are counted over the whole ``sequence_length``, with no discount for the causal half; element-wise
    work (norms, rotary embedding, softmax, the folding of scale vectors) and the optimizer are not counted.
    Of a mixture, the matrices that a token passes are counted.
    """
    shape = config.shape
    matrices = count_parameters(config).matrices + config.vocabulary_size * shape.width
    attention = 2 * sequence_length * shape.width * shape.layers
    return 3 * 2 * (matrices + attention)
