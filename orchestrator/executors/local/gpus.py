"""Which GPUs a process of this machine may use: torch is asked, in a process that ends.

The processes that fork workers must not start CUDA, and no file of the system tells the GPUs of WSL, ROCm and
containers alike.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scalevec.orchestrator.errors import MissingRequirementError

OF_CUDA, OF_ROCM = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
_CHOICES = (OF_CUDA, OF_ROCM, "ROCR_VISIBLE_DEVICES")
_DRIVERS = tuple(map(Path, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/nvhost-gpu")))
"""The devices of NVIDIA's driver, of WSL, of ROCm and of NVIDIA's boards."""
_COUNT = (
    "import json, torch\n"
    "print(json.dumps([torch.cuda.is_available() and torch.cuda.device_count(), bool(torch.version.hip)]))"
)


class VisibleGpus(NamedTuple):
    """The names of GPUs as ``variable`` takes them, which chooses among them for a process."""

    names: tuple[str, ...]
    variable: str = OF_CUDA


def sign_of_gpus() -> str:
    """Return which variable or driver says that there may be GPUs, without asking; empty where none does."""
    if _is_hidden():
        return ""
    chosen = (f"{name}={os.environ[name]}" for name in _CHOICES if name in os.environ)
    return next(chosen, next((str(path) for path in _DRIVERS if path.exists()), ""))


def visible_gpus() -> VisibleGpus:
    """Return the GPUs that torch can use here. It takes torch's start, seconds, the first time.

    Raises ``MissingRequirementError`` where torch cannot be asked.
    """
    if _is_hidden():
        return VisibleGpus(())
    return _asked(*(os.environ.get(name) for name in _CHOICES))


def _is_hidden() -> bool:
    """Whether a variable leaves no GPU: it counts up to the first name that is none, such as -1."""
    firsts = (os.environ[name].partition(",")[0].strip() for name in _CHOICES if name in os.environ)
    return any(first in ("", "NoDevFiles") or first.startswith("-") for first in firsts)


@cache
def _asked(*choices: str | None) -> VisibleGpus:
    done = subprocess.run([sys.executable, "-P", "-c", _COUNT], capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise MissingRequirementError(f"torch cannot say which GPUs are here: {why}")
    count, is_rocm = json.loads(done.stdout.splitlines()[-1])
    variable = OF_ROCM if is_rocm and choices[1] is not None else OF_CUDA
    named = os.environ.get(variable)
    names = map(str, range(count)) if named is None else (name.strip() for name in named.split(","))
    return VisibleGpus(tuple(names)[:count], variable)
