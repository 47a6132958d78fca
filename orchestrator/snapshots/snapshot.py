"""A snapshot of the code that this process runs from: an edit or an update changes nothing that was sent.

``RUNS_DIR/snapshots/USER/NAME/`` holds ``scalevec/`` in the layout of a wheel and ``origin.json`` beside it,
which says of what commit it is, with what changes; and ``plugins/``, the packages of a sweep's plugins. NAME
is the digest of all: equal code is kept once.
"""

import importlib.util
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scalevec.model.training.durable_files import complete_directory
from scalevec.orchestrator.snapshots.start import (
    ORIGIN,
    PACKAGE,
    PARTS,
    contents_of,
    files_below,
    name_of,
    problem_of,
)
from scalevec.orchestrator.snapshots.unused import drop_unused, drop_unused_sources
from scalevec.orchestrator.worker.provenance import HOME, INSTALLED, code_state, snapshot_name
from scalevec.results.files import keep_others_from_writing
from scalevec.results.run_directory import user_name

SNAPSHOTS = "snapshots"
START = f"{PACKAGE}/orchestrator/snapshots/start.py"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Snapshot:
    """A snapshot in the folder ``root``."""

    root: Path

    @property
    def start(self) -> str:
        """The script that starts a module from it."""
        return str(self.root / START)

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """``command`` with ``-P -m scalevec...`` started from here; one that starts no module stays."""
        for position in range(len(command) - 2):
            options, module = tuple(command[position : position + 2]), command[position + 2]
            if options == ("-P", "-m") and module.startswith(f"{PACKAGE}."):
                return (*command[: position + 1], self.start, *command[position + 1 :])
        return tuple(command)


_taken: dict[Path, Snapshot] = {}
_carried: dict[str, bytes] = {}


def carry(files: Mapping[str, bytes]) -> None:
    """Let the snapshots of this process hold the code of a sweep, by path, instead of an earlier sweep's.

    A process that runs from a snapshot hands that on, with what it holds.
    """
    if snapshot_name() is None and files != _carried:
        _carried.clear()
        _carried.update(files)
        _taken.clear()


def taken(runs_dir: Path) -> Snapshot:
    """The snapshot under RUNS_DIR of what this process runs from, taken the first time; its use is noted.

    A process that runs from a snapshot of RUNS_DIR hands that one on. Raises ``OSError``.
    """
    folder = runs_dir.resolve() / SNAPSHOTS / user_name()
    snapshot = _taken.get(folder)
    if snapshot is None or not snapshot.root.is_dir():
        snapshot = _taken[folder] = Snapshot(_own_snapshot(folder) or _make_snapshot(folder))
        drop_unused(runs_dir, snapshot.root)
        drop_unused_sources(runs_dir)
    with suppress(OSError):
        os.utime(snapshot.root)
    return snapshot


def from_the_same_code(command: Sequence[str]) -> tuple[str, ...]:
    """``command`` started from the snapshot that this process runs from; as it is outside of one."""
    return Snapshot(HOME.parent).command(command) if snapshot_name() else tuple(command)


def _own_snapshot(folder: Path) -> Path | None:
    """The snapshot in ``folder`` that this process was started from."""
    return HOME.parent if snapshot_name() and HOME.parent.parent == folder else None


def code_name() -> str:
    """The name of a snapshot of what this process runs from, whether or not it is one."""
    return snapshot_name() or name_of((_live_contents() | _carried).items())


def _live_files() -> Iterator[tuple[str, Path]]:
    """The files of a checkout or of an installed wheel, each with its path in a wheel."""
    package = Path(str(INSTALLED.__file__)).parent
    yield from ((f"{PACKAGE}/{path.name}", path) for path in files_below(package) if path.parent == package)
    for part in PARTS:
        for path in files_below(HOME / part):
            yield f"{PACKAGE}/{path.relative_to(HOME).as_posix()}", path


@cache
def _live_contents() -> dict[str, bytes]:
    """What a snapshot of this process's code holds. Read once: whatever is sent by a process is the same."""
    if snapshot_name():
        return dict(contents_of(HOME.parent))
    origin = (json.dumps(code_state(), indent=1) + "\n").encode()
    return {ORIGIN: origin} | {name: path.read_bytes() for name, path in _live_files()}


def _make_snapshot(folder: Path) -> Path:
    """The snapshot in ``folder``, made unless it is there; one that has changed is replaced."""
    contents = _live_contents() | _carried
    root = folder / name_of(contents.items())
    _make_home(folder)
    if root.exists() and (problem_of(root) or _others_may_write(root)):
        damaged = root.with_name(f".{root.name}.{secrets.token_hex(4)}.damaged")
        root.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    if not root.exists():
        umask = keep_others_from_writing()
        try:
            with complete_directory(root) as partial:
                for name, content in contents.items():
                    _write(partial / name, content)
                _add_compiled(partial)
        finally:
            os.umask(umask)
    return root


def _make_home(folder: Path) -> None:
    """Each user has a folder of snapshots: whoever could write there could run code as that user."""
    if not folder.parent.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # made by another in this moment
            # As in /tmp: who may add a folder may not rename or remove that of another.
            folder.parent.chmod(folder.parent.stat().st_mode | stat.S_ISVTX)
    folder.mkdir(mode=0o755, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or _others_may_write(folder):
        raise PermissionError(
            1, "must belong to you, and nobody else may write there; remove it", str(folder)
        )


def _others_may_write(path: Path) -> bool:
    return bool(path.stat().st_mode & _OTHERS_WRITE)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _add_compiled(root: Path) -> None:
    """What Python has compiled already need not be compiled again; it is found by its source's time."""
    for name, live in _live_files():
        if live.suffix != ".py":
            continue
        with suppress(OSError):
            copy, compiled = root / name, Path(importlib.util.cache_from_source(str(live)))
            times = live.stat()
            content = compiled.read_bytes()
            os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
            _write(Path(importlib.util.cache_from_source(str(copy))), content)
