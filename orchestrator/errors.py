"""From an exception to one message and an exit code."""

import errno
import os
import traceback
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TypeVar

from scalevec.analysis.errors import shortened_text
from scalevec.orchestrator.progress import note
from scalevec.results.extras import extra_of, install_command
from scalevec.results.files import CorruptRecordError
from scalevec.sweeps.errors import SweepError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, or of a quota that is used up."""


class Exit(IntEnum):
    """What ``scalevec`` returns to the shell."""

    DONE = 0
    SOME_FAILED = 1
    INVALID_INPUT = 2
    MISSING_REQUIREMENT = 3
    INTERRUPTED = 130


class InvalidInputError(ValueError):
    """The input cannot be used; the message says what, where, the value, and what is allowed."""


class MissingRequirementError(RuntimeError):
    """The machine lacks something; the message says what to do."""


class TryLaterError(MissingRequirementError):
    """What stands in the way passes: a full queue, a cluster that does not answer, a full disk.

    ``sent`` are the numbers, by their tokens, of those jobs of one call that were taken before the refusal.
    """

    def __init__(self, message: str, sent: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.sent = dict(sent or {})


class ClusterLostError(MissingRequirementError):
    """A cluster that was there answers no more; what ran on it may go on from its checkpoints elsewhere."""


def explain(error: Exception) -> tuple[str, Exit]:
    """Return the message for a person and the exit code."""
    if isinstance(error, MissingRequirementError):
        return str(error), Exit.MISSING_REQUIREMENT
    if isinstance(error, OSError):
        return _operating_system(error), Exit.MISSING_REQUIREMENT
    if isinstance(error, ValueError) and type(error).__module__.startswith("scalevec."):
        return str(error), Exit.INVALID_INPUT
    if isinstance(error, MemoryError):
        advice = "a smaller table or fewer bootstrap replicates need less"
        return f"not enough memory ({error}): {advice}", Exit.MISSING_REQUIREMENT
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")):
        return f"{error.name} is not installed: {install_command(extra)}", Exit.MISSING_REQUIREMENT
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({where.name} in {where.filename}:{where.lineno})"
    return f"internal error; please report it: {what}; --debug shows the traceback", Exit.SOME_FAILED


def _operating_system(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    problem = f"{name}{error.strerror or error}"
    if error.errno in NO_SPACE:
        return f"{problem}; free some space and give the same command again, nothing is lost"
    return problem


def report(error: Exception) -> Exit:
    """Print the message of ``error`` to standard error, no line of it endless; return the exit code."""
    if os.environ.get("SCALEVEC_DEBUG"):
        note("".join(traceback.format_exception(error)).rstrip())
    message, code = explain(error)
    note("\n".join(map(shortened_text, f"scalevec: {message}".split("\n"))))
    return code


Value = TypeVar("Value")


def read_or_else(read: Callable[[], Value], otherwise: Value) -> Value:
    """Return what ``read`` gives, or ``otherwise`` for a record that whoever has to do with it reports."""
    try:
        return read()
    except CorruptRecordError:
        return otherwise


def read_or_warn(read: Callable[[], Value], otherwise: Value, left_out: str) -> Value:
    """Return what ``read`` gives, or ``otherwise`` with a warning that ``left_out`` is left out."""
    try:
        return read()
    except (CorruptRecordError, InvalidInputError, SweepError, OSError) as problem:
        note(f"warning: {problem}; {left_out}")
        return otherwise
