"""What the vendors state of the devices that models are trained on; nothing here loads torch."""

import os
import re
import shutil
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Device:
    """A kind of GPU.

    pattern: of its name as the driver gives it.
    peak: dense FLOPs per second, without sparsity, by the precision of a trial; float32 is without TF32.
    memory: bytes.
    source: where the vendor says so.
    """

    name: str
    pattern: str
    peak: dict[str, float]
    memory: int
    source: str

    def __str__(self) -> str:
        return f"{self.name} of {self.memory / 1e9:.0f} GB"


def _peak(bfloat16: float, float32: float) -> dict[str, float]:
    return {"bfloat16": bfloat16 * 1e12, "float32": float32 * 1e12}


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper, table of peak rates"
DEVICES = {
    # Datasheets state bfloat16 with sparsity: half of it is dense.
    "h200-nvl": Device(
        "H200 NVL", r"\bH200 NVL", _peak(835.5, 60), 141 * 10**9, "NVIDIA H200 datasheet, column NVL"
    ),
    "h200": Device(
        "H200", r"\bH200", _peak(989.4, 66.9), 141 * 10**9, f"NVIDIA H200 datasheet; {_HOPPER} (same chip)"
    ),
    "h100-pcie": Device("H100 PCIe", r"\bH100 PCIe", _peak(756, 51.2), 80 * 10**9, f"{_HOPPER}, PCIe"),
    "h100-nvl": Device(
        "H100 NVL", r"\bH100 NVL", _peak(835.5, 60), 94 * 10**9, "NVIDIA H100 datasheet, column NVL"
    ),
    "h100": Device("H100", r"\bH100", _peak(989.4, 66.9), 80 * 10**9, f"{_HOPPER}, SXM5"),
    "a100-40gb": Device("A100", r"\bA100.*40GB", _peak(312, 19.5), 40 * 10**9, "NVIDIA A100 datasheet"),
    "a100": Device("A100", r"\bA100", _peak(312, 19.5), 80 * 10**9, "NVIDIA A100 datasheet"),
    "l40s": Device("L40S", r"\bL40S", _peak(362.05, 91.6), 48 * 10**9, "NVIDIA L40S datasheet"),
    "l4": Device("L4", r"\bL4\b", _peak(121, 30.3), 24 * 10**9, "NVIDIA L4 datasheet"),
    "mi300x": Device(
        "MI300X", r"\bMI300X", _peak(1307.4, 163.4), 192 * 10**9, "AMD Instinct MI300X accelerator data sheet"
    ),
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

    ``flops_per_token`` are those of training; recomputed ones do not count. None where the device ``name`` is
    not in the table.
    """
    device = device_named(name)
    return None if device is None else flops_per_token * tokens_per_s / (device.peak[precision] * devices)


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
