"""What an optimizer step takes besides its arithmetic.

Compiled blocks, folded weights, batches, readings, and how much memory it takes.
"""

import os
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import Batch, TrainingBatches
from scalevec.model.decoder import BlockWeights, DecoderBlock, Transformer
from scalevec.model.experts import Mixture

MOST_VARIANTS = 256
"""Of a function in one process: by shape, with a gradient or without, by model where there are several."""
MOST_COMPILING = 4
"""Processes of one trial that compile for a GPU."""


def compile_blocks(model: Transformer) -> None:
    """Let passes of ``model`` go through compiled blocks; equal blocks share one compiled function.

    On a GPU the softmax of the head's loss is compiled too.
    The compiled function is the block's in exact arithmetic. Its sums run in another order, so that losses
    differ in their last digits from those of uncompiled blocks: one run takes one of them from beginning to
    end. Raises in the first pass where there is no compiler (``devices.missing_compiler``).
    """
    # Beyond its limit torch goes on uncompiled, or gives up.
    torch._dynamo.config.recompile_limit = MOST_VARIANTS
    for block in blocks_of(model):
        # Behind a router nothing can be compiled as a whole: how many tokens an expert sees is in no shape.
        part = block.attention if isinstance(block.feed_forward, Mixture) else block
        # One function for each shape: what a shape gives must not depend on those before it.
        part.compile(dynamic=False, fullgraph=True)
    # A processor's cache holds the logits of a slice: there one operation after another is as fast.
    model.fuses_head = model.embedding.is_cuda


def keep_compiled_in(folder: Path, device: str) -> None:
    """Let this process take compiled functions for ``device`` from ``folder`` and keep its own there.

    To be called before anything is compiled. By itself torch compiles in a process for every core of the
    machine, which trials share. For a CPU it gets as many as torch takes threads; Triton, which has some
    dozen kernels to make before a first step on a GPU, gets a few of the cores that this process may use.
    """
    threads = torch.get_num_threads()
    if device == "cuda":
        threads = max(threads, min(MOST_COMPILING, len(os.sched_getaffinity(0))))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))


def blocks_of(model: Transformer) -> list[DecoderBlock]:
    """The blocks, typed."""
    return [block for block in model.blocks if isinstance(block, DecoderBlock)]


@contextmanager
def fold_once(model: Transformer, dtype: torch.dtype | None) -> Iterator[None]:
    """Fold the scale vectors into their matrices, and cast these, once for all micro-batches of a step.

    Within it passes know the folded weights alone, and their gradients are added up; the chain rule is
    linear, so the sum goes back to matrices and vectors once, at the end. In exact arithmetic these are the
    gradients of folding in every pass; the sums run in another order.

    Args:
        model: What is trained.
        dtype: Of the products, to which weights are cast; None leaves them as they are.
    """
    blocks = blocks_of(model)
    sums = [_fold(block, dtype) for block in blocks]
    try:
        yield
        for block, of_block in zip(reversed(blocks), reversed(sums), strict=True):
            _backward_through_fold(block, of_block)
    finally:
        for block in blocks:
            block.folded_weights = None


class GradientSum:
    """The sum over micro-batches of a weight's gradients, in the type of the parameters."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, self.total = dtype, cast(Tensor | None, None)

    def add(self, weight: Tensor) -> None:
        """Take the gradient of ``weight``: in bfloat16 a sum would lose what is small beside it."""
        gradient, weight.grad = weight.grad, None
        if gradient is not None:
            self.total = gradient.to(self.dtype) if self.total is None else self.total.add_(gradient)


@torch.no_grad()
def _fold(block: DecoderBlock, dtype: torch.dtype | None) -> list[GradientSum]:
    """Let ``block`` take its weights as they are now; returns where their gradients are summed, in order."""
    folded = block.weights()
    sums = [GradientSum(weight.dtype) for weight in _tensors(folded)]
    block.folded_weights = tree_map(_as_leaf, folded if dtype is None else folded.narrowed(dtype))
    for weight, of_weight in zip(_tensors(block.folded_weights), sums, strict=True):
        weight.register_post_accumulate_grad_hook(of_weight.add)  # type: ignore[no-untyped-call]
    return sums


def _as_leaf(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.detach().requires_grad_()


def _backward_through_fold(block: DecoderBlock, sums: Sequence[GradientSum]) -> None:
    """Differentiate the folding of ``block`` along the gradients of its weights, a block's at a time."""
    block.folded_weights = None
    with torch.enable_grad():
        folded = _tensors(block.weights())
    pairs = [(weight, of.total) for weight, of in zip(folded, sums, strict=True) if of.total is not None]
    torch.autograd.backward([weight for weight, _ in pairs], [total for _, total in pairs])
    for of_weight in sums:
        of_weight.total = None


def _tensors(weights: BlockWeights | None) -> list[Tensor]:
    return [weight for weight in tree_leaves(weights) if weight is not None]


class BatchFeed:
    """Gives the batches of ``batches`` in the order of the steps, whichever step is asked for first.

    Args:
        batches: What is trained on.
        part: Which of the sequences of a batch this process takes.
        n_steps: Of the run: no batch beyond is made.
        device: To which they are copied; to a GPU from pinned memory, behind what it computes.
        ahead: Whether a thread makes the next batch meanwhile; a CPU is busy with training itself.
    """

    def __init__(
        self, batches: TrainingBatches, part: slice, n_steps: int, device: torch.device, *, ahead: bool
    ) -> None:
        self._batches, self._part, self._n_steps, self._device = batches, part, n_steps, device
        self._pinned = device.type == "cuda"
        self._thread = ThreadPoolExecutor(1, "batches") if ahead else None
        self._next: tuple[int, Future[Batch]] | None = None

    def __enter__(self) -> Self:
        """Within it batches are given."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave off making the next."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def batch(self, step: int) -> Batch:
        """Inputs and targets of ``step`` (from 0), int64, [sequences, sequence_length], on the device."""
        waiting = self._next if self._next is not None and self._next[0] == step else None
        inputs, targets = self._on_host(step) if waiting is None else waiting[1].result()
        if self._thread is not None:
            follows = step + 1 < self._n_steps
            self._next = (step + 1, self._thread.submit(self._on_host, step + 1)) if follows else None
        return self._on_device(inputs), self._on_device(targets)

    def _on_host(self, step: int) -> Batch:
        inputs, targets = self._batches.batch(step, self._part)
        return (inputs.pin_memory(), targets.pin_memory()) if self._pinned else (inputs, targets)

    def _on_device(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.to(self._device, non_blocking=self._pinned)


SYNC_EVERY_S = 0.25
"""About how long a GPU is left to itself; waiting for it costs far less."""
FAST_GPU = 3e14
"""FLOPs per second of a large card in training."""
MOST_PENDING = 16

Row = dict[str, Any]
ON_DEVICE = ("loss", "gradient_norm")


def steps_between_readings(trial: Trial, options: RunOptions) -> int:
    """After how many steps the device is waited for; the same at all processes of a trial. 1 on a CPU."""
    if options.device == "cpu":
        return 1
    step = flops_per_token(trial.model, trial.sequence_length) * trial.batch_tokens / options.processes
    return max(1, min(MOST_PENDING, int(SYNC_EVERY_S * FAST_GPU / step)))


class PendingMetrics:
    """The rows of metrics of the last steps, whose loss and gradient norm are still on the device.

    To read them is to wait for it.
    """

    def __init__(self, batch_tokens: int) -> None:
        self._batch_tokens = batch_tokens
        self._rows: list[Row] = []
        self._started = self._measured = 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, measured_s: float) -> None:
        """A step begins; ``measured_s`` have gone to measurements so far, which are no training time."""
        if not self._rows:
            self._started, self._measured = time.perf_counter(), measured_s

    def add(self, row: Row) -> None:
        """The row of the step that was asked for; its ``ON_DEVICE`` are tensors of one number."""
        self._rows.append(row)

    def read(self, measured_s: float) -> list[Row]:
        """All rows with plain numbers, once the device has them. The time of a step is their mean."""
        rows, self._rows = self._rows, []
        numbers = torch.stack([row[name].double() for row in rows for name in ON_DEVICE]).tolist()
        elapsed = time.perf_counter() - self._started - (measured_s - self._measured)
        speed = self._batch_tokens * len(rows) / elapsed
        pairs = zip(rows, numbers[::2], numbers[1::2], strict=True)
        return [
            row | {"loss": loss, "gradient_norm": norm, "tokens_per_s": speed} for row, loss, norm in pairs
        ]


WATCHED_STEPS = 2
"""Watched in each process: the optimizer's state is there from the second on."""


class AllocatedMemory:
    """Watches the first steps of a process on the CPU; on a GPU torch's allocator keeps the figure.

    Counts the storages of all tensors, not what a kernel takes for itself, nor the interpreter and its
    libraries, which are in the resident size of a process. Watching a step changes no bit of it.

    Args:
        device: Where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self.left = WATCHED_STEPS if device.type == "cpu" else 0
        """Steps that are still to be watched."""
        self.most: int | None = None
        """Bytes; None where no step was watched."""

    @contextmanager
    def watched(self, held: Iterable[Tensor]) -> Iterator[None]:
        """Around a step; ``held``: what lives before it, parameters, gradients and the optimizer's state."""
        if self.left == 0:
            yield
            return
        self.left -= 1
        with Storages(held) as storages:
            yield
        self.most = max(self.most or 0, storages.most)


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that live, each once, from those of ``held`` on."""

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: set[int] = set()
        self.now = self.most = 0
        for tensor in held:
            self._add(tensor)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count what it has allocated."""
        results = function(*args, **(kwargs or {}))
        self.add_all(results)
        return results

    def add_all(self, results: Any) -> None:
        """Count what is new among the tensors of ``results``."""
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                self._add(result)

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._alive:
            return
        self._alive.add(storage._cdata)
        weakref.finalize(storage, self._remove, storage._cdata, storage.nbytes()).atexit = False
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)

    def _remove(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size
