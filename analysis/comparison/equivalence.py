"""Equivalence: two one-sided tests against the margin, at every size and in every setting."""

from collections.abc import Sequence
from typing import Any

from scalevec.analysis.comparison.differences import EQUIVALENCE_LEVEL, INTERIM, PairedArm, Part, inside_all
from scalevec.analysis.formatting import is_loss
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.looks import nominal


def equivalence_test(
    paired: PairedArm, options: AnalysisOptions, p: float | None, p_holm: float | None
) -> dict[str, Any]:
    """Two one-sided tests against the margin at every size, or a ``note`` that says why there is none.

    ``p`` is the largest over the sizes and settings, ``p_holm`` is corrected over the arms; ``mean_p``
    is of the mean alone, whose ``interval`` is shown.
    """
    margin, estimate = options.margin, paired.estimate
    if margin is None:
        return {"margin": None, "note": "no margin was given"}
    if not is_loss(options.y):
        return {"margin": None, "note": f"the margin is in nats/token, {options.y} is not"}
    none = {"margin": margin, "p_value": None, "p_holm": None, "interval": None}
    if paired.pairs.is_interim:
        return {**none, "note": INTERIM}
    if estimate is None or estimate.df == 0:
        return {**none, "note": "no degree of freedom"}
    look = paired.look
    if look is not None and look.until == "last" and not look.is_last:
        return {**none, "note": "tested at the last of the declared looks only"}
    level = EQUIVALENCE_LEVEL
    if look is not None and look.until == "decided":
        level = 1 - nominal(look.looks, 1 - EQUIVALENCE_LEVEL)[look.number]
    return {
        "margin": margin,
        "p_value": p,
        "p_holm": p_holm,
        "mean_p": inference.equivalence_p(estimate, margin),
        "interval": estimate.interval(level),
        "level": EQUIVALENCE_LEVEL,
    }


def equivalence_p_of(paired: PairedArm, options: AnalysisOptions, parts: Sequence[Part]) -> float | None:
    """The p-value of equivalence that counts in the family of arms; None where none is due.

    ``parts`` are the arm's sizes and settings.
    """
    if options.margin is None or not is_loss(options.y) or paired.pairs.is_interim:
        return None
    if paired.look is None or (paired.look.until == "last" and paired.look.is_last):
        return inside_all(parts)
    return paired.look.equivalence_p if paired.look.until == "decided" else None
