"""Sweeps of imported runs: a folder that is written whole, is read like any other sweep, and is never run."""

import hashlib
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.results.files import utc_now, write_json
from scalevec.results.opening import open_file
from scalevec.results.sweep_folder import SweepFolder, sweep_names

if TYPE_CHECKING:
    import pandas as pd

    from scalevec.orchestrator.sources.imports.given_tables import GivenTable
    from scalevec.orchestrator.sources.imports.tidy_rows import ImportedTable
    from scalevec.orchestrator.sources.imports.tuned_rates import RateGrid
    from scalevec.orchestrator.tuning.choices import Choice

_OURS = ("trial_id", "sweep", "stage", "lr_status")


@dataclass(frozen=True, eq=False)
class ImportedRuns:
    """What a folder of imported runs holds; ``origin`` says where they come from."""

    rows: "pd.DataFrame"
    curves: "pd.DataFrame"
    choices: "Sequence[Choice]"
    origin: dict[str, Any]


def with_trial_ids(rows: "pd.DataFrame") -> "pd.DataFrame":
    """``rows`` with an id of each, which follows from all that was imported of it."""
    rows = rows.rename(columns={name: f"given.{name}" for name in _OURS if name in rows})
    records = rows.astype(object).where(rows.notna(), None).to_dict("records")
    contents = (json.dumps({"imported": record}, sort_keys=True, default=str) for record in records)
    ids = [hashlib.sha256(content.encode()).hexdigest() for content in contents]
    return rows.assign(trial_id=ids).drop_duplicates("trial_id", ignore_index=True)


def imported_runs(
    table: "ImportedTable", histories: "Sequence[GivenTable]", given: Sequence[str], unit: str | None
) -> tuple[ImportedRuns, "ImportedTable | None"]:
    """What a sweep of the runs of ``table`` is, and what was taken for what of their histories, if any.

    Raises ``DataError``.
    """
    import pandas as pd

    from scalevec.orchestrator.sources.imports.histories import imported_curves
    from scalevec.orchestrator.sources.imports.tuned_rates import staged

    rows, grids, notes = staged(with_trial_ids(table.rows))
    curves = imported_curves(histories, replace(table, rows=rows), given, unit) if histories else None
    points = pd.DataFrame(columns=["trial_id", "tokens", "loss"]) if curves is None else curves.rows
    known = unit != "bits-per-byte" or "bytes_per_token" in rows
    origin = {
        "unit": "nats-per-token" if known else unit,
        "notes": [*table.notes, *(curves.notes if curves else [])],
        "grids": notes,
    }
    return ImportedRuns(rows, points, [choice_of(grid) for grid in grids], origin), curves


def choice_of(grid: "RateGrid") -> "Choice":
    """The entry of tuning.json for a grid of learning rates that others have run."""
    from scalevec.model.identity import digest
    from scalevec.orchestrator.tuning.choices import Choice, vertex

    losses = [math.inf if loss is None else loss for loss in grid.losses]
    lowest = losses.index(min(losses))
    around = slice(lowest - 1, lowest + 2)
    is_inside = 0 < lowest < len(losses) - 1
    return Choice(
        key=digest([grid.arm, grid.rung, grid.setting]),
        field="learning_rate",
        vertex=vertex(grid.grid[around], losses[around]) if is_inside else None,
        **vars(grid),
    )


def digest_of(source: str, rows: "pd.DataFrame") -> str:
    """The SHA-256 of a file; of a folder or standard input, of the ``rows`` that came of them."""
    path = Path(source)
    if not path.is_file():
        return f"sha256 {hashlib.sha256(rows.to_csv(index=False).encode()).hexdigest()}"
    with path.open("rb") as stream:
        return f"sha256 {hashlib.file_digest(stream, 'sha256').hexdigest()}"


def keep_imported(folder: SweepFolder, runs: ImportedRuns) -> bool:
    """Write the folder of a sweep, whole or not at all; False where it holds the same runs already.

    Raises ``InvalidInputError`` where it holds anything else, with what differs.
    """
    from scalevec.model.data.system import complete_directory
    from scalevec.orchestrator.tuning import choices
    from scalevec.results.tidy import write_table

    if folder.path.exists():
        _require_same(folder, runs)
        return False
    try:
        with complete_directory(folder.path, exclusive=True) as partial:
            kept = SweepFolder(partial)
            for path, table in ((kept.rows_path, runs.rows), (kept.curves_path, runs.curves)):
                stream = io.BytesIO()
                write_table(table, "parquet", stream)
                path.write_bytes(stream.getvalue())
            kept.write_tuning(choices.to_json(runs.choices))
            write_json(kept.imported_path, {**runs.origin, "time": utc_now()})
    except FileExistsError:
        problem = f"{folder.path}: another process has just written it; nothing was imported"
        raise InvalidInputError(problem) from None
    return True


def _require_same(folder: SweepFolder, runs: ImportedRuns) -> None:
    """Raise ``InvalidInputError`` where ``folder`` holds other runs, with their names."""
    from scalevec.analysis.formatting import shortened

    if not folder.is_imported():
        raise InvalidInputError(
            f"sweep {folder.name} is there already, and was not imported; name another one"
        )
    before, now = _ids_by_name(read_imported(folder.rows_path)), _ids_by_name(runs.rows)
    changes = {
        "new": now.keys() - before.keys(),
        "gone": before.keys() - now.keys(),
        "changed": {name for name in before.keys() & now.keys() if before[name] != now[name]},
    }
    parts = [f"{len(names)} {what} ({shortened(sorted(names))})" for what, names in changes.items() if names]
    if not parts and not read_imported(folder.curves_path).equals(runs.curves):
        parts = ["the curves"]
    if parts:
        raise InvalidInputError(
            f"sweep {folder.name} is there already, and this import differs: {'; '.join(parts)}. Name "
            f"another one, or remove {folder.path}"
        )


def _ids_by_name(rows: "pd.DataFrame") -> dict[str, str]:
    records = rows.to_dict("records")
    return {
        str(row.get("run") or row.get("Name") or row["trial_id"][:12]): row["trial_id"] for row in records
    }


def refuse_imported_run(prefix: str, runs_dir: Path) -> None:
    """Raise ``InvalidInputError`` where a run that was imported has an id that starts with ``prefix``."""
    for folder in (SweepFolder.of(runs_dir, name) for name in sweep_names(runs_dir)):
        if folder.is_imported():
            runs = read_imported(folder.rows_path).trial_id
            if any(runs.str.startswith(prefix)):
                raise InvalidInputError(
                    f"{prefix} is an imported run of sweep {folder.name}, not trained here: its row is "
                    f"in scalevec results {folder.name}, its training curve in the report"
                )


def read_imported(path: Path) -> "pd.DataFrame":
    """A table of the folder of an imported sweep. Raises ``DataError``."""
    from scalevec import analysis

    os.close(open_file(path))
    return analysis.read_table(path)
