"""Whether an error says that there was too little memory, and work that then takes less of it."""

import gc

import torch


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether ``problem`` says that the device, or this process, had not enough memory."""
    cpu = isinstance(problem, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(problem)
    return cpu or isinstance(problem, torch.OutOfMemoryError | MemoryError)


def release_unused(device: torch.device) -> None:
    """Give memory that nothing refers to any more back to the device."""
    gc.collect()  # an error's traceback holds frames, and they tensors
    if device.type == "cuda":
        torch.cuda.empty_cache()
