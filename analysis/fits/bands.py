"""The uncertainty of a fitted law along a range: what the seeds' noise leaves open at each x."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.fits.intervals import NoInterval, replicates
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.points import points_of
from scalevec.analysis.statistics.noise import t_quantile

DRAWS = 200
_POINTS = 60


@dataclass(frozen=True)
class Band:
    """A fitted law on a grid of ``x`` [points]; ``low`` and ``high`` are None without repeated seeds."""

    x: FloatArray
    loss: FloatArray
    low: FloatArray | None
    high: FloatArray | None


def band(x: FloatArray, loss: FloatArray, options: AnalysisOptions) -> Band:
    """Fit a law in one variable to x, loss [trials] and give its t interval from seed noise along x.

    Half the width is t times the spread, over :data:`DRAWS` replicates of the noise, of the log prediction.
    """
    grid = np.geomspace(x.min(), x.max(), _POINTS)
    law = law_named(options.law)
    fit = fit_points(points_of(law, {"x": x}), loss, options)
    centre = law.predict(fit.parameters(), {"x": grid})
    runs = pd.Series([str(i) for i in range(len(x))])
    spread_by = replicates(fit, x, runs, replace(options, interval="seed-t", bootstrap=DRAWS))
    if isinstance(spread_by, NoInterval):
        return Band(grid, centre, None, None)
    each = {name: values[:, None] for name, values in fit.points.parameters(spread_by.solution.theta).items()}
    spread = np.std(np.log(law.predict(each, {"x": grid})), axis=0)
    factor = np.exp(t_quantile(options.level, spread_by.df) * spread)
    return Band(grid, centre, centre / factor, centre * factor)
