"""The overhead table: what an arm costs beside the reference in time, memory and parameters."""

from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import Cell, ComparedTrials
from scalevec.analysis.data.pairs import differs
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.render import Table

COUNTS = ("n_params_total", "n_params_scale_vectors")
MEASURES: dict[str, tuple[tuple[str, ...], float, str]] = {
    "step time": (("wall_s", "steps"), 1e-3, "{:.3g} ms"),
    "allocated memory": (("allocated_bytes",), 2**20, "{:.4g} MiB"),
    "peak memory": (("peak_memory_bytes",), 2**20, "{:.4g} MiB"),
}
"""The columns of a figure of one trial, the second of which divides the first, its unit and its text."""


def build(trials: ComparedTrials) -> Table:
    """A row for each cell and arm. Raises :class:`DataError` for a source with neither time nor memory."""
    measures = [name for name, (columns, *_) in MEASURES.items() if all(map(trials.has, columns))]
    if "allocated memory" in measures and "peak memory" in measures:
        measures.remove("peak memory")  # on the CPU it holds the interpreter and its libraries
    if not measures:
        wanted = "; or ".join(" and ".join(columns) for columns, *_ in MEASURES.values())
        raise DataError(f"table 'overhead' needs {wanted}, which this source does not hold")
    counts = COUNTS if all(map(trials.has, COUNTS)) else ()
    alike = {arm: _alike(trials, arm) for arm in trials.others}
    alike[trials.reference] = trials.of_arm(trials.reference, "completed")
    lines = []
    for cell in trials.cells:
        for arm in trials.arms:
            rows = alike[arm][[key == cell.key for key in trials.keys(alike[arm])]]
            if len(rows):
                lines.append(_line(trials.reference, cell, arm, rows, measures, counts))
    if not lines:
        raise DataError("table 'overhead' needs pairs of completed trials on one device; there are none")
    labels = (*trials.varying_settings, "rung", "arm")
    numbers = ("n", *measures, *(("parameters", "scale vectors", "share") if counts else ()))
    n_left = sum(len(trials.pairs(arm).complete) - len(alike[arm]) for arm in trials.others)
    return Table(
        title="Overhead",
        columns=(*labels, *numbers),
        rows=tuple(texts for texts, _ in lines),
        numeric=(False,) * len(labels) + (True,) * len(numbers),
        notes=(
            f"Row of {trials.reference}: medians of its n trials. Other rows: the median of the ratios to "
            f"{trials.reference} over n pairs of trials (same device and micro-batch), the least and the "
            "largest in brackets; time on a machine that other work shares is noisy. Share: scale vectors "
            "among all parameters.",
            *([f"Left out: {n_left} pairs on different devices or micro-batches."] if n_left else []),
            *notes.convention_notes(trials),
        ),
        breaks=notes.breaks([(texts[: len(labels) - 1], record["n_tokens"]) for texts, record in lines]),
        records=tuple(record for _, record in lines),
    )


def _alike(trials: ComparedTrials, arm: str) -> pd.DataFrame:
    """Complete pairs whose two trials ran on one kind of device, as many of them, with one micro-batch."""
    pairs = trials.pairs(arm)
    other = differs(pairs, "device") | differs(pairs, "micro_batch") | differs(pairs, "world_size", absent=1)
    return pairs.complete[~other]


def _line(
    reference: str, cell: Cell, arm: str, rows: pd.DataFrame, measures: list[str], counts: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The cells and the record of one arm; ``rows`` are its pairs, of the reference its trials."""
    is_reference = arm == reference
    record = {**cell.setting, "rung": cell.rung, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
    record |= {"arm": arm, "pairs": len(rows)}
    texts = [*cell.setting.values(), cell.rung, arm, str(len(rows))]
    suffix = "" if is_reference else "_arm"
    for name in measures:
        values = _values(rows, name, suffix)
        median = float(values.median())
        ratios = values / values if is_reference else values / _values(rows, name, "_reference")
        ratio, low, high = (float(value) for value in ratios.quantile([0.5, 0.0, 1.0]))
        _, unit, form = MEASURES[name]
        shown = form.format(median / unit) if is_reference else f"{ratio:.2f}× [{low:.2f}, {high:.2f}]"
        texts.append("" if np.isnan(ratio) else shown)
        key = name.replace(" ", "_")
        record |= {f"{key}_median": median, f"{key}_ratio": ratio}
        record |= {f"{key}_ratio_least": low, f"{key}_ratio_largest": high}
    if counts:
        total, vectors = (int(rows[name + suffix].fillna(0).max()) for name in counts)
        share = vectors / total if total else 0.0
        texts += [count(total), f"{vectors:,}", f"{share:.3g}"]
        record |= {**dict(zip(counts, (total, vectors), strict=True)), "scale_vector_share": share}
    return tuple(texts), record


def _values(rows: pd.DataFrame, name: str, suffix: str) -> "pd.Series[float]":
    """The figure of one side of pairs, or of trials; missing where it is no number."""
    first, *second = (rows[column + suffix].astype(float) for column in MEASURES[name][0])
    values = first / second[0] if second else first
    return values.where(np.isfinite(values))
