"""``scalevec table``: a table of a paper."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scalevec import analysis
from scalevec.analysis.options import OptionChanges
from scalevec.analysis.registry import TABLES
from scalevec.orchestrator.cli.options import RUNS, Maps, Output, Reference, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import question

if TYPE_CHECKING:
    TableName = str
else:
    TableName = Literal[tuple(TABLES)]


def table(
    source: SourceName,
    name: Annotated[TableName, typer.Argument(help="Which table.")] = "comparison",
    runs_dir: Runs = RUNS,
    form: Annotated[
        Literal["markdown", "latex", "csv"], typer.Option("--format", help="File format.")
    ] = "markdown",
    reference: Reference = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    maps: Maps = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Headings of the columns to show, in this order, as N,loss."),
    ] = None,
    output: Output = None,
) -> Result:
    """Print a table of a paper: Markdown, LaTeX or CSV with every digit.

    LaTeX is a float with caption, label and notes, as wide as one or two columns.
    """
    data, arm, options = question(source, runs_dir, reference, given, maps)
    contents = analysis.table(data.rows, name, reference=arm, options=options)
    shown = {part: getattr(contents, part) for part in ("title", "columns", "rows", "notes")}
    record = shown | {"records": [dict(row) for row in contents.records]}
    names = [name.strip() for name in columns.split(",")] if columns else None
    text = analysis.render(contents, form, columns=names)
    return Result(record, text, output=output)
