"""The commands that read results: the tidy table, fits, comparisons, tables, figures, the report."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.options import (
    RUNS,
    AsJson,
    Bootstrap,
    CConvention,
    Cluster,
    Delta,
    HoldOut,
    Interval,
    Law,
    Loss,
    NConvention,
    Output,
    Reference,
    Residual,
    Runs,
    Seed,
    SourceName,
    Where,
    X,
    Y,
)
from orchestrator.options import finish as _finish

app = typer.Typer()


@app.command()
def results(
    source: SourceName,
    runs: Runs = RUNS,
    form: Annotated[str, typer.Option("--format", help="csv, parquet or json.")] = "csv",
    vector_norms: Annotated[
        bool, typer.Option("--vector-norms", help="With the final size of the scale vectors, by kind.")
    ] = False,
) -> None:
    """Print the tidy table, one row a trial."""
    from orchestrator.commands import reading

    _finish(reading.results(source, runs, form, vector_norms=vector_norms))


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
    loss: Loss = "huber",
    delta: Delta = 1e-3,
    residual: Residual = "log",
    y: Y = "loss",
    n_convention: NConvention = "matrices",
    c_convention: CConvention = "6nd",
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    cluster: Cluster = "cluster",
) -> None:
    """Print a table of a paper: Markdown, LaTeX (booktabs) or CSV with every digit."""
    from orchestrator.commands import reading

    how = {"loss": loss, "delta": delta, "residual": residual, "y": y}
    options = {**how, **_estimation(n_convention, c_convention, bootstrap, seed, cluster, law, x)}
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
    law: Law = None,
    x: X = None,
    n_convention: NConvention = "matrices",
    c_convention: CConvention = "6nd",
    bootstrap: Bootstrap = 1000,
    seed: Seed = 0,
    cluster: Cluster = "cluster",
) -> None:
    """Write the report: one HTML file that opens offline."""
    from orchestrator.commands import reading

    options = _estimation(n_convention, c_convention, bootstrap, seed, cluster, law, x)
    _finish(reading.write_report(source, runs, output, reference, options))


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
