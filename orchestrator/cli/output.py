"""What a command returns, how it is written, and the commands that a message suggests."""

import itertools
import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.executors.registry import SIMULATOR
from scalevec.orchestrator.progress import note, printable
from scalevec.results.files import to_json, write_atomic

SCHEMA_VERSION = 5
"""Of what ``--json`` prints; a key that changes its meaning or goes raises it, a new one does not."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """What a command computed. A command that returns one has the option ``--json``."""

    record: Record | Sequence[Record]
    """What ``--json`` prints, with the version of its schema."""
    text: str | Callable[[], str]
    """What a person reads; a function where it takes long."""
    code: Exit = Exit.DONE
    output: Path | None = None
    """The file to write to; None: standard output."""
    wraps: bool = False
    """Whether long lines are broken between words at a terminal: of sentences, nothing that is copied."""

    def write(self, *, as_json: bool = False) -> Exit:
        """Write the result and return the exit code."""
        text = json_text(self.record) if as_json else self.shown()
        write_text(text, self.output, wraps=self.wraps and not as_json)
        return self.code

    def shown(self) -> str:
        """What a person reads."""
        return self.text if isinstance(self.text, str) else self.text()


def json_text(value: Record | Sequence[Record]) -> str:
    """Return ``value`` as JSON with its version; a list has one line per record, for line-based tools."""
    if isinstance(value, Mapping):
        return _in_ascii(value, indent=1)
    lines = ",\n ".join(map(json_line, value))
    return f"[\n {lines}\n]" if lines else "[]"


def json_line(record: Record) -> str:
    """Return ``record`` as JSON with its version, on one line."""
    return _in_ascii(record)


def _in_ascii(record: Record, indent: int | None = None) -> str:
    """``record`` with its version, in characters that print: json itself leaves one that does not."""
    versioned = {"schema_version": SCHEMA_VERSION, **record}
    return to_json(versioned, indent).decode().replace("\x7f", "\\u007f")


def write_text(text: str, output: Path | None = None, *, wraps: bool = False) -> None:
    """Print ``text``, or write it to the file ``output`` and say so on standard error.

    If it ``wraps``, lines that are longer than the terminal is wide are broken between words there.
    """
    text = text.removesuffix("\n") + "\n" if text else ""
    if output is None:
        if wraps and (width := terminal_width()):
            text = "".join(f"{_within(line, width)}\n" for line in text.splitlines())
        print(printable(text), end="")
    else:
        write_output(output, text.encode())


def write_output(output: Path, content: bytes) -> None:
    """Write the file that a person named, whole, behind links too; into a device or a pipe as it stands."""
    if output.exists() and not output.is_file():
        with output.open("wb") as stream:
            stream.write(content)
    else:
        output.resolve().parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output.resolve(), content)
    note(f"wrote {output}")


def _within(line: str, width: int) -> str:
    """``line`` on as many lines as ``width`` asks for, those after the first a little further in."""
    if len(line) <= width:
        return line
    inner = " " * (len(line) - len(line.lstrip()) + 2)
    wrapper = textwrap.TextWrapper(width, subsequent_indent=inner, replace_whitespace=False)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    return wrapper.fill(line)


def terminal_width() -> int | None:
    """Return the width in characters of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def command(
    verb: str, source: str | Sequence[str] | None, runs_dir: Path | None = None, **options: Any
) -> str:
    """Return ``scalevec VERB SOURCE`` with those ``options`` that are given (True: a flag; a list: each).

    With ``--runs`` where the command would look elsewhere, and with the simulating executor where ``run``
    would find simulations.
    """
    from scalevec.orchestrator.executors.simulate.planted_law import is_simulated

    default = Path(os.environ.get("SCALEVEC_RUNS_DIR", "runs"))
    runs_dir = runs_dir or default
    given: dict[str, Any] = {"runs": None if runs_dir == default else runs_dir, **options}
    if verb == "run" and is_simulated(runs_dir):
        given["executor"] = SIMULATOR
    words = [
        [f"--{name}"] if value is True else [f"--{name}", str(value)]
        for name, values in given.items()
        for value in (values if isinstance(values, list) else [values])
        if value
    ]
    sources = [source] if isinstance(source, str) else source or ()
    return shlex.join(["scalevec", *verb.split(), *sources, *itertools.chain(*words)])
