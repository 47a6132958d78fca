"""Closed forms for the parameters and training FLOPs of a model, without building it and without torch."""

from dataclasses import dataclass
from functools import lru_cache

from model.config import ModelConfig, Shape
from model.strategies import ALL_MAPS, ATTENTION_INPUT_MAPS, FEED_FORWARD_INPUT_MAPS, ScaleVectorStrategy


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters of a model by group; every parameter is in exactly one of the five fields.

    matrices: the linear maps of the blocks, the head excluded: the N of scaling laws here.
    token_embedding: the embedding; with tied embeddings it is the head as well and counted once, here.
    head: the untied head, 0 where it is tied.
    scale_vectors_input, scale_vectors_output: scale vectors by role, magnitudes and directions included.
    """

    matrices: int
    token_embedding: int
    head: int
    scale_vectors_input: int
    scale_vectors_output: int

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
        return self.matrices + self.embedding + self.scale_vectors


def map_shapes(shape: Shape) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of each linear map of a block."""
    width, kv = shape.width, shape.kv_heads * shape.head_width
    return {
        "query": (width, width),
        "key": (kv, width),
        "value": (kv, width),
        "output": (width, width),
        "gate": (shape.feed_forward, width),
        "up": (shape.feed_forward, width),
        "down": (width, shape.feed_forward),
    }


@lru_cache(maxsize=4096)
def count_parameters(config: ModelConfig) -> ParameterCounts:
    """The parameters of ``config``'s model, as the transformer creates them."""
    shape = config.shape
    embedding = config.vocabulary_size * shape.width
    inputs, outputs = _scale_vectors(config)
    return ParameterCounts(
        matrices=_matrices(shape),
        token_embedding=embedding,
        head=0 if config.tied_embeddings else embedding,
        scale_vectors_input=inputs,
        scale_vectors_output=outputs,
    )


@lru_cache(maxsize=4096)
def _matrices(shape: Shape) -> int:
    """Parameters of the linear maps of all blocks."""
    return shape.layers * sum(rows * columns for rows, columns in map_shapes(shape).values())


def _scale_vectors(config: ModelConfig) -> tuple[int, int]:
    """Parameters of the scale vectors of the whole model, (role input, role output)."""
    shape, strategy = config.shape, config.scale_vectors
    sizes = map_shapes(shape)
    inputs = [sizes[name][1] for name in ALL_MAPS if strategy.has_own_input_vector(name)]
    if strategy.branches == "shared":
        inputs += [shape.width] * len((ATTENTION_INPUT_MAPS, FEED_FORWARD_INPUT_MAPS))
    outputs = [sizes[name][0] for name in ALL_MAPS if strategy.has_output_vector(name)]
    norms = [
        shape.head_width if name in ATTENTION_INPUT_MAPS else sizes[name][0]
        for name in ALL_MAPS
        if strategy.has_norm_vector(name, config.architecture)
    ]
    final = [shape.width] if strategy.branches != "none" else []
    of_inputs = _stored(inputs * shape.layers + final, strategy)
    of_outputs = _stored(outputs * shape.layers, strategy)
    of_norms = _stored(norms * shape.layers, strategy)
    if strategy.dual_output_role == "input":
        return of_inputs + of_outputs, of_norms
    return of_inputs, of_outputs + of_norms


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
    """
    shape = config.shape
    matrices = _matrices(shape) + config.vocabulary_size * shape.width
    attention = 2 * sequence_length * shape.width * shape.layers
    return 3 * 2 * (matrices + attention)


def six_n_flops_per_token(config: ModelConfig) -> int:
    """The usual estimate 6N of training FLOPs a token, N without embeddings, head and scale vectors."""
    return 6 * count_parameters(config).matrices
