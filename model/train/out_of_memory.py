"""Whether an error says that there was too little memory, and work that then takes less of it."""

import gc

import torch

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
