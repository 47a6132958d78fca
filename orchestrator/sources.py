"""SOURCE of the reading commands: a sweep (file or name) with its results, or a table from elsewhere."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Refused
from results.sweep_folder import SweepFolder, sweep_names

if TYPE_CHECKING:
    import pandas as pd

    from results.index import ResultsIndex

TABLES = (".csv", ".parquet")
SWEEP_FILES = (".yaml", ".yml")
X_NAMES = {"n_params": "N", "n_tokens": "D", "flops": "C"}


@dataclass(frozen=True)
class Source:
    """Tidy rows and the questions that their sweep asks; ``folder`` is None for a table from elsewhere."""

    name: str
    rows: "pd.DataFrame"
    folder: SweepFolder | None = None
    compare: Mapping[str, Any] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def open_source(source: str, runs_dir: Path) -> Source:
    """What ``source`` names. Raises :class:`Refused` or ``DataError`` where it names nothing usable."""
    if Path(source).suffix in TABLES:
        import analysis

        return Source(Path(source).stem, analysis.read_table(source))
    return open_sweep(source, runs_dir)


def open_sweep(source: str, runs_dir: Path) -> Source:
    """The results of a sweep so far, from its run directories by way of the index."""
    from results.tidy import tidy_table

    folder = sweep_folder(source, runs_dir)
    members = folder.members()
    if members is None:
        raise Refused(f"sweep {folder.name} has not been run in {runs_dir}; scalevec run {source}")
    rows, problems = indexed_rows(runs_dir, [member["trial_id"] for member in members])
    compare = (folder.resolved() or {}).get("compare", {})
    return Source(folder.name, tidy_table(rows, members, folder.name), folder, compare, problems)


def open_index(runs_dir: Path) -> "ResultsIndex":
    """The index of RUNS_DIR in the store that a person named (see ``results.index.store_url``)."""
    from results.index import ResultsIndex, store_url

    index = ResultsIndex(store_url(runs_dir))
    if index.replaced is not None:
        print(
            f"the index at {index.name} is of an older version ({index.replaced}); "
            "it is made anew from the run directories",
            file=sys.stderr,
        )
    return index


def check_named_store(runs_dir: Path) -> None:
    """Open the store that a person named, before anything is spent. Raises ``StoreError``.

    Later it may come and go: no trial needs it.
    """
    from results.index_url import named_store

    if named_store():
        open_index(runs_dir).close()


def indexed_rows(runs_dir: Path, ids: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The index's rows of trials, brought up to date first; and what could not be read."""
    with open_index(runs_dir) as index:
        report = index.collect(runs_dir, ids)
        return index.rows(runs_dir, ids), report.problems


def states_or_warning(runs_dir: Path, ids: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The state of each trial, and warnings: for commands whose work is done without the index.

    Where the store cannot be used, that is said, and the states are read from the run directories.
    """
    from results.index import StoreError

    try:
        with open_index(runs_dir) as index:
            states, problems = index.current_states(runs_dir, ids)
    except (StoreError, OSError) as error:
        later = "the run directories have everything; scalevec collect brings the index up to date later"
        states, problems = _states_of_directories(runs_dir, ids)
        return states, [f"{error}; {later}", *_shown(problems)]
    return states, _shown(problems)


def _states_of_directories(runs_dir: Path, ids: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The state of each trial, and why it cannot be read."""
    from results.files import CorruptRecord
    from results.run_directory import RunDirectory

    states, problems = {}, {}
    for name in ids:
        try:
            states[name] = RunDirectory.of(runs_dir, name).state().state
        except (CorruptRecord, OSError) as error:
            problems[name] = str(error)
    return states, problems


def _shown(problems: Mapping[str, str]) -> list[str]:
    return [f"{name[:12]}: {problem}" for name, problem in problems.items()]


def sweep_folder(source: str, runs_dir: Path) -> SweepFolder:
    """The folder of a sweep, named by its file or its name."""
    name = source
    if Path(source).suffix in SWEEP_FILES:
        import sweeps

        name = sweeps.load(source).name
    elif name not in sweep_names(runs_dir):
        known = ", ".join(sweep_names(runs_dir)) or "none"
        raise Refused(
            f"{source}: no sweep of that name in {runs_dir} (there are: {known}), and neither a sweep file "
            f"({', '.join(SWEEP_FILES)}) nor a table ({', '.join(TABLES)})"
        )
    return SweepFolder.of(runs_dir, name)


def tuning_choices(source: Source) -> list[dict[str, Any]]:
    """The frozen choices of a sweep as plain values."""
    from orchestrator import choices

    content = source.folder.tuning() if source.folder else None
    return choices.to_json(choices.from_json(content))["choices"] if content else []
