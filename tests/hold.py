"""Trials that stand still in mid-training until a test has done with them what it wants: see ``holding``."""

import os
from collections.abc import Mapping
from pathlib import Path

HOLDING = Path(__file__).with_name("holding")


def can_hold(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` in which scalevec's workers can be held; whoever is there already stays on the path."""
    path = (str(HOLDING), environment.get("PYTHONPATH", ""))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def hold(folder: Path) -> None:
    """Let trials of ``folder``/runs stand after ten steps and a checkpoint, unless they are asked to stop."""
    (folder / "hold").touch()


def release(folder: Path) -> None:
    """Let them go on."""
    (folder / "hold").unlink()
