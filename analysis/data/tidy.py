"""The table that is analysed: reading it, checking it, and N and C of its rows by the conventions.

A table is tidy, one row per trial; ``n_params, n_tokens, loss`` are needed, ``arm, rung, seed, cluster,
status, stage`` and the others of :data:`NUMBERS` are used where present.
"""

import numbers
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.runs import plain_columns, refuse_blanks, refuse_lists, refuse_twins, runs_of
from scalevec.analysis.data.table_file import rows_of_file
from scalevec.analysis.data.values import REQUIRED, status, typed
from scalevec.analysis.data.values import numbers as numbers_in
from scalevec.analysis.errors import DataError, nearest, require_choice
from scalevec.analysis.options import C_CONVENTIONS, EACH_ROW, N_CONVENTIONS

NUMBERS = (
    *REQUIRED,
    "n_params_embedding",
    "n_params_scale_vectors",
    "n_params_total",
    "flops",
    "flops_counted",
    "learning_rate",
    "wall_s",
    "tokens_per_s",
    "step_s_median",
    "mfu",
    "data_s",
    "checkpoints_s",
    "evaluation_s",
    "planned_s",
    "steps",
    "peak_memory_bytes",
    "allocated_bytes",
    "matrix_decay",
    "epochs",
    "identity_version",
)
UNREAD = "unread"
"""What a table in ``attrs`` says of columns that were looked for and not found."""
VERSION = "identity_version"
"""The column that says what the random numbers of a trial follow from; those of two versions never pair."""
TEXTS = ("arm", "rung", "stage", "status", "lr_status", "cluster", "optimizer", "schedule", "corpus")
STATUSES = ("completed", "diverged", "failed", "pending", "queued", "running", "cancelling", "cancelled")
SMALLEST_LIKELY = {"n_params": 20_000, "n_tokens": 100_000}
"""Below these the largest trial is smaller than the smallest rung shipped (25,088 parameters, 200,704 tokens)
and no larger than a large model in millions (10,000), so that the unit is in doubt."""
LARGEST_SEED = 2.0**63
SMALLEST_NUMBER = 1e-100
"""No count, loss or FLOP is smaller or, turned over, larger: sums of squares of such numbers overflow."""

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def require_column(table: pd.DataFrame, name: str, why: str = "") -> None:
    """Raise :class:`DataError` that names the nearest column unless ``name`` is one."""
    if name not in table.columns:
        needed = f" (needed for {why})" if why else ""
        remedy = nearest(name, table.columns)
        if name in REQUIRED and not remedy.startswith("nearest"):
            remedy = table.attrs.get(UNREAD, remedy)
        raise DataError(f"the table has no column {name!r}{needed}; {remedy}")


def read_table(path: Path | str) -> pd.DataFrame:
    """Read tidy rows, one per trial, from a file.

    Args:
        path: A CSV (``.csv``, ``.tsv``; separated by commas, semicolons or tabs), JSON lines (``.jsonl``) or
            Parquet file, packed (``.gz``, ``.bz2``, ``.xz``, ``.zst``) or not, of at most 100 MB unpacked.

    Returns:
        The table as it stands in the file; what is computed from it checks its columns and values.

    Raises:
        DataError: Another suffix, no file, a file that is too large, or one that cannot be parsed.
    """
    table = rows_of_file(Path(path))
    refuse_twins(table)
    refuse_lists(table)
    return typed(table)


def checked(
    table: pd.DataFrame, required: Sequence[str] = REQUIRED, cluster: str = "cluster"
) -> pd.DataFrame:
    """A checked copy of ``table`` with the optional columns filled in and a fresh index.

    Missing columns become: ``arm`` "all", ``rung`` the value of ``n_params``, ``seed`` 0, ``cluster``
    the run (:func:`runs.runs_of`), ``status`` "completed". Completed trials whose loss is not finite
    have diverged. Rows of one trial that several sweeps share are kept once. ``required`` columns hold finite
    numbers above zero; ``cluster`` names the column of runs, which no completed row may leave blank. Raises
    :class:`DataError`.
    """
    for name in required:
        require_column(table, name)
    if table.empty:
        raise DataError("the table has no rows; at least one is needed")
    refuse_twins(table)
    refuse_lists(table)
    result = table.reset_index(drop=True)
    for name in dict.fromkeys((*NUMBERS, *required)):
        if name in result.columns:
            result[name] = _numbers(result[name])
    given = [name for name in (cluster, "cluster", "trial_id") if name in table.columns]
    result = _with_defaults(result, cluster)
    if "loss" in required:
        ended_without = (result["status"] == "completed") & ~np.isfinite(result["loss"])
        result["status"] = result["status"].mask(ended_without, "diverged")
    require_column(result, cluster)
    _check_values(result, required)
    counted = (result["status"] == "completed") & (result["stage"] != "tuning")
    for name in given:
        refuse_blanks(result, name, counted)
    if "trial_id" in result.columns:
        # Rows of one trial that differ in these are no copies: checkpoints along it, say.
        alike = [name for name in ("trial_id", "arm", "stage", "n_tokens", *required) if name in result]
        result = result.drop_duplicates([*dict.fromkeys(alike)], ignore_index=True)
    return result


def _numbers(column: "pd.Series[float]") -> "pd.Series[float]":
    if pd.api.types.is_bool_dtype(column):
        raise DataError(f"column {column.name!r} holds true/false; allowed: numbers")
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    read = numbers_in(column.tolist(), str(column.name))
    if None in read:
        row = read.index(None)
        raise DataError(f"column {column.name!r}, row {row + 1}: {column.iloc[row]!r} is not a number")
    return pd.Series(read, column.index, dtype=float)


def _with_defaults(table: pd.DataFrame, cluster: str) -> pd.DataFrame:
    if "rung" not in table.columns:
        size = next((name for name in ("n_params", "n_tokens", "flops") if name in table.columns), None)
        table["rung"] = table[size].map("{:.6g}".format) if size else ""
    table["seed"] = _seeds(table["seed"]) if "seed" in table.columns else 0
    if "cluster" not in table.columns:
        table["cluster"] = runs_of(table)
    if cluster == EACH_ROW and EACH_ROW not in table.columns:
        table[EACH_ROW] = [f"row {number}" for number in range(1, len(table) + 1)]
    for name, value in (("arm", "all"), ("status", "completed"), ("stage", "comparison")):
        if name not in table.columns:
            table[name] = value
    for name in TEXTS:
        if name in table.columns:
            table[name] = table[name].astype(object).where(table[name].notna(), "")
            table[name] = table[name].map(str).astype(object)
    table["status"] = table["status"].map(lambda word: status(word) or word).astype(object)
    return table


def _seeds(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Whole numbers, or names as text; a blank is no seed."""
    given = column[column.notna()]
    if given.map(lambda seed: isinstance(seed, numbers.Real)).all():
        numeric = pd.to_numeric(column).astype(float)
        whole = (numeric % 1 == 0) & (numeric.abs() < LARGEST_SEED)
        _refuse_seed(column, ~whole & column.notna())
        return column.astype("Int64")
    _refuse_seed(column, ~column.map(lambda seed: isinstance(seed, str | numbers.Real)) & column.notna())
    return column.map(str, na_action="ignore").astype(object)


def _refuse_seed(column: "pd.Series[Any]", bad: "pd.Series[bool]") -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = str(column.iloc[row])[:40]
        raise DataError(f"column 'seed', row {row + 1}: {value}; allowed: whole numbers below 2^63, or names")


def _check_values(table: pd.DataFrame, required: Sequence[str]) -> None:
    unknown = ~table["status"].isin(STATUSES)
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        require_choice(f"column 'status', row {row + 1}:", table["status"].iloc[row], STATUSES)
    completed = table["status"] == "completed"
    ran = completed | (table["status"] == "diverged")
    for name in required:
        rows = ran if name in ("n_params", "n_tokens", "flops") else completed
        numbers_of = table[name]
        bad = rows & ~(np.isfinite(numbers_of) & (numbers_of > 0))
        extreme = rows & ((numbers_of > 1 / SMALLEST_NUMBER) | (numbers_of < SMALLEST_NUMBER))
        if bad.any() or extreme.any():
            row = int(np.flatnonzero(bad if bad.any() else extreme)[0])
            within = "" if bad.any() else f", from {SMALLEST_NUMBER:g} to {1 / SMALLEST_NUMBER:g}"
            raise DataError(
                f"column {name!r}, row {row + 1}: {numbers_of.iloc[row]:g}; allowed: finite numbers above "
                f"zero{within}"
            )


def comparison_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the comparison stage; tuning never counts as a result."""
    return table[table["stage"] != "tuning"].reset_index(drop=True)


def completed_rows(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Completed comparison trials, and how many rows were left out for which reason.

    A row that equals another in every column is no second trial: copies are left out as ``duplicate``.
    """
    excluded = {"tuning": int((table["stage"] == "tuning").sum())}
    rows = comparison_rows(table)
    others = rows.loc[rows["status"] != "completed", "status"].value_counts()
    excluded.update({str(status): int(count) for status, count in others.sort_index().items()})
    kept = rows[rows["status"] == "completed"]
    copies = kept.duplicated(plain_columns(kept))
    excluded["duplicate"] = int(copies.sum())
    kept = kept[~copies].reset_index(drop=True)
    return kept, {reason: count for reason, count in excluded.items() if count}


def unit_warnings(table: pd.DataFrame) -> list[str]:
    """A warning for each count that looks as if it were given in thousands or millions.

    A sweep of ours knows its counts: only its trials have a stream.
    """
    if "stream" in table and table["stream"].notna().all():
        return []
    return [
        f"the largest {name} is {table[name].max():g}: is it in thousands or millions? Give plain counts."
        for name, smallest in SMALLEST_LIKELY.items()
        if name in table.columns and len(table) and table[name].max() < smallest
    ]


def simulation_warnings(table: pd.DataFrame) -> list[str]:
    """A warning where results were simulated, which nobody may take for trained ones."""
    n_simulated = int((table["device"] == "simulated").sum()) if "device" in table else 0
    if not n_simulated:
        return []
    return [f"simulated: {n_simulated} of {len(table)} results follow a planted law; nothing was trained"]


def versions_of(rows: pd.DataFrame) -> "pd.Series[int]":
    """The identity version of each of the checked ``rows``; a blank, or no such column, is the first."""
    known = rows[VERSION] if VERSION in rows else pd.Series(np.nan, rows.index)
    wrong = known.notna() & ~((known >= 1) & (known < 1e6) & (known % 1 == 0))
    if wrong.any():
        raise DataError(f"column {VERSION!r} holds {known[wrong].iloc[0]:g}; allowed: 1, 2, ...")
    return known.fillna(1).astype(int)


def parameters_of(table: pd.DataFrame, n_convention: str = "matrices") -> FloatArray:
    """N of each row under ``n_convention``, one of :data:`N_CONVENTIONS`."""
    require_choice("n_convention", n_convention, N_CONVENTIONS)
    if n_convention == "total":
        require_column(table, "n_params_total", "n_convention total")
        return np.asarray(table["n_params_total"], float)
    n_params = np.asarray(table["n_params"], float)
    if n_convention in ("matrices", "as-given"):
        return n_params
    require_column(table, "n_params_embedding", "n_convention with-embedding")
    total: FloatArray = n_params + np.asarray(table["n_params_embedding"], float)
    return total


def compute_of(table: pd.DataFrame, n_convention: str = "matrices", c_convention: str = "6nd") -> FloatArray:
    """C of each row in FLOPs under ``c_convention``, one of :data:`C_CONVENTIONS`."""
    require_choice("c_convention", c_convention, C_CONVENTIONS)
    column = {"counted": "flops_counted", "given": "flops"}.get(c_convention)
    if column:
        require_column(table, column, f"c_convention {c_convention}")
        return np.asarray(table[column], float)
    compute: FloatArray = 6.0 * parameters_of(table, n_convention) * np.asarray(table["n_tokens"], float)
    return compute


def mostly_repeated(cells: FloatArray) -> bool:
    """Whether most of the points in these ``cells`` [points] share theirs with another."""
    _, cell, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return bool(2 * np.sum(counts[cell] > 1) > len(cells))
