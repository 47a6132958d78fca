"""What a fitted law says of points and budgets that nobody ran, with how far they lie from the data."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.ahead import FittedArm, PredictedPoint
from scalevec.analysis.fits.arm_data import ArmData, arm_data, fitted_laws
from scalevec.analysis.fits.columns import with_given_compute
from scalevec.analysis.fits.compute_optimal import BestOfBudget, best_of_budget, require_budgets
from scalevec.analysis.fits.fit import Fit, fit_of, fitted_arms
from scalevec.analysis.fits.intervals import NoInterval
from scalevec.analysis.fits.isoflop import has_budgets, vertex_replicates
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options

DISAGREE = 1.2
"""Surface and parabolas disagree where their N* differ by more than this factor."""
SMALLEST_BUDGET, LARGEST_BUDGET = 1e3, 1e60


@dataclass(frozen=True)
class Forecast:
    """What the law of one arm predicts.

    Attributes:
        fit: The fitted law with its hold-out, intervals and warnings.
        points: The law at the points that were asked for.
        budgets: For each budget, FLOPs, its best size: by the surface, and by isoFLOPs where the rows lie
            on such lines.
        warnings: Caveats of the predictions; those of the law are in ``fit``.
    """

    fit: Fit
    points: tuple[PredictedPoint, ...]
    budgets: dict[float, tuple[BestOfBudget, ...]]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the object of the fit with ``points`` and ``budgets`` in place of ``ahead``."""
        of_fit = self.fit.to_dict()
        del of_fit["ahead"], of_fit["prediction"]
        return of_fit | {
            "points": [dataclasses.asdict(point) for point in self.points],
            "budgets": [
                {"flops": flops, "optima": [dataclasses.asdict(best) for best in of_budget]}
                for flops, of_budget in self.budgets.items()
            ],
            "warnings": [*self.warnings, *self.fit.warnings],
        }


def predict(
    results: pd.DataFrame,
    at: pd.DataFrame | Sequence[pd.DataFrame] = (),
    flops: Sequence[float] = (),
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> list[Forecast]:
    """Predict the loss of each arm at points, and its compute-optimal size for budgets.

    Args:
        results: Tidy rows, one per trial, as for :func:`~scalevec.analysis.fit`.
        at: Points, one a row, in one table or several: of the columns N (parameters), D (tokens), C (FLOPs)
            or ``n_params``, ``n_tokens``, ``flops`` those that the law reads, and ``rung`` for their names.
            Without points and budgets the largest compute of the data, twice and ten times that.
        flops: Budgets C = 6 N D.
        options: How to fit, as for :func:`~scalevec.analysis.fit`.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One :class:`Forecast` per arm.

    Raises:
        DataError: As :func:`~scalevec.analysis.fit`; a point that lacks a variable of the law, a value
            that is no finite number above zero, a budget of a law that is not in N and D.

    >>> sizes = np.repeat(np.geomspace(1e7, 1e9, 5), 4)
    >>> table = pd.DataFrame({"n_params": sizes, "n_tokens": sizes * np.tile([5.0, 20.0, 80.0, 320.0], 5)})
    >>> table["loss"] = 1.7 + 400 * table.n_params**-0.34 + 410 * table.n_tokens**-0.28
    >>> [forecast] = predict(table, flops=[1e22], law="chinchilla", cluster="row", bootstrap=0)
    >>> f"{forecast.budgets[1e22][0].tokens_per_parameter.value:.1f}"
    '65.5'
    """
    chosen = chosen_options(options, changes, unused=("margin", "looks", "repeated_seeds"))
    for budget in flops:
        if not SMALLEST_BUDGET <= budget <= LARGEST_BUDGET:
            raise DataError(
                f"a budget is {budget:g}; allowed: FLOPs from {SMALLEST_BUDGET:g} to {LARGEST_BUDGET:g}"
            )
    tables = [at] if isinstance(at, pd.DataFrame) else at
    return [_forecast(*fitted, tables, flops) for fitted in fitted_arms(results, chosen)]


def _forecast(
    fitted: FittedArm,
    held: dict[str, Any],
    tables: Sequence[pd.DataFrame],
    flops: Sequence[float],
) -> Forecast:
    points = tuple(point for table in tables for point in fitted.points(table))
    if not tables and not flops:
        points = fitted.ahead()
    for point in points:
        if not 0 < point.value < np.inf:
            where = ", ".join(f"{name} = {value:g}" for name, value in point.at.items())
            raise DataError(
                f"arm {fitted.data.arm!r}: the law is {point.value:g} at {where}, which is no loss"
            )
    budgets: dict[float, tuple[BestOfBudget, ...]] = {}
    warnings: list[str] = []
    if flops:
        require_budgets(fitted)
        methods = [fitted, *_parabolas(fitted.data)]
        warnings += [
            f"isoFLOPs: {other.uncertainty.reason}"
            for other in methods[1:]
            if isinstance(other.uncertainty, NoInterval)
        ]
        budgets = {budget: tuple(best_of_budget(method, budget) for method in methods) for budget in flops}
        warnings += [text for budget, best in budgets.items() for text in _disagreement(budget, *best)]
    return Forecast(fit_of(fitted, held), points, budgets, tuple(dict.fromkeys(warnings)))


def _parabolas(data: ArmData) -> list[FittedArm]:
    """The power law of N* through the vertices of the same rows; none where they lie on no isoFLOP lines."""
    same = {
        name: getattr(data.options, name)
        for name in ("level", "bootstrap", "seed", "cluster", "n_convention", "unit")
    }
    options = with_given_compute(AnalysisOptions(law="isoflop", **same), data.rows)
    if data.optima or data.options.y != "loss" or not has_budgets(data.rows, options):
        return []
    try:
        of_vertices = arm_data(data.rows, options)
        [law] = fitted_laws([of_vertices])
    except DataError:
        return []
    return [FittedArm(of_vertices, law, 0, vertex_replicates(law, data.rows, options))]


def _disagreement(flops: float, surface: BestOfBudget, *others: BestOfBudget) -> list[str]:
    """How far N* of the parabolas lies from that of the surface, where that is too far."""
    warnings = []
    for other in others:
        factor = max(other.n.value / surface.n.value, surface.n.value / other.n.value)
        ends = [best.n.interval for best in (surface, other)]
        apart = ends[0] and ends[1] and (ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0])
        if factor > DISAGREE or apart:
            warnings.append(
                f"C {flops:.3g}: N* {surface.n.value:.3g} by the surface, {other.n.value:.3g} by isoFLOPs, a "
                f"factor of {factor:.2f}{'; their intervals do not meet' if apart else ''}: a parabola errs "
                "where the loss is not symmetric in ln N, a surface where its form is wrong"
            )
    return warnings
