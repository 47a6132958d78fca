"""The overhead table: what an arm costs beside the reference in time, memory and parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import Cell, ComparedTrials
from scalevec.analysis.data.pairs import Pairs, differs
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count
from scalevec.analysis.tables import phrases
from scalevec.analysis.tables.content import Table

SHARED_MACHINE = (
    "Time on a machine that other work shares is noisy, and trials that ran side by side slow each other "
    "down: read ratios of time as overhead only where their range is narrow and the machine was quiet."
)


@dataclass(frozen=True)
class Measure:
    """A figure of one trial: the ``columns`` it needs, its value, and its text with a unit."""

    name: str
    columns: tuple[str, ...]
    value: Callable[[pd.DataFrame], "pd.Series[float]"]
    text: Callable[[float], str]


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:.4g} MiB"


MEASURES = (
    Measure(
        "step time", ("wall_s", "steps"), lambda t: t["wall_s"] / t["steps"], lambda s: f"{s * 1e3:.3g} ms"
    ),
    Measure("tokens/s", ("tokens_per_s",), lambda t: t["tokens_per_s"], count),
    Measure("allocated memory", ("allocated_bytes",), lambda t: t["allocated_bytes"], _mebibytes),
    Measure("peak memory", ("peak_memory_bytes",), lambda t: t["peak_memory_bytes"], _mebibytes),
)
RESIDENT = MEASURES[-1]
"""On the CPU it holds the interpreter and its libraries: for sources that tell nothing better."""
COUNTS = ("n_params_total", "n_params_scale_vectors")


def build(trials: ComparedTrials) -> Table:
    """A row for each cell and arm. Raises :class:`DataError` for a source with neither time nor memory."""
    measures = [m for m in MEASURES if all(trials.has(name) for name in m.columns)]
    if trials.has("allocated_bytes"):
        measures = [m for m in measures if m is not RESIDENT]
    counts = all(trials.has(name) for name in COUNTS)
    if not measures:
        wanted = "; or ".join(" and ".join(m.columns) for m in MEASURES)
        raise DataError(f"table 'overhead' needs {wanted}, which this source does not hold")
    lines = [_line(trials, cell, arm, measures, counts) for cell in trials.cells for arm in trials.arms]
    lines = [line for line in lines if line.record["pairs"]]
    if not lines:
        raise DataError("table 'overhead' needs pairs of completed trials on one device; there are none")
    columns = (*trials.varying_settings, "rung", "arm", "n", *(m.name for m in measures))
    columns += ("parameters", "scale vectors", "share") if counts else ()
    n_text = len(trials.varying_settings) + 2
    return Table(
        title="Overhead",
        columns=columns,
        rows=tuple(line.texts for line in lines),
        numeric=tuple(n >= n_text for n in range(len(columns))),
        notes=(
            f"Row of {trials.reference}: the median of its n trials. Other rows: the median of the ratios "
            f"to {trials.reference} over n pairs of trials (same device and micro-batch) and, in brackets, "
            "the least and the largest. Allocated memory: the most bytes of tensors in a training step. "
            "Parameters are counts; share: scale vectors among all parameters.",
            SHARED_MACHINE,
            *_absent(measures, counts),
            *_left_out(trials),
            *phrases.convention_notes(trials),
        ),
        breaks=phrases.breaks([line.cell.key for line in lines]),
        records=tuple(line.record for line in lines),
    )


@dataclass(frozen=True)
class _Line:
    cell: Cell
    texts: tuple[str, ...]
    record: dict[str, Any]


def _alike(pairs: Pairs) -> pd.DataFrame:
    """Complete pairs whose two trials ran on one kind of device, as many of them, with one micro-batch."""
    other = differs(pairs, "device") | differs(pairs, "micro_batch") | differs(pairs, "world_size", absent=1)
    return pairs.complete[~other]


def _side(pairs: pd.DataFrame, side: str) -> pd.DataFrame:
    """One side of the pairs under the plain names of its columns."""
    return pairs.rename(columns=lambda name: name.removesuffix(f"_{side}"))


def _line(trials: ComparedTrials, cell: Cell, arm: str, measures: list[Measure], counts: bool) -> _Line:
    is_reference = arm == trials.reference
    rows = trials.of_arm(arm, "completed") if is_reference else _alike(trials.pairs(arm))
    of_cell = rows[np.array([key == cell.key for key in trials.keys(rows)], bool)]
    record = {**cell.setting, "rung": cell.rung, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
    record |= {"arm": arm, "pairs": len(of_cell)}
    texts = [*cell.setting.values(), cell.rung, arm, str(len(of_cell))]
    for measure in measures:
        values, base = (
            np.asarray(measure.value(_side(of_cell, side)), np.float64) for side in ("arm", "reference")
        )
        ratios = values / base
        texts.append(_median_text(values, measure) if is_reference else _ratio_text(ratios))
        record |= _figures(measure, values, ratios)
    if counts:
        total, vectors = (_first(_side(of_cell, "arm"), name) for name in COUNTS)
        share = vectors / total if total else None
        texts += [count(total), f"{vectors:,.0f}", _share(share)]
        record |= {"n_params_total": total, "n_params_scale_vectors": vectors, "scale_vector_share": share}
    return _Line(cell, tuple(texts), record)


def _median_text(values: FloatArray, measure: Measure) -> str:
    known = values[np.isfinite(values)]
    return measure.text(float(np.median(known))) if len(known) else ""


def _ratio_text(ratios: FloatArray) -> str:
    known = ratios[np.isfinite(ratios)]
    if not len(known):
        return ""
    return f"{np.median(known):.2f}× [{known.min():.2f}, {known.max():.2f}]"


def _figures(measure: Measure, values: FloatArray, ratios: FloatArray) -> dict[str, float | None]:
    name = measure.name.replace(" ", "_").replace("/", "_per_")
    values, ratios = values[np.isfinite(values)], ratios[np.isfinite(ratios)]
    return {
        f"{name}_median": float(np.median(values)) if len(values) else None,
        f"{name}_ratio": float(np.median(ratios)) if len(ratios) else None,
        f"{name}_ratio_least": float(ratios.min()) if len(ratios) else None,
        f"{name}_ratio_largest": float(ratios.max()) if len(ratios) else None,
    }


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.2e}" if share else "0"


def _first(rows: pd.DataFrame, name: str) -> int:
    values = rows[name].dropna()
    return int(values.iloc[0]) if len(values) else 0


def _absent(measures: list[Measure], counts: bool) -> list[str]:
    absent = [m.name for m in MEASURES if m not in (*measures, RESIDENT)]
    absent += [] if counts else ["parameters"]
    return [f"Not recorded in this source: {', '.join(absent)}."] if absent else []


def _left_out(trials: ComparedTrials) -> list[str]:
    all_pairs = [trials.pairs(arm) for arm in trials.others]
    n_left = sum(len(pairs.complete) - len(_alike(pairs)) for pairs in all_pairs)
    return [f"Left out: {n_left} pairs of trials on different devices or micro-batches."] if n_left else []
