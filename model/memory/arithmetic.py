"""What a decoder's operations make and save, one function each: those of ``model.ops`` and of linear
maps with their scale vectors (``model.scale_vectors``), in the types in which they are reckoned."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalevec.model.accounting import map_shapes
from scalevec.model.config import Shape
from scalevec.model.memory.tape import Array, Storage, Tape, parameter
from scalevec.model.strategies import ATTENTION_INPUT_MAPS, OUTPUT_NORMS, ScaleVectorStrategy

WIDE = 4
"""Bytes of an entry in float32."""
INDEX = 8
"""Bytes of an index."""
SLICE = {"cpu": (2**18, 128), "cuda": (2**28, 1024)}
"""Logits in a slice of the head's rows, and its fewest rows (``model.ops.rows_of_a_slice``)."""


def new_array(entries: float, width: int) -> Array:
    """An array that an operation makes for itself and saves."""
    return Array(entries, width, Storage(entries * width), needs_gradient=False)


@dataclass(frozen=True)
class Arithmetic:
    """The operations on ``rows`` rows of activations, recorded on ``tape``.

    narrow: bytes of an entry of a matrix product. architecture: of the norms behind maps. norm_gain: how
    vectors are stored. n_experts: of stacks of maps, 0 for single ones.
    """

    tape: Tape
    shape: Shape
    strategy: ScaleVectorStrategy
    architecture: str
    rows: int
    narrow: int
    norm_gain: str
    n_experts: int = 0

    def cast(self, x: Array, width: int) -> Array:
        """``x`` in a type of ``width`` bytes; autocast keeps that of a parameter until the pass has ended."""
        if x.width == width:
            return x
        cast = self.tape.apply((x,), x.entries, width)
        if x.is_parameter:
            self.tape.cached.append(cast)
        return cast

    def norm(self, x: Array, groups: int) -> Array:
        """``rms_norm`` of ``groups`` groups a row: in float32, which is saved, then in the type of ``x``."""
        wide, roots = self.cast(x, WIDE), new_array(groups * self.rows, WIDE)
        y = self.tape.apply(
            (wide,), x.entries, WIDE, (roots,), saves_output=True,
            working=roots.size, working_backward=WIDE * x.entries,
        )  # fmt: skip
        return self.cast(y, x.width)

    def times(self, x: Array, vector: Array) -> Array:
        """Activations times a scale vector, which is in float32; its gradient is a sum over products."""
        size = WIDE * x.entries
        return self.tape.apply((x, vector), x.entries, WIDE, (x, vector), working_backward=size)

    def add(self, x: Array, change: Array) -> Array:
        """A sum, in the wider type of the two, then in that of ``x``."""
        width = max(x.width, change.width)
        return self.cast(self.tape.apply((x, change), x.entries, width, shares_gradient=True), x.width)

    def linear(self, x: Array, weight: Array, outputs: int) -> Array:
        """``x`` by a weight, both in the narrow type; by a stack of weights a product for each expert."""
        x, weight = self.cast(x, self.narrow), self.cast(weight, self.narrow)
        entries, stacked = self.rows * outputs, self.n_experts > 0
        return self.tape.apply(
            (x, weight), entries, self.narrow, (x, weight),
            working=stacked * entries * self.narrow, working_backward=stacked * weight.size,
        )  # fmt: skip

    def gated(self, gate: Array, up: Array, held: Sequence[Array] = ()) -> Array:
        """``silu(gate) * up``, and with GELU too: either saves the gate."""
        active = self.tape.apply((gate,), gate.entries, gate.width, (gate,))
        width = max(active.width, up.width)
        return self.tape.apply((active, up), up.entries, width, (active, up), held=(gate, *held))

    def rotated(self, x: Array, table: Array) -> Array:
        """Rotary embedding: a complex product in float32; then in the narrow type."""
        turned = self.tape.apply((self.cast(x, WIDE),), x.entries, WIDE, (table,))
        return self.cast(turned, self.narrow)

    def attention(
        self, query: Array, key: Array, value: Array, length: int, device: str, *held: Array
    ) -> Array:
        """The kernel's saves: queries, keys, values, output and the logarithm of each sum.

        On a GPU no kernel takes grouped heads in float32; there torch repeats keys and values, and saves the
        weights of every pair of tokens.
        """
        shape, entries = self.shape, self.rows * self.shape.width
        saved = [query, key, value, new_array(self.rows * shape.heads, WIDE)]
        if device == "cuda" and self.narrow == WIDE and shape.kv_heads != shape.heads:
            saved += [
                new_array(entries, WIDE),
                new_array(entries, WIDE),
                new_array(self.rows * shape.heads * length, WIDE),
            ]
        working = sum(array.size for array in saved[3:])
        sources = (query, key, self.cast(value, self.narrow))
        return self.tape.apply(
            sources, entries, self.narrow, saved, saves_output=True, working=working, held=held
        )

    def head(self, x: Array, weight: Array, device: str, *, trains: bool) -> None:
        """``head_loss``: a slice of rows at a time; both gradients are reckoned with the loss and saved."""
        x, weight = self.cast(x, self.narrow), self.cast(weight, self.narrow)
        classes = int(weight.entries) // self.shape.width
        entries, fewest = SLICE[device]
        is_narrow = self.narrow < WIDE
        # The logits of a slice; a GPU replaces them by their gradient, elsewhere bfloat16 has wider copies.
        logits = min(self.rows, max(fewest, entries // classes)) * classes
        slices = logits * (self.narrow if device == "cuda" else WIDE + 2 * self.narrow * is_narrow)
        saved = [new_array(part.entries, self.narrow) for part in (x, weight)] if trains else []
        # The weight's gradient is summed up in float32, each slice's part beside it.
        sums = WIDE * weight.entries * is_narrow * trains
        working = sum(array.size for array in saved) + sums + slices
        self.tape.apply((x, weight), 1, WIDE, saved, working=working, held=tuple(self.tape.cached))

    # Linear maps with their scale vectors.

    def vector(self, entries: float) -> Array:
        """A scale vector as it takes effect, of stacks all of them."""
        factors = parameter(entries)
        if self.norm_gain == "1+w":
            factors = self.tape.apply((factors,), entries, WIDE, shares_gradient=True)
        if self.strategy.reparameterization == "none":
            return factors
        return self.tape.apply((factors,), entries, WIDE, (factors,), saves_output=True)

    def shared_vector(self, readers: tuple[str, ...]) -> Array | None:
        """The vector that ``readers`` of a norm share, where there is one."""
        return self.vector(self.shape.width) if self.strategy.has_shared_vector(readers) else None

    def joint(self, names: Sequence[str], x: Array, hidden: int, before: Sequence[Array | None]) -> Array:
        """What the maps ``names`` make of ``x``, side by side, normalized where it is (``joint_map``)."""
        outputs = [map_shapes(self.shape, hidden)[name][0] for name in names]
        product = self.linear(x, self._joint_weight(names, hidden, before), sum(outputs))
        groups = [self._groups(name, size) for name, size in zip(names, outputs, strict=True)]
        if not any(groups):
            return product
        widths = {size // count if count else 0 for size, count in zip(outputs, groups, strict=True)}
        if len(widths) == 1:
            return self.norm(product, sum(groups))
        parts = self.tape.views(product, [self.rows * size for size in outputs])
        normed = [self.norm(part, n) if n else part for part, n in zip(parts, groups, strict=True)]
        return self.tape.apply(normed, product.entries, product.width, shares_gradient=True)

    def _joint_weight(self, names: Sequence[str], hidden: int, before: Sequence[Array | None]) -> Array:
        common = before[0] if all(vector is before[0] for vector in before) else None
        weights = [self._folded_weight(name, hidden) for name in names]
        if common is None:
            pairs = zip(weights, before, strict=True)
            weights = [weight if vector is None else self.fold(weight, vector) for weight, vector in pairs]
        weight = weights[0]
        if len(weights) > 1:
            entries = sum(part.entries for part in weights)
            weight = self.tape.apply(weights, entries, WIDE, shares_gradient=True)
        return weight if common is None else self.fold(weight, common)

    def _folded_weight(self, name: str, hidden: int) -> Array:
        """The matrix with its own vectors (``LinearMap.folded_weight``)."""
        outputs, inputs = map_shapes(self.shape, hidden)[name]
        weight = parameter(max(self.n_experts, 1) * outputs * inputs)
        if self.strategy.has_own_input_vector(name):
            weight = self.fold(weight, self.vector(self.copies * inputs))
        if self.strategy.has_output_vector(name) and not self.strategy.normalizes_output(name):
            weight = self.fold(weight, self._output_vector(name, outputs))
        return weight

    def _output_vector(self, name: str, outputs: int) -> Array:
        return (
            self._of_heads(outputs)
            if self.strategy.shares_heads(name)
            else self.vector(self.copies * outputs)
        )

    def _of_heads(self, outputs: int) -> Array:
        """A vector of a head's width, repeated for every head."""
        return self.tape.apply((self.vector(self.shape.head_width),), outputs, WIDE)

    def fold(self, weight: Array, vector: Array) -> Array:
        """A weight times a vector along one of its sides."""
        size = WIDE * weight.entries
        return self.tape.apply(
            (weight, vector), weight.entries, WIDE, (weight, vector), working_backward=size
        )

    def late(self, name: str, outputs: int) -> Array | None:
        """What a norm behind the map keeps from being folded (``LinearMap.late_vector``)."""
        if not self.n_experts and self.strategy.has_norm_vector(name, self.architecture):
            return self._of_heads(outputs) if name in ATTENTION_INPUT_MAPS else self.vector(outputs)
        return self._output_vector(name, outputs) if self.strategy.normalizes_output(name) else None

    def scaled(self, x: Array, vector: Array | None) -> Array:
        """``x`` times a late vector, if there is one; of a stack each row by its expert's own."""
        if vector is None:
            return x
        if self.n_experts and self.strategy.experts == "own":
            vector = self.tape.apply((vector,), x.entries, WIDE, (new_array(self.rows, INDEX),))
        return self.times(x, vector)

    @property
    def copies(self) -> int:
        """Vectors in one: those of the experts, where each has its own."""
        return self.n_experts if self.n_experts and self.strategy.experts == "own" else 1

    def _groups(self, name: str, outputs: int) -> int:
        """Neighbouring outputs of a map that are normalized together: how many such; 0 without a norm."""
        of_architecture = name in OUTPUT_NORMS[self.architecture]
        if not of_architecture and not self.strategy.normalizes_output(name):
            return 0
        per_head = name in ATTENTION_INPUT_MAPS and (of_architecture or self.strategy.normalize_per_head)
        return outputs // self.shape.head_width if per_head else 1
