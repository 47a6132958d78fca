"""The options and arguments that several commands share, each with its help, and how a command ends."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.errors import Exit

Runs = Annotated[
    Path, typer.Option("--runs", envvar="SCALEVEC_RUNS_DIR", help="The folder of runs, seen by all machines.")
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=0, help="Trials at a time; 0: one for each core.")]
ExecutorName = Annotated[
    str | None, typer.Option("--executor", help="Where trials run: local, ray, slurm or simulate.")
]
ProfileName = Annotated[
    str | None, typer.Option("--profile", help="The site's settings, by their name in profiles.yaml.")
]
SweepFile = Annotated[str, typer.Argument(metavar="SWEEP", help="A sweep file.")]
SourceName = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A sweep (its file or name), or a .csv or .parquet table.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Where = Annotated[str | None, typer.Option(help="Rows to use, as in 'n_params > 1e6 and loss < 4'.")]
Reference = Annotated[str | None, typer.Option(help="The arm that the others are compared with.")]
Law = Annotated[
    str | None,
    typer.Option(
        help="power, power-floor, chinchilla, chinchilla-shared, gadre, kaplan, isoflop or envelope."
    ),
]
X = Annotated[str | None, typer.Option("--x", help="The variable of the law: N, D or C.")]
Y = Annotated[str, typer.Option("--y", help="The column that a law in one variable describes.")]
Interval = Annotated[
    str, typer.Option(help="auto, seed-t, residual-t, cluster-t, percentile, profile or none.")
]
HoldOut = Annotated[
    str, typer.Option("--hold-out", help="largest, none, a column (its last value) or an expression.")
]
Loss = Annotated[str, typer.Option(help="huber, l1 or l2.")]
Delta = Annotated[float, typer.Option(help="Huber's delta, in units of the residual.")]
Residual = Annotated[str, typer.Option(help="log or linear.")]
Bootstrap = Annotated[int, typer.Option(min=0, help="Resamples for intervals.")]
Cluster = Annotated[str, typer.Option(help="The column that says which rows are not independent.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the resampling.")]
NConvention = Annotated[str, typer.Option(help="matrices, total or with-embedding.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")]
CConvention = Annotated[str, typer.Option(help="6nd, counted or given.")]

RUNS = Path("runs")


def finish(code: Exit) -> None:
    """End the command with its exit code."""
    raise typer.Exit(int(code))
