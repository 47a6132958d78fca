"""Line 3 of an answer: whether both sides had their learning rates chosen alike, and which are only bounds.

A rate at the edge of its grid (``censored``), and one that was fixed where the other side's was tuned, leave
a loss above what the side can reach: a bound. A cell whose reference is a bound may show that the arm is
worse, never that it is better, and the other way round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.runs import differing
from scalevec.analysis.data.tidy import OWN_FIELD, BoolArray
from scalevec.analysis.formatting import joined, plural

CHOSEN = ("tuned", "carried", "censored")
"""The values of ``lr_status`` of a rate that was chosen for the arm."""
FURTHEST_APART = 2.0
"""Carried rates of two arms that differ by more than this factor ask for a check."""


@dataclass(frozen=True)
class Line:
    """A line of an answer: a ``code`` for programs and the ``text`` for people."""

    code: str
    text: str


@dataclass(frozen=True)
class Bounds:
    """In which complete pairs the loss of a side is only a bound [complete pairs]."""

    reference: BoolArray
    arm: BoolArray

    @property
    def any(self) -> BoolArray:
        """Where either side is a bound."""
        return np.asarray(self.reference | self.arm)


def recorded(pairs: Pairs, column: str, side: str) -> "pd.Series[str]":
    """``column`` of one side of the complete pairs as text; empty where nothing is recorded."""
    complete, name = pairs.complete, f"{column}_{side}"
    if name not in complete:
        return pd.Series("", complete.index, dtype=object)
    return complete[name].astype(object).where(complete[name].notna(), "").map(str).astype(object)


def statuses(pairs: Pairs, side: str) -> "pd.Series[str]":
    """How the rate of each complete pair's ``side`` was found; empty where nothing says it."""
    return recorded(pairs, "lr_status", side)


def bounds_of(pairs: Pairs) -> Bounds:
    """The pairs that are bounds; one of a cell makes its whole cell one."""
    reference, arm = statuses(pairs, "reference"), statuses(pairs, "arm")
    fixed_reference = (reference == "fixed") & arm.isin(CHOSEN)
    fixed_arm = (arm == "fixed") & reference.isin(CHOSEN)
    sides = ((reference == "censored") | fixed_reference, (arm == "censored") | fixed_arm)
    of_cells = [np.isin(pairs.cells, pairs.cells[side.to_numpy(bool)]) for side in sides]
    return Bounds(*of_cells)


def fair(pairs: Pairs, reference: str, arm: str, effort: str = "") -> Line:
    """Whether the comparison is fair, by the rates of the complete ``pairs``.

    ``effort`` says of how many trials and rates the tuning was.
    """
    named = {reference: statuses(pairs, "reference"), arm: statuses(pairs, "arm")}
    seen = {name: set(values) - {""} for name, values in named.items()}
    if not all(seen.values()):
        return Line("unknown", "not known: nothing says how learning rates were chosen")
    told = [*_of_bounds(pairs, named), *_of_carried(pairs, named)]
    if "shared" in seen[arm]:
        told.append(Line("shared", f"both at the rate that was tuned for {reference}"))
    if seen[reference] == seen[arm] == {"fixed"}:
        text = "the same fixed rate for both" if _equal_rates(pairs) else "both at fixed rates, not tuned"
        told.append(Line("fixed", text))
    told = told or [Line("both_tuned", "both tuned at every size")]
    text = "; ".join(line.text for line in told)
    return Line(told[0].code, f"{text} ({effort})" if effort else text)


def _of_bounds(pairs: Pairs, named: "dict[str, pd.Series[str]]") -> Iterator[Line]:
    """Which side is a bound, where and what that leaves."""
    sizes, bounds, (reference, arm) = pairs.complete["rung"].astype(str), bounds_of(pairs), named
    for side, name, other, is_bound, role in (
        ("reference", reference, arm, bounds.reference, "for"),
        ("arm", arm, reference, bounds.arm, "against"),
    ):
        if not is_bound.any():
            continue
        where, n_others = sizes[is_bound].unique().tolist(), sizes.nunique() - sizes[is_bound].nunique()
        is_fixed = set(named[name][is_bound]) == {"fixed"}
        what = f"{name} fixed, {other} tuned" if is_fixed else f"{name} only bounded"
        text = f"{what}: no claim {role} {arm}"
        if n_others:
            judged = f"is judged on the {plural(n_others, 'other size')}"
            text = f"{what} at {joined(where)}: a claim {role} {arm} {judged}"
        yield Line(f"{side}_bounded", text)


def _of_carried(pairs: Pairs, named: "dict[str, pd.Series[str]]") -> Iterator[Line]:
    """Which rates were carried from smaller sizes, and where they are far apart and no side was checked."""
    is_carried = {name: (of_side == "carried").to_numpy(bool) for name, of_side in named.items()}
    names = [name for name, of_side in is_carried.items() if of_side.any()]
    either = np.any(list(is_carried.values()), axis=0)
    if not names:
        return
    complete = pairs.complete
    rungs: pd.Series[str] = complete["rung"].astype(str)
    where = joined(list(dict.fromkeys(rungs[either])))
    yield Line("carried", f"rates of {joined(names)} carried from smaller sizes at {where}")
    checked = [(recorded(pairs, "carried_check", side) == "inside").any() for side in ("reference", "arm")]
    if {"learning_rate_reference", "learning_rate_arm"} <= set(complete) and not all(checked):
        rates = complete["learning_rate_arm"] / complete["learning_rate_reference"]
        apart = (np.abs(np.log(rates.to_numpy(float))) > np.log(FURTHEST_APART)) & either
        if far := list(dict.fromkeys(rungs[apart])):
            yield Line("carried", f"carried rates differ more than twofold at {joined(far)}")


def _equal_rates(pairs: Pairs) -> bool:
    sides = [f"learning_rate_{side}" for side in ("reference", "arm")]
    if not all(name in pairs.complete for name in sides):
        return "learning_rate" in pairs.complete
    reference, arm = (pairs.complete[name].to_numpy(float) for name in sides)
    return bool(np.array_equal(reference, arm))


def effort_of(source: pd.DataFrame, names: tuple[str, str]) -> str:
    """How many tuning trials and rates each arm had."""
    if not {"stage", "learning_rate", "arm"} <= set(source.columns):
        return ""
    told = []
    for name in names:
        rows = source[(source["stage"] == "tuning") & (source["arm"] == name)]
        by = [column for column in ("rung", "n_tokens", "optimizer", "schedule") if column in rows.columns]
        if rows.empty or not by:
            continue
        n_rates = rows.groupby(by, dropna=False)["learning_rate"].nunique()
        low, high = int(n_rates.min()), int(n_rates.max())
        rates = plural(high, "rate") if low == high else f"{low} to {high} rates"
        told.append(f"{name}: {rates} a size, {plural(len(rows), 'trial')}")
    return "; ".join(told)


_NO_FIELDS = (
    *("device", "cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn", "torch_version"),
    *("commit", "local_changes", "arm", "stream", "size", "compute", "lr_status", "carried_check", "sweep"),
)
"""Columns in which arms differ without a script that had to read them."""


def equal_losses(reference: str, arm: str, pairs: Pairs) -> str:
    """What is said where all pairs, several, have equal losses to the last digit; else an empty text."""
    complete = pairs.complete
    if len(complete) < 2 or pairs.same_trials or pairs.differences.any():
        return ""
    sides = [complete.filter(regex=f"_{side}$") for side in ("reference", "arm")]
    plain = [side.set_axis(side.columns.str.replace(r"_[a-z]+$", "", regex=True), axis=1) for side in sides]
    names = differing(pd.concat(plain), np.tile(np.arange(float(len(complete))), 2))
    fields = [name.removeprefix(OWN_FIELD) for name in names if name not in _NO_FIELDS]
    ignored = f"the script seems to ignore {joined(fields)}" if fields else "they differ in no recorded field"
    return f"arms {reference} and {arm} have equal losses in all {len(complete)} pairs: {ignored}"
