"""Multipliers: how many times the compute (tokens, time) the reference needs for the arm's loss.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds; ``analysis.comparison.line_laws`` has the laws and the intervals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.line_laws import (
    FEWEST_RUNGS,
    LARGEST_FACTOR,
    ArmLaws,
    Multiplier,
    Parameters,
    needed_of,
)
from scalevec.analysis.data.pairs import Pairs, varying
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.noise import within_cells

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


def compute_laws_to_show(pairs: Pairs, options: AnalysisOptions) -> tuple[ArmLaws | None, str]:
    """The laws in C for a table or a figure, or None and why: a number stands alone there, on a line."""
    n_rungs = pairs.complete["compute_reference"].nunique()
    if 1 < n_rungs < FEWEST_RUNGS:
        return None, f"no multiplier from {n_rungs} rungs, which cannot check the law"
    if problem := line_problem(pairs, options.law):
        return None, problem
    try:
        return ArmLaws(pairs, options, "C"), ""
    except DataError as error:
        return None, f"no multiplier: {error}"


@dataclass(frozen=True)
class Multipliers:
    """The multipliers of one arm, and how the compute multiplier changes per decade; ``reason`` if none."""

    compute: Sequence[Multiplier] = ()
    token: Sequence[Multiplier] = ()
    time: Sequence[Multiplier] = ()
    per_decade: dict[str, Any] | None = None
    laws: Sequence[dict[str, Any]] = ()
    reason: str = ""


def multipliers(pairs: Pairs, options: AnalysisOptions) -> Multipliers:
    """Compute, token and time multipliers at the geometric middle and the largest shared compute.

    Where the largest needs more compute than the reference was run at, a third stands at the largest compute
    whose loss the reference reaches inside its range.
    """
    if problem := line_problem(pairs, options.law):
        return Multipliers(reason=problem)
    try:
        compute, tokens = (ArmLaws(pairs, options, x) for x in ("C", "D"))
    except DataError as error:
        return Multipliers(reason=f"no multiplier: {error}")
    points = points_along(pairs.complete, compute)
    return Multipliers(
        [compute.multiplier(name, c, c) for name, c, _ in points],
        [tokens.multiplier(name, d, c) for name, c, d in points],
        _time_multipliers(pairs, compute, [(name, c) for name, c, _ in points]),
        compute.change(*_shared(pairs.complete)),
        [*compute.described(), *tokens.described()],
    )


def _shared(complete: pd.DataFrame) -> tuple[float, float]:
    """The range of compute that both arms were run at."""
    return (
        float(max(complete["compute_reference"].min(), complete["compute_arm"].min())),
        float(min(complete["compute_reference"].max(), complete["compute_arm"].max())),
    )


def points_along(complete: pd.DataFrame, laws: ArmLaws) -> list[tuple[str, float, float]]:
    """(name, C, D) of the geometric middle, the largest shared compute, and the largest inside the range."""
    low, high = _shared(complete)
    tokens = np.log([complete["n_tokens"].min(), complete["n_tokens"].max()])

    def along(compute: float) -> float:
        """Tokens on the line of the pairs."""
        share = np.log(compute / low) / np.log(high / low) if high > low else 1.0
        return float(np.exp(tokens[0] + share * (tokens[1] - tokens[0])))

    points = {"geometric middle": float(np.sqrt(low * high)), "largest": high}
    inside = laws.inside(high)
    if low < inside < high * (1 - 1e-9):
        points["largest inside the reference's range"] = inside
    return [(name, compute, along(compute)) for name, compute in points.items()]


class _Times:
    """ln wall time as a line in ln C of each side, and replicates of it with the noise between seeds."""

    def __init__(self, pairs: Pairs, laws: ArmLaws) -> None:
        walls = np.log(pairs.complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)).T
        inverse = [np.linalg.pinv(np.stack([np.ones(len(x)), np.log(x)], axis=1)) for x in laws.x]
        self.best = [side @ wall for side, wall in zip(inverse, walls, strict=True)]
        covariance, self.df = within_cells(walls, pairs.cells)
        size = (max(laws.options.bootstrap, 1), walls.shape[1])
        noise = np.random.default_rng(laws.options.seed + 1).multivariate_normal(
            np.zeros(2), covariance, size, method="svd"
        )
        self.replicates = [best + noise[..., i] @ inverse[i].T for i, best in enumerate(self.best)]

    def ratio(self, needed: FloatArray, at: float, lines: list[FloatArray]) -> FloatArray:
        """Time of the reference at ``needed`` [rows] over the arm's at ``at``."""
        reference, arm = (np.atleast_2d(side) for side in lines)
        log_ratio = reference[:, 0] + reference[:, 1] * np.log(needed) - arm[:, 0] - arm[:, 1] * np.log(at)
        return np.asarray(np.exp(log_ratio))


def _time_multipliers(pairs: Pairs, laws: ArmLaws, points: Sequence[tuple[str, float]]) -> list[Multiplier]:
    """Time of the reference for the arm's loss over the arm's time; none without comparable wall times.

    The interval holds the noise of losses and of wall times between seeds, taken as independent.
    """
    if "wall_s_reference" not in pairs.complete or not _timed_alike(pairs.complete):
        return []
    times = _Times(pairs, laws)
    result = []
    for name, at in points:
        needed, replicates = laws.needed(at)
        if not 1 / LARGEST_FACTOR <= needed[0] / at <= LARGEST_FACTOR:
            continue
        # Wall times have noise of their own: as many replicates as there are of the laws.
        lines = [side[: len(replicates)] for side in times.replicates] if laws.df else times.best
        drawn = times.ratio(replicates, at, lines)

        def statistic(rows: Parameters, at: float = at) -> FloatArray:
            return times.ratio(needed_of(rows, at, laws.law), at, times.best)

        multiplier = laws.ratio(name, at, statistic, laws.is_beyond(float(needed[0])), drawn)
        result.append(_timed(multiplier, has_noise=bool(times.df) and not pairs.dependent))
    return result


def _timed(multiplier: Multiplier, *, has_noise: bool) -> Multiplier:
    """A time multiplier, without an interval where wall times have no noise figure."""
    if not has_noise:
        note = "no interval: wall times without a second seed have no noise figure"
        return replace(multiplier, interval=None, note=note, seeds_error=None, split_error=None)
    note = multiplier.note or "seed noise only; machine load is not modelled"
    return replace(multiplier, note=note)


def _timed_alike(complete: pd.DataFrame) -> bool:
    walls = complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)
    devices = complete[[name for name in complete if name in ("device_reference", "device_arm")]]
    one_device = len(pd.unique(devices.to_numpy().ravel())) <= 1
    return bool(np.all(np.isfinite(walls) & (walls > 0))) and one_device
