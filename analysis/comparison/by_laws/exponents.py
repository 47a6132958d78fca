"""Whether two arms share exponents and floor, tested where the points of a run are not independent."""

from dataclasses import replace
from typing import Any

import numpy as np

from scalevec.analysis.comparison.by_laws.surfaces import Surface
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.intervals import residuals_left_out, shifted
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import coefficients, fit_points, joint_fit

MOST_DRAWS = 400
"""Bootstrap replicates of the test: a p-value of 0.05 is known to 0.011."""


def shared_exponents(reference: Surface, arm: Surface, options: AnalysisOptions) -> dict[str, Any]:
    """By how much a joint fit's sum of squares is above that of separate ones, with its p-value.

    The p-value is that of the wild cluster bootstrap under the joint fit (Cameron, Gelbach & Miller 2008):
    the residuals of whole runs get random signs around it, and both fits are made again.
    """
    law, squares, sides = reference.law.points.law, replace(options, loss="l2"), (reference, arm)
    if reason := reference.reason or arm.reason:
        return {"reason": f"not tested: {reason}"}
    points = [(surface.data.points.variables, surface.data.y) for surface in sides]
    try:
        joint = joint_fit(points, law, squares, [surface.data.points.weights for surface in sides])
    except DataError as error:
        return {"reason": f"not tested: {error}"}
    separate = [fit_points(surface.data.points, surface.data.y, squares) for surface in sides]
    runs = np.unique(np.concatenate([s.data.clusters.to_numpy(str) for s in sides]), return_inverse=True)[1]
    draws = min(options.bootstrap, MOST_DRAWS)
    signs = np.random.default_rng(options.seed).choice([-1.0, 1.0], (draws, int(runs.max()) + 1))
    y = shifted(joint, signs[:, runs] * residuals_left_out(joint, runs)[0])
    parts = np.split(y, [len(points[0][1])], axis=1)
    apart = sum(fit.redone(y=part).objective for fit, part in zip(separate, parts, strict=True))
    drawn = joint.redone(y=y).objective / apart
    seen = joint.objective / sum(fit.objective for fit in separate)
    return {
        "shared": [name for name in law.parameters if name not in coefficients(law)],
        "statistic": seen - 1,
        "p_value": float((1 + np.sum(drawn >= seen)) / (1 + draws)),
        "draws": draws,
    }
