"""``scalevec import``: results of other trackers as a tidy table, or as a sweep that is only read."""

import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.cli.options import RUNS, Maps, Output, Runs
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.analyse.question import DEFAULT_REFERENCE
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.progress import counted, note
from scalevec.results.sweep_folder import SweepFolder

if TYPE_CHECKING:
    from scalevec.orchestrator.sources.imports.tidy_rows import ImportedTable

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
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", metavar="NAME", help="Keep the runs as a sweep of this name, to be analysed."
        ),
    ] = None,
    histories: Annotated[
        list[str] | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="With --sweep: losses along the runs. A tracker's folder or database has its own.",
        ),
    ] = None,
    runs_dir: Runs = RUNS,
    output: Output = None,
) -> Result:
    """Turn results of other trackers into a tidy table, one row per run.

    Columns are found by their names (val/loss, config.optimizer, 10.6M); what was taken for what, and the
    command that says it in full, go to standard error. What is ambiguous is refused. With --sweep the runs
    are kept in the runs directory with their curves, and grids of learning rates as tuning.
    """
    from scalevec.orchestrator.sources.foreign import imported_tables
    from scalevec.orchestrator.sources.imports.given_tables import is_tracker
    from scalevec.orchestrator.sources.imports.histories import split_maps

    of_table, of_history = split_maps(maps or [])
    if sweep is None and (histories or of_history):
        raise InvalidInputError("--history and --map history_... are for --sweep NAME, which is not given")
    if sweep is not None and output is not None:
        raise InvalidInputError("--output writes a table and --sweep a folder; give one of them")
    folder = None if sweep is None else _folder(runs_dir, sweep)
    table = imported_tables(sources, of_table, unit)
    again = ["scalevec", "import", *sources, *_maps(table), "--unit", unit or "nats"]
    if folder is not None:
        files = list(histories or filter(is_tracker, sources))
        again += ["--sweep", folder.name, *(word for name in files for word in ("--history", name))]
        return _import_sweep(folder, sources, table, files, of_history, unit, again)
    note(f"the same again: {shlex.join(again)}")
    return _as_rows(table, output)


def _folder(runs_dir: Path, sweep: str) -> SweepFolder:
    try:
        return SweepFolder.of(runs_dir, sweep)
    except ValueError as problem:
        raise InvalidInputError(str(problem)) from None


def _as_rows(table: "ImportedTable", output: Output) -> Result:
    stream = io.StringIO()
    table.rows.to_csv(stream, index=False)
    columns = {name: dict(chosen) for name, chosen in table.columns.items()}
    plain = table.rows.astype(object).where(table.rows.notna(), None)
    record = {"rows": plain.to_dict("records"), "columns": columns, "notes": list(table.notes)}
    return Result(record, stream.getvalue(), output=output)


def _maps(table: "ImportedTable") -> list[str]:
    from scalevec.orchestrator.sources.imports.tidy_rows import repeated

    return [word for text in repeated(table.columns) for word in ("--map", text)]


def _import_sweep(
    folder: SweepFolder,
    sources: Sequence[str],
    table: "ImportedTable",
    histories: Sequence[str],
    of_history: Sequence[str],
    unit: str | None,
    again: Sequence[str],
) -> Result:
    """Keep the runs of ``table`` in ``folder``, with their curves and grids of rates."""
    from scalevec.orchestrator.sources.foreign import say_columns
    from scalevec.orchestrator.sources.imported_sweeps import digest_of, imported_runs, keep_imported
    from scalevec.orchestrator.sources.imports.given_tables import read_given
    from scalevec.orchestrator.sources.other_files import require_table

    for name in histories:
        require_table(name)

    runs, curves = imported_runs(
        table, [read_given(name, history=True) for name in histories], of_history, unit
    )
    if curves is not None:
        say_columns(curves)
        again = [*again, *_maps(curves)]
    for text in runs.origin["grids"]:
        note(f"note: {text}")
    runs.origin["command"] = shlex.join(again)
    note(f"the same again: {runs.origin['command']}")
    runs.origin["sources"] = {name: digest_of(name, table.rows) for name in [*sources, *histories]}
    is_new = keep_imported(folder, runs)
    n_curves, arms = runs.curves["trial_id"].nunique(), runs.rows["arm"].tolist()
    reference = None if DEFAULT_REFERENCE in arms else arms[0]
    report = command("report", folder.name, folder.path.parents[1], reference=reference)
    record = {"sweep": folder.name, "new": is_new, "runs": len(runs.rows), "curves": n_curves, "next": report}
    what = f"{counted(len(runs.rows), 'run')}, {n_curves} with a curve, {len(runs.choices)} grids of rates"
    same = "" if is_new else "; nothing has changed since they were imported"
    return Result(record, f"{folder.name}: {what}{same}. Next: {report}")
