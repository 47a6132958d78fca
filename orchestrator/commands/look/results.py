"""``scalevec results``: the tidy table."""

import io
import sys
from typing import Annotated, Literal

import typer

from scalevec.orchestrator.cli.options import RUNS, Join, Output, Runs, SourceName
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.progress import note, printable
from scalevec.results.files import write_atomic


def results(
    source: SourceName,
    runs_dir: Runs = RUNS,
    form: Annotated[Literal["csv", "parquet", "json"], typer.Option("--format", help="File format.")] = "csv",
    vector_norms: Annotated[
        bool, typer.Option("--vector-norms", help="Add the final size of the scale vectors, by kind.")
    ] = False,
    for_spreadsheets: Annotated[
        bool,
        typer.Option(
            "--for-spreadsheets", help="An apostrophe before CSV text that begins as a formula does."
        ),
    ] = False,
    join: Join = None,
    output: Output = None,
) -> Exit:
    """Print the tidy table, one row per trial."""
    from scalevec.orchestrator.sources.foreign import TableReading
    from scalevec.orchestrator.sources.measured import with_vector_norms
    from scalevec.orchestrator.sources.sources import open_source
    from scalevec.results.tidy import write_table

    if for_spreadsheets and form != "csv":
        raise InvalidInputError(f"--for-spreadsheets is given with --format {form}; it is for csv alone")
    table = open_source(source, runs_dir, TableReading(join=join))
    if vector_norms:
        table = with_vector_norms(table, runs_dir)
    stream = io.BytesIO()
    write_table(table.rows, form, stream, for_spreadsheets=for_spreadsheets)
    if output is None:
        content = stream.getvalue()
        # Pipes end at a terminal too (head, less -R); a file by --output has every character.
        sys.stdout.buffer.write(content if form == "parquet" else printable(content.decode()).encode())
    else:
        write_atomic(output.parent.resolve() / output.name, stream.getvalue())
        note(f"wrote {output}")
    return Exit.DONE
