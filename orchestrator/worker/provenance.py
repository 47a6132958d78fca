"""Where a result comes from: versions, machine, and the state of the code."""

import importlib.metadata
import importlib.util
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds our five packages: a checkout, or ``scalevec`` in site-packages."""
OUR_PACKAGES = ("orchestrator", "sweeps", "model", "results", "analysis")
STORE_OPTION, HIDDEN = "--store", "***"
VERSIONED = ("scalevec", "torch", "numpy", "tokenizers", "safetensors")


def environment() -> dict[str, Any]:
    """Return versions, host, command and commit of this process, as JSON values."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "command": list(_without_store(sys.argv)),
        "versions": versions(),
        **code_state(),
    }


def _without_store(command: Sequence[str]) -> Iterator[str]:
    """``command`` with the store's URL, which may hold a password, left out."""
    before = ""
    for word in command:
        if before == STORE_OPTION:
            yield HIDDEN
        else:
            yield f"{STORE_OPTION}={HIDDEN}" if word.startswith(f"{STORE_OPTION}=") else word
        before = word


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of :data:`VERSIONED` as this process first found them: loaded is loaded."""
    return {name: importlib.metadata.version(name) for name in VERSIONED}


@cache
def code_state() -> Mapping[str, Any]:
    """Return ``source`` (checkout or wheel), ``commit``, and whether it is ``dirty`` (uncommitted changes).

    The last two are None outside a git checkout of ours. As this process first found it: its code is loaded,
    whatever happens to the files.
    """
    # A venv often lies inside the user's own repository: git would answer with the user's commit.
    top = _git("rev-parse", "--show-toplevel")
    commit = _git("rev-parse", "HEAD") if top and Path(top).resolve() == HOME else None
    changes = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return {
        "source": "checkout" if (HOME / "pyproject.toml").exists() else "wheel",
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
    }


def foreign_package() -> str | None:
    """Return what to do about one of our packages that comes from elsewhere; None where all are ours.

    Such a package would train or judge something else under our name.
    """
    for name in OUR_PACKAGES:
        spec = importlib.util.find_spec(f"scalevec.{name}")
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve().parents[1]
        if origin != HOME:
            return (
                f"package scalevec.{name} comes from {origin or 'nowhere'}, the others from {HOME}; "
                "unset PYTHONPATH, or reinstall scalevec in this environment"
            )
    return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=HOME,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
