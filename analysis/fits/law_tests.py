"""F tests of a law, by least squares whatever the loss of its fit: of its form, and of common exponents.

The test for lack of fit judges the variance of the cells' means around the law by the seeds' variance within
cells (Draper and Smith, Applied Regression Analysis, chapter 2). Intervals drawn from seed noise cover the
noise, not a law of the wrong form; this says when that matters.

Arms that share exponents and floor are nested in separate fits. Absolute deviations (and Huber's loss with a
delta far below the residuals) are flat between few points, and say nothing of a common exponent. Residuals
count as independent: arms that share seeds make the test conservative.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import f_test
from scalevec.analysis.laws import Law, law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import PointsOfArm, coefficients, fit_identified, fit_points, joint_fit
from scalevec.analysis.solver.design import DesignMatrix
from scalevec.analysis.solver.formula_points import points_of
from scalevec.analysis.statistics.noise import are_copies, pooled_noise

SIGNIFICANT = 0.01


@dataclass(frozen=True)
class LackOfFit:
    """F with ``df`` (cells minus parameters, points minus cells) degrees of freedom, and its p value."""

    law: str
    f: float
    df: tuple[int, int]
    p: float
    optimal: bool = True

    @property
    def warning(self) -> str:
        """One sentence where the law misses the rungs by more than the noise; empty where it does not."""
        if self.p >= SIGNIFICANT:
            return ""
        other = " (--law power-floor has a floor)" if self.law == "power" else ""
        doubt = "" if self.optimal else "; the fit is not a verified optimum"
        return (
            f"the law {self.law} misses the means of the seeds by more than their noise (lack of fit: "
            f"{f_test(self.f, self.df, self.p)}); intervals of "
            f"predictions and multipliers cover the noise alone, not a law of the wrong form{other}{doubt}"
        )


def lack_of_fit(law: str, variables: dict[str, FloatArray], loss: FloatArray) -> LackOfFit | None:
    """The test for ``loss`` [points] at ``variables`` (each [points]), by least squares on log loss.

    None where no cell of equal variables repeats, or where there are no more cells than parameters.
    """
    return lack_of_fit_at(points_of(law_named(law), variables), loss)


def lack_of_fit_at(points: DesignMatrix, loss: FloatArray) -> LackOfFit | None:
    """:func:`lack_of_fit` for ``loss`` [points] at ``points`` of one arm, or of several fitted jointly."""
    from scipy.special import fdtrc

    cells, logs = points.cells, np.log(loss)
    noise = pooled_noise(logs, cells)
    between = len(np.unique(cells)) - len(points.free)
    if noise.df == 0 or between <= 0 or are_copies(logs, cells):
        return None
    fit = fit_points(points, loss, AnalysisOptions(loss="l2"))
    within = noise.sd**2 * noise.df
    missed = max(float(np.sum(fit.residuals() ** 2)) - within, 0.0)
    f = (missed / between) / noise.sd**2
    return LackOfFit(points.law.name, f, (between, noise.df), float(fdtrc(between, noise.df, f)), fit.optimal)


def likelihood_comparison(
    arms: Sequence[PointsOfArm],
    law: Law,
    options: AnalysisOptions,
    *,
    independent: bool = True,
    weights: Sequence[FloatArray | None] | None = None,
) -> dict[str, Any]:
    """Joint against separate: sums of squares, F, degrees of freedom and p; ``reason`` where there is none.

    ``independent`` says whether the points of each arm are: else F would count each of them as one;
    ``weights`` are of each arm's points.
    """
    options = replace(options, loss="l2")
    try:
        weights = weights or [None] * len(arms)
        joint = joint_fit(arms, law, options, weights)
        separate = [
            fit_identified(points_of(law, variables, of_arm), y, options, str(number))
            for number, ((variables, y), of_arm) in enumerate(zip(arms, weights, strict=True))
        ]
    except DataError as error:
        return {"reason": f"not compared: {error}"}
    together = sum(
        fit.objective * share for fit, share in zip(separate, _shares_of_weight(weights), strict=True)
    )
    n_free = sum(fit.theta.size for fit in separate)
    extra, df = n_free - joint.theta.size, len(joint.y) - n_free
    shared = [name for name in law.inner if name not in coefficients(law)]
    result = {
        "shared": shared,
        "squares_joint": 2 * joint.objective,
        "squares_separate": 2 * together,
        "df": [extra, df],
    }
    if df < 1 or min(len(fit.y) - fit.theta.size for fit in separate) < 1:
        return {**result, "reason": f"not tested: {len(joint.y)} points for {n_free} parameters"}
    if not independent:
        return {**result, "reason": "not tested: points of one cluster are not independent"}
    if not all(fit.optimal for fit in (joint, *separate)):
        return {**result, "reason": "not tested: one of the fits is not a verified optimum"}
    from scipy.special import fdtrc

    if together <= 0:
        return {**result, "reason": "not tested: the separate fits leave no residuals"}
    statistic = max((joint.objective - together) / extra / (together / df), 0.0)
    return {**result, "statistic": statistic, "p_value": float(fdtrc(extra, df, statistic))}


def _shares_of_weight(weights: Sequence[FloatArray | None]) -> list[float]:
    """The mean weight of each arm's points over that of all: every fit divides by the mean of its own."""
    given = [each for each in weights if each is not None]
    if len(given) < len(weights):
        return [1.0] * len(weights)
    return [float(each.mean() / np.concatenate(given).mean()) for each in given]
