"""The sweep file: its schema, its expansion into trials, the ladders of sizes; and the shipped sweeps.

``sweeps.expansion.expand.expand`` turns a loaded sweep into cells of trials.
"""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.sweeps.errors import Problem, SweepError

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

__all__ = ["Problem", "SweepError", "json_schema", "load", "loads", "shipped", "shipped_names"]


def load(path: str | Path, *, look_for_files: bool = True) -> "Sweep":
    """Return the sweep in a sweep file, checked as a whole.

    Args:
        path: The YAML file; :func:`shipped` gives those that come with the project.
        look_for_files: Whether the corpus files that it names must exist.

    Returns:
        The sweep; ``sweeps.expansion.expand.expand`` turns it into trials.

    Raises:
        SweepError: With everything that is wrong: line, field, value, and what is allowed.

    Example:
        >>> sweep = load(shipped("quickstart"))
        >>> sweep.name, list(sweep.arms)
        ('quickstart', ['baseline', 'none', 'unified'])
    """
    # Not at the top: pydantic takes longer to import than the command line may take to answer.
    from scalevec.sweeps.reading import read
    from scalevec.sweeps.yaml_source import read_file

    return read(read_file(Path(path)), look_for_files=look_for_files)


def loads(text: str, name: str = "<text>", folder: Path = Path(), *, look_for_files: bool = True) -> "Sweep":
    """Return the sweep in a text, checked as a whole.

    Args:
        text: The YAML of a sweep file.
        name: What messages call the text.
        folder: Where the files that it names are looked for.
        look_for_files: Whether the corpus files that it names must exist.

    Raises:
        SweepError: With everything that is wrong: line, field, value, and what is allowed.
    """
    from scalevec.sweeps.reading import read
    from scalevec.sweeps.yaml_source import read_text

    return read(read_text(text, name, folder), look_for_files=look_for_files)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the sweep file, for editors."""
    from scalevec.sweeps.sections.sweep_model import sweep_schema

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **sweep_schema()}


def shipped_names() -> list[str]:
    """Return the names of the sweep files that come with the project: ``quickstart``, ``paper/main``, ..."""
    folder = Path(__file__).resolve().parent
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def shipped(name: str) -> Path:
    """Return the path of a sweep file that comes with the project.

    Args:
        name: One of :func:`shipped_names`, such as ``quickstart`` or ``paper/main``.

    Returns:
        The path of the YAML file, for :func:`load`.

    Raises:
        FileNotFoundError: No sweep of that name is shipped; the message has the nearest names, or the folder.
    """
    names, folder = shipped_names(), Path(__file__).resolve().parent
    if name not in names:
        by_end = [known for known in names if known.rpartition("/")[2] == name.rpartition("/")[2]]
        nearest = list(dict.fromkeys([*by_end, *difflib.get_close_matches(name, names)]))
        raise FileNotFoundError(
            f"no sweep called {name!r} is shipped; "
            + (f"nearest: {', '.join(nearest)}" if nearest else f"{folder} has all {len(names)}")
        )
    return folder / f"{name}.yaml"
