"""The devices that training runs on: what is known of GPUs by name, and what this machine has and lacks.

To import it loads no torch.
"""

import gc
import os
import platform
import re
import resource
import shutil
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Device:
    """A kind of GPU.

    pattern: of its name as the driver gives it.
    bfloat16, float32: dense TFLOPs per second, without sparsity and without TF32; None where the hardware has
        no products in bfloat16.
    gigabytes: of memory.
    source: where the vendor says so.
    """

    name: str
    pattern: str
    bfloat16: float | None
    float32: float
    gigabytes: int
    source: str

    @property
    def peak(self) -> dict[str, float]:
        """FLOPs per second by the precision of a trial's products."""
        peaks = {"bfloat16": self.bfloat16, "float32": self.float32}
        return {precision: peak * 1e12 for precision, peak in peaks.items() if peak is not None}

    @property
    def memory(self) -> int:
        """Bytes."""
        return self.gigabytes * 10**9

    def __str__(self) -> str:
        return f"{self.name} of {self.gigabytes} GB"


_BLACKWELL = "NVIDIA Blackwell Architecture technical brief and datasheet, per GPU"
_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, table of peak rates"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix"
_RTX = "bfloat16 with accumulation in float32"
# Datasheets state bfloat16 with sparsity: half of it is dense.
DEVICES = {
    "b200": Device("B200", r"\bB200", 2250, 75, 180, f"{_BLACKWELL}, HGX B200"),
    "gb200": Device("GB200", r"\bGB200", 2500, 80, 186, f"{_BLACKWELL}, GB200 NVL72"),
    "gh200-144gb": Device("GH200", r"\bGH200 144G", 989.4, 66.9, 144, f"GH200 datasheet; {_HOPPER}"),
    "gh200": Device("GH200", r"\bGH200", 989.4, 66.9, 96, f"GH200 datasheet; {_HOPPER}"),
    "h200-nvl": Device("H200 NVL", r"\bH200 NVL", 835.5, 60, 141, "NVIDIA H200 datasheet, column NVL"),
    "h200": Device("H200", r"\bH200", 989.4, 66.9, 141, f"NVIDIA H200 datasheet; {_HOPPER} (same chip)"),
    "h100-pcie": Device("H100 PCIe", r"\bH100 PCIe", 756, 51.2, 80, f"{_HOPPER}, PCIe"),
    "h100-nvl": Device("H100 NVL", r"\bH100 NVL", 835.5, 60, 94, "NVIDIA H100 datasheet, column NVL"),
    "h100": Device("H100", r"\bH100", 989.4, 66.9, 80, f"{_HOPPER}, SXM5"),
    "a100-40gb": Device("A100", r"\bA100.*40GB", 312, 19.5, 40, "NVIDIA A100 datasheet"),
    "a100": Device("A100", r"\bA100", 312, 19.5, 80, "NVIDIA A100 datasheet"),
    "a40": Device("A40", r"\bA40\b", 149.7, 37.4, 48, "NVIDIA A40 datasheet"),
    "a30": Device("A30", r"\bA30\b", 165, 10.3, 24, "NVIDIA A30 datasheet"),
    "a10": Device("A10", r"\bA10\b", 125, 31.2, 24, "NVIDIA A10 datasheet"),
    "l40s": Device("L40S", r"\bL40S", 362.05, 91.6, 48, "NVIDIA L40S datasheet"),
    "l40": Device("L40", r"\bL40\b", 181.05, 90.5, 48, "NVIDIA L40 datasheet"),
    "l4": Device("L4", r"\bL4\b", 121, 30.3, 24, "NVIDIA L4 datasheet"),
    "rtx-6000-ada": Device("RTX 6000 Ada", r"\bRTX 6000 Ada", 364.2, 91.1, 48, f"{_ADA} on the RTX 6000"),
    "rtx-5090": Device("RTX 5090", r"\bRTX 5090$", 209.5, 104.8, 32, f"RTX Blackwell whitepaper, {_RTX}"),
    "rtx-4090": Device("RTX 4090", r"\bRTX 4090$", 165.2, 82.6, 24, f"{_ADA} A, {_RTX}"),
    "rtx-3090": Device("RTX 3090", r"\bRTX 3090$", 71, 35.6, 24, f"GA102 whitepaper, {_RTX}"),
    "v100-16gb": Device("V100", r"\bV100-SXM.*16GB", None, 15.7, 16, "NVIDIA V100 datasheet, SXM2"),
    "v100": Device("V100", r"\bV100-SXM", None, 15.7, 32, "NVIDIA V100 datasheet, SXM2"),
    "mi300x": Device("MI300X", r"\bMI300X", 1307.4, 163.4, 192, "AMD Instinct MI300X data sheet"),
}
"""By the name that a profile gives them (``gpus: h100:1``); of two whose patterns fit, the first."""
_PART_OF_A_CARD = re.compile(r"\bMIG\b")


def device_named(name: str | None) -> Device | None:
    """The device with the driver's ``name``, or that of a profile; None where it is not known.

    Nor is what a part of a card (a MIG instance) can do.
    """
    if name is None or _PART_OF_A_CARD.search(name):
        return None
    known = DEVICES.get(name.lower())
    matching = (device for device in DEVICES.values() if re.search(device.pattern, name, re.IGNORECASE))
    return known or next(matching, None)


def model_flops_utilization(
    flops_per_token: float, tokens_per_s: float, precision: str, name: str | None, devices: int = 1
) -> float | None:
    """The share of the devices' peak that the counted FLOPs of a model reach (Chowdhery et al., 2204.02311).

    ``flops_per_token`` are those of training; recomputed ones do not count. None where the table has no peak
    of the device ``name`` (:func:`unknown_peak`).
    """
    if unknown_peak(precision, name):
        return None
    device = device_named(name)
    assert device is not None
    return flops_per_token * tokens_per_s / (device.peak[precision] * devices)


def unknown_peak(precision: str, name: str | None) -> str:
    """Why there is no MFU of products in ``precision`` on the device ``name``; empty where there is one."""
    device = device_named(name)
    if device is None:
        return f"no share of the peak (MFU): the table of peaks has no {name!r}"
    if precision not in device.peak:
        return f"no share of the peak (MFU): {device.name} has no products in {precision}"
    return ""


def missing_compiler(device: str) -> str:
    """What this machine lacks to compile blocks for ``device`` (``cpu`` or ``cuda``); empty: nothing.

    torch's inductor writes C++ for a CPU and Triton for a GPU, which builds its launcher in C.
    """
    if device == "cuda":
        lacking = [] if find_spec("triton") else ["the package triton"]
        compilers = [os.environ.get("CC", ""), "gcc", "clang", "cc"]
    else:
        lacking, compilers = [], [os.environ.get("CXX", "g++")]
    if not any(map(shutil.which, compilers)):
        lacking.append(f"a compiler ({', '.join(filter(None, compilers))})")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        lacking.append("Python's headers (Python.h)")
    return " and ".join(lacking)


@dataclass(frozen=True)
class LocalDevice:
    """A device of this machine: as torch calls it, the name that its driver gives it, its bytes of memory."""

    device: str
    name: str
    memory_bytes: int

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]


def devices_here() -> list[LocalDevice]:
    """Each CUDA device that this process may use; the CPU where there is none."""
    import torch

    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return [LocalDevice(f"cuda:{n}", card.name, card.total_memory) for n, card in enumerate(cards)]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return [LocalDevice("cpu", _processor(), memory)]


def _processor() -> str:
    with suppress(OSError):
        content = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if named := re.search(r"^model name\s*:\s*(.+)$", content, re.MULTILINE):
            return named[1]
    return platform.machine()


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
    import torch

    if isinstance(problem, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(problem, RuntimeError) and any(words in str(problem) for words in _SAID_OTHERWISE)


def release_unused(device: "torch.device") -> None:
    """Give memory that nothing refers to any more back to the device."""
    import torch

    gc.collect()  # an error's traceback holds frames, and they tensors
    if device.type == "cuda":
        torch.cuda.empty_cache()


def peak_memory_bytes(device: "torch.device") -> int:
    """Return the most bytes held so far: allocated on a CUDA device, resident in this process elsewhere.

    The resident figure holds the interpreter and its libraries (some 300 MB) and every earlier run of the
    process.
    """
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    # In KiB on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
