"""Where a fit begins: parameters spread evenly over what they may be, those that are linear at their best."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.laws import Law, computed
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.law_points import Points
from scalevec.analysis.solver.newton import objective

STARTS = 12
SAMPLES, FEWEST = 1_024, 32
"""Values of the parameters that are not linear, of which the best begin a fit: four times FEWEST where it is
one parameter, and four times as many for each other."""
WIDEST, NEAR = 50.0, 5.0
"""A parameter without a start is sought from 1/WIDEST to WIDEST, one with a start within a factor of NEAR."""
EXPONENTS = (0.01, 2.0)
"""The exponents of power terms that are tried."""
SMALLEST_SHARE = 1e-6
"""A start gives every term at least this share of the loss, since theta holds its logarithm."""


def scaled(points: Points, y: FloatArray, options: AnalysisOptions) -> Points:
    """Return the same points with starts for ``y`` [points] and theta in units of the best of them.

    Raises :class:`DataError` where the law is no number above zero at any parameters that are tried.
    """
    values = searched(points, y)
    at = objective(points.problem(y, None, options), points.theta(values))
    if not np.isfinite(at).any():
        raise points.law.written.refuse(
            0, "it is above zero and finite at all points for no parameters that were tried; give 'start'"
        )
    best = values[np.argsort(at, kind="stable")[:STARTS]]
    of_best = zip(points.law.parameters, np.abs(best[0]), strict=True)
    return replace(points, start_values=best, sizes={n: float(s) if s > 0 else 1.0 for n, s in of_best})


def searched(points: Points, y: FloatArray) -> FloatArray:
    """Values of the parameters [samples, parameters]: those that are linear are the best for the others."""
    law = points.law
    linear = [n for n in law.linear if n not in law.written.start and n not in law.written.bounds]
    sought = [name for name in law.parameters if name not in linear]
    rows = min(SAMPLES, FEWEST * 4 ** len(sought)) if sought else 1
    values: dict[str, Any] = dict(zip(sought, _spread(law, sought, rows), strict=True))
    columns = {name: np.zeros((rows, 1)) for name in linear} | {n: v[:, None] for n, v in values.items()}
    (steps, root), known = law.steps, dict[int, Any]()
    slopes = [steps.derivative(root, name) for name in linear]
    computed(steps, steps.needed(root, *slopes), known, {**law.constants, **columns, **points.variables})
    full = (rows, points.n_points)
    with np.errstate(all="ignore"):
        rest = 1.0 - np.broadcast_to(known[root], full) / y
        parts = [np.broadcast_to(known[index], full) / y for index in slopes]
        if linear:
            values |= dict(zip(linear, _projected(parts, rest, law, linear), strict=True))
    return np.stack([np.broadcast_to(values[name], rows) for name in law.parameters], axis=1)


def _spread(law: Law, names: Sequence[str], n_samples: int) -> list[FloatArray]:
    """Values [samples] of each parameter, evenly spread by the additive recurrence of Roberts (2018)."""
    ratio, result = 2.0, list[Any]()
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (len(names) + 1))
    exponents = {term.exponent for term in law.written.terms if term.exponent}
    for number, name in enumerate(names, 1):
        share: Any = (0.5 + np.arange(n_samples) * ratio**-number) % 1.0
        start = law.written.start.get(name, (0.0, 0.0))
        low, high = law.ranges.get(name, (-np.inf, np.inf))
        if start[1] > start[0]:
            result.append(start[0] * (start[1] / start[0]) ** share)
        elif start[0]:
            # The first sample lies in the middle: the start itself.
            result.append(start[0] * np.float64(NEAR) ** (2 * share - 1))
        elif high - low < np.inf:
            result.append(low * (high / low) ** share if low > 0 else low + (high - low) * share)
        elif name in law.written.bounds:
            end, side = (low, 1.0) if high == np.inf else (high, -1.0)
            result.append(end + side * (abs(end) or 1.0) * WIDEST ** (2 * share - 1))
        elif name in law.positive:
            result.append(WIDEST ** (2 * share - 1))
        elif name in exponents:
            # With one exponent a rising loss is tried too.
            both = 4 * share - 2 if len(exponents) == 1 else share
            least, most = EXPONENTS
            result.append(np.where(both < 0, -1.0, 1.0) * least * (most / least) ** (np.abs(both) % 1))
        else:
            both = 4 * share - 2
            result.append(np.sign(both) * WIDEST ** (2 * (np.abs(both) % 1) - 1))
    return [np.asarray(values) for values in result]


def _projected(parts: Sequence[FloatArray], rest: FloatArray, law: Law, names: Sequence[str]) -> FloatArray:
    """The coefficients [names, samples] with which ``parts`` [samples, points] are nearest to ``rest``."""
    sizes = np.stack([np.sqrt(np.mean(part**2, axis=1)) for part in parts], axis=1)
    usable = np.all(np.isfinite(sizes) & (sizes > 0), axis=1) & np.all(np.isfinite(rest), axis=1)
    columns = np.stack(parts, axis=1)[usable] / sizes[usable, :, None]
    gram = columns @ columns.swapaxes(1, 2)
    right = (columns @ rest[usable, :, None])[..., 0]
    if all(name in law.positive for name in names):
        solved = non_negative(gram, right)
    else:
        ridge = 1e-12 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(len(names))
        solved = np.linalg.solve(gram + ridge, right[..., None])[..., 0]
    low = np.array([SMALLEST_SHARE if name in law.positive else -np.inf for name in names])
    result = np.full(sizes.shape, np.nan)
    result[usable] = np.maximum(solved, low) / sizes[usable]
    return result.T


def non_negative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Exact non-negative least squares of each system [samples, terms]: the best of all feasible subsets."""
    n_rows, n_terms = right.shape
    best, lowest = np.zeros((n_rows, n_terms)), np.zeros(n_rows)
    ridge = 1e-14 * np.trace(gram, axis1=1, axis2=2)
    # With few terms every subset can be tried: exact, and one batch for all samples.
    for size in range(1, n_terms + 1):
        for subset in itertools.combinations(range(n_terms), size):
            part = gram[:, subset][:, :, subset] + ridge[:, None, None] * np.eye(size)
            solved = np.linalg.solve(part, right[:, subset, None])[..., 0]
            # Squares at a least-squares solution, but for the constant target^2.
            squares = -np.sum(solved * right[:, subset], axis=1)
            better = np.all(solved >= 0, axis=1) & (squares < lowest)
            lowest = np.where(better, squares, lowest)
            full = np.zeros((n_rows, n_terms))
            full[:, subset] = solved
            best = np.where(better[:, None], full, best)
    return best
