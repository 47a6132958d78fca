"""The most memory that a run has held."""

import sys

import torch


def peak_memory_bytes(device: torch.device) -> int | None:
    """Bytes at the peak: allocated on a CUDA device, resident in this process elsewhere.

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
    return peak if sys.platform == "darwin" else peak * 1024
