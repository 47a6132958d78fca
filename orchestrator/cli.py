"""The command line. It imports no more than it needs to answer ``--help``; commands load the rest."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator import corpus_cli
from orchestrator.errors import report
from orchestrator.options import (
    RUNS,
    AsJson,
    Bootstrap,
    CConvention,
    Cluster,
    Delta,
    ExecutorName,
    HoldOut,
    Interval,
    Jobs,
    Law,
    Loss,
    NConvention,
    Output,
    ProfileName,
    Reference,
    Residual,
    Runs,
    Seed,
    SourceName,
    SweepFile,
    Where,
    X,
    Y,
)
from orchestrator.options import finish as _finish

app = typer.Typer(
    name="scalevec",
    help="Scaling-law experiments from one sweep file to a verdict.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
store = typer.Typer(help="The index over the run directories.", no_args_is_help=True)
app.add_typer(store, name="store")
app.add_typer(corpus_cli.app, name="corpus")


@app.callback()
def _global(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    store: Annotated[
        str | None,
        typer.Option(envvar="SCALEVEC_STORE", help="The index: a URL such as postgresql://user@host/name."),
    ] = None,
) -> None:
    """Scaling-law experiments from one sweep file to a verdict."""
    if debug:
        os.environ["SCALEVEC_DEBUG"] = "1"
    if store:
        os.environ["SCALEVEC_STORE"] = store


@app.command()
def demo(
    runs: Runs = RUNS,
    jobs: Jobs = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The report's file.")] = None,
) -> None:
    """Run the quickstart sweep on this machine, then write its report."""
    from orchestrator.commands import running

    _finish(running.demo(runs, jobs, output))


@app.command()
def plan(
    sweep: SweepFile,
    runs: Runs = RUNS,
    jobs: Jobs = 0,
    trials: Annotated[bool, typer.Option("--trials", help="A line for every trial.")] = False,
    noise: Annotated[
        float | None, typer.Option("--noise", help="sd of a pair's difference, nats a token, for the power.")
    ] = None,
    pilot: Annotated[
        str | None, typer.Option("--pilot", help="Results (sweep or table) to take the noise from.")
    ] = None,
    without_corpus: Annotated[
        bool, typer.Option("--without-corpus", help="Before the text is there: epochs are not counted.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every trial of a sweep and what it will cost, and what exists already."""
    from orchestrator.commands import looking

    jobs = jobs or os.cpu_count() or 1
    known = looking.KnownNoise(noise, pilot)
    _finish(
        looking.plan(
            sweep,
            runs,
            jobs,
            every_trial=trials,
            as_json=as_json,
            known=known,
            without_corpus=without_corpus,
        )
    )


@app.command()
def run(
    sweep: SweepFile,
    runs: Runs = RUNS,
    jobs: Jobs = 0,
    executor: ExecutorName = None,
    profile: ProfileName = None,
    retune: Annotated[bool, typer.Option("--retune", help="Choose tuned values anew.")] = False,
    where: Annotated[
        str | None, typer.Option(help="Only these trials, as in 'rung == \"tiny-25k\"'.")
    ] = None,
) -> None:
    """Run what is missing of a sweep until it is done; safe to stop and to repeat."""
    from orchestrator.commands import running

    _finish(
        running.run_sweep(sweep, runs, running.Place(executor, profile, jobs), retune=retune, where=where)
    )


@app.command()
def submit(
    sweep: SweepFile,
    runs: Runs = RUNS,
    executor: ExecutorName = None,
    profile: ProfileName = None,
) -> None:
    """Send a sweep to a cluster and return: a small job there runs its stages; may be repeated."""
    from orchestrator.commands import queueing, running

    _finish(queueing.submit(sweep, runs, running.Place(executor, profile)))


@app.command()
def cancel(
    source: SourceName,
    runs: Runs = RUNS,
    profile: ProfileName = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Only trials that the sweep file no longer holds.")
    ] = False,
) -> None:
    """Call off what a sweep has waiting or running; results and checkpoints stay."""
    from orchestrator.commands import queueing

    _finish(queueing.cancel(source, runs, profile, removed=removed))


@app.command()
def retry(source: SourceName, runs: Runs = RUNS) -> None:
    """Let the failed trials of a sweep run again."""
    from orchestrator.commands import queueing

    _finish(queueing.retry(source, runs))


@app.command()
def collect(
    source: Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="A sweep file or name.")] = None,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Take the results of a sweep (or of all) into the index; may be repeated, from any login."""
    from orchestrator.commands import looking

    _finish(looking.collect(source, runs, as_json=as_json))


@app.command()
def status(
    source: Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="A sweep file or name.")] = None,
    runs: Runs = RUNS,
    watch: Annotated[bool, typer.Option("--watch", help="Look again until nothing runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how many trials are in which state."""
    from orchestrator.commands import looking

    _finish(looking.status(source, runs, watch=watch, as_json=as_json))


@app.command()
def results(
    source: SourceName,
    runs: Runs = RUNS,
    form: Annotated[str, typer.Option("--format", help="csv, parquet or json.")] = "csv",
) -> None:
    """Print the tidy table, one row a trial."""
    from orchestrator.commands import reading

    _finish(reading.results(source, runs, form))


@app.command()
def fit(
    source: SourceName,
    runs: Runs = RUNS,
    law: Law = None,
    x: X = None,
    where: Where = None,
    loss: Loss = "huber",
    delta: Delta = 1e-3,
    residual: Residual = "log",
    bootstrap: Bootstrap = 1000,
    cluster: Cluster = "cluster",
    seed: Seed = 0,
    n_convention: NConvention = "matrices",
    c_convention: CConvention = "6nd",
    hold_out: HoldOut = "largest",
    y: Y = "loss",
    interval: Interval = "auto",
    as_json: AsJson = False,
) -> None:
    """Fit a scaling law to each arm."""
    from orchestrator.commands import reading

    estimation = _estimation(n_convention, c_convention, bootstrap, seed, cluster, law, x)
    how = {"loss": loss, "delta": delta, "residual": residual, "y": y, "interval": interval}
    options = {**how, **estimation}
    held = _held_out(hold_out)
    _finish(reading.fit(source, runs, options, where=where, hold_out=held, as_json=as_json))


@app.command()
def compare(
    source: SourceName,
    runs: Runs = RUNS,
    reference: Reference = None,
    law: Law = None,
    x: X = None,
    where: Where = None,
    loss: Loss = "huber",
    delta: Delta = 1e-3,
    residual: Residual = "log",
    seed: Seed = 0,
    n_convention: NConvention = "matrices",
    c_convention: CConvention = "6nd",
    bootstrap: Bootstrap = 1000,
    cluster: Cluster = "cluster",
    hold_out: HoldOut = "largest",
    y: Y = "loss",
    as_json: AsJson = False,
) -> None:
    """Compare each arm with the reference: differences, multipliers, intervals, a verdict."""
    from orchestrator.commands import reading

    estimation = _estimation(n_convention, c_convention, bootstrap, seed, cluster, law, x)
    how = {"loss": loss, "delta": delta, "residual": residual, "y": y, "hold_out": _held_out(hold_out)}
    options = {**how, **estimation}
    _finish(reading.compare(source, runs, reference, options, where=where, as_json=as_json))


@app.command()
def table(
    source: SourceName,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Which table: main, ablation, decay, overhead, optimizers, scaling or comparison.",
        ),
    ] = "main",
    runs: Runs = RUNS,
    form: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
    output: Output = None,
    reference: Reference = None,
    where: Where = None,
    law: Law = None,
    x: X = None,
    n_convention: NConvention = "matrices",
    c_convention: CConvention = "6nd",
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    cluster: Cluster = "cluster",
) -> None:
    """Print a table of a paper: Markdown, LaTeX (booktabs) or CSV with every digit."""
    from orchestrator.commands import reading

    options = _estimation(n_convention, c_convention, bootstrap, seed, cluster, law, x)
    _finish(reading.table(source, runs, name, form, reference, options, where=where, output=output))


@app.command()
def figures(
    source: SourceName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write to.")],
    runs: Runs = RUNS,
    form: Annotated[str, typer.Option("--format", help="Any of pdf, svg, png, with commas.")] = "pdf,svg,png",
    only: Annotated[list[str] | None, typer.Option(help="A figure by name; may be repeated.")] = None,
    reference: Reference = None,
    where: Where = None,
    law: Law = None,
    x: X = None,
    n_convention: NConvention = "matrices",
    c_convention: CConvention = "6nd",
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    cluster: Cluster = "cluster",
) -> None:
    """Write the figures of a paper, each that the source has the data for, as PDF, SVG and PNG."""
    from orchestrator.commands import reading

    options = _estimation(n_convention, c_convention, bootstrap, seed, cluster, law, x)
    formats = [name.strip() for name in form.split(",") if name.strip()]
    _finish(reading.figures(source, runs, output, formats, only or [], reference, options, where=where))


@app.command()
def theory(source: SourceName, runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """Show what a sweep measured along its runs: movement against prediction, eigenvalues, sharpness."""
    from orchestrator.commands import theory as commands

    _finish(commands.theory(source, runs, as_json=as_json))


@app.command(name="report")
def report_command(
    source: SourceName,
    runs: Runs = RUNS,
    output: Output = None,
    reference: Reference = None,
) -> None:
    """Write the report: one HTML file that opens offline."""
    from orchestrator.commands import reading

    _finish(reading.write_report(source, runs, output, reference))


@app.command()
def explain(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="The first digits of a trial's id.")],
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Say why a trial ran, what sets it apart from its nearest neighbour, and what happened to it."""
    from orchestrator.commands import explaining

    _finish(explaining.explain(trial, runs, as_json=as_json))


@app.command()
def schema() -> None:
    """Print the JSON Schema of the sweep file."""
    from orchestrator.commands import looking

    _finish(looking.schema())


@store.command()
def rebuild(runs: Runs = RUNS) -> None:
    """Make the index anew from the run directories."""
    from orchestrator.commands import looking

    _finish(looking.rebuild_store(runs))


def _held_out(name: str) -> bool | str:
    return {"largest": True, "none": False}.get(name, name)


def _estimation(
    n_convention: str,
    c_convention: str,
    bootstrap: int,
    seed: int,
    cluster: str,
    law: str | None,
    x: str | None,
) -> dict[str, object]:
    """How the numbers of tables and figures are estimated."""
    options: dict[str, object] = {"n_convention": n_convention, "c_convention": c_convention}
    return {**options, "bootstrap": bootstrap, "seed": seed, "cluster": cluster, **_given(law=law, x=x)}


def _given(**options: str | None) -> dict[str, str]:
    """The options that a person gave; the others keep the default of what reads them."""
    return {name: value for name, value in options.items() if value is not None}


def main() -> None:
    """The console script; exit codes are those of ``orchestrator.errors.Exit``."""
    try:
        app()
    except Exception as error:  # noqa: BLE001 (the last place where a person can be told)
        sys.exit(int(report(error, debug=bool(os.environ.get("SCALEVEC_DEBUG")))))


if __name__ == "__main__":
    main()
