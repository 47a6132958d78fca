"""The differences of one arm's pairs: overall, cell by cell, along compute, and against a margin."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis import inference
from analysis.inference import Estimate
from analysis.multipliers import pair_noise
from analysis.pairs import Pairs, varying

EQUIVALENCE_LEVEL = 0.90
"""Two one-sided tests at 5 % are a 90 % interval inside the margin."""


@dataclass(frozen=True)
class LossDifference:
    """Arm minus reference over all complete pairs, nats a token (or y's unit), equal weight for each cell."""

    mean: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    p_holm: float | None
    df: int
    pair_sd: float | None
    """Noise of one pair's difference, pooled within cells; None where no seed repeats."""


@dataclass(frozen=True)
class RungDifference:
    """One cell, descriptive: ``sd`` of its own pairs, ``interval`` from the pooled noise."""

    rung: str
    n_params: int
    n_tokens: int
    setting: dict[str, Any]
    differences: tuple[float, ...]
    """One for each complete pair; their number is ``n``."""
    n: int
    loss_reference: float
    loss_arm: float
    mean: float
    sd: float | None
    interval: tuple[float, float] | None


def overall_difference(
    pairs: Pairs, estimate: Estimate | None, p_holm: float | None, level: float
) -> LossDifference:
    """The mean difference over all complete pairs as it is shown."""
    if estimate is None:
        return LossDifference(None, None, None, None, 0, None)
    sd = pair_noise(pairs) if len(pairs.complete) > len(np.unique(pairs.cells)) else None
    return LossDifference(
        estimate.value, estimate.interval(level), estimate.p_value(), p_holm, estimate.df, sd
    )


def rung_differences(pairs: Pairs, level: float) -> list[RungDifference]:
    """The difference in each cell, descriptive; without an interval where pairs are not independent."""
    complete, differences, cells = pairs.complete, pairs.differences, pairs.cells
    labels = np.unique(cells)
    settings = varying(complete, [c for c in pairs.cell_columns if c not in ("rung", "n_tokens")])
    rows = []
    for position, label in enumerate(labels):
        own = complete[cells == label]
        values = differences[cells == label]
        estimate = inference.contrast(differences, cells, np.eye(len(labels))[position])
        rows.append(
            RungDifference(
                rung=str(own["rung"].iloc[0]),
                n_params=int(own["n_params_reference"].iloc[0]),
                n_tokens=int(own["n_tokens"].iloc[0]),
                setting={name: str(own[name].iloc[0]) for name in settings},
                differences=tuple(values.tolist()),
                n=len(own),
                loss_reference=float(own["loss_reference"].mean()),
                loss_arm=float(own["loss_arm"].mean()),
                mean=float(values.mean()),
                sd=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                interval=None if pairs.dependent else estimate.interval(level),
            )
        )
    return rows


def trend_per_decade(pairs: Pairs, level: float) -> dict[str, Any]:
    """How the difference changes with each decade of the reference's compute, nats a token a decade."""
    decades = np.log10(pairs.complete["compute_reference"].to_numpy(float))
    found = inference.slope(pairs.differences, pairs.cells, decades, pairs.clusters) if len(decades) else None
    if found is None:
        return {"per_decade": None, "interval": None, "p_value": None, "df": 0, "note": "one value of C"}
    note = "noise from the spread between rungs: one seed each" if found.between == "rungs" else ""
    return {
        "per_decade": found.value,
        "interval": found.interval(level),
        "p_value": found.p_value(),
        "df": found.df,
        "note": note,
    }


def equivalence_test(estimate: Estimate | None, margin: float | None, note: str) -> dict[str, Any]:
    """Two one-sided tests against ``margin``; ``note`` says why there is none."""
    if margin is None:
        return {"margin": None, "note": note}
    if estimate is None or estimate.df == 0:
        return {"margin": margin, "p_value": None, "interval": None, "note": "no degree of freedom"}
    return {
        "margin": margin,
        "p_value": inference.equivalence_p(estimate, margin),
        "interval": estimate.interval(EQUIVALENCE_LEVEL),
        "level": EQUIVALENCE_LEVEL,
    }
