"""What was measured along the completed trials of a sweep, as one long table."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Refused
from orchestrator.sources import Source
from results.run_directory import RunDirectory
from results.tidy import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "theory/"
_OF_TRIAL = ("trial_id", "arm", "rung", "optimizer", "schedule", "seed")


def measured(source: Source, runs_dir: Path) -> "pd.DataFrame":
    """One row for each measured value of each completed comparison trial.

    Columns: trial_id, arm, rung, optimizer, schedule, seed and the sweep's further settings; step, tokens;
    kind (empty for what is of the whole model), quantity, layer (place among the layers that have the
    kind), value (NaN where a measurement did not succeed). Raises :class:`Refused` where there is none.
    """
    import pandas as pd

    if source.folder is None:
        raise Refused(f"{source.name} is a table; measurements are read from the runs of a sweep")
    settings = [name for name in source.rows.columns if name not in COLUMNS]
    is_compared = (source.rows["stage"] == "comparison") & (source.rows["status"] == "completed")
    rows = [
        {**{name: trial[name] for name in (*_OF_TRIAL, *settings)}, **value}
        for trial in source.rows[is_compared].to_dict("records")
        for row in RunDirectory.of(runs_dir, trial["trial_id"]).metrics()
        for value in _values(row)
    ]
    if not rows:
        raise Refused(
            f"sweep {source.name} has no completed trial with measurements; give it a section such as "
            "measure: {what: [preconditioner, sharpness], every: 100} and run it (trials that were completed "
            "without are not run again)"
        )
    return pd.DataFrame(rows).astype({"value": "float64"})


def _values(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, values in row.items():
        if key.startswith(PREFIX):
            kind, _, quantity = key.removeprefix(PREFIX).rpartition("/")
            where = {"step": row["step"], "tokens": row["tokens"], "kind": kind, "quantity": quantity}
            for layer, value in enumerate(values if isinstance(values, list) else [values]):
                yield {**where, "layer": layer, "value": value}
