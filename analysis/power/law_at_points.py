"""How well laws are known at chosen points, and would be with more trials: the delta method.

A trial adds the square of its gradient to the information on a law's parameters; the variance of the law at a
point is the gradient there through the inverse of that information (Seber & Wild, Nonlinear Regression, 1989,
5.1). It plans; the intervals of a fit and its predictions come from their bootstraps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.fit import fitted_arms
from scalevec.analysis.fits.intervals import residual_noise
from scalevec.analysis.fits.predicted_points import FittedArm, points_of_table
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.noise import pooled_noise, t_quantile

_STEP = 1e-5
_SINGULAR = 1e-12
"""Directions of the parameters with less than this share of the information are taken as known."""


@dataclass(frozen=True)
class LawAtPoints:
    """The law of one arm, and the ``points`` [points x variables] at which it is to be known."""

    fitted: FittedArm
    points: pd.DataFrame

    @cached_property
    def noise(self) -> tuple[float, int]:
        """sd of one trial on the scale of the residual, and its degrees of freedom: by seeds or residuals."""
        law = self.fitted.law
        y = np.log(law.y) if law.options.residual == "log" else law.y
        pooled = pooled_noise(y, law.points.cells)
        return (pooled.sd, pooled.df) if pooled.df else residual_noise(law)

    @cached_property
    def information(self) -> FloatArray:
        """Of the trials that were fitted [parameters x parameters], in units of one trial's noise."""
        slopes = _slopes(self.fitted.law, lambda law: law.predicted())
        return np.asarray(slopes @ slopes.T)

    def slopes_at(self, table: pd.DataFrame) -> FloatArray:
        """Gradients of the law on the scale of the residual at each row of ``table`` [parameters x rows]."""
        columns = points_of_table(table, self.fitted.data.options)
        return _slopes(self.fitted.law, lambda law: _values(law, columns, self.fitted.number))

    @cached_property
    def wanted(self) -> tuple[FloatArray, FloatArray]:
        """Gradients at the points [parameters x points], and nats/token per unit of their scale [points]."""
        law = self.fitted.law
        values = _values(law, points_of_table(self.points, self.fitted.data.options), self.fitted.number)
        if not (np.isfinite(values) & (values > 0)).all():
            raise DataError(f"arm {self.fitted.data.arm!r}: the law has no loss at every point of --at")
        per_unit = values if law.options.residual == "log" else np.ones(len(values))
        return self.slopes_at(self.points), per_unit

    def half(self, slopes: FloatArray, trials: FloatArray, level: float) -> FloatArray:
        """Half the interval at each point with ``trials`` [rows] more where the gradients are ``slopes``."""
        sd, df = self.noise
        information = self.information + (slopes * trials) @ slopes.T
        wanted, per_unit = self.wanted
        covariance = np.linalg.pinv(information, rcond=_SINGULAR, hermitian=True)
        variance = np.einsum("ip,ij,jp->p", wanted, covariance, wanted)
        return np.asarray(t_quantile(level, df + int(trials.sum())) * sd * np.sqrt(variance) * per_unit)


def laws_at_points(
    results: pd.DataFrame, points: Sequence[pd.DataFrame], options: AnalysisOptions
) -> tuple[LawAtPoints, ...]:
    """Fit every arm of ``results`` for its law at ``points``, as :func:`~scalevec.analysis.fit` does.

    Raises:
        DataError: As :func:`~scalevec.analysis.fit`; no point at all.
    """
    if not points:
        raise DataError("a prediction is made at points; give one: --at N=1e9,D=2e10")
    fits = fitted_arms(results, replace(options, bootstrap=0))
    return tuple(LawAtPoints(fitted, table) for fitted in fits for table in points)


def _values(law: FittedLaw, columns: Mapping[str, FloatArray], arm: int) -> FloatArray:
    with np.errstate(all="ignore"):
        return np.asarray(law.points.law.predict(law.parameters(arm), columns))


def _slopes(law: FittedLaw, values: Callable[[FittedLaw], FloatArray]) -> FloatArray:
    """Central differences of ``values`` in each parameter [parameters x values]."""
    is_log = law.options.residual == "log"
    rows = []
    for column, theta in enumerate(law.theta):
        step = np.zeros(len(law.theta))
        step[column] = _STEP * max(1.0, abs(theta))
        ends = [values(law.at(law.theta + sign * step)) for sign in (1, -1)]
        above, below = map(np.log, ends) if is_log else ends
        rows.append((above - below) / (2 * step[column]))
    return np.asarray(np.nan_to_num(np.array(rows)))
