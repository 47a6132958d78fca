"""Where a result comes from: versions, machine, and the state of the code."""

import hashlib
import importlib.metadata
import json
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scalevec.results.masking import HIDDEN

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds our five packages: a checkout, or ``scalevec`` in site-packages."""
ORIGIN = HOME.parent / "origin.json"
"""Only beside a snapshot (``orchestrator.snapshots``): what :func:`code_state` was where it was taken."""
INSTALLED = sys.modules["scalevec"]
"""What holds the five packages, and says our version."""
STORE_OPTION = "--store"
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
MOST_BYTES = 10_000_000
"""Of a file of git that is read."""
VERSIONED = ("torch", "numpy", "tokenizers", "safetensors")


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


def machine(device: str) -> dict[str, Any]:
    """Return what of this machine may change the bits of a training on ``device`` (cpu or cuda).

    The threads are those of this process at this moment; GPU, CUDA and cuDNN are None on the CPU.
    """
    import torch

    gpu = device == "cuda" and torch.cuda.is_available()
    return {
        "cpu_model": cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if gpu else None,
        "cuda": torch.version.cuda if gpu else None,
        "cudnn": torch.backends.cudnn.version() if gpu else None,  # type: ignore[no-untyped-call]
    }


@cache
def cpu_model() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of :data:`VERSIONED` as this process first found them: loaded is loaded."""
    installed = {name: importlib.metadata.version(name) for name in VERSIONED}
    return {"scalevec": INSTALLED.__version__, **installed}


@cache
def code_state() -> Mapping[str, Any]:
    """Return ``source`` (checkout or wheel), ``commit``, and whether it is ``dirty`` (uncommitted changes).

    ``local_changes`` tells one such state from another: "none", or a digest of the changes. All but the first
    are None outside a git checkout of ours. As this process first found it: its code is loaded, whatever
    happens to the files.
    """
    if ORIGIN.is_file():
        origin: dict[str, Any] = json.loads(ORIGIN.read_bytes())
        return origin
    # A venv often lies inside the user's own repository, whose commit is not ours.
    commit = commit_of(HOME) if (HOME / ".git").exists() else None
    changes = _changes() if commit else None
    return {
        "source": "checkout" if (HOME / "pyproject.toml").exists() else "wheel",
        "commit": commit,
        "dirty": None if changes is None else bool(changes),
        "local_changes": None if changes is None else _digest(changes),
    }


def snapshot_name() -> str | None:
    """Return the name of the snapshot that this process runs from; None outside of one."""
    return HOME.parent.name if ORIGIN.is_file() else None


def _digest(changes: str) -> str:
    return hashlib.sha256(changes.encode()).hexdigest()[:12] if changes else "none"


def commit_of(folder: Path) -> str | None:
    """Return the commit of the git checkout that ``folder`` lies in; None outside of one.

    It is read as text: git would run commands that the configuration of somebody's folder names.
    """
    for top in (folder.resolve(), *folder.resolve().parents):
        if (top / ".git").exists():
            return _head(top / ".git")
    return None


def _head(repository: Path) -> str | None:
    if repository.is_file():  # of a worktree or a submodule
        repository = repository.parent / _text(repository).removeprefix("gitdir:").strip()
    head = _text(repository / "HEAD")
    name = head.removeprefix("ref:").strip()
    common = repository / _text(repository / "commondir").strip()
    packed = (line.partition(" ") for line in _text(common / "packed-refs").splitlines())
    candidates = (
        *(head, _text(repository / name), _text(common / name)),
        *(commit for commit, _, ref in packed if ref == name),
    )
    return next((text.strip() for text in candidates if COMMIT.fullmatch(text.strip())), None)


def _text(path: Path) -> str:
    """The content of a regular file of sane size; empty where there is none."""
    try:
        return path.read_text() if path.is_file() and path.stat().st_size <= MOST_BYTES else ""
    except (OSError, ValueError):
        return ""


def _changes() -> str | None:
    """Return the uncommitted changes of our own checkout, whose configuration is as much ours as its code."""
    command = ("git", "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv")
    try:
        done = subprocess.run(command, cwd=HOME, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode(errors="replace").strip()
