"""From an exception to one message and an exit code."""

import errno
import sys
import traceback
from enum import IntEnum

OUR_PACKAGES = ("orchestrator", "sweeps", "model", "results", "analysis")


class Exit(IntEnum):
    """What ``scalevec`` returns to the shell."""

    DONE = 0
    SOME_FAILED = 1
    REFUSED = 2
    LACKING = 3
    INTERRUPTED = 130


class Refused(ValueError):  # noqa: N818 (read as a sentence where it is raised)
    """The input cannot be used; the message says what, where, the value, and what is allowed."""


class Lacking(RuntimeError):  # noqa: N818
    """The machine lacks something; the message says what to do."""


def explain(error: Exception) -> tuple[str, Exit]:
    """The message for a person and the exit code."""
    if isinstance(error, Lacking):
        return str(error), Exit.LACKING
    if isinstance(error, OSError):
        return _operating_system(error), Exit.LACKING
    if isinstance(error, ValueError) and type(error).__module__.partition(".")[0] in OUR_PACKAGES:
        return str(error), Exit.REFUSED
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}): a smaller table or fewer redraws need less", Exit.LACKING
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} ({where.name} in {where.filename}:{where.lineno})"
    return (
        f"this is a fault in scalevec, please report it: {what}; --debug shows the traceback",
        Exit.SOME_FAILED,
    )


def _operating_system(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    problem = f"{name}{error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{problem}; free some space and give the same command again, nothing is lost"
    return problem


def report(error: Exception, *, debug: bool) -> Exit:
    """Print the message of ``error`` to standard error; returns the exit code."""
    if debug:
        traceback.print_exception(error)
    message, code = explain(error)
    print(f"scalevec: {message}", file=sys.stderr)
    return code
