"""The files of a foreign trainer: as the trial has them, wherever it runs, or not at all."""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePath

from scalevec.model.data.system import complete_directory
from scalevec.model.identity import digest
from scalevec.orchestrator.private import drop_unused, private_folder, who_may_change
from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.results.files import AlreadyWrittenError, to_json, write_once
from scalevec.results.opening import folder_of
from scalevec.sweeps.trainers.any_trial import ForeignTrial, SourceFile, Trainer, file_digest
from scalevec.sweeps.trainers.command import known_before
from scalevec.sweeps.trainers.source_files import files_of_words

KEPT = "trainers"
"""In RUNS_DIR the text of what was sent, ``trainers/DIGEST.json``; in the private folder what runs,
``trainers/DIGEST/PATH``."""
_WRITTEN = "What the command itself writes belongs below {out}, as in --log={out}/log.csv"


def keep_source(runs_dir: Path, private: Path, trainer: Trainer, folder: Path) -> None:
    """Copy the files of ``trainer`` into the private folder, once: an edit changes nothing that was sent.

    RUNS_DIR gets their text, for people. Nothing is copied of files that are not what the trial has (its
    worker says so), nor of those that lie elsewhere than below ``folder``: such a trainer runs where it is.
    Raises ``OSError``.
    """
    kept, paths = kept_folder(private, trainer), [PurePath(file.path) for file in trainer.files]
    if not paths or any(path.is_absolute() or ".." in path.parts for path in paths):
        return
    if kept.is_dir():
        os.utime(kept)  # it is in use, for whoever drops what is not
        return
    contents = _contents(trainer, folder)
    if contents is None:
        return
    texts = {name: content.decode(errors="surrogateescape") for name, content in contents.items()}
    path = runs_dir / KEPT / f"{kept.name}.json"
    with folder_of(path, make=True), suppress(AlreadyWrittenError):
        write_once(path, to_json(texts, indent=1) + b"\n")
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    drop_unused(kept.parent)
    with complete_directory(kept) as partial:
        partial.chmod(0o700)
        for name, content in contents.items():
            copy = partial / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
            copy.chmod(0o700 if content.startswith(b"#!") else 0o600)


def _contents(trainer: Trainer, folder: Path) -> dict[str, bytes] | None:
    """The files of ``trainer`` in ``folder``, None where one is not what the trial has."""
    try:
        contents = {file.path: (folder / file.path).read_bytes() for file in trainer.files}
    except OSError:
        return None
    digests = {name: sha256(content).hexdigest() for name, content in contents.items()}
    return contents if digests == {file.path: file.digest for file in trainer.files} else None


def folder_of_source(trainer: Trainer, folder: Path) -> Path:
    """Where the files of ``trainer`` are as the trial has them: what was kept of them, else ``folder``.

    Raises ``DefiniteError`` that names a file which has changed.
    """
    kept = kept_folder(private_folder(), trainer)
    source = kept if trainer.files and kept.is_dir() else folder
    if changed := _changed(trainer.files, source):
        raise DefiniteError(
            f"{source / changed}: is not what it was when this trial was planned; scalevec plan shows the "
            f"trials of the file as it is now, and scalevec run runs them. {_WRITTEN}"
        )
    return source


def require_no_new_input(trial: ForeignTrial, words: Sequence[str], folder: Path) -> None:
    """Raise ``DefiniteError`` for a file that one of ``words`` names and that the trial was planned without.

    The next plan would take it for a part of the trial, and all of them for new ones.
    """
    known = {PurePath(file.path) for file in trial.trainer.files}
    named = [] if trial.trainer.code_version else known_before(words, trial.placeholders)
    if new := next((name for name in files_of_words(folder, named) if PurePath(name) not in known), None):
        raise DefiniteError(
            f"{folder / new}: the command names it, and it was not there when this trial was planned; it "
            f"would be part of what a trial is. {_WRITTEN}"
        )


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

    ``folder`` has what cannot be known before a script runs; it does not count where another user could
    have put it there. Folders inside count where a script of the command lies: a module of a package is not
    to be taken for one of Python's own.
    """
    paths = [Path(word) for word in command if word.endswith(".py")]
    scripts = [path.parent.relative_to(source) for path in paths if path.is_relative_to(source)]
    inner = dict.fromkeys((*scripts, Path()))
    roots = [source, *([folder] if who_may_change(folder) is None else [])]
    path = os.pathsep.join(str(root / below) for root in roots for below in inner)
    # Else python -m would take what lies in the working directory.
    return {"PYTHONPATH": path} | ({} if scripts else {"PYTHONSAFEPATH": "1"})


def kept_folder(private: Path, trainer: Trainer) -> Path:
    """Where in the private folder the files of ``trainer`` are, if they were sent."""
    files = {file.path: file.digest for file in trainer.files}
    return private / KEPT / digest(files)[:32]


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
