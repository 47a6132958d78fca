"""Pairs whose learning rates were extrapolated from smaller rungs: how much of a claim rests on them."""

import numpy as np

from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray
from scalevec.analysis.formatting import few

FURTHEST_APART = 2.0
"""Carried rates of two arms that differ by more than this factor ask for a check."""


def is_carried(pairs: Pairs) -> BoolArray:
    """Which complete pairs have a side whose learning rate was carried [complete pairs]."""
    complete = pairs.complete
    columns = [name for name in ("lr_status_reference", "lr_status_arm") if name in complete]
    return np.asarray((complete[columns] == "carried").any(axis=1), bool)


def cells_with_carried(pairs: Pairs) -> BoolArray:
    """Which complete pairs lie in a cell with a carried learning rate [complete pairs]."""
    return np.asarray(np.isin(pairs.cells, pairs.cells[is_carried(pairs)]), bool)


def far_apart(pairs: Pairs) -> list[str]:
    """The cells where carried rates of the two arms differ more than twofold and were not both checked."""
    complete = pairs.complete
    sides = ("reference", "arm")
    if not all(f"learning_rate_{side}" in complete for side in sides):
        return []
    rates = np.log(complete[[f"learning_rate_{side}" for side in sides]].to_numpy(float))
    apart = np.abs(rates[:, 0] - rates[:, 1]) > np.log(FURTHEST_APART)
    rows = complete[is_carried(pairs) & apart & ~_are_checked(pairs)]
    return list(
        dict.fromkeys(
            f"{row['rung']} ({row['learning_rate_reference']:.3g} against {row['learning_rate_arm']:.3g})"
            for row in rows.to_dict("records")
        )
    )


def _are_checked(pairs: Pairs) -> BoolArray:
    """Whether both sides' carried rates were checked and kept, at some (the largest) rung of the setting."""
    complete, settings = pairs.complete, pairs.settings
    checked = np.ones(len(complete), bool)
    for side in ("reference", "arm"):
        column = f"carried_check_{side}"
        if column not in complete:
            return np.zeros(len(complete), bool)
        inside = complete[column] == "inside"
        by_setting = inside.groupby([complete[name] for name in settings], dropna=False) if settings else None
        kept = by_setting.transform("any") if by_setting is not None else np.full(len(inside), inside.any())
        checked &= np.asarray(kept, bool)
    return checked


def caution(pairs: Pairs) -> list[str]:
    """A warning where carried rates of the two arms are far apart."""
    cells = far_apart(pairs)
    if not cells:
        return []
    return [
        f"carried learning rates of the two arms differ more than twofold without a check at {few(cells)}: "
        "tune there, or set tune: check_carried: all"
    ]


def sentence(pairs: Pairs) -> list[str]:
    """What the sentence of a claim says of rates that are far apart."""
    cells = far_apart(pairs)
    return (
        [f"The claim rests on carried learning rates that were not checked: {few(cells)}."] if cells else []
    )
