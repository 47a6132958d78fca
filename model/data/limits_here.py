"""What this process may use of the machine, which is often less than the machine has."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

OWN_GROUPS = Path("/proc/self/cgroup")
"""What the kernel says of the cgroups that this process is in."""
CGROUPS = Path("/sys/fs/cgroup")


def usable_cpus(groups: Path = OWN_GROUPS, mounted: Path = CGROUPS) -> int:
    """Return the least of affinity, the quotas of cgroups (rounded up) and what a SLURM job has on its node.

    Not every cluster binds the processes of a job to the job's processors. The folders of ``groups`` are
    under ``mounted``.
    """
    given = [len(os.sched_getaffinity(0))]
    if (of_job := os.environ.get("SLURM_CPUS_ON_NODE", "")).isdecimal():
        given.append(int(of_job))
    for folder in _groups_around("cpu", groups, mounted):
        quota = _content(folder / "cpu.max") or " ".join(
            _content(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")
        )
        if match := re.fullmatch(r"(\d+)\s+(\d+)", quota):  # without a quota: "max 100000", or -1
            given.append(math.ceil(int(match[1]) / int(match[2])))
    return max(1, min(given))


def memory_limit(groups: Path = OWN_GROUPS, mounted: Path = CGROUPS) -> int | None:
    """Return the least limit of memory of the cgroups of this process, in bytes; None without one."""
    folders = _groups_around("memory", groups, mounted)
    texts = [_content(folder / f"memory.{name}") for folder in folders for name in ("max", "limit_in_bytes")]
    return min((int(text) for text in texts if text.isdigit()), default=None)  # else it says max


def _groups_around(controller: str, groups: Path, mounted: Path) -> Iterator[Path]:
    """Yield the folders of the cgroups that this process is in, of either version, and those around them."""
    lines: list[str] = []
    with suppress(OSError):  # not Linux
        lines = groups.read_text().splitlines()
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if not controllers or controller in controllers.split(","):
            root = mounted / controller if controllers else mounted
            folder = root / path.lstrip("/")
            while folder.is_relative_to(root):
                yield folder
                folder = folder.parent


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # a folder outside of this namespace, or the root, which has no limit
        return ""
