"""Where a result comes from: versions, machine, and the state of the code."""

import importlib.metadata
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
STORE_OPTION, HIDDEN = "--store", "***"
PACKAGES = ("scalevec", "torch", "numpy", "tokenizers", "safetensors")


def environment() -> dict[str, Any]:
    """Versions, host, command and commit of this process, as JSON values."""
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
    """The versions of :data:`PACKAGES` as this process first found them: loaded is loaded."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


@cache
def code_state() -> Mapping[str, Any]:
    """The commit of the checkout, and whether it had uncommitted changes; None outside a git checkout.

    As this process first found it: its code is loaded, whatever happens to the files.
    """
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
