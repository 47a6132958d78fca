"""The files of a foreign trainer: as the trial has them, wherever it runs, or not at all."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from scalevec.model.identity import digest
from scalevec.model.training.durable_files import complete_directory
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.sweeps.trainers.foreign_trial import SourceFile, Trainer, file_digest

KEPT = "trainers"
"""The folder of RUNS_DIR with what was sent: ``trainers/DIGEST/PATH``."""


def keep_source(runs_dir: Path, trainer: Trainer, folder: Path) -> None:
    """Copy the files of ``trainer`` under RUNS_DIR, once: an edit changes nothing that was sent.

    Nothing is kept of files that are not what the trial has any more (its worker says so), nor of those that
    lie elsewhere than below ``folder``: such a trainer runs where it is. Raises ``OSError``.
    """
    kept, paths = kept_folder(runs_dir, trainer), [PurePath(file.path) for file in trainer.files]
    if not paths or any(path.is_absolute() or ".." in path.parts for path in paths):
        return
    if kept.exists():
        with suppress(OSError):  # another user's
            os.utime(kept)
        return
    if _changed(trainer.files, folder):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    with complete_directory(kept) as partial:
        for file in trainer.files:
            copy = partial / file.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((folder / file.path).read_bytes())
            copy.chmod((folder / file.path).stat().st_mode & 0o755)


def folder_of_source(runs_dir: Path, trainer: Trainer, folder: Path) -> Path:
    """Where the files of ``trainer`` are as the trial has them: what was kept of them, else ``folder``.

    Raises ``DefiniteError`` that names a file which has changed.
    """
    kept = kept_folder(runs_dir, trainer)
    source = kept if trainer.files and kept.is_dir() else folder
    if changed := _changed(trainer.files, source):
        raise DefiniteError(
            f"{source / changed}: is not what it was when this trial was planned; scalevec plan shows the "
            "trials of the file as it is now, and scalevec run runs them"
        )
    return source


def from_source(command: Sequence[str], trainer: Trainer, source: Path) -> list[str]:
    """``command`` with the files in ``source`` where an argument, or the value of one, is a trainer's."""
    paths = {PurePath(file.path) for file in trainer.files}

    def there(argument: str) -> str:
        if PurePath(argument) in paths:
            return str(source / argument)
        option, sign, value = argument.partition("=")
        return f"{option}{sign}{source / value}" if PurePath(value) in paths else argument

    return [there(argument) for argument in command]


def module_variables(command: Sequence[str], source: Path, folder: Path) -> dict[str, str]:
    """Where the Python of ``command`` looks for modules: first among the files that were kept in ``source``.

    ``folder`` has what cannot be known before a script runs. Folders inside count where a script of the
    command lies: a module of a package is not to be taken for one of Python's own.
    """
    paths = [Path(word) for word in command if word.endswith(".py")]
    scripts = [path.parent.relative_to(source) for path in paths if path.is_relative_to(source)]
    inner = dict.fromkeys((*scripts, Path()))
    path = os.pathsep.join(str(root / script) for root in (source, folder) for script in inner)
    # Else python -m would take what lies in the working directory.
    return {"PYTHONPATH": path} | ({} if scripts else {"PYTHONSAFEPATH": "1"})


def kept_folder(runs_dir: Path, trainer: Trainer) -> Path:
    """Where the files of ``trainer`` are, if they were sent."""
    files = {file.path: file.digest for file in trainer.files}
    return runs_dir.resolve() / KEPT / digest(files)[:32]


def _changed(files: Sequence[SourceFile], folder: Path) -> str | None:
    """The first of ``files`` that is not there with its content; None where all are."""
    for file in files:
        try:
            if file_digest(folder / file.path) == file.digest:
                continue
        except OSError:
            pass
        return file.path
    return None
