"""The memory of a run on its device: its peak, what lives of it, and its end."""

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_SAID_OTHERWISE = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Triton Error [CUDA]: out of memory",
)
"""What is said where PyTorch's allocator is not the one that asks: on a card that others use, say."""


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether ``problem`` says that the device, or this process, had not enough memory."""
    if isinstance(problem, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(problem, RuntimeError) and any(words in str(problem) for words in _SAID_OTHERWISE)


def release_unused(device: torch.device) -> None:
    """Give memory that nothing refers to any more back to the device."""
    gc.collect()  # an error's traceback holds frames, and they tensors
    if device.type == "cuda":
        torch.cuda.empty_cache()


STEPS = 2
"""Watched in each process: the optimizer's state is there from the second on."""


class AllocatedMemory:
    """Watches the first steps of a process on the CPU; on a CUDA device the allocator keeps the figure.

    Counts the storages of all tensors, not what a kernel takes for itself, nor the interpreter and its
    libraries, which are in the resident size of a process. Watching a step changes no bit of it.

    Args:
        device: Where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._left = STEPS if device.type == "cpu" else 0
        self._most: int | None = None

    @property
    def bytes(self) -> int | None:
        """The most so far; None before the first step."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        return self._most

    def leave_off(self) -> None:
        """Watch no more: nothing can be compiled meanwhile."""
        self._left = 0

    @contextmanager
    def watched(self, held: Iterable[Tensor]) -> Iterator[None]:
        """Around a step; ``held``: what lives before it, parameters, gradients and the optimizer's state."""
        if self._left == 0:
            yield
            return
        self._left -= 1
        with Storages(held) as storages:
            yield
        self._most = max(self._most or 0, storages.most)


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


def peak_memory_bytes(device: torch.device) -> int | None:
    """Return the most bytes held so far: allocated on a CUDA device, resident in this process elsewhere.

    The resident figure holds the interpreter and its libraries (some 300 MB) and every earlier run of the
    process. None where the system does not tell.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage gives bytes on macOS and KiB on Linux.
    return peak if sys.platform == "darwin" else peak * 1024
