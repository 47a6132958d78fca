"""Whether a law of the given form goes through the means of repeated seeds.

The F test for lack of fit: the variance of the cells' means around the law against the seeds' variance
within cells (Draper and Smith, Applied Regression Analysis, chapter 2). Intervals drawn from seed noise
cover the noise, not a law of the wrong form; this says when that matters.
"""

from dataclasses import dataclass

import numpy as np

from analysis.data import FloatArray
from analysis.estimate import estimated
from analysis.laws import law_named
from analysis.noise import are_copies, pooled_noise
from analysis.parametrisation import Options, Parametrisation

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
        p = "< 0.001" if self.p < 1e-3 else f"{self.p:.2g}"
        other = " (--law power-floor has a floor)" if self.law == "power" else ""
        doubt = "" if self.optimal else "; the fit is not a verified optimum"
        return (
            f"the law {self.law} misses the means of the seeds by more than their noise (lack of fit: "
            f"F {self.f:.3g} with [{self.df[0]}, {self.df[1]}] degrees of freedom, p {p}); intervals of "
            f"predictions and multipliers cover the noise alone, not a law of the wrong form{other}{doubt}"
        )


def lack_of_fit(law: str, variables: dict[str, FloatArray], loss: FloatArray) -> LackOfFit | None:
    """The test for ``loss`` [points] at ``variables`` (each [points]), by least squares on log loss.

    None where no cell of equal variables repeats, or where there are no more cells than parameters.
    """
    from scipy.special import fdtrc

    cells = np.unique(np.stack(list(variables.values())), axis=1, return_inverse=True)[1].ravel()
    fit = estimated(Parametrisation(law_named(law), variables), loss, Options("l2", 1.0, "log"))
    noise = pooled_noise(np.log(loss), cells.astype(float))
    between = len(np.unique(cells)) - fit.theta.size
    if noise.df == 0 or between <= 0 or are_copies(np.log(loss), cells.astype(float)):
        return None
    within = noise.sd**2 * noise.df
    missed = max(float(np.sum(fit.residuals() ** 2)) - within, 0.0)
    f = (missed / between) / noise.sd**2
    return LackOfFit(law, f, (between, noise.df), float(fdtrc(between, noise.df, f)), fit.optimal)
