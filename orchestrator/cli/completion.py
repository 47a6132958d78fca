"""What the shell completes where the values depend on the runs: sweeps, arms, trials, profiles.

Loads nothing that takes longer than a person waits after pressing Tab.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

import typer

from scalevec.orchestrator.sources.sweep_files import SWEEP_FILES, TABLES
from scalevec.results.files import names_in
from scalevec.results.sweep_folder import SweepFolder, sweep_names


def sweeps(context: typer.Context, incomplete: str) -> list[str]:
    """Return the sweeps of the runs directory, shipped sweeps and sweep files."""
    from scalevec.sweeps import shipped_names

    names = [*sweep_names(_runs_dir(context)), *shipped_names()]
    return _starting([*names, *_files(incomplete, SWEEP_FILES)], incomplete)


def sources(context: typer.Context, incomplete: str) -> list[str]:
    """Return sweeps, and tables in the folder that is being typed."""
    return [*sweeps(context, incomplete), *_starting(_files(incomplete, TABLES), incomplete)]


def arms(context: typer.Context, incomplete: str) -> list[str]:
    """Return the arms of the source given earlier on the command line."""
    source = context.params.get("source") or ""
    if source.endswith(".csv") and Path(source).is_file():
        with Path(source).open(newline="", encoding="utf-8", errors="replace") as stream:
            rows: Iterable[dict[str, str]] = csv.DictReader(stream)
            return _starting({row.get("arm") or "" for row in rows}, incomplete)
    runs_dir = _runs_dir(context)
    members = SweepFolder.of(runs_dir, source).members() if source in sweep_names(runs_dir) else None
    return _starting({member["arm"] for member in members or []}, incomplete)


def laws(incomplete: str) -> list[str]:
    """Return the laws there are."""
    from scalevec.analysis.registry import LAWS

    return _starting(LAWS, incomplete)


def trials(context: typer.Context, incomplete: str) -> list[str]:
    """Return the trials of the runs directory by the first 12 digits of their ids."""
    folders = _starting(names_in(_runs_dir(context) / "trials"), incomplete[:2])
    ids = (name for folder in folders for name in names_in(_runs_dir(context) / "trials" / folder))
    return _starting((name[:12] for name in ids), incomplete)


def profiles(context: typer.Context, incomplete: str) -> list[str]:
    """Return the profiles of the site and those beside the sweep file."""
    from scalevec.orchestrator.executors.profiles import profile_names

    source = Path(context.params.get("source") or "")
    return _starting(profile_names(source.parent), incomplete)


def _runs_dir(context: typer.Context) -> Path:
    return Path(context.params.get("runs_dir") or "runs")


def _files(incomplete: str, suffixes: Iterable[str]) -> list[str]:
    """Return files with one of ``suffixes``, and folders, in the folder that is being typed."""
    folder = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    paths = [path for path in folder.glob("*") if path.is_dir() or path.suffix in suffixes]
    return [f"{path}/" if path.is_dir() else str(path) for path in paths]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    """Names that a shell may show: none that commands its terminal."""
    return sorted({name for name in names if name and name.isprintable() and name.startswith(incomplete)})
