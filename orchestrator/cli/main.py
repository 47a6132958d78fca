"""The console script. It imports no more than it needs to answer ``--help``; commands load the rest."""

import codecs
import difflib
import gc
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import typer

from scalevec.analysis.errors import shortened_text
from scalevec.orchestrator.cli.app import application
from scalevec.orchestrator.errors import ClusterLostError, Exit, report
from scalevec.orchestrator.progress import note, printable

_NOT_A_CHOICE = re.compile(r"Invalid value for '(.+?)'(?: / '.+')?: '(.*)' is not one of (.*)\.")
_OBJECTS_PER_COLLECTION = 500_000
_PLAIN = {"−": "-", "–": "-", "×": "x", "±": "+-", "·": "|", "…": "...", "≤": "<=", "≥": ">="}
UsageError: Any = typer.BadParameter.__bases__[0]
"""Typer does not export the class of errors that its own parsing raises."""


def main() -> None:
    """Run the command line; exit codes are those of ``orchestrator.errors.Exit``."""
    # By default the collector passes again and again over the same hundreds of thousands of records, a fifth
    # of the time that `status` takes for 30,000 trials.
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    _make_streams_writable()
    warned: set[str] = set()
    # Those of libraries, as on letters that a font lacks: each once, without its place in our code.
    warnings.showwarning = lambda message, *_: _warn(str(message), warned)
    try:
        sys.exit(application(*sys.argv[1:2])(standalone_mode=False))
    except typer.BadParameter as error:
        note(f"scalevec: {shortened_text(_in_our_words(error.format_message()))}")
        sys.exit(int(Exit.INVALID_INPUT))
    except UsageError as error:
        error.message = shortened_text(printable(error.message))
        error.show()
        sys.exit(int(Exit.INVALID_INPUT))
    except (typer.Abort, KeyboardInterrupt):  # the latter while commands are still being loaded
        note("scalevec: interrupted")
        sys.exit(int(Exit.INTERRUPTED))
    except ClusterLostError as error:
        code = report(error)
        sys.stdout.flush()
        os._exit(int(code))  # on the way out Ray's threads would look for the lost cluster, and crash
    except Exception as error:  # noqa: BLE001 (the last place where a person can be told)
        sys.exit(int(report(error)))


def _warn(text: str, warned: set[str]) -> None:
    if text not in warned:
        warned.add(text)
        note(f"warning: {text}")


def _make_streams_writable() -> None:
    """Give standard output and error what they may lack: an open file, and letters for our signs."""
    codecs.register_error("scalevec", _in_plain_letters)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (for the life of the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="scalevec")


def _in_plain_letters(error: UnicodeError) -> tuple[str, int]:
    """For a terminal that lacks a sign: a minus stays a minus, what has no like becomes a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in signs), error.end


def _in_our_words(message: str) -> str:
    """Return typer's message on a bad value with the nearest allowed one, as other messages have it."""
    message = message.replace("Value error, ", "")
    if match := _NOT_A_CHOICE.fullmatch(message):
        option, value, allowed = match.groups()
        choices = [choice.strip("'") for choice in allowed.split(", ")]
        nearest = difflib.get_close_matches(value, choices, 1)
        advice = f"; nearest: {nearest[0]!r}" if nearest else ""
        return f"{option} is {value!r}{advice}; allowed: {', '.join(choices)}"
    return message


if __name__ == "__main__":
    main()
