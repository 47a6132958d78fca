"""The test of a law's form, by least squares whatever the loss of its fit.

The test for lack of fit judges the variance of the cells' means around the law by the seeds' variance within
cells (Draper and Smith, Applied Regression Analysis, chapter 2). Intervals drawn from seed noise cover the
noise, not a law of the wrong form; this says when that matters.
"""

from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.formatting import f_test
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.points import Points, points_of
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


def lack_of_fit_at(points: Points, loss: FloatArray) -> LackOfFit | None:
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
