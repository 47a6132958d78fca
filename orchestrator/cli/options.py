"""Arguments and options that several commands share: type, help and completion."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from scalevec.orchestrator.cli import completion
from scalevec.orchestrator.executors.registry import EXECUTORS, ExecutorName

RUNS = Path("runs")
_EXECUTORS = ", ".join(f"{name} ({registered.help})" for name, registered in EXECUTORS.items())

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
        autocompletion=completion.sweeps,
    ),
]
AnySweep = Annotated[
    str | None,
    typer.Argument(
        metavar="SWEEP",
        help="A sweep file or name; all sweeps without it.",
        autocompletion=completion.sweeps,
    ),
]
SourceName = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A sweep (file or name), or a table: .csv, .parquet, .jsonl, - for standard input.",
        autocompletion=completion.sources,
    ),
]
TrialName = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL", help="The first digits of a trial's id.", autocompletion=completion.trials
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="ARM",
        help="Arm that the others are compared with (default: the sweep's own, else baseline).",
        autocompletion=completion.arms,
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
    ExecutorName | None,
    typer.Option("--executor", metavar="NAME", help=f"Where trials run: {_EXECUTORS}."),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Settings of the site, by their name in profiles.yaml.",
        autocompletion=completion.profiles,
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TrialsWhere = Annotated[
    str | None,
    typer.Option(metavar="EXPRESSION", help="Only these trials, as in 'rung == \"tiny-25k\"'."),
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
