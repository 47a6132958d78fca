"""The law that is fitted where none is named: a power law, with a floor where the data identify one."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.fits.columns import values_of, variable_of
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points, joint_fit
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.statistics.noise import FEWEST_SIZES, floor_profile, pooled_noise, t_quantile

Line = tuple[FloatArray, FloatArray]
"""x and y of one arm's points, each [points]."""


def with_default_law(options: AnalysisOptions, rows: pd.DataFrame) -> AnalysisOptions:
    """Return ``options`` with the law that ``auto`` stands for on ``rows`` of one arm or several.

    A power law of x, with a floor where the points of each arm refuse a floor of zero, with a floor that the
    arms share where all of them together do.
    """
    if options.law != "auto":
        return options
    y = pd.to_numeric(rows[options.y], errors="coerce")
    kept = rows[np.isfinite(y) & (y > 0)]
    law = "power"
    if options.y == "loss" and len(kept):
        arms = [part for _, part in kept.groupby("arm", sort=False)] if "arm" in kept else [kept]
        law = _law_of([(variable_of(part, options.x, options), values_of(part, options)) for part in arms])
    return dataclasses.replace(options, law=law)


def _law_of(arms: Sequence[Line]) -> str:
    profiles = [floor_profile(x, y) for x, y in arms]
    if all(profile.zero > profile.critical for profile in profiles):
        return "power-floor"
    return "power-floor-shared" if len(arms) > 1 and _has_shared_floor(arms) else "power"


def _has_shared_floor(arms: Sequence[Line]) -> bool:
    """Whether one floor for all arms fits better than none, by more than the noise."""
    if min(len(np.unique(x)) for x, _ in arms) < FEWEST_SIZES - 1:
        return False
    squares, points = AnalysisOptions(law="power-floor", loss="l2"), [({"x": x}, y) for x, y in arms]
    shared = joint_fit(points, law_named("power-floor"), squares, per_arm=("A", "alpha"))
    without = sum(fit_points(points_of(law_named("power"), v), y, squares).objective for v, y in points)
    seeds, df = pooled_noise(np.log(shared.y), shared.points.cells), len(shared.y) - shared.theta.size
    candidates = [(2 * shared.objective / df, df)] if df > 0 else []
    candidates += [(seeds.sd**2, seeds.df)] if seeds.df else []
    if not candidates:
        return False
    # The objective is half the sum of squares; data that lie on the law leave no variance to divide by.
    variance, df = max(candidates)
    errors = np.sqrt(max(2 * (without - shared.objective), 0.0) / max(variance, 1e-30))
    return bool(errors > t_quantile(0.95, df))
