"""What the trials of each rung took, beside what was planned of them."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import HAS_RESULT
from scalevec.analysis.formatting import count
from scalevec.analysis.tables.content import Table

_NOTE = (
    "All trials with a result, those of tuning too. Hours: training and evaluation, summed over the trials; "
    "planned ones are those of the last plan. Step time, tokens/s and MFU (the counted FLOPs of the median "
    "step over the device's peak): medians over the trials. Memory: the most of any."
)


def times_by_rung(table: pd.DataFrame) -> Table | None:
    """A row for each rung of the checked ``table``; None where no trial says how long it took."""
    if "wall_s" not in table.columns:
        return None
    rows = table[table["status"].isin(HAS_RESULT) & table["wall_s"].notna()]
    if "trial_id" in rows.columns:  # arms that are identical share trials
        rows = rows.drop_duplicates("trial_id")
    columns = {name: cell for name, (needed, cell) in _COLUMNS.items() if _is_known(rows, needed)}
    if rows.empty:
        return None
    rungs = [of_rung for _, of_rung in rows.groupby(["n_params", "rung"], sort=True)]
    body = tuple(
        (str(of_rung["rung"].iloc[0]), str(len(of_rung)), *(cell(of_rung) for cell in columns.values()))
        for of_rung in rungs
    )
    names = ("rung", "trials", *columns)
    return Table("Time and memory", names, body, (False, *(True for _ in names[1:])), (_NOTE,))


def costs(table: pd.DataFrame) -> Table | None:
    """What each stage of the checked ``table`` has cost and what is left of its plan; None if unknown."""
    if not {"wall_s", "planned_s", "flops", "flops_counted"} & set(table.columns):
        return None
    rows = table.drop_duplicates("trial_id") if "trial_id" in table.columns else table
    stages = [(str(stage), of_stage) for stage, of_stage in rows.groupby("stage", sort=False)]
    stages += [("all", rows)] if len(stages) > 1 else []
    body = tuple((stage, *_cost_cells(of_stage)) for stage, of_stage in stages)
    columns = ("stage", "trials with a result", *_COSTS)
    totals = frozenset([len(body) - 1]) if len(body) > 1 else frozenset[int]()
    return Table("Cost", columns, body, (False, *(True for _ in columns[1:])), (_COST_NOTE,), totals=totals)


_COSTS = ("spent, h", "spent, device-hours", "planned for these, h", "left by the plan, h", "FLOPs spent")
_COST_NOTE = (
    "Hours are summed over trials. Device-hours: times the GPUs of a trial, or its CPU threads. "
    "A blank: not recorded."
)


def _cost_cells(rows: pd.DataFrame) -> tuple[str, ...]:
    is_done = rows["status"].isin(HAS_RESULT)
    done, left = rows[is_done], rows[~is_done]
    compute = "flops_counted" if _is_known(rows, "flops_counted") else "flops"
    sums = (
        _total(_measured_s(done) if "wall_s" in done else None, _hours),
        _total(_measured_s(done) * _devices(done) if "wall_s" in done else None, _hours),
        _total(done.get("planned_s"), _hours),
        _total(left.get("planned_s"), _hours) if len(left) else "0",
        _total(done.get(compute), "{:.2e}".format),
    )
    return (f"{len(done)} of {len(rows)}", *sums)


def _total(values: "pd.Series[float] | None", text: Callable[[float], str]) -> str:
    return "" if values is None or values.isna().all() else text(float(values.sum()))


def _devices(rows: pd.DataFrame) -> "pd.Series[float]":
    """The GPUs of each trial, or the threads of its processes; one where nothing is recorded."""
    ones = pd.Series(1.0, rows.index)
    world, threads, device = (rows.get(name) for name in ("world_size", "threads", "device"))
    processes = ones if world is None else world.astype(float).fillna(1.0)
    if threads is None or device is None:
        return processes
    return processes * pd.to_numeric(threads, errors="coerce").fillna(1.0).where(device == "cpu", 1.0)


def _is_known(rows: pd.DataFrame, name: str) -> bool:
    return name in rows.columns and bool(rows[name].notna().any())


def _measured_s(rows: pd.DataFrame) -> "pd.Series[float]":
    """Seconds of training and of evaluation, which earlier versions did not keep apart."""
    evaluation = rows["evaluation_s"].fillna(0.0) if "evaluation_s" in rows.columns else 0.0
    return rows["wall_s"] + evaluation


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3g}"


def _over_plan(rows: pd.DataFrame) -> str:
    both = rows[rows["planned_s"].notna()]
    planned = float(both["planned_s"].sum())
    return f"{float(_measured_s(both).sum()) / planned:.2f}" if planned > 0 else ""


def _median(name: str, text: Callable[[float], str]) -> Callable[[pd.DataFrame], str]:
    def cell(rows: pd.DataFrame) -> str:
        known = rows[name].dropna()
        return text(float(np.median(known))) if len(known) else ""

    return cell


def _most_memory(rows: pd.DataFrame) -> str:
    most = rows["peak_memory_bytes"].max()
    return "" if pd.isna(most) else f"{float(most) / 1e9:.3g}"


_COLUMNS: dict[str, tuple[str, Callable[[pd.DataFrame], str]]] = {
    "planned, h": ("planned_s", lambda rows: _hours(float(rows["planned_s"].sum()))),
    "measured, h": ("wall_s", lambda rows: _hours(float(_measured_s(rows).sum()))),
    "measured / planned": ("planned_s", _over_plan),
    "step, ms": ("step_s_median", _median("step_s_median", lambda s: f"{s * 1e3:.3g}")),
    "tokens/s": ("tokens_per_s", _median("tokens_per_s", count)),
    "MFU": ("mfu", _median("mfu", lambda share: f"{share:.0%}")),
    "peak memory, GB": ("peak_memory_bytes", _most_memory),
}
"""By their headings: the column that must be known, and what is shown."""
