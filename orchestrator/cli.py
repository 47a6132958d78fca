"""The command line. It imports no more than it needs to answer ``--help``; commands load the rest."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from orchestrator import analysis_cli, corpus_cli
from orchestrator.errors import report
from orchestrator.options import (
    RUNS,
    AsJson,
    ExecutorName,
    Jobs,
    ProfileName,
    Runs,
    SourceName,
    SweepFile,
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
app.add_typer(analysis_cli.app)
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
    executor: ExecutorName = None,
    profile: ProfileName = None,
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
    power: Annotated[
        bool, typer.Option("--power", help="Only what the comparison can detect; with --json as an object.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every trial of a sweep and what it will cost, and what exists already."""
    from orchestrator.commands import looking, running

    known = looking.KnownNoise(noise, pilot)
    _finish(
        looking.plan(
            sweep,
            runs,
            running.Place(executor, profile, jobs),
            every_trial=trials,
            as_json=as_json,
            known=known,
            without_corpus=without_corpus,
            only_power=power,
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
        bool, typer.Option("--removed", help="Only trials that the sweep file, once edited, no longer holds.")
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


def main() -> None:
    """The console script; exit codes are those of ``orchestrator.errors.Exit``."""
    try:
        app()
    except Exception as error:  # noqa: BLE001 (the last place where a person can be told)
        sys.exit(int(report(error, debug=bool(os.environ.get("SCALEVEC_DEBUG")))))


if __name__ == "__main__":
    main()
