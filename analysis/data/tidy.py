"""The table that is analysed: reading it, checking it, and N and C of its rows by the conventions.

A table is tidy, one row per trial; ``n_params, n_tokens, loss`` are needed, ``arm, rung, seed, cluster,
status, stage`` and the others of :data:`NUMBERS` are used where present.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data.read import rows_of_file
from scalevec.analysis.data.runs import HAS_RESULT, plain_columns, refuse_twins, runs_of
from scalevec.analysis.data.values import (
    ARM_COLUMNS,
    CELL_COLUMNS,
    GRID_COLUMNS,
    REQUIRED,
    check_column,
    numbers_of_column,
    seeds_of,
    status,
    typed,
)
from scalevec.analysis.errors import DataError, nearest
from scalevec.analysis.formatting import joined, plural, shortened
from scalevec.analysis.options import EACH_ROW, AnalysisOptions

NUMBERS = (
    *REQUIRED,
    *("n_params_embedding", "n_params_scale_vectors", "n_params_total", "flops", "flops_counted"),
    *("learning_rate", "wall_s", "tokens_per_s", "step_s_median", "mfu", "data_s", "checkpoints_s"),
    *("evaluation_s", "planned_s", "steps", "peak_memory_bytes", "allocated_bytes", "matrix_decay"),
    *("epochs", "identity_version"),
)
UNREAD = "unread"
"""What a table in ``attrs`` says of columns that were looked for and not found."""
VERSION = "identity_version"
"""The column that says what the random numbers of a trial follow from; those of two versions never pair."""
TELLS_APART = ("arm", "rung", "cluster", "trial_id", "stage", "status")
"""Columns that say of which run a row is, and of what part of the table; a seed is a number."""
TEXTS = ("arm", "rung", "stage", "status", "lr_status", "cluster", "optimizer", "schedule", "corpus")
STATUSES = ("completed", "diverged", "failed", "pending", "queued", "running", "cancelling", "cancelled")
_TRAINING, _HELD_OUT = "train(ing)?", "eval(uation)?|val(id(ation)?)?|dev|test|held[-_]?out"
"""How a column calls, in lower case, losses of the training text and of others."""
COPIES = "copies"
"""What a checked table says in ``attrs``: by arm, how many rows equalled another and were left out."""


VECTOR_NORMS, OWN_FIELD = "vector_rms_", "field_"
"""Columns with these prefixes hold root mean squares of scale vectors, and fields of a foreign trainer."""
# The columns of a tidy row of a sweep; any other column of such a row is a field of the sweep's grid.
# fmt: off
SWEEP_COLUMNS = frozenset((
    *NUMBERS, *TEXTS, "trial_id", "sweep", "tokens_per_parameter", "loss_validation", "loss_initial",
    "seed", "architecture", "carried_check", "cause", "micro_batch", "world_size", "device", "arithmetic",
    "resumes", "precision", "vector_branches", "vector_placement", "vector_reparameterization",
    "vector_decay", "vector_gain", "n_params_active", "trunk_step", "diverged_at_step", "test_tokens",
    "validation_tokens", "bytes_per_token", "scale_vectors", "stream", "loss_blocks", "block_tokens",
    "cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn", "torch_version", "commit",
    "local_changes",
))
# fmt: on

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def require_column(table: pd.DataFrame, name: str, why: str = "") -> None:
    """Raise :class:`DataError` that names the nearest column unless ``name`` is one."""
    if name not in table.columns:
        needed = f" (needed for {why})" if why else ""
        remedy = nearest(name, table.columns)
        unread = table.attrs.get(UNREAD, "")
        if name in REQUIRED and (f"{name} may be " in unread or not remedy.startswith("nearest")):
            remedy = unread or remedy
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
    return typed(table)


def checked(
    table: pd.DataFrame, required: Sequence[str] = REQUIRED, cluster: str = "cluster"
) -> pd.DataFrame:
    """A checked copy of ``table`` with the optional columns filled in and a fresh index.

    Missing columns become: ``arm`` "all", ``rung`` the value of ``n_params``, ``seed`` 0, ``cluster``
    the run (:func:`runs.runs_of`), ``status`` "completed". Completed trials whose loss is not finite
    have diverged. Rows of one trial that several sweeps share are kept once, and so are rows that equal
    another in every column (``attrs`` holds their number by arm). ``required`` columns hold finite numbers
    above zero; ``cluster`` names the column of runs, which no completed row may leave blank. Raises
    :class:`DataError`, which names rows by their place in the file: by the index of ``table``.
    """
    for name in required:
        require_column(table, name)
    if table.empty:
        raise DataError("the table has no rows; at least one is needed")
    refuse_twins(table)
    plain = plain_columns(table)
    for name in TELLS_APART:
        if name in table.columns and name not in plain:
            raise DataError(f"column {name!r} holds lists or records; allowed: one text or number per row")
    given = [name for name in (cluster, "cluster", "trial_id") if name in table.columns]
    result = _with_defaults(parsed(table, required), cluster)
    require_column(result, cluster)
    check_values(result, required)
    counted = (result["status"] == "completed") & (result["stage"] != "tuning")
    for name in given:
        blank = counted & (result[name].isna() | (result[name].astype(str).str.strip() == ""))
        if blank.any():
            rows = result.index[blank].tolist()
            raise DataError(
                f"column {name!r} is blank in {plural(len(rows), 'row')} ({shortened(rows)}); "
                "it says which rows belong to one run: fill it in, or leave these rows out"
            )
    result = _without_copies(result)
    if "trial_id" in result.columns:
        # Rows of one trial that differ in these are no copies: checkpoints along it, say.
        alike = [name for name in ("trial_id", "arm", "stage", "n_tokens", *required) if name in result]
        result = result.drop_duplicates([*dict.fromkeys(alike)])
    return result.reset_index(drop=True)


def parsed(table: pd.DataFrame, required: Sequence[str]) -> pd.DataFrame:
    """``table`` with numbers, seeds and names as such; the index holds the numbers of rows, from 1.

    A trial whose loss, if it is ``required``, is not finite has diverged. Raises :class:`DataError`.
    """
    # As a person counts rows in the file from which some were chosen.
    known = pd.api.types.is_integer_dtype(table.index) and table.index.is_unique
    result = table.set_axis(table.index + 1 if known else pd.RangeIndex(1, len(table) + 1))
    for name in dict.fromkeys((*NUMBERS, *required)):
        if name in result.columns:
            result[name] = numbers_of_column(result[name])
    if "seed" in result:
        result["seed"] = seeds_of(result["seed"])
    for name in TEXTS:
        if name in result.columns:
            text = result[name].astype(object).where(result[name].notna(), "").map(str)
            result[name] = text.astype(object)
    words = result["status"] if "status" in result else pd.Series("completed", result.index, dtype=object)
    words = words.map(lambda word: status(word) or word)
    if "loss" in required:
        words = words.mask((words == "completed") & ~np.isfinite(result["loss"]), "diverged")
    return result.assign(status=words.astype(object))


def _without_copies(table: pd.DataFrame) -> pd.DataFrame:
    """``table`` with each result once: a row that equals another in every column is no second trial."""
    plain = plain_columns(table)
    # Of thousands of columns only those of rows that may be copies are compared.
    first = [name for name in ("arm", "n_params", "n_tokens", "loss", "seed", "trial_id") if name in plain]
    alike = table[first].duplicated(keep=False) & table["status"].isin(HAS_RESULT)
    copies = table.loc[alike, plain].duplicated().reindex(table.index, fill_value=False)
    kept = table[~copies]
    if copies.any():
        kept.attrs[COPIES] = table.loc[copies, "arm"].value_counts().to_dict()
    return kept


def _size_name(size: float) -> str:
    """``82944``, ``1M``, ``1.5B``, to six digits, which tell sizes apart."""
    for unit, letter in ((1e9, "B"), (1e6, "M")):
        if unit <= size < 1e15:
            return f"{size / unit:.6g}{letter}"
    return f"{size:.6g}"


def _with_defaults(table: pd.DataFrame, cluster: str) -> pd.DataFrame:
    if "rung" not in table.columns:
        size = next((name for name in ("n_params", "n_tokens", "flops") if name in table.columns), None)
        table["rung"] = table[size].map(_size_name) if size else ""
    for name, value in (("seed", 0), ("arm", "all"), ("stage", "comparison")):
        if name not in table.columns:
            table[name] = value
    if "cluster" not in table.columns:
        table["cluster"] = runs_of(table)
    if cluster == EACH_ROW and EACH_ROW not in table.columns:
        table[EACH_ROW] = [f"row {number}" for number in table.index]
    return table


def check_values(table: pd.DataFrame, required: Sequence[str]) -> None:
    """Raise :class:`DataError` for a status or number in ``table``, as :func:`parsed`, that cannot be."""
    unknown = table.loc[~table["status"].isin(STATUSES), "status"]
    if len(unknown):
        word, words = str(unknown.iloc[0])[:60], unknown.astype(str).unique().tolist()
        raise DataError(
            f"column 'status', row {unknown.index[0]}: is {word!r}; {nearest(word, STATUSES)}; unknown: "
            f"{shortened(words)}. To leave rows out: --where \"status != '{word}'\"; to take every row for "
            "completed: --map status=\"'completed'\""
        )
    completed = table["status"] == "completed"
    if "arm" in table and len(unnamed := table.index[completed & (table["arm"].str.strip() == "")]):
        raise DataError(
            f"column 'arm' is blank in {plural(len(unnamed), 'row')} ({shortened(unnamed.tolist())}): name "
            "the arm, or leave these rows out (--where)"
        )
    _refuse_training_rows(table[completed])
    _refuse_units(table[completed])
    ran = completed | (table["status"] == "diverged")
    for name in required:
        check_column(table.loc[ran if name in ("n_params", "n_tokens", "flops") else completed, name])


def _refuse_training_rows(table: pd.DataFrame) -> None:
    """Raise :class:`DataError` where a word beside some losses says that they are of the training text."""
    for name in table.columns:
        if len(table) and re.fullmatch(f"{_TRAINING}|{_HELD_OUT}", str(table[name].iloc[0]).strip().lower()):
            words = table[name].map(str)
            plain = words.str.strip().str.lower()
            of_training, held_out = plain.str.fullmatch(_TRAINING), plain.str.fullmatch(_HELD_OUT)
            if (of_training | held_out).all() and of_training.any() and held_out.any():
                kinds, meant = joined(words.unique().tolist()), words[held_out].iloc[0]
                which = f"one kind is compared; --where \"`{name}` == '{meant}'\""
                raise DataError(f"column {name!r} has losses of {kinds}: {which}")


def _refuse_units(table: pd.DataFrame) -> None:
    """Raise :class:`DataError` where a column says that losses are of several units."""
    for name in (name for name in table.columns if name in ("unit", "units", "loss_unit", "loss_units")):
        if len(units := table[name].dropna().astype(str).unique().tolist()) > 1:
            which = f"those of one are compared; --where \"{name} == '{units[0]}'\""
            raise DataError(f"column {name!r} has losses in {joined(units)}: {which}")


def comparison_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the comparison stage; tuning never counts as a result."""
    return table[table["stage"] != "tuning"].reset_index(drop=True)


def completed_rows(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, int]]:
    """Completed comparison trials of checked rows, and how many were left out for which reason.

    Those that equalled another row are counted as ``duplicate``.
    """
    rows = comparison_rows(table)
    others = rows.loc[rows["status"] != "completed", "status"].value_counts().sort_index()
    excluded = {"tuning": len(table) - len(rows), **others.to_dict(), "duplicate": n_copies(table)}
    kept = rows[rows["status"] == "completed"].reset_index(drop=True)
    return kept, {str(reason): int(count) for reason, count in excluded.items() if count}


def n_copies(table: pd.DataFrame) -> int:
    """How many rows of the arms in ``table`` equalled another row and were left out."""
    return sum(n for arm, n in table.attrs.get(COPIES, {}).items() if (table["arm"] == arm).any())


def variable_of(rows: pd.DataFrame, name: str, options: AnalysisOptions) -> FloatArray:
    """N or C of each row by the conventions of ``options``, D, or a column [rows]."""
    if name == "N":
        of_convention = {"total": ["n_params_total"], "with-embedding": ["n_params", "n_params_embedding"]}
        columns = of_convention.get(options.n_convention, ["n_params"])
        require_column(rows, columns[-1], f"n_convention {options.n_convention}")
        return np.asarray(rows[columns].to_numpy(float).sum(axis=1))
    if name == "C" and options.c_convention == "6nd":
        return np.asarray(6.0 * variable_of(rows, "N", options) * rows["n_tokens"].to_numpy(float))
    if name == "C":
        column = "flops_counted" if options.c_convention == "counted" else "flops"
        require_column(rows, column, f"c_convention {options.c_convention}")
        return np.asarray(rows[column], float)
    return rows["n_tokens" if name == "D" else name].to_numpy(float)


def mostly_repeated(cells: FloatArray) -> bool:
    """Whether most of the points in these ``cells`` [points] share theirs with another."""
    _, cell, counts = np.unique(cells, return_inverse=True, return_counts=True)
    return bool(2 * np.sum(counts[cell] > 1) > len(cells))


def columns_of_cells(rows: pd.DataFrame, settings: Sequence[str] | None) -> list[str]:
    """The columns that name a cell of ``rows``: rung, tokens and settings.

    These are the further ``settings`` that are given, or the grid fields of a sweep's tidy rows. Raises
    :class:`DataError` for a column that is not there.
    """
    for name in settings or ():
        require_column(rows, name, "settings")
    if settings is None:
        of_a_sweep = {"trial_id", "sweep"} <= set(rows.columns)
        others = [name for name in rows.columns if of_a_sweep and name not in SWEEP_COLUMNS]
        settings = [name for name in others if not name.startswith((VECTOR_NORMS, OWN_FIELD))]
    of_arms = chosen_by_arms(rows)
    known = [name for name in CELL_COLUMNS if name in rows.columns and name not in of_arms]
    columns = list(dict.fromkeys([*known, *settings]))
    return [*columns, *run_as_a_grid(rows, columns)]


def chosen_by_arms(rows: pd.DataFrame) -> list[str]:
    """The columns of :data:`ARM_COLUMNS` that are the arms' own choice, as where optimizers are compared.

    There every arm has one value, not all have the same, and yet trials of different arms share their random
    numbers: these follow from a cell before its arm's fields, and no two settings of a grid share them.
    """
    arms = rows.groupby("arm")
    names = [
        name
        for name in ARM_COLUMNS
        if name in rows and rows[name].nunique() > 1 and (arms[name].nunique(dropna=False) == 1).all()
    ]
    if not names or "stream" not in rows:  # a table's runs are paired by their seeds as they are given
        return names
    by_arm = [set(streams.dropna()) for _, streams in arms["stream"]]
    return names if set.intersection(*by_arm) else []


def run_as_a_grid(rows: pd.DataFrame, cell_columns: Sequence[str]) -> list[str]:
    """Those of :data:`GRID_COLUMNS` without which an arm would have two rows of one key; never tuned ones."""
    grid: list[str] = []
    for name in GRID_COLUMNS:
        twice = rows[["arm", *cell_columns, *grid, "seed"]].duplicated(keep=False)
        if name not in rows.columns or name in cell_columns or not twice.any():
            continue
        by_tuning = name == "learning_rate" and "lr_status" in rows.columns
        is_fixed = not by_tuning or (rows.loc[twice, "lr_status"] == "fixed").all()
        if is_fixed and rows.loc[twice, name].nunique() > 1:
            grid.append(name)
    return grid


def varying(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Those of ``columns`` that take more than one value."""
    return [name for name in columns if table[name].nunique(dropna=False) > 1]


def pooled_settings(rows: pd.DataFrame, settings: Sequence[str] | None = None) -> list[str]:
    """Settings (optimizer, schedule, a grid's field) of which an arm has several values at one rung.

    They differ by more than a seed. One value per rung is a recipe, and tokens are what a law is about.
    ``settings`` names further columns, as in :func:`columns_of_cells`.
    """
    rungs = rows.groupby(["arm", "rung"], sort=False)
    columns = [name for name in columns_of_cells(rows, settings) if name not in ("rung", "n_tokens")]
    return [name for name in columns if (rungs[name].nunique(dropna=False) > 1).any()]
