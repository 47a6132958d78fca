"""The forward pass of a model on a :class:`Tape`: sublayers in the order of ``model.decoder``."""

from dataclasses import dataclass, replace

from scalevec.model.config import Experts, ModelConfig
from scalevec.model.memory.arithmetic import INDEX, WIDE, Arithmetic, new_array
from scalevec.model.memory.tape import Array, Tape, parameter
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, FEED_FORWARD_INPUT_MAPS, OUTPUT_NORMS, PRESETS


@dataclass(frozen=True)
class MicroBatch:
    """What a pass is given: ``tokens`` in sequences of ``length``.

    Bytes of an entry: ``narrow`` in products, ``residual`` in the residual stream.
    """

    tokens: int
    length: int
    narrow: int
    residual: int = WIDE
    device: str = "cpu"


def recorded(config: ModelConfig, micro: MicroBatch, *, trains: bool = True) -> Tape:
    """The pass of a model over one micro-batch: embedding, blocks, final norm and loss."""
    tape, shape, experts = Tape(), config.shape, config.experts
    strategy, norms = config.scale_vectors, config.architecture
    of = Arithmetic(tape, shape, strategy, norms, micro.tokens, micro.narrow, config.norm_gain)
    embedding, tokens = parameter(config.vocabulary_size * shape.width), new_array(micro.tokens, INDEX)
    x = of.cast(tape.apply((embedding,), micro.tokens * shape.width, WIDE, (tokens,)), micro.residual)
    if config.embedding_scale != "none":
        x = tape.apply((x,), x.entries, x.width)
    table = new_array(micro.length * shape.head_width // 2, 2 * WIDE)
    dense = shape.layers if experts is None else experts.dense_layers
    for layer in range(shape.layers):
        first = len(tape.operations)
        x = of.add(x, _attention(of, micro, of.norm(x, 1), table, x))
        x = of.add(x, _feed_forward(of, of.norm(x, 1), experts if layer >= dense else None, x))
        tape.blocks.append((first, len(tape.operations)))
    x = of.norm(x, 1)
    if config.scale_vectors.branches != "none":
        x = of.times(x, of.vector(shape.width))
    head = embedding if config.tied_embeddings else parameter(embedding.entries)
    of.head(x, head, micro.device, trains=trains)
    return tape


def _attention(of: Arithmetic, micro: MicroBatch, x: Array, table: Array, residual: Array) -> Array:
    """``Attention``."""
    shape, tokens = of.shape, of.rows
    kv = shape.kv_heads * shape.head_width
    shared, has_own = of.shared_vector(ATTENTION_INPUT_MAPS), of.strategy.has_own_input_vector
    before = [None if has_own(name) else shared for name in ATTENTION_INPUT_MAPS]
    joint = of.joint(ATTENTION_INPUT_MAPS, x, shape.feed_forward, before)
    turning, value = of.tape.views(joint, [tokens * (shape.width + kv), tokens * kv])
    late = [of.late(name, size) for name, size in (("query", shape.width), ("key", kv))]
    if vectors := [vector for vector in late if vector is not None]:
        turning = of.times(turning, of.tape.apply(vectors, shape.width + kv, WIDE))
    query, key = of.tape.views(of.rotated(turning, table), [tokens * shape.width, tokens * kv])
    mixed = of.attention(query, key, value, micro.length, micro.device, x, joint, residual)
    return _ending(of, "output", mixed, of.late("value", kv), shape.feed_forward)


def _feed_forward(of: Arithmetic, x: Array, experts: Experts | None, residual: Array) -> Array:
    if experts is None:
        shared = of.shared_vector(FEED_FORWARD_INPUT_MAPS)
        return _gated_unit(of, x, of.shape.feed_forward, shared, (x, residual))
    return _mixture(of, x, experts, (x, residual))


def _gated_unit(
    of: Arithmetic, x: Array, hidden: int, before: Array | None, held: tuple[Array, ...]
) -> Array:
    """``GatedUnit``."""
    gate = of.scaled(of.joint(("gate",), x, hidden, (before,)), of.late("gate", hidden))
    up = of.joint(("up",), x, hidden, (before,))
    return _ending(of, "down", of.gated(gate, up, held), of.late("up", hidden), hidden)


def _ending(of: Arithmetic, name: str, x: Array, before: Array | None, hidden: int) -> Array:
    """A map that ends a sublayer, with what stands behind it."""
    return of.scaled(of.joint((name,), x, hidden, (before,)), of.late(name, of.shape.width))


def _mixture(of: Arithmetic, x: Array, experts: Experts, held: tuple[Array, ...]) -> Array:
    """``Mixture``."""
    shared = of.shared_vector(FEED_FORWARD_INPUT_MAPS)
    weights, chosen = _choices(of, x, experts, shared if of.strategy.router == "branch" else None)
    result = _routed(of, x, experts, weights, shared if of.strategy.experts == "shared" else None, held)
    if experts.shared_experts:
        hidden = experts.shared_hidden
        unit = replace(of, architecture="llama")
        result = of.add(result, _gated_unit(unit, x, hidden, shared, (*held, result, chosen)))
    if "down" not in OUTPUT_NORMS[of.architecture]:
        return result
    result = of.norm(result, 1)
    return result if of.strategy.branches == "none" else of.times(result, of.vector(of.shape.width))


def _choices(of: Arithmetic, x: Array, experts: Experts, before: Array | None) -> tuple[Array, Array]:
    """The weights of the chosen experts and who they are; probabilities are in float32."""
    wide = replace(of, narrow=WIDE)
    weight = parameter(experts.n_experts * of.shape.width)
    if of.strategy.router == "branch" and of.strategy.has_own_input_vector("gate"):
        weight = of.fold(weight, of.vector(of.shape.width))
    weight = weight if before is None else of.fold(weight, before)
    scores = wide.linear(x, weight, experts.n_experts)
    probabilities = of.tape.apply((scores,), scores.entries, WIDE, saves_output=True)
    chosen = new_array(of.rows * experts.top_k, INDEX)
    # Counting choices by sequence takes them as integers and as numbers.
    counted = experts.top_k * scores.entries * (INDEX + WIDE) * (experts.balancing == "loss")
    weights = of.tape.apply((probabilities,), chosen.entries, WIDE, (chosen,), working=counted)
    if experts.top_k > 1:
        sums = new_array(of.rows, WIDE)
        weights = of.tape.apply((weights,), chosen.entries, WIDE, (weights, sums))
    return weights, chosen


def _routed(
    of: Arithmetic, x: Array, experts: Experts, weights: Array, before: Array | None, held: tuple[Array, ...]
) -> Array:
    """The weighted sum of the chosen experts' outputs: a row for each token and expert."""
    strategy = PRESETS["none"] if of.strategy.experts == "none" else of.strategy
    stack = replace(
        of, strategy=strategy, architecture="llama", rows=of.rows * experts.top_k, n_experts=experts.n_experts
    )
    if strategy.experts == "own" and strategy.has_shared_vector(FEED_FORWARD_INPUT_MAPS):
        before = stack.vector(experts.n_experts * of.shape.width)
    entries, order = stack.rows * of.shape.width, new_array(stack.rows, INDEX)
    repeated = of.tape.apply((x,), entries, x.width)
    rows = of.tape.apply((repeated,), entries, x.width, (order,))
    outputs = _gated_unit(stack, rows, experts.feed_forward, before, (*held, rows))
    by_token = of.tape.apply((outputs,), entries, outputs.width, (new_array(stack.rows, INDEX),))
    weighted = of.tape.apply(
        (by_token, weights), entries, WIDE, (by_token, weights), working_backward=WIDE * entries
    )
    return of.tape.apply((weighted,), of.rows * of.shape.width, WIDE)
