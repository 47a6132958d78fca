"""Check the project's words: field English in texts, names that say what they hold. ``make lint`` runs it.

    python tools/voice.py            every place to rewrite beyond the allowance; exit code 1 if there is one
    python tools/voice.py --count    the places that each file has, in the form of the allowance

``voice-allowed.txt`` beside this file says how many places each file may still have; it may only shrink.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
ALLOWED = Path(__file__).with_name("voice-allowed.txt")
SUFFIXES = (".py", ".md", ".jinja")
# The word list itself and its test hold every phrase.
UNCHECKED = ("tools/voice.py", "tests/test_voice.py")

_COUNTED = (
    "nats?|bits|bytes|FLOPs|ms|seconds|minutes|hours|points|trials|rows?|lines?|panels?|jobs|once|twice"
)
_UNIT = "token|pair|rung|decade|arm|run|trial|second|step|seed|cell|parameter|setting|row|node|GPU"
PHRASES = {
    rf"\b({_COUNTED})\s+an?\s+({_UNIT})\b": "'per': nats/token, per pair, one row per trial",
    r"redraw|\bresamples?\b|_resamples?\b": "bootstrap replicates",
    r"\bthis is a fault\b|\bfault in scalevec\b": "internal error",
    r"\bto bear in mind\b": "caveats",
    r"\bbegins? so\b": "the prefix that matches",
    r"(?<!--)\banew\b": "again, or what is done: rebuilt, redrawn, refitted",
    r"\bmend(s|ed|ing)?\b": "repair, fix",
    r"\bhangs? on\b": "depends on",
}
NAMES = {"found", "said", "made", "own", "place", "one"}
"""Variables, arguments and functions of these names do not say what they hold."""


@dataclass(frozen=True)
class Finding:
    """A place to rewrite: its file, line, what is there, and what is meant."""

    path: str
    line: int
    text: str
    instead: str


def check(path: str, source: str) -> list[Finding]:
    """Return what is to be rewritten in ``source``, the text of the file ``path``."""
    findings = [
        Finding(path, source.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), instead)
        for pattern, instead in PHRASES.items()
        for match in re.finditer(pattern, source, re.IGNORECASE)
    ]
    if path.endswith(".py"):
        findings += [
            Finding(path, line, name, "a name that says what it holds")
            for name, line in assigned_names(ast.parse(source))
            if name.strip("_") in NAMES
        ]
    return sorted(findings, key=lambda finding: finding.line)


def assigned_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each variable, argument and function that ``tree`` names, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno


def checked_files(checkout: Path) -> list[str]:
    """Return the tracked texts of ``checkout``."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True
    )
    paths = [path for path in listing.stdout.split("\0") if path.endswith(SUFFIXES) and path not in UNCHECKED]
    return [path for path in paths if (checkout / path).is_file()]


def findings_by_file(checkout: Path) -> dict[str, list[Finding]]:
    """Return what is to be rewritten in each file of ``checkout`` that has anything."""
    findings = {path: check(path, (checkout / path).read_text("utf-8")) for path in checked_files(checkout)}
    return {path: of_file for path, of_file in findings.items() if of_file}


def allowance(text: str) -> dict[str, int]:
    """Return how many places each file may still have, from lines ``count path``."""
    return {path: int(count) for count, path in (line.split() for line in text.splitlines())}


def beyond(findings: dict[str, list[Finding]], allowed: dict[str, int]) -> list[Finding]:
    """Return the findings of each file that has more than it is allowed."""
    excess = (of_file for path, of_file in findings.items() if len(of_file) > allowed.get(path, 0))
    return [finding for of_file in excess for finding in of_file]


def main() -> int:
    """Print what is to be rewritten; return the exit code."""
    findings = findings_by_file(CHECKOUT)
    if "--count" in sys.argv[1:]:
        print("\n".join(f"{len(of_file)} {path}" for path, of_file in findings.items()))
        return 0
    refused = beyond(findings, allowance(ALLOWED.read_text("utf-8")))
    for finding in refused:
        print(f"{finding.path}:{finding.line}: {finding.text!r}: write {finding.instead}")
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
