"""Data sets of one arm on a known law, and whether the intervals of its fit contain the truth."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits import intervals
from scalevec.analysis.fits.fit import fit
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.law_points import points_of

LEVEL = 0.95
NOISE = 3e-3
"""sd of the log loss of one trial."""
CHINCHILLA = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
Covered = Mapping[str, float]
Simulate = Callable[[np.random.Generator, AnalysisOptions], Covered]


def grid(n_sizes: int, n_budgets: int, n_seeds: int, law: str = "chinchilla") -> Simulate:
    """Hoffmann's law on sizes x token budgets x seeds, fitted by a form of it."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        sizes, tokens = np.meshgrid(np.geomspace(1e7, 1e9, n_sizes), np.geomspace(1e8, 1e10, n_budgets))
        n, d = (np.repeat(values.ravel(), n_seeds) for values in (sizes, tokens))
        loss = law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d})
        loss = loss * np.exp(rng.normal(0, NOISE, len(n)))
        return of_one_arm({"N": n, "D": d}, loss, np.arange(len(n)), law, CHINCHILLA, settings)

    return simulate


def checkpoints(n_runs: int, n_points: int) -> Simulate:
    """Checkpoints along runs of different sizes: a run's points share two thirds of their variance."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        sizes = np.geomspace(1e7, 1e9, n_runs)
        n = np.repeat(sizes, n_points)
        d = n * np.tile(np.geomspace(10, 160, n_points), n_runs)
        run = np.repeat(np.arange(n_runs), n_points)
        loss = law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d})
        noise = rng.normal(0, NOISE, n_runs)[run] + rng.normal(0, NOISE / np.sqrt(2), len(n))
        return of_one_arm({"N": n, "D": d}, loss * np.exp(noise), run, "chinchilla", CHINCHILLA, settings)

    return simulate


def isoflops(n_budgets: int, n_sizes: int) -> Simulate:
    """Sizes around the optimum of Hoffmann's law at each budget, and the power law of the vertices."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        budgets = np.repeat(np.geomspace(1e19, 1e21, n_budgets), n_sizes)
        n = _optimal_size(budgets) * np.tile(np.geomspace(0.25, 4.0, n_sizes), n_budgets)
        return _of_optima(n, budgets / 6 / n, np.arange(len(n)), rng.normal(0, NOISE, len(n)), settings)

    return simulate


def predicted_grid(n_sizes: int, n_budgets: int, n_seeds: int) -> Simulate:
    """:func:`grid`, and what ``scalevec predict`` says at once, twice and ten times the largest compute."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        sizes, tokens = np.meshgrid(np.geomspace(1e7, 1e9, n_sizes), np.geomspace(1e8, 1e10, n_budgets))
        n, d = (np.repeat(values.ravel(), n_seeds) for values in (sizes, tokens))
        table = pd.DataFrame({"n_params": n, "n_tokens": d, "seed": np.arange(len(n)) % n_seeds})
        return _predicted(table.assign(cluster=np.arange(len(n)).astype(str)), rng, settings)

    return simulate


def predicted_isoflops(n_budgets: int, n_sizes: int) -> Simulate:
    """The same of a law in N and D that is fitted to the sizes of :func:`isoflops`."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        budgets = np.repeat(np.geomspace(1e19, 1e21, n_budgets), n_sizes)
        n = _optimal_size(budgets) * np.tile(np.geomspace(0.25, 4.0, n_sizes), n_budgets)
        table = pd.DataFrame({"n_params": n, "n_tokens": budgets / 6 / n, "flops": budgets})
        return _predicted(table.assign(cluster=np.arange(len(n)).astype(str)), rng, settings)

    return simulate


def _predicted(table: pd.DataFrame, rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
    """The intervals of the loss, of one further run, and of N*; that of D* = C / 6 N* holds with N*'s."""
    n, d = table["n_params"].to_numpy(), table["n_tokens"].to_numpy()
    table["loss"] = _planted(n, d) * np.exp(rng.normal(0, NOISE, len(n)))
    largest, factors = int(np.argmax(n * d)), np.array([1.0, 2.0, 10.0])
    at = pd.DataFrame({"N": n[largest] * np.sqrt(factors), "D": d[largest] * np.sqrt(factors)})
    budgets = 6 * n[largest] * d[largest] * factors
    fitted = fit(table, settings).only
    law, run = fitted.predict(at), fitted.predict(at, interval="run")
    covered: dict[str, float] = {}
    for row, truth in enumerate(_planted(at["N"].to_numpy(), at["D"].to_numpy())):
        further = truth * np.exp(rng.normal(0, NOISE))
        for name, table_of, value in (("loss", law, truth), ("one further run", run, further)):
            ends = float(table_of["low"][row]), float(table_of["high"][row])
            covered[f"{name} at {factors[row]:g} C"] = covers(ends, value)
            covered[f"{name} at {factors[row]:g} C, covered or withheld"] = (
                covers(ends, value) or ends[0] != ends[0]
            )
    for best in fitted.best(*budgets).itertuples():
        truth = float(_optimal_size(np.array([best.flops]))[0])
        factor = best.flops / budgets[0]
        covered[f"N* at {factor:g} C"] = covers((best.N_low, best.N_high), truth)
    return covered


def _planted(n: FloatArray, d: FloatArray) -> FloatArray:
    return law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d})


def _optimal_size(compute: FloatArray) -> FloatArray:
    """N* of Hoffmann's law at C = 6 N D."""
    a, b = CHINCHILLA["alpha"], CHINCHILLA["beta"]
    ratio = a * CHINCHILLA["A"] / (b * CHINCHILLA["B"])
    return np.asarray(ratio ** (1 / (a + b)) * (compute / 6) ** (b / (a + b)))


def _of_optima(
    n: FloatArray, d: FloatArray, run: FloatArray, noise: FloatArray, settings: AnalysisOptions
) -> Covered:
    """The intervals of the exponent and of N* at twice the largest compute that has an optimum."""
    loss = law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d}) * np.exp(noise)
    table = pd.DataFrame({"n_params": n, "n_tokens": d, "loss": loss, "cluster": run.astype(str)})
    try:
        fitted = fit(table, replace(settings, hold_out="none")).only
    except DataError:
        return {}
    [twice] = fitted.predict().iloc[[1]].itertuples()
    exponent = CHINCHILLA["beta"] / (CHINCHILLA["alpha"] + CHINCHILLA["beta"])
    return {
        "a": covers(fitted.intervals.get("a"), exponent),
        "prediction at 2 C": covers((twice.low, twice.high), float(_optimal_size(np.array([twice.C]))[0])),
    }


def of_one_arm(
    variables: dict[str, FloatArray],
    loss: FloatArray,
    clusters: FloatArray,
    law: str,
    truth: dict[str, float],
    settings: AnalysisOptions,
) -> Covered:
    """The intervals of one arm's parameters and of its prediction at twice the largest compute."""
    fitted = fit_points(points_of(law_named(law), variables), loss, settings)
    names = pd.Series([str(cluster) for cluster in clusters])
    far = {name: np.array([v.max() * (2.0 if name == "x" else 2**0.5)]) for name, v in variables.items()}
    wanted = float(law_named(law).predict(truth, far)[0])
    built = intervals.replicates(fitted, names, settings)
    if not built.draws:
        return {}
    covered = {name: covers(b, truth[name]) for name, b in built.parameters(fitted, LEVEL)[0].items()}
    estimate = float(intervals.values_of(fitted, fitted.theta[None], far)[0, 0])
    drawn = intervals.values_of(fitted, built.solution.theta, far)[:, 0]
    covered["prediction at 2 C"] = covers(built.interval(estimate, drawn, LEVEL), wanted)
    return covered


def covers(interval: tuple[float, float] | None, truth: float) -> bool:
    """An interval that is not given covers nothing and is counted as a miss."""
    return interval is not None and interval[0] <= truth <= interval[1]
