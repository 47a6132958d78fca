"""The sweep file: its schema, its expansion into trials, the ladders of sizes; and the shipped sweeps.

``sweeps.expand.expand`` turns a loaded sweep into cells of trials.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.errors import Problem, SweepError
from sweeps.expand import identical_arms
from sweeps.trials import Cell, CorpusFacts, epochs

if TYPE_CHECKING:
    from sweeps.schema import Sweep

__all__ = [
    "Cell",
    "CorpusFacts",
    "Problem",
    "SweepError",
    "corpus_files",
    "epochs",
    "identical_arms",
    "json_schema",
    "load",
    "loads",
    "shipped",
]


def load(path: str | Path, *, look_for_files: bool = True) -> "Sweep":
    """The valid sweep in the file at ``path``. Raises :class:`SweepError` with everything that is wrong."""
    from sweeps import loading  # pydantic takes longer to import than the command line may take to answer

    return loading.load(path, look_for_files=look_for_files)


def loads(text: str, name: str = "<text>", folder: Path = Path()) -> "Sweep":
    """The valid sweep in ``text``, called ``name`` in messages. Raises :class:`SweepError`."""
    from sweeps import loading

    return loading.loads(text, name, folder)


def corpus_files(sweep: "Sweep", name: str = "files") -> list[Path]:
    """The files that the corpus of a sweep lists under ``name``, sorted, each once."""
    from sweeps import corpus_lookup

    return corpus_lookup.corpus_files(sweep, name)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the sweep file."""
    from sweeps.schema import Sweep

    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Sweep.model_json_schema()}


def shipped(name: str) -> Path:
    """The path of a sweep file that comes with the project. Raises ``FileNotFoundError``."""
    folder = Path(__file__).parent
    path = folder / f"{name}.yaml"
    names = sorted(found.stem for found in folder.glob("*.yaml"))
    if name not in names:
        raise FileNotFoundError(f"no sweep called {name!r} is shipped; there are: {', '.join(names)}")
    return path
