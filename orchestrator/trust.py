"""A sweep's own code runs only once a person has agreed to exactly that content.

It is its plugins, its trainer, and the commands of a profile that lies beside the sweep file.

What was agreed to is kept in ``trusted.json`` in the user's configuration folder, by the content's digest: a
change asks again, a copy of the sweep elsewhere does not. What a trusted command sends (a controller) has the
digest with it and asks nobody.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from scalevec.model.identity import digest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.private import who_may_change
from scalevec.orchestrator.progress import note
from scalevec.results.files import CorruptRecordError, read_json_if_any, utc_now, write_atomic

FILE_NAME = "trusted.json"
MOST_LISTED = 20
"""Pieces of content that a question lists; the rest are counted."""


@dataclass(frozen=True)
class Trust:
    """What a command was given: ``--trust``, or the digests, and the users who may have written checkpoints,
    that a trusted command sent it with."""

    given: bool = False
    sent: tuple[str, ...] | None = None


NO_TRUST = Trust()


def content_hash(contents: Mapping[str, bytes]) -> str:
    """The digest (64 hex digits) of code by the name of each piece; empty where there is none."""
    texts = {name: content.decode("latin-1") for name, content in contents.items()}
    return digest(texts) if texts else ""


def require_trust(
    sweep_file: str, contents: Mapping[str, bytes], trust: Trust = NO_TRUST, folders: Iterable[Path] = ()
) -> str:
    """Return the digest of ``contents`` once a person has agreed that it runs.

    Args:
        sweep_file: The sweep that names the code, as a person knows it.
        contents: What would run, by the name under which it is shown: a file, or words such as
            ``command: python train.py``. Without any there is nothing to ask.
        trust: What the command was given.
        folders: Where the files lie, for the person who is asked.

    Raises:
        InvalidInputError: Nobody agreed, or it is not what was sent; nothing was run.
    """
    name = content_hash(contents)
    if not contents or name in (trust.sent or ()):
        return name
    if trust.sent is not None:
        raise InvalidInputError(
            f"{sweep_file}: its own code has changed since it was sent; to send it again: scalevec submit"
        )
    if trust.given or (name not in _trusted() and _agreed(sweep_file, contents, name, folders)):
        _remember(name, sweep_file)
    return name


def _agreed(sweep_file: str, contents: Mapping[str, bytes], name: str, folders: Iterable[Path]) -> bool:
    listed = [f"  {piece} ({len(content):,} bytes)" for piece, content in contents.items()]
    if len(listed) > MOST_LISTED:
        listed[MOST_LISTED:] = [f"  ... and {len(listed) - MOST_LISTED} more"]
    whence = ", ".join(dict.fromkeys(f" from {folder}" for folder in folders))
    note("\n".join([f"{sweep_file} runs code of its own as you{whence} ({name[:12]}):", *listed]))
    if not _at_a_terminal():
        raise InvalidInputError(f"{sweep_file}: its code is not trusted; nothing was run. To run it: --trust")
    if not _says_yes("Run it? It is asked once for this content."):
        raise InvalidInputError(f"{sweep_file}: its code is not trusted; nothing was run")
    return True


def writers_agreed_to(sweep_file: str, writers: Sequence[str], trust: Trust) -> tuple[str, ...]:
    """Return those of ``writers`` from whose checkpoints an own trainer goes on.

    To load them may run code of theirs: it is agreed to by name, for whoever comes later may plant some while
    jobs wait. Where nobody can be asked, the trials start afresh.
    """
    if trust.given or trust.sent is not None:
        return tuple(writer for writer in writers if trust.given or writer in (trust.sent or ()))
    if not writers or not _at_a_terminal():
        return ()
    note(
        f"{sweep_file}: {', '.join(writers)} may have written checkpoints of its trials; to load them may "
        "run code of theirs as you"
    )
    return tuple(writers) if _says_yes("Go on from them? Else these trials start afresh.") else ()


def _at_a_terminal() -> bool:
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _says_yes(question: str) -> bool:
    note(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _file() -> Path:
    return platformdirs.user_config_path("scalevec") / FILE_NAME


def _trusted() -> dict[str, object]:
    """What was agreed to, by digest; nothing where another user could have written it."""
    path = _file()
    with suppress(OSError, CorruptRecordError):
        if who_may_change(path.resolve()) is None:
            return read_json_if_any(path, dict) or {}
    return {}


def _remember(name: str, sweep_file: str) -> None:
    entry = {"sweep": str(Path(sweep_file).resolve()), "time": utc_now()}
    content = json.dumps(_trusted() | {name: entry}, indent=1).encode()
    path, before = _file(), os.umask(0o077)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
        if problem := who_may_change(path.resolve()):
            note(f"warning: {path} does not count, and the next command will ask again: {problem}")
    except OSError as problem:
        note(f"warning: {problem.strerror}: {path}; the next command will ask again")
    finally:
        os.umask(before)
