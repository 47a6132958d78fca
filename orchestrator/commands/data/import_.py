"""``scalevec import``: results of other trackers as a tidy table."""

import shlex
from typing import Annotated, Literal

import typer

from scalevec.orchestrator.cli.options import Maps, Output
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.progress import note

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
    output: Output = None,
) -> Result:
    """Turn results of other trackers into a tidy table, one row per run.

    Columns are found by their names (val/loss, config.optimizer, 10.6M); what was taken for what, and the
    command that says it in full, go to standard error. What is ambiguous is refused.
    """
    from scalevec.orchestrator.sources.imports.given_tables import read_given
    from scalevec.orchestrator.sources.imports.tidy_rows import imported
    from scalevec.orchestrator.sources.sweep_files import require_table

    for source in sources:
        require_table(source)
    table = imported([read_given(source) for source in sources], maps or [], unit)
    table.say()
    chosen = [word for text in table.repeated() for word in ("--map", text)]
    again = ["scalevec", "import", *sources, *chosen, "--unit", unit or "nats"]
    note(f"the same again: {shlex.join(again)}")
    columns = {name: dict(chosen) for name, chosen in table.columns.items()}
    plain = table.rows.astype(object).where(table.rows.notna(), None)
    record = {"rows": plain.to_dict("records"), "columns": columns, "notes": list(table.notes)}
    return Result(record, table.rows.to_csv(index=False), output=output)
