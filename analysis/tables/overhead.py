"""The overhead table: what an arm costs beside the reference in time, memory and parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import Cell, ComparedTrials
from scalevec.analysis.data.pairs import Pairs, differs
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.content import Table

SHARED_MACHINE = (
    "Time on a machine that other work shares is noisy, and trials that ran side by side slow each other "
    "down: read ratios of time as overhead only where their range is narrow and the machine was quiet."
)
COUNTS = ("n_params_total", "n_params_scale_vectors")


@dataclass(frozen=True)
class Measure:
    """A figure of one trial: the ``columns`` it needs, its value, and its text with a unit."""

    name: str
    columns: tuple[str, ...]
    value: Callable[[pd.DataFrame], "pd.Series[float]"]
    text: Callable[[float], str]

    def of(self, pairs: pd.DataFrame, side: str) -> FloatArray:
        """The figure of one side of ``pairs`` [pairs]."""
        rows = pairs.rename(columns=lambda name: name.removesuffix(f"_{side}"))
        return np.asarray(self.value(rows), np.float64)


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:.4g} MiB"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


MEASURES = (
    Measure("step time", ("wall_s", "steps"), lambda t: t["wall_s"] / t["steps"], _milliseconds),
    Measure("tokens/s", ("tokens_per_s",), lambda t: t["tokens_per_s"], count),
    Measure("allocated memory", ("allocated_bytes",), lambda t: t["allocated_bytes"], _mebibytes),
    Measure("peak memory", ("peak_memory_bytes",), lambda t: t["peak_memory_bytes"], _mebibytes),
)
RESIDENT = MEASURES[-1]
"""On the CPU it holds the interpreter and its libraries: for sources that tell nothing better."""


def build(trials: ComparedTrials) -> Table:
    """A row for each cell and arm. Raises :class:`DataError` for a source with neither time nor memory."""
    measures = [m for m in MEASURES if all(map(trials.has, m.columns))]
    if trials.has("allocated_bytes"):
        measures = [m for m in measures if m is not RESIDENT]
    has_counts = all(map(trials.has, COUNTS))
    if not measures:
        wanted = "; or ".join(" and ".join(m.columns) for m in MEASURES)
        raise DataError(f"table 'overhead' needs {wanted}, which this source does not hold")
    alike = {arm: _alike(trials.pairs(arm)) for arm in trials.others}
    alike[trials.reference] = trials.of_arm(trials.reference, "completed")
    lines = [
        _line(trials, cell, arm, alike[arm], measures, has_counts)
        for cell in trials.cells
        for arm in trials.arms
    ]
    lines = [line for line in lines if line[1]["pairs"]]
    if not lines:
        raise DataError("table 'overhead' needs pairs of completed trials on one device; there are none")
    labels = (*trials.varying_settings, "rung", "arm")
    numbers = ("n", *(m.name for m in measures), *["parameters", "scale vectors", "share"] * has_counts)
    n_left = sum(len(trials.pairs(arm).complete) - len(alike[arm]) for arm in trials.others)
    absent = [m.name for m in MEASURES if m not in (*measures, RESIDENT)] + ["parameters"] * (not has_counts)
    return Table(
        title="Overhead",
        columns=(*labels, *numbers),
        rows=tuple(texts for texts, _ in lines),
        numeric=(False,) * len(labels) + (True,) * len(numbers),
        notes=(
            f"Row of {trials.reference}: the median of its n trials. Other rows: the median of the ratios "
            f"to {trials.reference} over n pairs of trials (same device and micro-batch) and, in brackets, "
            "the least and the largest. Allocated memory: the most bytes of tensors in a training step. "
            "Parameters are counts; share: scale vectors among all parameters.",
            SHARED_MACHINE,
            *([f"Not recorded in this source: {', '.join(absent)}."] if absent else []),
            *(
                [f"Left out: {n_left} pairs of trials on different devices or micro-batches."]
                if n_left
                else []
            ),
            *notes.convention_notes(trials),
        ),
        breaks=notes.breaks([(texts[: len(labels) - 1], record["n_tokens"]) for texts, record in lines]),
        records=tuple(record for _, record in lines),
    )


def _alike(pairs: Pairs) -> pd.DataFrame:
    """Complete pairs whose two trials ran on one kind of device, as many of them, with one micro-batch."""
    other = differs(pairs, "device") | differs(pairs, "micro_batch") | differs(pairs, "world_size", absent=1)
    return pairs.complete[~other]


def _line(
    trials: ComparedTrials,
    cell: Cell,
    arm: str,
    rows: pd.DataFrame,
    measures: Sequence[Measure],
    has_counts: bool,
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The cells and the record of one arm; ``rows`` are its pairs, of the reference its trials."""
    rows = rows[np.array([key == cell.key for key in trials.keys(rows)], bool)]
    record = {**cell.setting, "rung": cell.rung, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
    record |= {"arm": arm, "pairs": len(rows)}
    texts = [*cell.setting.values(), cell.rung, arm, str(len(rows))]
    for measure in measures:
        values = measure.of(rows, "arm")
        ratios = values / measure.of(rows, "reference")
        values, ratios = values[np.isfinite(values)], ratios[np.isfinite(ratios)]
        name = measure.name.replace(" ", "_").replace("/", "_per_")
        median, ratio = (float(np.median(known)) if len(known) else None for known in (values, ratios))
        ends = (float(ratios.min()), float(ratios.max())) if len(ratios) else (None, None)
        if arm == trials.reference:
            texts.append("" if median is None else measure.text(median))
        else:
            texts.append("" if ratio is None else f"{ratio:.2f}× [{ends[0]:.2f}, {ends[1]:.2f}]")
        record |= {f"{name}_median": median, f"{name}_ratio": ratio}
        record |= {f"{name}_ratio_least": ends[0], f"{name}_ratio_largest": ends[1]}
    if has_counts:
        total, vectors = (_first(rows, f"{name}_arm" if f"{name}_arm" in rows else name) for name in COUNTS)
        share = vectors / total if total else None
        texts += [count(total), f"{vectors:,.0f}", "" if share is None else f"{share:.2e}" if share else "0"]
        record |= {"n_params_total": total, "n_params_scale_vectors": vectors, "scale_vector_share": share}
    return tuple(texts), record


def _first(rows: pd.DataFrame, name: str) -> int:
    values = rows[name].dropna()
    return int(values.iloc[0]) if len(values) else 0
