"""The uncertainty of a fitted law along a range: what the seeds' noise leaves open at each x."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis import intervals
from analysis.data import FloatArray
from analysis.estimate import estimated
from analysis.laws import law_named
from analysis.noise import t_quantile
from analysis.parametrisation import Parametrisation
from analysis.settings import FitSettings

DRAWS = 200


@dataclass(frozen=True)
class Band:
    """A fitted law on a grid of ``x`` [points]; ``low`` and ``high`` are None without repeated seeds."""

    x: FloatArray
    loss: FloatArray
    low: FloatArray | None
    high: FloatArray | None


def band(x: FloatArray, loss: FloatArray, settings: FitSettings, n_points: int = 60) -> Band:
    """Fit a law in one variable to x, loss [trials] and give its t interval from seed noise along x.

    Half the width is t times the spread, over :data:`DRAWS` redraws of the noise, of the log prediction.
    """
    grid = np.geomspace(x.min(), x.max(), n_points)
    law = law_named(settings.law)
    fit = estimated(Parametrisation(law, {"x": x}), loss, settings.options)
    centre = law.predict(fit.parameters(), {"x": grid})
    runs = pd.Series([str(i) for i in range(len(x))])
    made = intervals.redraws(fit, x, runs, replace(settings, interval="seed-t", bootstrap=DRAWS))
    if isinstance(made, str):
        return Band(grid, centre, None, None)
    redone = fit.points.parameters(made.solution.theta)
    each = {name: values[:, None] for name, values in redone.items()}
    spread = np.std(np.log(_predict(each, grid)), axis=0)
    factor = np.exp(t_quantile(settings.level, made.df) * spread)
    return Band(grid, centre, centre / factor, centre * factor)


def _predict(parameters: dict[str, FloatArray], grid: FloatArray) -> FloatArray:
    """E + A/x^alpha [draws, points] for parameters [draws, 1]."""
    return parameters["A"] * grid ** -parameters["alpha"] + parameters.get("E", np.zeros((1, 1)))
