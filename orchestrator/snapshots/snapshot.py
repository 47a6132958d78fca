"""A snapshot of the code that this process runs from: an edit or an update changes nothing that was sent.

``snapshots/NAME/`` of the private folder holds ``scalevec/`` in the layout of a wheel and ``origin.json``
beside it, which says of what commit it is, with what changes; and ``plugins/``, the packages of a sweep's
plugins. NAME is the digest of all: equal code is kept once, for all runs folders.
"""

import importlib.util
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scalevec.model.data.system import complete_directory
from scalevec.orchestrator.private import drop_unused, who_may_change
from scalevec.orchestrator.snapshots.start import (
    ORIGIN,
    PACKAGE,
    PARTS,
    contents_of,
    files_below,
    name_of,
    problem_of,
)
from scalevec.orchestrator.worker.provenance import HOME, INSTALLED, code_state, snapshot_name

SNAPSHOTS = "snapshots"
START = f"{PACKAGE}/orchestrator/snapshots/start.py"


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


def taken(private: Path) -> Snapshot:
    """The snapshot in the private folder of what this process runs from, taken the first time.

    A process that runs from a snapshot hands that one on. Raises ``OSError``.
    """
    folder = private / SNAPSHOTS
    snapshot = _taken.get(folder)
    if snapshot is None or not snapshot.root.is_dir():
        snapshot = _taken[folder] = Snapshot(HOME.parent if snapshot_name() else _make_snapshot(folder))
    with suppress(OSError):  # it is in use, for whoever drops what is not
        os.utime(snapshot.root)
    return snapshot


def from_the_same_code(command: Sequence[str]) -> tuple[str, ...]:
    """``command`` started from the snapshot that this process runs from; as it is outside of one."""
    return Snapshot(HOME.parent).command(command) if snapshot_name() else tuple(command)


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
    folder.mkdir(mode=0o700, exist_ok=True)
    drop_unused(folder)
    if root.exists() and (problem_of(root) or who_may_change(root)):
        damaged = root.with_name(f".{root.name}.{secrets.token_hex(4)}.damaged")
        root.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    if not root.exists():
        with complete_directory(root) as partial:
            partial.chmod(0o700)
            for name, content in contents.items():
                _write(partial / name, content)
            _add_compiled(partial)
    return root


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
