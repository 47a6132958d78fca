"""Multipliers: how many times the compute (tokens) the reference needs for the arm's loss.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds; ``analysis.comparison.line_laws`` has the laws and the intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.line_laws import ArmLaws, Multiplier
from scalevec.analysis.data.pairs import Pairs, varying
from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions

ONE_LINE = 1.1
"""Tokens per parameter may vary by this factor (whole batches) and still be one line."""


def line_problem(pairs: Pairs, law: str) -> str:
    """Why these pairs lie on no single line in compute, as one sentence; empty where they do."""
    complete = pairs.complete
    several = varying(complete, pairs.settings)
    if law_named(law).variables != ("x",):
        return f"no multiplier: multipliers need a law in one variable, not {law_named(law).name}"
    if several:
        return f"no multiplier across several values of {', '.join(several)}: choose one with where"
    if complete["compute_reference"].nunique() < 2:
        return "no multiplier from one rung"
    ratio = complete["n_tokens"] / complete["n_params_reference"]
    if len(ratio) and ratio.max() > ONE_LINE * ratio.min():
        return "no multiplier across several numbers of tokens per parameter: choose one with where"
    return ""


@dataclass(frozen=True)
class Multipliers:
    """The multipliers of one arm, and how the compute multiplier changes per decade; ``reason`` if none."""

    compute: Sequence[Multiplier] = ()
    token: Sequence[Multiplier] = ()
    per_decade: dict[str, Any] | None = None
    laws: Sequence[dict[str, Any]] = ()
    reason: str = ""


def multipliers(pairs: Pairs, options: AnalysisOptions) -> Multipliers:
    """Compute and token multipliers at the geometric middle and the largest shared compute."""
    if problem := line_problem(pairs, options.law):
        return Multipliers(reason=problem)
    try:
        compute, tokens = (ArmLaws(pairs, options, x) for x in ("C", "D"))
    except DataError as error:
        return Multipliers(reason=f"no multiplier: {error}")
    points = points_along(pairs.complete)
    return Multipliers(
        [compute.multiplier(name, c, c) for name, c, _ in points],
        [tokens.multiplier(name, d, c) for name, c, d in points],
        compute.change(*_shared(pairs.complete)),
        [*compute.described(), *tokens.described()],
    )


def _shared(complete: pd.DataFrame) -> tuple[float, float]:
    """The range of compute that both arms were run at."""
    return (
        float(max(complete["compute_reference"].min(), complete["compute_arm"].min())),
        float(min(complete["compute_reference"].max(), complete["compute_arm"].max())),
    )


def points_along(complete: pd.DataFrame) -> list[tuple[str, float, float]]:
    """(name, C, D) of the geometric middle and the largest of the compute that both arms were run at."""
    low, high = _shared(complete)
    tokens = np.log([complete["n_tokens"].min(), complete["n_tokens"].max()])
    return [
        ("geometric middle", float(np.sqrt(low * high)), float(np.exp(tokens.mean()))),
        ("largest", high, float(np.exp(tokens[1]))),
    ]
