"""A copy of the packages, into which a test writes a file and a line as a person would who adds something."""

import os
import shutil
from pathlib import Path

from support import CHECKOUT

PACKAGES = ("orchestrator", "sweeps", "model", "results", "analysis")


def copied_packages(folder: Path) -> dict[str, str]:
    """Copy the five packages into ``folder``; returns variables under which Python imports the copy.

    Workers are started with ``python -P`` and inherit the variables; the copy comes before the installed
    packages for them too. Compiled files are copied with the times of their sources, and so stay good.
    """
    for name in PACKAGES:
        shutil.copytree(CHECKOUT / name, folder / name)
    shutil.copytree(CHECKOUT / "src", folder / "src", symlinks=True)
    return os.environ | {"PYTHONPATH": str(folder / "src"), "SCALEVEC_CACHE_DIR": str(folder / "cache")}


def add_line(path: Path, after: str, line: str) -> None:
    """Write ``line`` into the file at ``path``, below the one line that begins with ``after``."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    (position,) = (number for number, text in enumerate(lines, 1) if text.startswith(after))
    path.write_text("".join([*lines[:position], f"{line}\n", *lines[position:]]), encoding="utf-8")
