"""``scalevec figures``: the figures of a paper as files."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.analysis.registry import FIGURES
from scalevec.orchestrator.cli.options import RUNS, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import question
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import AS_IT_IS, TableReading
from scalevec.orchestrator.sources.sources import choices_of


def figures(
    source: SourceName,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The folder to write to.")],
    runs_dir: Runs = RUNS,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMATS", help="Any of pdf, svg, png, with commas.")
    ] = "pdf,svg,png",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE",
            help=f"One of {', '.join(FIGURES)}; may be repeated.",
            autocompletion=lambda: list(FIGURES),
        ),
    ] = None,
    width: Annotated[
        Literal["page", "column"],
        typer.Option(help="page: several panels are 6.9 inches wide; column: every figure is 3.3."),
    ] = "page",
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    reading: TableReading = AS_IT_IS,
) -> Result:
    """Write every paper figure that SOURCE has data for."""
    from scalevec.orchestrator.sources.measured import run_statistics, training_curves

    data, arm, options = question(source, runs_dir, reference, given, reading)
    written = analysis.write_figures(
        data.rows,
        output,
        formats=[name.strip() for name in form.split(",") if name.strip()],
        only=only or [],
        width=width,
        choices=choices_of(data),
        curves=training_curves(data, runs_dir),
        statistics=run_statistics(data, runs_dir) if data.folder else None,
        reference=arm,
        options=options,
    )
    for name, reason in written.left_out.items():
        note(f"no figure {name}: {reason}")
    paths = [str(path) for path in written.paths]
    shown = {"paths": paths, "captions": written.captions, "left_out": dict(written.left_out)}
    return Result(shown, "\n".join(paths))
