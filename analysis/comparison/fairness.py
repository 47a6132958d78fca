"""Line 3 of an answer: whether both sides had their learning rates chosen alike, and which are only bounds.

A rate at the edge of its grid (``censored``), and one that was fixed where the other side's was tuned, leave
a loss above what the side can reach: a bound. A cell whose reference is a bound may show that the arm is
worse, never that it is better, and the other way round.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.runs import differing
from scalevec.analysis.data.tidy import OWN_FIELD, BoolArray
from scalevec.analysis.formatting import few, joined, plural

SCHEMA_VERSION = 2
"""Of ``scalevec compare --json``; 1 had one word for all that is now in four lines."""
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
    after = f" ({effort})" if effort else ""
    if not all(seen.values()):
        return Line("unknown", "not known: nothing says how learning rates were chosen")
    parts = [_of_bounds(pairs, reference, arm)]
    carried = [name for name in named if "carried" in seen[name]]
    if carried:
        rungs = dict.fromkeys(pairs.complete.loc[_either(named, "carried"), "rung"].astype(str))
        parts.append(f"rates of {joined(carried)} carried from smaller sizes at {joined(list(rungs))}")
        if far := far_apart(pairs):
            parts.append(f"carried rates differ more than twofold at {joined(far)}")
    if "shared" in seen[arm]:
        parts.append(f"both at the rate that was tuned for {reference}")
    if seen[reference] == seen[arm] == {"fixed"}:
        parts.append(
            "the same fixed rate for both" if _equal_rates(pairs) else "both at fixed rates, not tuned"
        )
    told = "; ".join(filter(None, parts))
    if not told:
        return Line("both_tuned", f"both tuned at every size{after}")
    codes = (
        (bounds_of(pairs).reference.any(), "reference_bounded"),
        (bounds_of(pairs).arm.any(), "arm_bounded"),
        (bool(carried), "carried"),
        ("shared" in seen[arm], "shared"),
    )
    return Line(next((code for holds, code in codes if holds), "fixed"), f"{told}{after}")


def _either(named: "dict[str, pd.Series[str]]", status: str) -> BoolArray:
    sides = list(named.values())
    return np.asarray((sides[0] == status) | (sides[1] == status), bool)


def _of_bounds(pairs: Pairs, reference: str, arm: str) -> str:
    """Which side is a bound, where and what that leaves."""
    bounds, sizes = bounds_of(pairs), pairs.complete["rung"].astype(str)
    all_sizes, told = list(dict.fromkeys(sizes)), []
    for name, other, is_bound, role in (
        (reference, arm, bounds.reference, "for"),
        (arm, reference, bounds.arm, "against"),
    ):
        if not is_bound.any():
            continue
        where = list(dict.fromkeys(sizes[is_bound]))
        fixed = set(statuses(pairs, "reference" if name == reference else "arm")[is_bound]) == {"fixed"}
        what = f"{name} fixed, {other} tuned" if fixed else f"{name} only bounded"
        if len(where) == len(all_sizes):
            told.append(f"{what}: no claim {role} {arm}")
        else:
            others = plural(len(all_sizes) - len(where), "other size")
            told.append(f"{what} at {joined(where)}: a claim {role} {arm} is judged on the {others}")
    return "; ".join(told)


def _equal_rates(pairs: Pairs) -> bool:
    sides = [f"learning_rate_{side}" for side in ("reference", "arm")]
    if not all(name in pairs.complete for name in sides):
        return "learning_rate" in pairs.complete
    reference, arm = (pairs.complete[name].to_numpy(float) for name in sides)
    return bool(np.array_equal(reference, arm))


def far_apart(pairs: Pairs) -> list[str]:
    """The rungs where a carried rate is more than twice the other side's, and neither was checked there."""
    complete, sides = pairs.complete, ("reference", "arm")
    if not all(f"learning_rate_{side}" in complete for side in sides):
        return []
    rates = np.log(complete[[f"learning_rate_{side}" for side in sides]].to_numpy(float))
    apart = np.abs(rates[:, 0] - rates[:, 1]) > np.log(FURTHEST_APART)
    carried = np.logical_or(*(statuses(pairs, side).to_numpy() == "carried" for side in sides))
    checked = [(recorded(pairs, "carried_check", side) == "inside").any() for side in sides]
    rungs = complete.loc[apart & carried, "rung"].astype(str) if not all(checked) else ()
    return list(dict.fromkeys(rungs))


def effort_of(source: pd.DataFrame, names: tuple[str, str]) -> str:
    """How many tuning trials and rates each arm had, and how far the chosen rate is ahead of the next."""
    if not {"stage", "learning_rate", "arm"} <= set(source.columns):
        return ""
    told = []
    for name in names:
        rows = source[(source["stage"] == "tuning") & (source["arm"] == name)]
        if rows.empty:
            continue
        by = [column for column in ("rung", "n_tokens", "optimizer", "schedule") if column in rows.columns]
        n_rates = rows.groupby(by, dropna=False)["learning_rate"].nunique()
        loss = next((column for column in ("loss_validation", "loss") if column in rows.columns), None)
        ahead = _ahead(rows, by, loss) if loss else None
        margin = "" if ahead is None else f", the next rate {ahead:.4f} behind at the closest"
        low, high = int(n_rates.min()), int(n_rates.max())
        rates = plural(high, "rate") if low == high else f"{low} to {high} rates"
        told.append(f"{name}: {rates} a size, {plural(len(rows), 'trial')}{margin}")
    return "; ".join(told)


def _ahead(rows: pd.DataFrame, by: list[str], loss: str) -> float | None:
    """The smallest distance, over the tuned cells, of the best rate's mean loss from the next one's."""
    means = pd.to_numeric(rows[loss], errors="coerce").groupby(
        [*(rows[name] for name in by), rows["learning_rate"]]
    )
    by_cell = means.mean().dropna().groupby(level=list(range(len(by)))) if by else None
    if by_cell is None:
        return None
    gaps = [np.diff(np.sort(values.to_numpy(float)))[0] for _, values in by_cell if len(values) > 1]
    return float(min(gaps)) if gaps else None


COLUMNS = (
    *("device", "cpu_model", "cpu_capability", "threads", "gpu", "cuda", "cudnn", "torch_version"),
    *("commit", "local_changes"),
)


_NO_FIELDS = ("arm", "stream", "size", "compute", "lr_status", "carried_check", "sweep")


def unlike_environments(pairs: Pairs) -> dict[str, list[str]]:
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
    names = differing(pd.concat(plain), np.tile(np.arange(float(len(complete))), 2))
    fields = [name.removeprefix(OWN_FIELD) for name in names if name not in (*COLUMNS, *_NO_FIELDS)]
    ignored = f"the script seems to ignore {joined(fields)}" if fields else "they differ in no recorded field"
    return f"arms {reference} and {arm} have equal losses in all {len(complete)} pairs: {ignored}"


def machine_cautions(pairs: Pairs) -> list[str]:
    """The differences within pairs that can move a loss, one sentence each."""
    on_gpu = [
        np.array([device not in ("", "cpu") for device in recorded(pairs, "device", side)], bool)
        for side in ("reference", "arm")
    ]
    mixed = _differs(pairs, "device") & (on_gpu[0] != on_gpu[1])
    capability = _differs(pairs, "cpu_capability") & ~(on_gpu[0] & on_gpu[1])
    minors = [
        np.array([_minors(text) for text in recorded(pairs, "torch_version", side)], object)
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


def _differs(pairs: Pairs, column: str) -> BoolArray:
    """In which complete pairs both sides are recorded and differ."""
    reference, arm = (recorded(pairs, column, side).to_numpy() for side in ("reference", "arm"))
    return np.asarray((reference != arm) & (reference != "") & (arm != ""), bool)


def _minors(versions: str) -> frozenset[str]:
    """``2.9`` of ``2.9.1+cpu``; of a trial whose attempts ran on several versions, each."""
    return frozenset(".".join(version.split(".")[:2]) for version in versions.split("; "))
