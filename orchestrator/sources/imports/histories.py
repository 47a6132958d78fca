"""What other trackers measured along runs, as training curves of imported rows."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scalevec.analysis.data.values import numbers
from scalevec.analysis.formatting import shortened
from scalevec.orchestrator.sources.imports.column_names import (
    CHART,
    PATTERNS,
    Findings,
    chart_series,
    is_training_loss,
    plain_name,
    quoted,
)
from scalevec.orchestrator.sources.imports.given_tables import GivenTable
from scalevec.orchestrator.sources.imports.tidy_rows import GivenRows, ImportedTable, in_nats, parsed_maps

PREFIX = "history_"
"""Of the names by which ``--map`` says what the columns of a history are."""
COLUMNS = ("run", "steps", "loss", "tokens")
_PATTERNS = {
    "run": re.compile(r"(run_?)?(id|uuid|name)|run"),
    "steps": PATTERNS["steps"],
    "tokens": PATTERNS["n_tokens"],
}


def split_maps(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """``NAME=EXPRESSION`` of a table's columns, and of those of a history."""
    of_history = [text for text in given if text.strip().startswith(PREFIX)]
    return [text for text in given if text not in of_history], of_history


def imported_curves(
    histories: Sequence[GivenTable], table: ImportedTable, given: Sequence[str] = (), unit: str | None = None
) -> ImportedTable:
    """The training losses along the runs of ``table``, a row per logged step.

    Args:
        histories: As they were read: a row per run and step, or per value; or charts with a column per run.
        table: The runs, by any column that names them, with their ``trial_id``.
        given: ``history_loss=train/loss``, and so on for :data:`COLUMNS`.
        unit: Of the losses.

    Returns:
        trial_id, tokens and loss (nats/token).

    Raises:
        DataError: What is ambiguous, missing or cannot be read, all of it.
    """
    wanted, findings, columns, parts = parsed_maps(given), Findings(), {}, []
    for history in histories:
        of_history = Findings()
        rows = GivenRows(_as_long(history.rows))
        chosen = _columns_of(rows, wanted, of_history)
        columns[history.name] = {f"{PREFIX}{name}": expression for name, expression in chosen.items()}
        if not of_history.problems:
            parts.append(_curves(rows, chosen, table.rows, unit, of_history))
        findings.add(history.name, of_history)
    findings.refuse()
    return ImportedTable(pd.concat(parts, ignore_index=True), columns, findings.notes)


def _as_long(rows: pd.DataFrame) -> pd.DataFrame:
    """A chart that W&B exported, a column per run and metric, as a row per run and step; else ``rows``."""
    series = chart_series(rows)
    if not series or any(_PATTERNS["run"].fullmatch(plain_name(str(name))) for name in rows):
        return rows
    shared = rows[[name for name in rows if CHART.fullmatch(str(name)) is None]]
    has_steps = any(_PATTERNS["steps"].fullmatch(plain_name(str(name))) for name in shared)
    parts: dict[str, dict[str, pd.Series[Any]]] = {}
    for name, (run, metric) in series.items():
        if not (has_steps and _PATTERNS["steps"].fullmatch(plain_name(metric))):
            parts.setdefault(run, {})[metric] = rows[name]
    return pd.concat([shared.assign(run=run, **part) for run, part in parts.items()], ignore_index=True)


def _columns_of(rows: GivenRows, wanted: Mapping[str, Sequence[str]], findings: Findings) -> dict[str, str]:
    """The expression of each of :data:`COLUMNS`, as it is wanted, else by names."""
    names = {str(column): plain_name(str(column)) for column in rows.given.columns}
    losses = (
        [column for column in names if is_training_loss(column)]
        or [column for column, name in names.items() if name == "loss"]
        or [column for column, name in names.items() if PATTERNS["loss"].fullmatch(name)]
    )
    chosen = {}
    for what in COLUMNS:
        of_name = [column for column, name in names.items() if _PATTERNS.get(what, CHART).fullmatch(name)]
        candidates = [quoted(name) for name in (losses if what == "loss" else of_name)]
        if asked := wanted.get(f"{PREFIX}{what}"):
            candidates = [rows.first_able(f"{PREFIX}{what}", asked, findings)]
        if len(candidates) == 1:
            chosen[what] = candidates[0]
        elif what != "tokens":
            which = f"may be {', '.join(candidates)}" if candidates else f"is none of {shortened([*names])}"
            findings.problems.append(f"the {what} of the history {which}: --map {PREFIX}{what}=COLUMN")
    if "loss" in chosen and not is_training_loss(chosen["loss"]):
        findings.notes.append(f"curves show {chosen['loss']}, which need not be of training text")
    return chosen


def _curves(
    rows: GivenRows, chosen: Mapping[str, str], table: pd.DataFrame, unit: str | None, findings: Findings
) -> pd.DataFrame:
    points = pd.DataFrame({what: rows.cells(expression) for what, expression in chosen.items()})
    for what in points.columns.drop("run"):
        read = numbers(points[what].tolist())
        wrong = [cell for cell, value in zip(points[what], read, strict=True) if value is None]
        if wrong:
            findings.problems.append(f"{chosen[what]} holds what is no number: {shortened(wrong)}")
        points[what] = pd.Series(read, points.index, dtype=float)
    # Values of one step may stand in several rows; of a step that was logged again the last counts.
    points = points.groupby(["run", "steps"], as_index=False, sort=False).last().dropna(subset=["loss"])
    points["trial_id"] = points["run"].astype(str).map(_runs_by_name(points["run"], table))
    if strangers := points.loc[points["trial_id"].isna(), "run"].unique().tolist():
        findings.notes.append(f"no run of the table is named {shortened(strangers)}: curves left out")
    points = points.dropna(subset=["trial_id"])
    of_run = table.set_index("trial_id").loc[points["trial_id"]].set_axis(points.index)
    if points.empty:
        findings.problems.append(
            "no run of the table is named as one of the history: --map history_run=COLUMN"
        )
    elif "tokens" not in points and "steps" not in of_run:
        findings.problems.append(f"no column of tokens: --map 'history_tokens={chosen['steps']} * 65536'")
    elif "tokens" not in points:
        points["tokens"] = points["steps"] * of_run["n_tokens"] / of_run["steps"]
    points["loss"] = in_nats(points["loss"], unit, of_run)
    return points.reindex(columns=["trial_id", "tokens", "loss"])


def _runs_by_name(names: "pd.Series[Any]", table: pd.DataFrame) -> dict[str, str]:
    """The trial of each name, by the column that names most of the runs, each with a name of its own."""
    asked = set(names.astype(str))
    columns = [table[name] for name in table.columns.drop("trial_id")]
    by_column = [
        dict(zip(column.astype(str), table["trial_id"], strict=True))
        for column in columns
        if column.is_unique and column.notna().all()
    ]
    return max(by_column, key=lambda runs: len(asked & runs.keys()), default={})
