"""The tidy table: one row per trial and sweep membership, which is all that analysis reads."""

import json
from collections.abc import Iterable
from typing import Any, BinaryIO, Literal

import numpy as np
import pandas as pd

from scalevec.results.columns import BLOCK_COLUMNS, COLUMNS, OF_SEMANTIC_FIELDS, OWN_FIELD, semantic_columns

Format = Literal["csv", "parquet", "json"]
FORMATS: tuple[str, ...] = ("csv", "parquet", "json")


class UnwritableTableError(ValueError):
    """A table holds values that a file format has not; the message says which and what to do."""


_ORDER = ("stage", "arm", "n_params", "rung", "n_tokens", "learning_rate", "seed", "trial_id")
_DTYPES: tuple[tuple[type, str], ...] = ((bool, "boolean"), (int, "Int64"), (float, "float64"))


def tidy_table(rows: Iterable[dict[str, Any]], members: list[dict[str, Any]], sweep: str) -> pd.DataFrame:
    """One row for each of ``members`` (as in members.json), from the index ``rows`` of their trials.

    The columns are ``COLUMNS``, then the further settings of the members by name. A member whose trial has
    no row is pending. A value comes from the result, else the membership, else the trial's fields;
    ``loss`` is there for completed trials only. Sorted by ``_ORDER``.
    """
    by_id = {row["trial_id"]: row for row in rows}
    members = [_with_own_fields(member) for member in members]
    settings = sorted({name for member in members for name in member.get("setting", {})} - COLUMNS.keys())
    table = [_tidy_row(by_id.get(member["trial_id"], {}), member, sweep, settings) for member in members]
    dtypes = {**COLUMNS, **{name: _setting_dtype([row[name] for row in table]) for name in settings}}
    frame = pd.DataFrame(
        {name: pd.Series([row[name] for row in table], dtype=dtype) for name, dtype in dtypes.items()}
    )
    return frame.sort_values([*_ORDER, *settings], kind="stable", ignore_index=True)


def _with_own_fields(member: dict[str, Any]) -> dict[str, Any]:
    """``member`` with a foreign trainer's fields in its setting, but for those that fill a column."""
    setting, fields = member.get("setting", {}), member.get("fields", {})
    further = {
        OWN_FIELD + name: value
        for name, value in fields.items()
        # One that is called like a column of later versions is no value of that column.
        if name not in OF_SEMANTIC_FIELDS and (name in COLUMNS or name not in setting)
    }
    return {**member, "setting": {**setting, **further}} if further else member


def _tidy_row(row: dict[str, Any], member: dict[str, Any], sweep: str, settings: list[str]) -> dict[str, Any]:
    sources = (row, member, semantic_columns(row.get("semantic") or {}), row.get("descriptive") or {})
    values = {name: _value(name, sources) for name in COLUMNS}
    status = row.get("state", "pending")
    values |= {
        "sweep": sweep,
        "status": status,
        "cluster": member.get("cluster") or member["trial_id"],
        **({} if status == "completed" else dict.fromkeys(("loss", *BLOCK_COLUMNS))),
    }
    return values | {name: _scalar(member.get("setting", {}).get(name)) for name in settings}


def _value(name: str, sources: Iterable[dict[str, Any]]) -> Any:
    return next((source[name] for source in sources if source.get(name) is not None), None)


def _scalar(value: Any) -> Any:
    """A setting as one cell: what has parts becomes its JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list | tuple) else value


def _setting_dtype(values: list[Any]) -> str:
    """The narrowest type that holds all values; text where kinds are mixed or the column is empty."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return "float64"
    return next((dtype for kind, dtype in _DTYPES if kinds == {kind}), "str")


def _as_json(value: Any) -> Any:
    """What JSON has for a value of a table from elsewhere: numbers and lists as such, else text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def write_table(frame: pd.DataFrame, format: str, stream: BinaryIO) -> None:
    """Write ``frame`` as ``csv``, ``parquet`` or ``json`` (a list of objects), with every digit.

    Text stands as it is, also where a CSV cell begins with ``=``, which spreadsheets take for a formula.

    Raises ``ValueError`` for another format, :class:`UnwritableTableError` for values that it cannot hold.
    """
    if format == "csv":
        stream.write(frame.to_csv(index=False, lineterminator="\n").encode(errors="backslashreplace"))
    elif format == "parquet":
        stream.write(_parquet(frame))
    elif format == "json":
        stream.write(_json_records(frame))
    else:
        raise ValueError(f"format {format!r}: expected one of {', '.join(FORMATS)}")


def _parquet(frame: pd.DataFrame) -> bytes:
    try:
        return bytes(frame.to_parquet(None, index=False))
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0][:300]
        raise UnwritableTableError(f"the table cannot be written as Parquet: {reason}; try CSV") from error


def _list_or_itself(value: Any) -> Any:
    """The list that a text holds; anything else, which a table from elsewhere may have there, as it is."""
    try:
        known = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return value
    return known if isinstance(known, list) else value


def _json_records(frame: pd.DataFrame) -> bytes:
    """Not ``DataFrame.to_json``, which rounds to 15 digits."""
    frame = frame.astype(object).where(frame.notna(), None)
    for name in frame.columns.intersection(list(BLOCK_COLUMNS)):
        frame[name] = frame[name].map(_list_or_itself)
    records = frame.to_dict("records")
    try:
        lines = [f"  {json.dumps(record, allow_nan=False, default=_as_json)}" for record in records]
    except ValueError as error:
        message = "a row holds an infinite number, which JSON does not have; write CSV or Parquet"
        raise UnwritableTableError(message) from error
    body = ",\n".join(lines)
    return f"[\n{body}\n]\n".encode() if lines else b"[]\n"
