"""The memory of a forward and a backward pass, followed operation by operation without any array.

A :class:`Tape` is told the operations of a model in their order, each with the bytes that it makes and those
that it saves for its backward pass. :func:`training_peak` then plays them: forward, where what is neither
saved nor used again is freed, and backward, where gradients appear and what was saved goes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field


class Storage:
    """Memory that one or several arrays share."""

    __slots__ = ("size",)

    def __init__(self, size: float) -> None:
        self.size = size
        """Bytes."""


@dataclass(eq=False, frozen=True)
class Array:
    """An array of the pass; ``width`` is the bytes of an entry."""

    entries: float
    width: int
    storage: Storage
    is_parameter: bool = False
    needs_gradient: bool = True

    @property
    def size(self) -> float:
        """Bytes of the array itself, of a view those that it shows."""
        return self.entries * self.width


@dataclass(eq=False)
class Operation:
    """One operation.

    saved: what backward needs. held: what is alive until the operation is done, though it does not use it.
    working, working_backward: bytes that it takes for itself while it runs. shares_gradient: whether the
    gradient of its output serves its inputs as it is.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    saved: tuple[Array, ...] = ()
    held: tuple[Array, ...] = ()
    working: float = 0
    working_backward: float = 0
    shares_gradient: bool = False


@dataclass
class Tape:
    """The operations of a pass in their order; those of a block of the model also by block."""

    operations: list[Operation] = field(default_factory=list)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    """First operation of each block and the one behind its last."""
    cached: list[Array] = field(default_factory=list)
    """What is kept until the forward pass has ended, whether it is saved or not."""

    def apply(
        self,
        inputs: Sequence[Array],
        entries: float,
        width: int,
        saved: Sequence[Array] = (),
        saves_output: bool = False,
        **facts: object,
    ) -> Array:
        """Record an operation with one output of ``entries`` of ``width`` bytes each, and return it."""
        output = Array(entries, width, Storage(entries * width))
        kept = (*saved, output) if saves_output else tuple(saved)
        self.operations.append(Operation(tuple(inputs), (output,), kept, **facts))  # type: ignore[arg-type]
        return output

    def views(self, array: Array, entries: Sequence[float]) -> list[Array]:
        """Parts of ``array`` that share its storage; backward puts their gradients together."""
        parts = [Array(count, array.width, array.storage) for count in entries]
        self.operations.append(Operation((array,), tuple(parts)))
        return parts

    def saved(self) -> float:
        """Bytes that backward needs, parameters left out."""
        storages = {array.storage for operation in self.operations for array in _kept(operation)}
        return sum(storage.size for storage in storages)


def parameter(entries: float) -> Array:
    """A parameter of the model, in float32: its memory, and its gradient's, count apart."""
    return Array(entries, 4, Storage(0), is_parameter=True)


def _kept(operation: Operation) -> Iterator[Array]:
    return (array for array in operation.saved if not array.is_parameter)


@dataclass(frozen=True)
class Peak:
    """The most bytes held at once in a forward and a backward pass, beside the parameters.

    parameter_gradients: those among them that were gradients of parameters at that time.
    """

    size: float
    parameter_gradients: float


def training_peak(tape: Tape, *, accumulates: bool = False, recomputes: bool = False) -> Peak:
    """Play a forward and a backward pass.

    Args:
        tape: The operations, the last one's output being the loss.
        accumulates: Whether gradients of the parameters are there already (those are not counted): each
            new one is added to them and freed.
        recomputes: Whether a block saves its input alone, and goes forward again when backward needs it.
    """
    return _Pass(tape, accumulates, recomputes).peak()


def forward_peak(tape: Tape) -> float:
    """The most bytes held at once in a forward pass that saves nothing, beside the parameters."""
    play = _Pass(tape, accumulates=False, recomputes=False)
    play.forward(0, len(tape.operations), saves=False)
    return play.most


class _Pass:
    """What is held at each time of a pass, by how often it is needed."""

    def __init__(self, tape: Tape, accumulates: bool, recomputes: bool) -> None:
        self.tape, self.accumulates, self.recomputes = tape, accumulates, recomputes
        self.needed: Counter[Storage] = Counter()
        self.gradients: dict[Array, Storage] = {}
        self.now = self.most = self.of_parameters = self.of_parameters_then = 0.0
        self.alive: set[Storage] = set()
        self.summed: set[Array] = set()
        self.last_use: dict[Storage, int] = {}
        for index, operation in enumerate(tape.operations):
            for array in (*operation.inputs, *operation.outputs, *operation.held):
                self.last_use[array.storage] = index
        self.ending: defaultdict[int, list[Storage]] = defaultdict(list)
        for storage, index in self.last_use.items():
            self.ending[index].append(storage)

    def peak(self) -> Peak:
        """Forward and backward."""
        count = len(self.tape.operations)
        blocks = self.tape.blocks if self.recomputes else []
        at = 0
        for first, end in blocks:
            self.forward(at, first, saves=True)
            self._need(self.tape.operations[first].inputs[0].storage)
            self.forward(first, end, saves=False)
            at = end
        self.forward(at, count, saves=True)
        for first, end in reversed(blocks):
            self._backward(end, at=count)
            count = first
            self._again(first, end)
        self._backward(0, at=count)
        return Peak(self.most, self.of_parameters_then)

    def forward(self, first: int, end: int, *, saves: bool) -> None:
        """Play the operations from ``first`` to before ``end``."""
        for index in range(first, end):
            operation = self.tape.operations[index]
            for output in operation.outputs:
                if output.storage not in self.alive:
                    self.alive.add(output.storage)
                    self._need(output.storage)
            self._note(operation.working)
            for array in operation.saved if saves else ():
                self._need(array.storage)
            self._note(0)
            self._forget(self.ending[index])

    def _forget(self, storages: Iterable[Storage]) -> None:
        """Nothing of the forward pass uses these any more."""
        for storage in self.alive & set(storages):
            self.alive.remove(storage)
            self._release(storage)

    def _again(self, first: int, end: int) -> None:
        """A block that was not saved: forward once more, then backward."""
        source = self.tape.operations[first].inputs[0].storage
        self.forward(first, end, saves=True)
        self._forget(list(self.alive))
        self._backward(first, at=end)
        self._release(source)

    def _backward(self, first: int, at: int) -> None:
        """Play the operations backward, from the one before ``at`` to ``first``."""
        for operation in reversed(self.tape.operations[first:at]):
            incoming = [self.gradients.pop(output, None) for output in operation.outputs]
            shared = incoming[0] if operation.shares_gradient else None
            passed = 0.0
            for source in operation.inputs:
                if source.needs_gradient:
                    passed += self._add_gradient(source, shared)
            if not operation.shares_gradient:
                self._note(operation.working_backward)
            self.now -= passed
            for gradient in incoming:
                self._release(gradient)
            for array in operation.saved:
                self._release(array.storage)

    def _add_gradient(self, source: Array, shared: Storage | None) -> float:
        """The gradient of an input; returns the bytes of it that go when the operation is done."""
        fits = shared is not None and shared.size == source.size
        if source.is_parameter:
            self.now += source.size
            if self.accumulates or source in self.summed:
                return source.size
            self.summed.add(source)
            self.of_parameters += source.size
            return 0
        if source in self.gradients:  # added in place
            self.now += 0 if fits else source.size
            return 0 if fits else source.size
        gradient = shared if fits and shared is not None else Storage(source.size)
        self.gradients[source] = gradient
        self._need(gradient)
        return 0

    def _need(self, storage: Storage) -> None:
        if not self.needed[storage]:
            self.now += storage.size
        self.needed[storage] += 1

    def _release(self, storage: Storage | None) -> None:
        if storage is None or not self.needed[storage]:
            return
        self.needed[storage] -= 1
        if not self.needed[storage]:
            self.now -= storage.size

    def _note(self, working: float) -> None:
        if self.now + working > self.most:
            self.most, self.of_parameters_then = self.now + working, self.of_parameters
