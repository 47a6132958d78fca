"""Starts a module of the snapshot that this file lies in: ``python -P START -m MODULE [ARGUMENT ...]``.

It stands for ``python -P -m MODULE``, and imports nothing of ours before the snapshot is known to be what was
taken: its folder is named after the digest of its content. It calls the module's ``main()``.
"""

import gc
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

NAME_DIGITS = 32
PACKAGE, ORIGIN = "scalevec", "origin.json"
PLUGINS, MANIFEST = "plugins", "plugins.json"
PARTS = ("orchestrator", "sweeps", "model", "results", "analysis")
NOT_AS_SENT = 3
"""The exit code: the machine lacks something, as ``orchestrator.errors.Exit`` has it."""
MACHINE_LACKS = 69
"""The exit code where the module cannot be imported, as ``orchestrator.attempts.jobs.WorkerExit`` has it."""


def name_of(contents: Iterable[tuple[str, bytes]]) -> str:
    """The name of a snapshot of these files, each with its path in it."""
    digest = hashlib.sha256()
    for path, content in sorted(contents):
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:NAME_DIGITS]


def files_below(folder: Path) -> Iterator[Path]:
    """The files of a package; not what Python or an editor leaves among them."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name.endswith("~") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def contents_of(root: Path) -> Iterator[tuple[str, bytes]]:
    """The files of the snapshot ``root``, each with its path in it. Compiled code is not among them."""
    yield ORIGIN, (root / ORIGIN).read_bytes()
    if (root / MANIFEST).exists():
        yield MANIFEST, (root / MANIFEST).read_bytes()
    for folder in (PACKAGE, PLUGINS):
        for path in files_below(root / folder) if (root / folder).exists() else ():
            yield path.relative_to(root).as_posix(), path.read_bytes()


def problem_of(root: Path) -> str | None:
    """What keeps the snapshot ``root`` from being what was taken; None where it is."""
    try:
        name = name_of(contents_of(root))
    except OSError as error:
        return f"cannot be read ({error})"
    return None if name == root.name else "has changed since it was taken"


def foreign_module(root: Path) -> str | None:
    """The first of our packages that would not come from ``root``, and whence it would."""
    for name in ("", *(f".{part}" for part in PARTS)):
        try:
            spec = importlib.util.find_spec(f"{PACKAGE}{name}")
        except (ImportError, ValueError, AttributeError):  # what an import hook has left there
            spec = None
        folder = root.joinpath(PACKAGE, *name.split(".")[1:])
        if spec is None or spec.origin is None or Path(spec.origin).resolve().parent != folder:
            return f"{PACKAGE}{name} comes from {spec.origin if spec else 'nowhere'}"
    return None


def main() -> None:
    """Check the snapshot, and run the module."""
    root = Path(__file__).resolve().parents[3]
    if problem := problem_of(root):
        _refuse(f"{root} {problem}; scalevec run takes a new snapshot and sends what is missing again")
    with suppress(OSError):  # it is in use, for whoever drops what is not
        os.utime(root)
    sys.path[:0] = [str(root), str(root / PLUGINS)]
    if problem := foreign_module(root):
        _refuse(
            f"{problem}, not from {root}; look for a .pth file or a hook of this Python that brings it in"
        )
    words = sys.argv[1:]
    if len(words) < 2 or words[0] != "-m" or not words[1].startswith(f"{PACKAGE}."):
        _refuse(f"expected -m {PACKAGE}.MODULE, got {' '.join(words)!r}")
    sys.argv = words[1:]
    gc.disable()  # torch makes many objects that stay: looking through them takes a sixth of its loading
    try:
        module = importlib.import_module(words[1])
    except Exception as error:  # noqa: BLE001 (this Python lacks what we build on, or it is damaged)
        text = f"the machine lacks what {words[1]} needs: {type(error).__name__}: {error}"
        _refuse(f"{text}; it was started with {sys.executable}", MACHINE_LACKS)
    gc.enable()
    sys.exit(module.main())


def _refuse(problem: str, code: int = NOT_AS_SENT) -> NoReturn:
    print(f"scalevec: {problem}", file=sys.stderr, flush=True)
    os._exit(code)  # nothing of ours, or of anybody else's, may run on the way out


if __name__ == "__main__":
    main()
