"""Tensors of a shape and a type that hold nothing: what they would take is counted, nothing is computed.

They do what torch's fake tensors do, in a fifth of the time. Compiled functions are stood in for by ones that
allocate as those would: what they keep for the backward pass is what the min-cut partitioner of torch's
compiler chooses of the real function; what they take on the way is what is left once operations are fused.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from scalevec.model.train.step import Storages

META, CPU = torch.device("meta"), torch.device("cpu")
_ATEN = torch.ops.aten


class HollowTensor(Tensor):
    """Said to be on the CPU; its ``meta`` is on that device of torch's which works out shapes alone."""

    meta: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(meta: Tensor) -> "HollowTensor":
        """The tensor that ``meta`` stands for."""
        if meta.is_inference() is not torch.is_inference_mode_enabled():  # an older one, seen from within
            with torch.inference_mode(meta.is_inference()):
                return HollowTensor.of(meta)
        tensor: HollowTensor = Tensor._make_wrapper_subclass(
            HollowTensor, meta.shape, meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=CPU
        )
        tensor.meta = meta
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        """Operations are those of the mode."""
        raise RuntimeError(f"{function} of a tensor that holds nothing")


class Operation(NamedTuple):
    """One that was run, with the ``meta`` of its tensors."""

    function: Any
    args: Any
    kwargs: dict[str, Any]
    results: Any


class Hollow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, all tensors that are made are hollow, and ``see`` is told of each operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.see: Callable[[Operation], None] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch would load its compiler now

    def count(self, held: Iterable[Tensor]) -> Storages:
        """Add up from here on what lives, from ``held`` on."""
        storages = Storages(map(_meta_of, held))
        self.see = lambda operation: storages.add_all(operation.results)
        return storages

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let ``function`` give tensors of the right shapes."""
        if function is _ATEN.detach.default and isinstance(args[0], HollowTensor):
            return HollowTensor.of(args[0].meta)
        if function is _ATEN.scaled_dot_product_attention.default:  # so only in inference mode
            with self:  # which kernel it takes follows from the device, as does the layout of what that gives
                return function.decompose(*args, **(kwargs or {}))
        given: dict[int, HollowTensor] = {}

        def inside(tensor: Tensor) -> Tensor:
            meta = _meta_of(tensor)
            if isinstance(tensor, HollowTensor):
                given[id(meta)] = tensor
            return meta

        def outside(meta: Tensor) -> Tensor:
            # What an operation changes it returns.
            return given[id(meta)] if id(meta) in given else HollowTensor.of(meta)

        named = {name: _mapped(inside, value) for name, value in (kwargs or {}).items()}
        metas = _mapped(inside, args)
        if "device" in named:
            named["device"] = META
        elif not given:
            return function(*args, **(kwargs or {}))
        results = _results(function, metas, named)
        if self.see is not None:
            self.see(Operation(function, metas, named, results))
        return _mapped(outside, results)


_KNOWN: dict[Any, Callable[[], Any]] = {}
"""Of operations on tensors of such shapes, what makes tensors like those that they give."""


def _results(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What ``function`` gives; shapes of what is new are worked out once: that takes half a millisecond."""
    schema = function._schema
    if schema.name.endswith("_") and torch.Tag.inplace_view not in function.tags:
        return args[0] if schema.returns else None
    if function.is_view or schema.is_mutable or any(returned.alias_info for returned in schema.returns):
        return function(*args, **kwargs)
    key = (function, _form(args), *((name, _form(value)) for name, value in kwargs.items()))
    if key not in _KNOWN:
        _KNOWN[key] = _maker_of(function(*args, **kwargs))
    return _KNOWN[key]()


def _maker_of(result: Any) -> Callable[[], Any]:
    if isinstance(result, Tensor):
        sides, strides, dtype = result.shape, result.stride(), result.dtype
        return lambda: torch.empty_strided(sides, strides, dtype=dtype, device=META)
    if isinstance(result, list | tuple):
        makers = list(map(_maker_of, result))
        return lambda: [make() for make in makers]
    return lambda: result


def _form(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype
    return tuple(map(_form, value)) if isinstance(value, list | tuple) else (type(value), value)


def _meta_of(tensor: Tensor) -> Tensor:
    return tensor.meta if isinstance(tensor, HollowTensor) else tensor.to(META)


def _mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    return type(value)(_mapped(change, each) for each in value) if type(value) in (list, tuple) else value


class _Work(NamedTuple):
    """Bytes that a compiled function keeps for its backward pass, and takes for itself each way."""

    kept: int
    forward: int
    backward: int
    outputs: Any


def stand_in(hollow: Hollow) -> Callable[..., None]:
    """What to take for ``nn.Module.compile`` within ``hollow``; equal modules share what is worked out."""
    works: dict[Any, _Work] = {}

    def compile_(module: nn.Module, **_: Any) -> None:
        real = module.forward

        def forward(*args: Any) -> Any:
            if not torch.is_grad_enabled():
                # Of an evaluating pass the blocks take little; uncompiled they take more, not less.
                return real(*args)
            primals = [*tensors(args), *module.parameters()]
            key = (type(module), *((tensor.shape, tensor.dtype) for tensor in primals))
            if key not in works:
                with patch.object(hollow, "see", None):
                    works[key] = _work(hollow, real, args, primals)
            return _Allocates.apply(works[key], *primals)  # type: ignore[no-untyped-call]

        module.forward = forward

    return compile_


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


_SAVED: dict[tuple[Any, ...], list[int]] = {}
"""Of functions of the same operations, which of their results the partitioner saves, whatever their sizes."""


def _work(hollow: Hollow, function: Callable[..., Any], args: Any, primals: Sequence[Tensor]) -> _Work:
    # Not detached ones: a trace would hold the memory of what is really given.
    given = [torch.empty_like(tensor).requires_grad_(tensor.requires_grad) for tensor in tensors(args)]
    instead, primals, tangent = iter(given), [*given, *primals[len(given) :]], torch.empty_like(given[0])
    forward, backward = list[Operation](), list[Operation]()
    with _as_compiler():
        with patch.object(hollow, "see", forward.append):
            outputs = function(*tree_map_only(Tensor, lambda _: next(instead), args))
        with patch.object(hollow, "see", backward.append):
            wanted = [tensor for tensor in primals if tensor.requires_grad]
            gradients = torch.autograd.grad(tensors(outputs), wanted, [tangent], allow_unused=True)
    starts = [_meta_of(tensor) for tensor in (*primals, tangent)]
    ends = [tensor if tensor is None else _meta_of(tensor) for tensor in (*tensors(outputs), *gradients)]
    operations = forward + backward
    key = tuple(operation.function for operation in operations)
    if key not in _SAVED:
        _SAVED[key] = _saved_by_partitioner(starts, operations, ends)
    results = [result for operation in operations for result in tensors(operation.results)]
    held = _storages([*starts[:-1], *ends])
    kept = _storages([results[at] for at in _SAVED[key]])
    return _Work(
        kept=sum(size for storage, size in kept.items() if storage not in held),
        forward=_most(forward, held | kept),
        backward=_most(backward, held | kept),
        outputs=tree_map_only(Tensor, Tensor.detach, outputs),
    )


@contextmanager
def _as_compiler() -> Iterator[None]:
    """Run as the compiler traces: no cast of a weight is shared by several functions.

    What is saved for the backward pass here is no concern of a checkpoint around it.
    """
    narrow, enabled = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")
    with (
        patch.object(torch.compiler, "is_compiling", lambda: True),
        torch.autocast("cpu", narrow, enabled, cache_enabled=False),
        torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
    ):
        yield


def _saved_by_partitioner(
    starts: Sequence[Tensor], operations: Sequence[Operation], ends: Sequence[Tensor | None]
) -> list[int]:
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    graph, nodes, results = torch.fx.Graph(), dict[int, torch.fx.Node](), list[str]()

    def stands_for(node: torch.fx.Node, tensor: Tensor) -> None:
        nodes[id(tensor)], node.meta["val"] = node, tensor

    for at, tensor in enumerate(starts[:-1]):
        stands_for(graph.placeholder(f"primals_{at + 1}"), tensor)
    stands_for(graph.placeholder("tangents_1"), starts[-1])
    for function, *given, result in operations:
        node = graph.call_function(function, *_mapped(lambda tensor: nodes.get(id(tensor)), given))
        node.meta["val"] = result
        of_results = [node]
        if not isinstance(result, Tensor):
            of_results = [graph.call_function(operator.getitem, (node, item)) for item in range(len(result))]
        for each, tensor in zip(of_results, tensors(result), strict=True):
            stands_for(each, tensor)
            results.append(each.name)
    graph.output([None if tensor is None else nodes[id(tensor)] for tensor in ends])
    module = torch.fx.GraphModule(nn.Module(), graph)
    forward, _ = min_cut_rematerialization_partition(module, None, num_fwd_outputs=1)
    outputs: Any = forward.graph.output_node().args[0]
    saved = {node.name for node in outputs[1:]}
    return [at for at, name in enumerate(results) if name in saved]


_FUSED = {
    _ATEN._to_copy.default, _ATEN.clone.default, _ATEN.flip.default, _ATEN.cat.default,
    _ATEN.constant_pad_nd.default, _ATEN.repeat.default, _ATEN.sum.dim_IntList, _ATEN.mean.dim,
}  # fmt: skip
"""Beside element-wise operations and views, what the compiler makes no kernel of its own for."""


def _most(operations: Sequence[Operation], held: dict[int, int]) -> int:
    """The most bytes at once of what ``operations`` make that is not ``held``, once they are fused.

    What only fused operations make and read exists in no memory.
    """
    uses = [(_storages([each.args, *each.kwargs.values()]), _storages(each.results)) for each in operations]
    real: set[int] = set()
    for (function, *_), (sources, results) in zip(operations, uses, strict=True):
        if not (torch.Tag.pointwise in function.tags or function in _FUSED or function.is_view):
            real |= sources.keys() | results.keys()
    ends: dict[int, int] = {}
    for at, (sources, results) in reversed(list(enumerate(uses))):
        # A fused operation reads when what it is fused into runs.
        end = max([ends.get(storage, at) for storage in results if storage not in real], default=at)
        ends |= {source: max(ends.get(source, 0), end) for source in sources}
    changes = [0] * (len(operations) + 2)
    absent = real - held.keys()
    for at, (sources, results) in enumerate(uses):
        for storage in absent & (results.keys() - sources.keys()):
            changes[at] += results[storage]
            changes[ends.get(storage, at) + 1] -= results[storage]
        absent -= results.keys()
    return max(accumulate(changes))


def tensors(tree: Any) -> list[Tensor]:
    """Those in ``tree``."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _storages(tree: Any) -> dict[int, int]:
    """The bytes of each storage that has a tensor in ``tree``."""
    storages = [tensor.untyped_storage() for tensor in tensors(tree)]
    return {storage._cdata: storage.nbytes() for storage in storages}
