"""Where the two trials of a pair ran, and on what code.

What differs is listed; what moves a loss is a caution. Three CPU capabilities (default, AVX2, AVX-512) give
losses that differ from the last digits on; so do a CPU and a GPU, and two minor versions of torch. No such
difference is in any noise figure, because it is the same for every seed.
"""

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.runs import differing as differing_columns
from scalevec.analysis.data.tidy import OWN_FIELD, BoolArray
from scalevec.analysis.formatting import few, joined, plural

COLUMNS = (
    *("device", "cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn", "torch_version"),
    *("commit", "local_changes"),
)


_NO_FIELDS = ("arm", "stream", "size", "compute", "lr_status", "carried_check", "sweep")


def differing(pairs: Pairs) -> dict[str, list[str]]:
    """The names of the complete pairs whose sides differ in a recorded column, by column."""
    names = np.array(pairs.names_of(pairs.complete), object)
    by_column = {column: names[_differs(pairs, column)].tolist() for column in COLUMNS}
    return {column: of_column for column, of_column in by_column.items() if of_column}


def equal_losses(reference: str, arm: str, pairs: Pairs) -> str:
    """What is said where all pairs, several, have equal losses to the last digit; else an empty text."""
    complete = pairs.complete
    if len(complete) < 2 or pairs.same_trials or pairs.differences.any():
        return ""
    sides = [complete.filter(regex=f"_{side}$") for side in ("reference", "arm")]
    plain = [side.set_axis(side.columns.str.replace(r"_[a-z]+$", "", regex=True), axis=1) for side in sides]
    names = differing_columns(pd.concat(plain), np.tile(np.arange(float(len(complete))), 2))
    fields = [name.removeprefix(OWN_FIELD) for name in names if name not in (*COLUMNS, *_NO_FIELDS)]
    ignored = f"the script seems to ignore {joined(fields)}" if fields else "they differ in no recorded field"
    return f"arms {reference} and {arm} have equal losses in all {len(complete)} pairs: {ignored}"


def cautions(pairs: Pairs) -> list[str]:
    """The differences within pairs that can move a loss, one sentence each."""
    on_gpu = [
        np.array([device not in ("", "cpu") for device in _values(pairs, "device", side)], bool)
        for side in ("reference", "arm")
    ]
    mixed = _differs(pairs, "device") & (on_gpu[0] != on_gpu[1])
    capability = _differs(pairs, "cpu_capability") & ~(on_gpu[0] & on_gpu[1])
    minors = [
        np.array([_minors(text) for text in _values(pairs, "torch_version", side)], object)
        for side in ("reference", "arm")
    ]
    torch = _differs(pairs, "torch_version") & np.array([a != b for a, b in zip(*minors, strict=True)], bool)
    kinds = (
        (mixed, "a CPU trial against a GPU trial"),
        (capability, "trials of processors with different capabilities (cpu_capability)"),
        (torch, "trials of two minor versions of torch"),
    )
    names = np.array(pairs.names_of(pairs.complete), object)
    return [
        f"{plural(int(where.sum()), 'pair')} of {what}: {few(names[where].tolist())}; the difference holds "
        "that of the machines too"
        for where, what in kinds
        if where.any()
    ]


def _values(pairs: Pairs, column: str, side: str) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
    """``column`` of one side of the complete pairs as text; empty where nothing is recorded."""
    complete = pairs.complete
    if f"{column}_{side}" not in complete:
        return np.full(len(complete), "", object)
    values = complete[f"{column}_{side}"]
    return np.asarray(values.astype(object).where(values.notna(), "").map(str), object)


def _differs(pairs: Pairs, column: str) -> BoolArray:
    """In which complete pairs both sides are recorded and differ."""
    reference, arm = (_values(pairs, column, side) for side in ("reference", "arm"))
    return np.asarray((reference != arm) & (reference != "") & (arm != ""), bool)


def _minors(versions: str) -> frozenset[str]:
    """``2.9`` of ``2.9.1+cpu``; of a trial whose attempts ran on several versions, each."""
    return frozenset(".".join(version.split(".")[:2]) for version in versions.split("; "))
