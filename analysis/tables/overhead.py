"""The overhead table: what an arm costs beside the reference in time, memory and parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.data import DataError, FloatArray
from analysis.pairs import Pairs
from analysis.tables import phrases
from analysis.tables.content import Table
from analysis.tables.question import Cell, Question
from analysis.words import count

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


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _mebibytes(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:.4g} MiB"


MEASURES = (
    Measure(
        "step time", ("wall_s", "steps"), lambda t: t["wall_s"] / t["steps"], lambda s: f"{s * 1e3:.3g} ms"
    ),
    Measure("tokens/s", ("tokens_per_s",), lambda t: t["tokens_per_s"], count),
    Measure(
        "peak memory",
        ("peak_memory_bytes",),
        lambda t: t["peak_memory_bytes"],
        lambda b: f"{b / 2**20:.4g} MiB",
    ),
)
COUNTS = ("n_params_total", "n_params_scale_vectors")


def build(question: Question) -> Table:
    """A row for each cell and arm. Raises :class:`DataError` for a source with neither time nor memory."""
    measures = [m for m in MEASURES if all(question.has(name) for name in m.columns)]
    counts = all(question.has(name) for name in COUNTS)
    if not measures:
        wanted = "; or ".join(" and ".join(m.columns) for m in MEASURES)
        raise DataError(f"table 'overhead' needs {wanted}, which this source does not hold")
    cells = question.cells()
    lines = [_line(question, cell, arm, measures, counts) for cell in cells for arm in question.arms]
    lines = [line for line in lines if line.record["pairs"]]
    if not lines:
        raise DataError("table 'overhead' needs pairs of completed trials on one device; there are none")
    columns = (*question.varying_settings, "rung", "arm", "n", *(m.name for m in measures))
    columns += ("parameters", "scale vectors", "share") if counts else ()
    n_text = len(question.varying_settings) + 2
    return Table(
        title="Overhead",
        columns=columns,
        rows=tuple(line.texts for line in lines),
        numeric=tuple(n >= n_text for n in range(len(columns))),
        notes=(
            f"Row of {question.reference}: the median of its n trials. Other rows: the median of the ratios "
            f"to {question.reference} over n pairs of trials (same device and micro-batch) and, in brackets, "
            "the least and the largest. Parameters are counts; share: scale vectors among all parameters.",
            SHARED_MACHINE,
            *_absent(measures, counts),
            *_left_out(question),
            *phrases.convention_notes(question),
        ),
        breaks=phrases.breaks([{"cell": str(line.cell.key)} for line in lines]),
        records=tuple(line.record for line in lines),
    )


@dataclass(frozen=True)
class _Line:
    cell: Cell
    texts: tuple[str, ...]
    record: dict[str, Any]


def _alike(pairs: Pairs) -> pd.DataFrame:
    """Complete pairs whose two trials ran on one kind of device with one micro-batch."""
    complete = pairs.complete
    same = np.ones(len(complete), bool)
    for name in ("device", "micro_batch"):
        if f"{name}_arm" in complete:
            same &= (
                complete[f"{name}_arm"].astype(str) == complete[f"{name}_reference"].astype(str)
            ).to_numpy()
    return complete[same]


def _side(pairs: pd.DataFrame, side: str) -> pd.DataFrame:
    """One side of the pairs under the plain names of its columns."""
    return pairs.rename(
        columns=lambda name: name.removesuffix(f"_{side}") if name.endswith(f"_{side}") else name
    )


def _line(question: Question, cell: Cell, arm: str, measures: list[Measure], counts: bool) -> _Line:
    is_reference = arm == question.reference
    if is_reference:
        own = base = _of_cell(question, question.of_arm(arm), cell)
    else:
        pairs = _alike(question.pairs(arm))
        pairs = _of_cell(question, pairs, cell)
        own, base = _side(pairs, "arm"), _side(pairs, "reference")
    record = {**cell.setting, "rung": cell.rung, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
    record |= {"arm": arm, "pairs": len(own)}
    texts = [*cell.setting.values(), cell.rung, arm, str(len(own))]
    for measure in measures:
        values = np.asarray(measure.value(own), np.float64)
        ratios = values / np.asarray(measure.value(base), np.float64)
        texts.append(_own_text(values, measure) if is_reference else _ratio_text(ratios))
        record |= _figures(measure, values, ratios)
    if counts:
        total, vectors = (_first(own, name) for name in COUNTS)
        share = vectors / total if total else None
        texts += [count(total), f"{vectors:,.0f}", _share(share)]
        record |= {"n_params_total": total, "n_params_scale_vectors": vectors, "scale_vector_share": share}
    return _Line(cell, tuple(texts), record)


def _of_cell(question: Question, rows: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    return rows[[key == cell.key for key in question.keys(rows)]]


def _own_text(values: FloatArray, measure: Measure) -> str:
    known = values[np.isfinite(values)]
    return measure.text(float(np.median(known))) if len(known) else ""


def _ratio_text(ratios: FloatArray) -> str:
    known = ratios[np.isfinite(ratios)]
    if not len(known):
        return ""
    return f"{np.median(known):.2f}× [{known.min():.2f}, {known.max():.2f}]"


def _figures(measure: Measure, values: FloatArray, ratios: FloatArray) -> dict[str, float | None]:
    name = measure.name.replace(" ", "_").replace("/", "_per_")
    own, known = values[np.isfinite(values)], ratios[np.isfinite(ratios)]
    return {
        f"{name}_median": float(np.median(own)) if len(own) else None,
        f"{name}_ratio": float(np.median(known)) if len(known) else None,
        f"{name}_ratio_least": float(known.min()) if len(known) else None,
        f"{name}_ratio_largest": float(known.max()) if len(known) else None,
    }


def _share(share: float | None) -> str:
    return "" if share is None else f"{share:.2e}" if share else "0"


def _first(rows: pd.DataFrame, name: str) -> int:
    values = rows[name].dropna()
    return int(values.iloc[0]) if len(values) else 0


def _absent(measures: list[Measure], counts: bool) -> list[str]:
    absent = [m.name for m in MEASURES if m not in measures] + ([] if counts else ["parameters"])
    return [f"Not recorded in this source: {', '.join(absent)}."] if absent else []


def _left_out(question: Question) -> list[str]:
    n_left = sum(
        len(question.pairs(arm).complete) - len(_alike(question.pairs(arm))) for arm in question.others
    )
    return [f"Left out: {n_left} pairs of trials on different devices or micro-batches."] if n_left else []
