"""The columns of a tidy row: their order, their types, and where a trial's semantic fields hold them."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalevec.results.files import CorruptRecordError

ENVIRONMENT_COLUMNS = (
    *("cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn"),
    *("torch_version", "commit", "local_changes"),
)
"""Which machine and which code trained: text that names each of them where attempts ran on several."""
BLOCK_COLUMNS = ("loss_blocks", "block_tokens")
"""Lists of numbers, one for each block of the test split, as JSON text."""
# The columns in their order, with the pandas type of each.
COLUMNS: dict[str, str] = {
    **dict.fromkeys(("trial_id", "sweep", "arm", "stage", "rung"), "str"),
    **dict.fromkeys(("n_params", "n_params_embedding", "n_params_scale_vectors", "n_params_total"), "Int64"),
    **dict.fromkeys(("n_params_active", "n_tokens"), "Int64"),
    **dict.fromkeys(("tokens_per_parameter", "epochs", "flops", "flops_counted"), "float64"),
    **dict.fromkeys(("loss", "loss_validation", "loss_initial"), "float64"),
    **dict.fromkeys(BLOCK_COLUMNS, "str"),
    "seed": "Int64",
    "stream": "str",
    "identity_version": "Int64",
    **dict.fromkeys(("cluster", "optimizer", "schedule", "architecture", "corpus"), "str"),
    "learning_rate": "float64",
    **dict.fromkeys(("lr_status", "carried_check", "status", "cause"), "str"),
    **dict.fromkeys(("micro_batch", "world_size", "steps"), "Int64"),
    **dict.fromkeys(("wall_s", "tokens_per_s", "step_s_median", "mfu"), "float64"),
    **dict.fromkeys(("data_s", "checkpoints_s", "evaluation_s", "planned_s"), "float64"),
    **dict.fromkeys(("device", "arithmetic"), "str"),
    "resumes": "Int64",
    "precision": "str",
    **dict.fromkeys(("vector_branches", "vector_placement", "vector_reparameterization"), "str"),
    **dict.fromkeys(("vector_decay", "vector_gain"), "str"),
    "matrix_decay": "float64",
    **dict.fromkeys(("peak_memory_bytes", "allocated_bytes"), "Int64"),
    **dict.fromkeys(ENVIRONMENT_COLUMNS, "str"),
}
OWN_FIELD = "field_"
"""Prefix of columns with a foreign trainer's own fields, in which a pair may differ."""
_SEMANTIC_PATHS: dict[str, tuple[str, ...]] = {
    "n_tokens": ("tokens",),
    "seed": ("seed",),
    "stream": ("stream",),
    "identity_version": ("identity_version",),
    "optimizer": ("optimizer", "name"),
    "learning_rate": ("optimizer", "learning_rate"),
    "schedule": ("schedule", "name"),
    "architecture": ("model", "architecture"),
    "corpus": ("corpus",),
    "precision": ("precision",),
    "vector_branches": ("model", "scale_vectors", "branches"),
    "vector_placement": ("model", "scale_vectors", "placement"),
    "vector_reparameterization": ("model", "scale_vectors", "reparameterization"),
    "vector_decay": ("model", "scale_vectors", "weight_decay"),
    "vector_gain": ("model", "norm_gain"),
    "matrix_decay": ("optimizer", "weight_decay"),
}
OF_SEMANTIC_FIELDS = frozenset(_SEMANTIC_PATHS)
"""The columns that :func:`semantic_columns` fills, a foreign trainer's from its fields of these names."""
_KINDS: dict[str, type] = {
    name: {"str": str, "Int64": int, "float64": float}[kind] for name, kind in COLUMNS.items()
}
_ABOVE_ZERO = ("n_params", "n_tokens", "flops", "loss")


def semantic_columns(semantic: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a trial's semantic fields hold; None where they do not."""
    columns = {name: _at(semantic, path) for name, path in _SEMANTIC_PATHS.items()}
    if columns["architecture"] is not None and columns["vector_gain"] is None:
        columns["vector_gain"] = "g"  # which trials leave out
    if not isinstance(values := semantic.get("values"), dict):
        return columns
    named = {**values, "matrix_decay": values.get("weight_decay")}  # of a foreign trainer
    return {name: named.get(name) if column is None else column for name, column in columns.items()}


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def timing_columns(result: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that the ``timing`` of a result holds; None where it is of a version without."""
    names = ("mfu", "data_s", "checkpoints_s", "evaluation_s")
    columns = {name: _at(result, ("timing", name)) for name in names}
    return columns | {"step_s_median": _at(result, ("timing", "step_s", "p50"))}


def environment_columns(attempts: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """The columns of a trial; None where no attempt (a record of environment.json) says anything."""
    columns: dict[str, str | None] = {}
    for name in ENVIRONMENT_COLUMNS:
        path = ("versions", "torch") if name == "torch_version" else (name,)
        values = (_at(attempt, path) for attempt in attempts)
        columns[name] = "; ".join(dict.fromkeys(str(each) for each in values if each is not None)) or None
    return columns


def checked_columns(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are columns, as a column can hold them; None stays None.

    Raises ``CorruptRecordError`` of ``path``, where they were read.
    """
    return {name: _in_column(path, name, value) for name, value in values.items() if name in _KINDS}


def check_columns(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Check many rows as :func:`checked_columns` does."""
    for name in _KINDS.keys() & set().union(*rows):
        check_column(path, name, [row.get(name) for row in rows])


def check_column(path: Path, name: str, values: Sequence[Any]) -> None:
    """Check the values of a column, each once, as most repeat."""
    kind = _KINDS[name]
    plain = {kind, type(None), int} if kind is float else {kind, type(None)}
    is_plain = plain.issuperset(map(type, values))
    if kind is str and is_plain and is_storable_text("".join(filter(None, values))):
        return  # at once: names of trials and of streams do not repeat
    for value in set(values) if is_plain else values:
        _in_column(path, name, value)


def _in_column(path: Path, name: str, value: Any) -> Any:
    """``value`` as the column ``name`` can hold it."""
    held = checked(path, name, _KINDS[name], value)
    if name in _ABOVE_ZERO and held is not None and held <= 0:
        raise CorruptRecordError(path, f"has {name} = {held}, not above zero")
    return held


def checked(path: Path, name: str, kind: type, value: Any) -> Any:
    """``value`` as a column of ``kind`` can hold it; None stays None. Raises ``CorruptRecordError``."""
    if value is None:
        return None
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _as_float(path, name, value)
    fits = isinstance(value, kind) and not isinstance(value, bool)
    if fits and (is_storable_text(value) if isinstance(value, str) else abs(value) < 2**63):
        return value
    raise CorruptRecordError(path, f"has {name} = {value!r:.80}, not a value of type {kind.__name__}")


def _as_float(path: Path, name: str, value: float) -> float:
    with suppress(OverflowError):
        if math.isfinite(number := float(value)):
            return number
    raise CorruptRecordError(path, f"has a {name} that is too large")


def is_storable_text(text: str) -> bool:
    """Databases take neither a NUL nor half of a surrogate pair."""
    return "\0" not in text and (text.isascii() or text.encode(errors="replace").decode() == text)
