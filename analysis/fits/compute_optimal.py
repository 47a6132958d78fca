"""The compute-optimal size of a budget: from a law in N and D, and from the vertices of isoFLOP parabolas."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.ahead import FittedArm, decades_beyond
from scalevec.analysis.fits.columns import variable_of
from scalevec.analysis.fits.intervals import MOST_FAILED, Replicates

SIZES, ZOOMED, ZOOMS = 241, 41, 2
"""Sizes at which a law is compared along a budget, then between the neighbours of the best, so many times."""
BLOCK = 4000
"""Replicates that are searched at once."""


@dataclass(frozen=True)
class Quantity:
    """A value with its interval; None where the design carries none."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class BestOfBudget:
    """The best size of one budget C = 6 N D.

    Attributes:
        by: ``surface`` (where the fitted law is lowest along the budget), ``isoflop`` or ``envelope`` (the
            power law through the optima).
        n: N*, parameters; ``d`` is D*, tokens.
        tokens_per_parameter: D*/N*.
        loss: The law's value there, in the unit of losses; None where the law is of N* alone.
        decades: How far the optimum lies from the data, as for a predicted point.
    """

    by: str
    n: Quantity
    d: Quantity
    tokens_per_parameter: Quantity
    loss: Quantity | None
    decades: dict[str, float]


def require_budgets(fitted: FittedArm) -> None:
    """Raise :class:`DataError` unless the law says which N is best for a budget of 6 N D."""
    options, law = fitted.data.options, fitted.law.points.law
    if law.method == "points" and not {"N", "D"} <= set(law.variables) <= {"N", "D", "C"}:
        raise DataError(
            f"the best size of a budget needs a law in N and D; law {law.name} reads "
            f"{', '.join(options.x if name == 'x' else name for name in law.variables)}; take chinchilla, "
            "gadre, kaplan, overtraining, isoflop, envelope or a formula in N and D"
        )
    if options.c_convention == "counted" or (law.method == "points" and options.c_convention != "6nd"):
        raise DataError(f"c_convention is {options.c_convention!r}; a budget is 6 N D: allowed is '6nd'")


def best_of_budget(fitted: FittedArm, flops: float) -> BestOfBudget:
    """The best size for ``flops`` FLOPs by the law of an arm, with intervals where its design carries them.

    Raises :class:`DataError` where the law is lowest at the end of the budget, one parameter or one token.
    """
    theta = fitted.law.theta[None]
    if isinstance(fitted.uncertainty, Replicates):
        theta = np.concatenate([theta, fitted.uncertainty.solution.theta])
    if fitted.data.optima:
        n, loss = fitted.law.values_at(theta, {"C": flops}), None
    else:
        blocks = np.array_split(theta, -(-len(theta) // BLOCK))
        logs = np.concatenate([_lowest(_along(fitted, block, flops), len(block), flops) for block in blocks])
        n, loss = np.exp(logs), _along(fitted, theta, flops)(logs[:, None])[:, 0]
    if not np.isfinite(n[0]):
        raise DataError(
            f"arm {fitted.data.arm!r}: along C = {flops:g} the fitted law falls to the end, one parameter or "
            "one token: it has no best size there"
        )
    d = flops / 6 / n
    rows, options = fitted.data.rows, fitted.data.options
    seen = {"N": variable_of(rows, "N", options)}
    seen |= {"D": rows["n_tokens"].to_numpy(float)} if "n_tokens" in rows else {}
    size, tokens, ratio = (_estimate(fitted, values) for values in (n, d, d / n))
    at_best = None if loss is None else _estimate(fitted, loss)
    by = fitted.law.points.law.method if loss is None else "surface"
    beyond = decades_beyond(seen, {"N": n[0], "D": d[0]})
    return BestOfBudget(by, size, tokens, ratio, at_best, beyond)


def _estimate(fitted: FittedArm, values: FloatArray) -> Quantity:
    """The first of ``values`` [1 + draws] with the interval from the others."""
    drawn = values[1:][np.isfinite(values[1:])]
    if not isinstance(fitted.uncertainty, Replicates) or len(drawn) < (1 - MOST_FAILED) * (len(values) - 1):
        return Quantity(float(values[0]), None)
    level = fitted.data.options.level
    return Quantity(float(values[0]), fitted.uncertainty.log_interval(float(values[0]), drawn, level))


def _along(fitted: FittedArm, theta: FloatArray, flops: float) -> Callable[[FloatArray], FloatArray]:
    """The losses [rows, sizes] of the laws ``theta`` [rows, parameters] at ln N [rows, sizes] of a budget."""
    law, columns = fitted.law.points.law, fitted.law.points.parameters(theta, fitted.number)
    parameters = {name: values[:, None] for name, values in columns.items()}

    def losses(logs: FloatArray) -> FloatArray:
        n = np.exp(logs)
        at = {"N": n, "D": flops / 6 / n, "C": np.full_like(n, flops)}
        with np.errstate(all="ignore"):
            return law.predict(parameters, {name: at[name] for name in law.variables})

    return losses


def _lowest(losses: Callable[[FloatArray], FloatArray], n_rows: int, flops: float) -> FloatArray:
    """ln N [rows] of the lowest loss between one parameter and one token; nan where it lies at an end."""
    logs = np.repeat(np.linspace(0.0, np.log(flops / 6), SIZES)[None], n_rows, axis=0)
    rows, is_inside = np.arange(n_rows), np.ones(n_rows, bool)
    for zoom in range(ZOOMS + 1):
        values = losses(logs)
        best, step = np.argmin(np.where(np.isfinite(values), values, np.inf), axis=1), logs[0, 1] - logs[0, 0]
        if zoom == 0:
            is_inside = (best > 0) & (best < SIZES - 1)
        centre = logs[rows, best]
        logs = centre[:, None] + np.linspace(-step, step, ZOOMED if zoom < ZOOMS else 3)
    # Far closer than this the losses of neighbours differ by their rounding: a parabola ends the search.
    left, middle, right = losses(logs).T
    bend = left - 2 * middle + right
    offset = step * (left - right) / (2 * np.where(bend > 0, bend, np.inf))
    return np.where(is_inside, centre + np.clip(offset, -step, step), np.nan)
