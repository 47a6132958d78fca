"""What compiled blocks take: stand-ins that allocate as the compiled functions would.

What they keep for the backward pass is what the min-cut partitioner of torch's compiler chooses, of the joint
graph of the real function; what they take on the way is what is left once its operations are fused.
"""

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclass(frozen=True)
class _Work:
    """Bytes that a compiled function keeps for its backward pass, and takes for itself each way."""

    kept: int
    forward: int
    backward: int
    outputs: Any


class StandIn:
    """Stands in for what ``torch.compile`` makes of ``function``: allocates as that would."""

    def __init__(self, function: Callable[..., Any], **_: Any) -> None:
        self.function, self.works = function, dict[Any, _Work]()

    def __call__(self, *args: Any) -> Any:
        """What the function gives, its tensors without content."""
        # ``nn.Module.compile`` compiles a method, behind which the module's hooks would be traced too.
        module = self.function.__self__  # type: ignore[attr-defined]
        if not torch.is_grad_enabled():
            # Of an evaluating pass the blocks take little; uncompiled they take more, not less.
            return self.function(*args)
        inputs = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
        primals = [*inputs, *(p for p in module.parameters() if not any(p is other for other in inputs))]
        key = tuple((tuple(tensor.shape), tensor.dtype) for tensor in primals)
        if key not in self.works:
            watch = primals[0].fake_mode
            storages, watch.storages = watch.storages, None
            self.works[key] = _work(module, args, inputs)
            watch.storages = storages
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


def _work(part: nn.Module, args: Any, inputs: Sequence[Tensor]) -> _Work:
    names, parameters = zip(*part.named_parameters(), strict=True)
    # Not detached ones: traces would hold the memory of what is really given.
    primals = [
        torch.empty_like(tensor).requires_grad_(tensor.requires_grad) for tensor in (*inputs, *parameters)
    ]
    with torch.no_grad():
        tangents = [torch.empty_like(inputs[0])]
    boundary: list[int] = []
    outputs: list[Any] = []

    def joint(primals: list[Tensor], tangents: list[Tensor]) -> list[Tensor | None]:
        given = iter(primals)
        called = tree_map_only(Tensor, lambda _: next(given), args)
        outputs[:] = [_called(part, dict(zip(names, given, strict=True)), called)]
        results = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
        boundary.append(len(tape.operations))
        wanted = [tensor for tensor in primals if tensor.requires_grad]
        return [*results, *torch.autograd.grad(results, wanted, tangents, allow_unused=True)]

    with torch.enable_grad(), _compiling(), _Tape() as tape:
        results = joint(primals, tangents)
    key = tuple(operation.name for operation in tape.operations)
    if key not in _SAVED:
        with torch.enable_grad(), _compiling():
            _SAVED[key] = _saved_by_partitioner(joint, primals, tangents)
    saved = [tape.operations[at].results[item] for at, item in _SAVED[key]]
    held = {_key(tensor) for tensor in (*primals, *results) if tensor is not None}
    kept = {_key(tensor): _size(tensor) for tensor in saved if _key(tensor) not in held}
    of_forward, of_backward = tape.operations[: boundary[0]], tape.operations[boundary[0] :]
    return _Work(
        kept=sum(kept.values()),
        forward=_most(of_forward, held | kept.keys()),
        backward=_most(of_backward, held | kept.keys()),
        outputs=tree_map_only(Tensor, Tensor.detach, outputs[0]),
    )


def _called(module: nn.Module, parameters: dict[str, Tensor], args: Any) -> Any:
    hooks, module._forward_hooks = module._forward_hooks, OrderedDict()
    compiled, module._compiled_call_impl = module._compiled_call_impl, None
    try:
        return torch.func.functional_call(module, parameters, args)
    finally:
        module._forward_hooks, module._compiled_call_impl = hooks, compiled


@contextmanager
def _compiling() -> Iterator[None]:
    """As the compiler traces: no cast of a weight is shared by several functions."""
    narrow, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
    with (
        patch.object(torch.compiler, "is_compiling", lambda: True),
        torch.autocast("cpu", narrow, enabled, cache_enabled=False),
    ):
        yield


def _saved_by_partitioner(joint: Any, primals: Any, tangents: Any) -> list[tuple[int, int]]:
    from functorch.compile import (  # type: ignore[import-untyped]
        min_cut_rematerialization_partition,
    )
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(joint)(primals, tangents)
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    where: dict[str, tuple[int, int]] = {}
    count = 0
    for node in calls:
        if node.target is operator.getitem:
            where[node.name] = (where[node.args[0].name][0], node.args[1])
        else:
            where[node.name] = (count, 0)
            count += 1
    forward, _ = min_cut_rematerialization_partition(graph, None, num_fwd_outputs=1)
    saved = forward.graph.output_node().args[0][1:]
    return [where[node.name] for node in saved if node.name in where]


@dataclass(frozen=True)
class _Operation:
    name: str
    fuses: bool
    sources: tuple[int, ...]
    results: tuple[Any, ...]


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations as they are asked for, with their tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[_Operation] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        sources = [_key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        if not any(isinstance(each, Tensor) for each in results):
            return result  # of which device a tensor is, and the like
        fuses = torch.Tag.pointwise in function.tags or function in _FUSED or function.is_view
        self.operations.append(_Operation(str(function), fuses, tuple(sources), results))
        return result


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
