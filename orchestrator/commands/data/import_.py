"""``scalevec import``: results of other trackers as a tidy table."""

import io
from typing import Annotated, Any, Literal

import typer

from scalevec.orchestrator.cli.options import Maps, Output
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.foreign import require_table, say_columns

Unit = Literal["nats", "bits", "perplexity", "bits-per-byte"]


def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Exports of runs (.csv, .tsv, .jsonl, .parquet, - for standard input), a folder of MLflow "
            "(mlruns) or its database (mlflow.db), a folder of TensorBoard's event files.",
        ),
    ],
    maps: Maps = None,
    unit: Annotated[
        Unit | None,
        typer.Option(help="Unit of the losses in the source. Without it nats, unless they look otherwise."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only the rows for which this holds, as in 'n_tokens > 0'.")
    ] = None,
    output: Output = None,
) -> Result:
    """Turn results of other trackers into a tidy table, one row per run.

    Columns are found by their names (val/loss, config.optimizer, 10.6M); what was taken for what, and the
    command that says it in full, go to standard error. What is ambiguous is refused.
    """
    from scalevec.analysis.data.doubts import SMALLEST_LIKELY, unit_warnings
    from scalevec.orchestrator.sources.imports.given_tables import read_given
    from scalevec.orchestrator.sources.imports.tidy_rows import imported, repeated

    if output and output.suffix.lower() not in ("", ".csv", ".txt"):
        raise InvalidInputError(f"--output {output}: a table is written as CSV; name a file NAME.csv")
    for source in sources:
        require_table(source)
    table = imported([read_given(source) for source in sources], maps or [], unit, where)
    say_columns(table)
    for warning in unit_warnings(table.rows[[name for name in SMALLEST_LIKELY if name in table.rows]]):
        note(f"warning: {warning}")
    chosen: dict[str, Any] = {"map": repeated(table.columns), "unit": unit or "nats", "where": where}
    note(f"the same again: {command('import', sources, **chosen)}")
    stream = io.StringIO()
    table.rows.to_csv(stream, index=False)
    columns = {name: dict(chosen) for name, chosen in table.columns.items()}
    plain = table.rows.astype(object).where(table.rows.notna(), None)
    record = {"rows": plain.to_dict("records"), "columns": columns, "notes": list(table.notes)}
    return Result(record, stream.getvalue(), output=output)
