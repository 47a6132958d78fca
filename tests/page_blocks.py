"""Blocks of code of a page of the documentation, run as a reader would."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kept_text import difference_beyond_rounding
from support import CHECKOUT, call_main, succeeded


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The kind and the text of each block of a page in docs."""
    text = (CHECKOUT / "docs" / page).read_text(encoding="utf-8")
    yield from re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL)


def run(command: str) -> list[str]:
    """The lines that a command of the page prints."""
    words = shlex.split(command)
    if words[0] != "scalevec":
        subprocess.run(["sh", "-c", command], check=True)
        return []
    return succeeded(call_main(words[1:], Path.cwd(), {})).stdout.splitlines()


def is_among(line: str, printed: list[str]) -> bool:
    """Whether a line was printed, up to rounding and the width of columns."""
    words = " ".join(line.split())
    return any(difference_beyond_rounding(words, " ".join(other.split())) == "" for other in printed)
