"""``scalevec results``: the tidy table."""

import io
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scalevec.analysis.formatting import fitted
from scalevec.orchestrator.cli.options import RUNS, Output, Runs, SourceName
from scalevec.orchestrator.cli.output import terminal_width, write_output, write_text
from scalevec.orchestrator.errors import Exit, InvalidInputError
from scalevec.orchestrator.progress import note, printable
from scalevec.orchestrator.sources.sources import open_source

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = {
    "trial_id": "trial",
    "stage": "stage",
    "rung": "rung",
    "tokens_per_parameter": "D/N",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "arm": "arm",
    "seed": "seed",
    "learning_rate": "rate",
    "loss": "test",
    "loss_validation": "validation",
    "status": "status",
}
"""The columns at a terminal, with their titles."""
_TEXT = ("trial", "stage", "rung", "optimizer", "schedule", "arm", "status")
_IF_SEVERAL = ("stage", "tokens_per_parameter", "optimizer", "schedule")
"""Those that are left out where all trials have the same."""
_SPARE = ("status", "validation", "stage")
"""Those that a narrow terminal does without, the first of them first."""
AROUND = 6
"""Lines of a terminal for what stands around the trials: titles, two lines of notes, the prompts."""


def results(
    source: SourceName,
    runs_dir: Runs = RUNS,
    form: Annotated[
        Literal["csv", "parquet", "json"] | None,
        typer.Option("--format", help="Without it as --output ends, else CSV; at a terminal a short table."),
    ] = None,
    output: Output = None,
) -> Exit:
    """Print the tidy table, one row per trial; at a terminal its main columns."""
    from scalevec.results.tidy import FORMATS, write_table

    is_shown = form is None and output is None and sys.stdout.isatty()
    ending = output.suffix[1:] if output else ""
    if form is None and ending in ("tsv", "jsonl"):
        raise InvalidInputError(
            f"--output {output}: a table is written as {' or '.join(FORMATS)}; name it so"
        )
    chosen: str = form or (ending if ending in FORMATS else "csv")
    table = open_source(source, runs_dir)
    if is_shown:
        most = max(1, shutil.get_terminal_size().lines - AROUND)
        more = [f"... {len(table.rows) - most} more"] if len(table.rows) > most else []
        write_text("\n".join([*_shown(table.rows, most), *more]))
        note(
            "test, validation: nats/token over these splits; "
            f"all {len(table.rows.columns)} columns: scalevec results {source} > results.csv"
        )
        return Exit.DONE
    stream = io.BytesIO()
    write_table(table.rows, chosen, stream)
    if output is None:
        content = stream.getvalue()
        # Pipes end at a terminal too (head, less -R); a file by --output has every character.
        sys.stdout.buffer.write(content if chosen == "parquet" else printable(content.decode()).encode())
    else:
        write_output(output, stream.getvalue())
    return Exit.DONE


def _shown(rows: "pd.DataFrame", most: int) -> list[str]:
    """The columns of ``rows`` that a person looks at: titles, then the first ``most`` trials."""
    same = [name for name in _IF_SEVERAL if rows[name].nunique() < 2]
    columns = {
        title: [_cell(name, value) for value in rows[name].head(most)]
        for name, title in _SHOWN.items()
        if name in rows and name not in same
    }
    return fitted(columns, _TEXT, _SPARE, terminal_width())


def _cell(name: str, value: object) -> str:
    if value is None or value != value:
        return "-"
    if name == "trial_id":
        return str(value)[:8]
    if isinstance(value, float):
        return f"{value:.4f}" if name.startswith("loss") else f"{value:.4g}"
    return printable(str(value))
