"""Arguments and options that several commands share: type, help and what a shell completes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from scalevec.analysis.registry import LAWS
from scalevec.orchestrator.executors.registry import EXECUTORS, ExecutorName
from scalevec.orchestrator.sources.sources import SWEEP_FILES, TABLES
from scalevec.results.files import names_in
from scalevec.results.sweep_folder import sweep_names
from scalevec.sweeps import shipped_names

RUNS = Path("runs")
_EXECUTORS = ", ".join(f"{name} ({registered.help})" for name, registered in EXECUTORS.items())


def sweeps(context: typer.Context, incomplete: str) -> list[str]:
    """Return the sweeps of the runs directory, shipped sweeps and sweep files."""
    names = [*sweep_names(_runs_dir(context)), *shipped_names()]
    return _starting([*names, *_files(incomplete, SWEEP_FILES)], incomplete)


def sources(context: typer.Context, incomplete: str) -> list[str]:
    """Return sweeps, and tables in the folder that is being typed."""
    return [*sweeps(context, incomplete), *_starting(_files(incomplete, TABLES), incomplete)]


def laws(incomplete: str) -> list[str]:
    """Return the laws there are."""
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


Runs = Annotated[
    Path,
    typer.Option(
        "--runs",
        metavar="FOLDER",
        envvar="SCALEVEC_RUNS_DIR",
        help="Runs directory, on a file system shared by all machines.",
    ),
]
Sweep = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP",
        help="A sweep file, a sweep in the runs directory, or a shipped one (quickstart, paper/main).",
        autocompletion=sweeps,
    ),
]
AnySweep = Annotated[
    str | None,
    typer.Argument(
        metavar="SWEEP", help="A sweep file or name; all sweeps without it.", autocompletion=sweeps
    ),
]
SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A sweep (file or name), or a table: .csv, .parquet, .jsonl, - for standard input.",
        autocompletion=sources,
    ),
]
TrialName = Annotated[
    str, typer.Argument(metavar="TRIAL", help="The first digits of a trial's id.", autocompletion=trials)
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="ARM", help="Arm that the others are compared with (default: the sweep's own, else baseline)."
    ),
]
Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=COLUMN",
        help="What a column of a table from elsewhere is, as in loss=val/loss; may be given again.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=0,
        help="Trials at a time; 0: as many as the cores or GPUs here allow.",
    ),
]
Executor = Annotated[
    ExecutorName | None, typer.Option("--executor", metavar="NAME", help=f"Where trials run: {_EXECUTORS}.")
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Settings of the site, by their name in profiles.yaml.",
        autocompletion=profiles,
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TrialsWhere = Annotated[
    str | None, typer.Option(metavar="EXPRESSION", help="Only these trials, as in 'rung == \"tiny-25k\"'.")
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="Log trials to tensorboard, wandb or mlflow too; may be given again.",
    ),
]
Trusted = Annotated[
    bool, typer.Option("--trust", help="Run the sweep's own code (plugins, trainer, profile) without asking.")
]


@dataclass(frozen=True)
class Placement:
    """Where a person wants trials to run; None and 0 leave it to the profile and the machine."""

    executor: str | None = None
    profile: str | None = None
    jobs: int = 0
