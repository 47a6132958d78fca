"""What compiled blocks take: stand-ins that allocate as the compiled functions would.

What they keep for the backward pass is what the min-cut partitioner of torch's compiler chooses, of the joint
graph of the real function; what they take on the way is what is left once its operations are fused.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from scalevec.model.estimate.hollow import Hollow, mapped, meta_of


@dataclass(frozen=True)
class _Work:
    """Bytes that a compiled function keeps for its backward pass, and takes for itself each way."""

    kept: int
    forward: int
    backward: int
    outputs: Any


class StandIn:
    """Stands in for what ``torch.compile`` makes of ``function``: allocates as that would."""

    def __init__(
        self, hollow: Hollow, works: dict[Any, _Work], function: Callable[..., Any], **_: Any
    ) -> None:
        self.hollow, self.works, self.function = hollow, works, function

    def __call__(self, *args: Any) -> Any:
        """What the function gives, its tensors without content."""
        # ``nn.Module.compile`` compiles a method, behind which the module's hooks would be traced too.
        module = self.function.__self__  # type: ignore[attr-defined]
        if not torch.is_grad_enabled():
            # Of an evaluating pass the blocks take little; uncompiled they take more, not less.
            return self.function(*args)
        inputs = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        primals = [*inputs, *(p for p in module.parameters() if not any(p is other for other in inputs))]
        key = (type(module), *((tensor.shape, tensor.dtype) for tensor in primals))
        if key not in self.works:
            with self.hollow.shown(None):
                self.works[key] = _work(self.hollow, module, args, inputs)
        results = _Allocates.apply(self.works[key], *primals)  # type: ignore[no-untyped-call]
        for hook in module._forward_hooks.values():
            hook(module, args, results)
        return results


class _Allocates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: _Work, *primals: Tensor) -> Any:
        kept = torch.empty(work.kept, dtype=torch.uint8)
        torch.empty(work.forward, dtype=torch.uint8)
        ctx.work = work
        ctx.save_for_backward(kept, *primals)
        return tree_map_only(Tensor, torch.empty_like, work.outputs)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        _, *primals = ctx.saved_tensors
        torch.empty(ctx.work.backward, dtype=torch.uint8)
        return None, *(torch.empty_like(p) if p.requires_grad else None for p in primals)


_SAVED: dict[tuple[str, ...], list[tuple[int, int]]] = {}
"""Of functions of the same operations, which of their results the partitioner saves, whatever their sizes."""


def _work(hollow: Hollow, part: nn.Module, args: Any, inputs: Sequence[Tensor]) -> _Work:
    operations: list[_Operation] = []
    # Not detached ones: traces would hold the memory of what is really given.
    given = [torch.empty_like(tensor).requires_grad_(tensor.requires_grad) for tensor in inputs]
    tangent = torch.empty_like(inputs[0], requires_grad=False)
    primals, instead = [*given, *part.parameters()], iter(given)
    with _traced(hollow, operations):
        outputs = part.forward(*tree_map_only(Tensor, lambda _: next(instead), args))
        results = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
        boundary = len(operations)
        wanted = [tensor for tensor in primals if tensor.requires_grad]
        gradients = torch.autograd.grad(results, wanted, [tangent], allow_unused=True)
    ends = [None if tensor is None else meta_of(tensor) for tensor in (*results, *gradients)]
    starts = [meta_of(tensor) for tensor in (*primals, tangent)]
    key = tuple(str(operation.function) for operation in operations)
    if key not in _SAVED:
        _SAVED[key] = _saved_by_partitioner(starts, operations, ends)
    saved = [operations[at].results[item] for at, item in _SAVED[key]]
    held = {_key(tensor) for tensor in (*starts[:-1], *ends) if tensor is not None}
    kept = {_key(tensor): _size(tensor) for tensor in saved if _key(tensor) not in held}
    return _Work(
        kept=sum(kept.values()),
        forward=_most(operations[:boundary], held | kept.keys()),
        backward=_most(operations[boundary:], held | kept.keys()),
        outputs=tree_map_only(Tensor, Tensor.detach, outputs),
    )


@contextmanager
def _traced(hollow: Hollow, operations: list["_Operation"]) -> Iterator[None]:
    """As the compiler traces, into ``operations``: no cast of a weight is shared by several functions.

    What this saves for its backward pass is no concern of a checkpoint around it.
    """
    narrow, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
    with (
        hollow.shown(lambda *seen: operations.append(_Operation.of(*seen))),
        torch.enable_grad(),
        patch.object(torch.compiler, "is_compiling", lambda: True),
        torch.autocast("cpu", narrow, enabled, cache_enabled=False),
        torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
    ):
        yield


def _saved_by_partitioner(
    starts: Sequence[Tensor], operations: Sequence["_Operation"], ends: Sequence[Tensor | None]
) -> list[tuple[int, int]]:
    from functorch.compile import (  # type: ignore[import-untyped]
        min_cut_rematerialization_partition,
    )

    graph = torch.fx.Graph()
    nodes: dict[int, torch.fx.Node] = {}
    where: dict[str, tuple[int, int]] = {}
    for at, tensor in enumerate(starts):
        is_tangent = at == len(starts) - 1
        nodes[id(tensor)] = node = graph.placeholder("tangents_1" if is_tangent else f"primals_{at + 1}")
        node.meta["val"] = tensor
    for at, operation in enumerate(operations):
        args, kwargs = mapped(lambda tensor: nodes.get(id(tensor)), (operation.args, operation.kwargs))
        if operation.function is _ATEN.detach.default:  # of what is saved, as autograd unpacks it
            nodes[id(operation.results[0])] = args[0]
            continue
        node = graph.call_function(operation.function, args, kwargs)
        node.meta["val"] = operation.results if operation.is_tuple else operation.results[0]
        for item, tensor in enumerate(operation.results):
            made = node
            if operation.is_tuple:
                made = graph.call_function(operator.getitem, (node, item))
                made.meta["val"] = tensor
            nodes[id(tensor)], where[made.name] = made, (at, item)
    graph.output([None if tensor is None else nodes[id(tensor)] for tensor in ends])
    module = torch.fx.GraphModule(nn.Module(), graph)
    forward, _ = min_cut_rematerialization_partition(module, None, num_fwd_outputs=1)
    saved = forward.graph.output_node().args[0][1:]
    return [where[node.name] for node in saved if node.name in where]


@dataclass(frozen=True)
class _Operation:
    function: Any
    args: Any
    kwargs: Any
    results: tuple[Any, ...]
    is_tuple: bool
    fuses: bool
    sources: tuple[int, ...]

    @staticmethod
    def of(function: Any, args: Any, kwargs: Any, results: Any) -> "_Operation":
        is_tuple = isinstance(results, tuple | list)
        sources = [_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        fuses = torch.Tag.pointwise in function.tags or function in _FUSED or function.is_view
        made = tuple(results) if is_tuple else (results,)
        return _Operation(function, args, kwargs, made, is_tuple, fuses, tuple(sources))


_ATEN = torch.ops.aten
_FUSED = {
    _ATEN._to_copy.default, _ATEN.clone.default, _ATEN.flip.default, _ATEN.cat.default,
    _ATEN.constant_pad_nd.default, _ATEN.repeat.default, _ATEN.sum.dim_IntList, _ATEN.mean.dim,
}  # fmt: skip
"""Beside element-wise operations and views, what the compiler makes no kernel of its own for."""


def _key(tensor: Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _size(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _most(operations: Sequence[_Operation], held: set[int]) -> int:
    """The most bytes at once of what ``operations`` make that is not ``held``, once they are fused.

    What only fused operations make and read exists in no memory.
    """
    sizes: dict[int, int] = {}
    first_made: dict[int, int] = {}
    real: set[int] = set()
    for at, operation in enumerate(operations):
        if not operation.fuses:
            real.update(operation.sources)
        for tensor in operation.results:
            if isinstance(tensor, Tensor) and _key(tensor) not in operation.sources:
                first_made.setdefault(_key(tensor), at)
                sizes[_key(tensor)] = _size(tensor)
                if not operation.fuses:
                    real.add(_key(tensor))
    ends: dict[int, int] = {}
    for at, operation in reversed(list(enumerate(operations))):
        keys = [_key(tensor) for tensor in operation.results if isinstance(tensor, Tensor)]
        end = max([ends.get(key, at) for key in keys if key not in real], default=at)
        for source in operation.sources:
            ends[source] = max(ends.get(source, 0), end)
    changes = [0] * (len(operations) + 2)
    for key in real & first_made.keys() - held:
        changes[first_made[key]] += sizes[key]
        changes[ends.get(key, first_made[key]) + 1] -= sizes[key]
    most = now = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most
