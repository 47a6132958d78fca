"""What the comparison trials of a sweep recorded along the way: losses, scale vectors, theory."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.sources.sources import Source
from scalevec.results.columns import COLUMNS, OWN_FIELD
from scalevec.results.run_directory import STATES, RunDirectory

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "theory/"
STATISTICS = ("sv/", PREFIX)
LAYERS = "/layers"
MOST_STATISTICS = 100
_BEGUN = frozenset(STATES) - {"pending"}
_OF_TRIAL = ("trial_id", "arm", "rung", "optimizer", "schedule", "seed")


def measured(source: Source, runs_dir: Path) -> "pd.DataFrame":
    """Return one row per measured value of each completed comparison trial.

    Columns: trial_id, arm, rung, optimizer, schedule, seed and the sweep's further settings; step, tokens;
    kind (empty for what is of the whole model), quantity, layer (place among the layers that have the
    kind), value (NaN where a measurement did not succeed). Raises :class:`InvalidInputError` where there is
    none.
    """
    import pandas as pd

    if source.folder is None:
        raise InvalidInputError(f"{source.name} is a table; measurements are read from the runs of a sweep")
    settings = [
        name for name in source.rows.columns if name not in COLUMNS and not name.startswith(OWN_FIELD)
    ]
    rows = [
        {**names, **value}
        for names, metrics in _compared_metrics(source, runs_dir, (*_OF_TRIAL, *settings), ("completed",))
        for row in metrics
        for value in _values(row)
    ]
    if not rows:
        raise InvalidInputError(
            f"sweep {source.name} has no completed trial with measurements; give it a section such as "
            "measure: {what: [preconditioner, sharpness], every: 100} and run it (trials that were completed "
            "without are not run again)"
        )
    return pd.DataFrame(rows).astype({"value": "float64"})


def _values(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, values in row.items():
        if key.startswith(PREFIX):
            kind, _, quantity = key.removeprefix(PREFIX).rpartition("/")
            where = {"step": row["step"], "tokens": row.get("tokens"), "kind": kind, "quantity": quantity}
            for layer, value in enumerate(values if isinstance(values, list) else [values]):
                yield {**where, "layer": layer, "value": value}


def training_curves(source: Source, runs_dir: Path) -> "pd.DataFrame":
    """Return the training curves of the comparison trials: trial_id, arm, rung, seed, tokens, loss.

    A table has none.
    """
    import pandas as pd

    columns = ["trial_id", "arm", "rung", "seed", "tokens", "loss"]
    if source.folder is None:
        return pd.DataFrame(columns=columns)
    frames = [
        pd.DataFrame(metrics, columns=["tokens", "loss"], dtype=float).assign(**names)
        for names, metrics in _compared_metrics(source, runs_dir)
    ]
    return pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns)


def run_statistics(source: Source, runs_dir: Path) -> "pd.DataFrame":
    """Return the statistics of scale vectors (``sv/``) and theory (``theory/``) recorded during training.

    Columns: trial_id, arm, rung, seed, tokens, key, value, low, high: mean and range over the layers of a
    kind where there are several. At most :data:`MOST_STATISTICS` rows of each trial, evenly spread.
    """
    import pandas as pd

    rows = [
        {**names, "tokens": row.get("tokens"), "key": key, **figures}
        for names, metrics in _compared_metrics(source, runs_dir)
        for row in _spread([row for row in metrics if any(key.startswith(STATISTICS) for key in row)])
        for key, figures in _statistics_of(row)
    ]
    columns = ["trial_id", "arm", "rung", "seed", "tokens", "key", "value", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def _compared_metrics(
    source: Source,
    runs_dir: Path,
    names: Sequence[str] = ("trial_id", "arm", "rung", "seed"),
    statuses: Collection[str] = _BEGUN,
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the columns ``names`` of each comparison trial in one of ``statuses``, with its metrics."""
    compared = source.rows[(source.rows["stage"] == "comparison") & source.rows["status"].isin(statuses)]
    for row in compared.to_dict("records"):
        directory = RunDirectory.of(runs_dir, row["trial_id"])
        metrics: list[dict[str, Any]] = read_or_warn(directory.metrics, [], "its measurements are left out")
        yield {name: row[name] for name in names}, metrics


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most :data:`MOST_STATISTICS` of ``rows``, including the first and the last."""
    if len(rows) <= MOST_STATISTICS:
        return rows
    last = len(rows) - 1
    return [rows[round(index * last / (MOST_STATISTICS - 1))] for index in range(MOST_STATISTICS)]


def _statistics_of(row: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each statistic of one row of metrics: its value, and its range over layers where recorded."""
    for key, value in row.items():
        if not key.startswith(STATISTICS) or key.endswith(LAYERS):
            continue
        layers = value if isinstance(value, list) else row.get(f"{key}{LAYERS}")
        known = [
            float(layer) for layer in (layers if isinstance(layers, list) else [value]) if layer is not None
        ]
        if known:
            mean = float(value) if isinstance(value, int | float) else sum(known) / len(known)
            yield key, {"value": mean, "low": min(known), "high": max(known)}
