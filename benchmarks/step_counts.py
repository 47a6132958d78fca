"""Kernels, element-wise bytes and FLOPs of one layer, forward and backward: counted, on no GPU and not timed.

    OMP_NUM_THREADS=1 python benchmarks/step_counts.py --json benchmarks/reference/step_counts.json

One block of the paper's 1B shape goes through one of several micro-batches of a step, in bfloat16. Eager
blocks are counted by the operations that torch dispatches, views left out; compiled ones by the nodes of
inductor's schedule after fusion, each of which becomes one kernel, as it fuses for a CPU, and a kernel for
each gradient that is added to those before it. Element-wise is all but matrix products and attention. Each is
counted at two numbers of tokens: what grows with them is the traffic of activations, the rest that of
weights. What happens once per step is left out.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._inductor import scheduler
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.feed_forward import PADDED_TO
from scalevec.model.strategies import PRESETS
from scalevec.model.train.step import compile_blocks, fold_once

ARMS = ("baseline", "unified", "unified-dp", "none")
SHAPE = Shape(width=1792, layers=1, heads=14, kv_heads=14, feed_forward=4778)
"""One layer of the paper's 1B model."""
LENGTH = 64
BATCHES = (1, 2)
"""Sequences of ``LENGTH`` tokens at which is counted."""
RESIDUALS = {"compiled": torch.float32, "compiled, bfloat16-residual": torch.bfloat16}
WITHOUT_KERNEL = ("empty", "_unsafe_view", "set_", "detach")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution")


@dataclass
class Counted:
    """Of one pass: kernels, those of them that are matrix products or attention, and others' bytes."""

    kernels: int = 0
    products: int = 0
    element_wise_bytes: int = 0

    def add(self, traffic: int, *, is_product: bool) -> None:
        """Count one kernel that moves ``traffic`` bytes."""
        self.kernels += 1
        self.products += is_product
        self.element_wise_bytes += 0 if is_product else traffic


class CountedOperations(TorchDispatchMode):
    """Counts what is dispatched and moves data; every distinct tensor is read or written once."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = Counted()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func``, and count it."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        returns = [value.alias_info for value in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in returns)
        if not is_view and not name.startswith(WITHOUT_KERNEL):
            is_product = name in PRODUCTS or "attention" in name
            self.counted.add(_bytes_of([args, kwargs, result]), is_product=is_product)
        return result


def _bytes_of(values: Any) -> int:
    tensors = {id(leaf): leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


@contextmanager
def counted_schedules(counted: "Counted") -> Iterator[None]:
    """Add the nodes of the schedules that inductor makes within it to ``counted``."""
    generate = scheduler.Scheduler.codegen

    def codegen(schedule: Any) -> Any:
        for node in schedule.nodes:
            if not isinstance(node, scheduler.NopKernelSchedulerNode):
                name = getattr(node.node, "python_kernel_name", None) if node.is_extern() else None
                # What inductor cannot generate is no product for that.
                is_product = name is not None and any(part in name for part in (*PRODUCTS, "attention"))
                traffic = node.get_read_write_buffers_sizes()
                counted.add(traffic, is_product=is_product)
        return generate(schedule)

    with patch.object(scheduler.Scheduler, "codegen", codegen):
        yield


class Layer:
    """A block of ``arm`` and what goes through it."""

    def __init__(self, arm: str, *, compiled: bool) -> None:
        self.model = Transformer(ModelConfig(SHAPE, 64, PRESETS[arm]))
        initialise(self.model, seed=0)
        if compiled:
            torch._dynamo.reset()
            compile_blocks(self.model)

    def pass_through(
        self, sequences: int, mode: AbstractContextManager[Any], dtype: torch.dtype = torch.float32
    ) -> None:
        """Forward and backward within ``mode``, as a micro-batch of training; ``dtype`` is the residual's."""
        x = torch.randn(sequences, LENGTH, SHAPE.width, dtype=dtype, requires_grad=True)
        gradient = torch.ones_like(x)
        with mode, torch.autocast("cpu", dtype=torch.bfloat16):
            self.model.blocks[0](x, lambda _: None).backward(gradient)

    def eager(self, sequences: int) -> Counted:
        """Of the second micro-batch, whose gradients are added to those of the first."""
        operations = CountedOperations()
        for mode in (nullcontext(), operations):
            self.pass_through(sequences, mode)
        return operations.counted

    def compiled(self, sequences: int, dtype: torch.dtype) -> Counted:
        """Of the schedules, and outside of them what adds each gradient to its sum in float32."""
        counted = Counted()
        with patch.dict(PADDED_TO, cpu=PADDED_TO["cuda"]), fold_once(self.model, torch.bfloat16):
            self.pass_through(sequences, counted_schedules(counted), dtype)
            for weight in tree_leaves(self.model.blocks[0].held):
                if weight is not None:
                    counted.add(weight.nbytes + 2 * 4 * weight.numel(), is_product=False)
        return counted

    def flops_per_token(self, padded_to: int) -> float:
        """Of the products of a pass, counted by torch."""
        with patch.dict(PADDED_TO, cpu=padded_to), FlopCounterMode(display=False) as flops:
            self.pass_through(1, nullcontext())
        return flops.get_total_flops() / LENGTH


def summary(counts: list[Counted]) -> dict[str, Any]:
    """What two numbers of tokens say of a layer: its kernels, and its traffic per token and weight."""
    few, many = counts
    tokens = LENGTH * (BATCHES[1] - BATCHES[0])
    per_token = (many.element_wise_bytes - few.element_wise_bytes) / tokens
    of_weights = few.element_wise_bytes - per_token * LENGTH * BATCHES[0]
    n_weights = 4 * SHAPE.width**2 + 3 * SHAPE.width * SHAPE.feed_forward
    return {
        "kernels": many.kernels,
        "products": many.products,
        "element_wise_d_bytes_per_token": round(per_token / SHAPE.width, 1),
        "bytes_per_weight": round(of_weights / n_weights, 1),
    }


def counts_of(arm: str) -> dict[str, Any]:
    """All that is counted of ``arm``."""
    eager = Layer(arm, compiled=False)
    counts: dict[str, Any] = {
        "flops_per_token": round(eager.flops_per_token(1)),
        "flops_per_token_padded": round(eager.flops_per_token(PADDED_TO["cuda"])),
        "eager": summary([eager.eager(n) for n in BATCHES]),
    }
    for name, dtype in RESIDUALS.items():
        counts[name] = summary([Layer(arm, compiled=True).compiled(n, dtype) for n in BATCHES])
    return counts


def main() -> None:
    """Count every arm and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", choices=tuple(PRESETS), default=ARMS)
    parser.add_argument("--name", default="after", help="under which the counts are written (%(default)s)")
    parser.add_argument("--json", type=Path, help="put them into this file, beside what is there")
    options = parser.parse_args()
    torch.compiler.config.force_disable_caches = True  # What is taken from one has no schedule.
    counted = {}
    for arm in options.arms:
        counted[arm] = counts_of(arm)
        print(arm, json.dumps(counted[arm]), flush=True)
    if options.json is not None:
        there = json.loads(options.json.read_text()) if options.json.exists() else {}
        kept = {"counted, not measured": __doc__.split("\n\n")[2].replace("\n", " "), "shape": asdict(SHAPE)}
        report = there | kept | {"torch": torch.__version__, options.name: counted}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
