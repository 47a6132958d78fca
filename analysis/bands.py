"""The uncertainty of a fitted law along a range: what the seeds' noise leaves open at each x."""

from dataclasses import dataclass

import numpy as np

from analysis.data import FloatArray
from analysis.fitting import FitSettings, best_solution
from analysis.laws import law_named
from analysis.noise import redraw, t_quantile
from analysis.parametrisation import Parametrisation
from analysis.solver import solve

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
    points = Parametrisation(law, {"x": x})
    best = best_solution(points, loss, settings.options)
    fitted = {name: float(values[0]) for name, values in points.parameters(best.theta).items()}
    centre = law.predict(fitted, {"x": grid})
    (drawn,), df = redraw([loss], x, DRAWS, settings.seed)
    if df == 0:
        return Band(grid, centre, None, None)
    starts = np.repeat(best.theta[:1], DRAWS, axis=0)
    redone = points.parameters(solve(points.problem(drawn, None, settings.options), starts).theta)
    each = {name: values[:, None] for name, values in redone.items()}
    spread = np.std(np.log(_predict(each, grid)), axis=0)
    factor = np.exp(t_quantile(settings.level, df) * spread)
    return Band(grid, centre, centre / factor, centre * factor)


def _predict(parameters: dict[str, FloatArray], grid: FloatArray) -> FloatArray:
    """E + A/x^alpha [draws, points] for parameters [draws, 1]."""
    return parameters["A"] * grid ** -parameters["alpha"] + parameters.get("E", np.zeros((1, 1)))
