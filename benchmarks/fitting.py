"""Speed of the fitter against what people run today, on the same points and the same bootstrap replicates.

``OMP_NUM_THREADS=1 python benchmarks/fitting.py POINTS.csv`` (columns n_params, n_tokens, loss; rows with
``excluded`` 1 are left out; without a file, simulated points) interleaves all contestants in one process and
prints CPU seconds of one thread, the ratio to ours, and how far each ends above our objective. Every figure
is of what was run; nothing is extrapolated. It ends with exit code 1 where any contestant finds a lower
objective than ours, or where the bootstrap is less than 50 times as fast as BFGS with finite differences or
10 times as fast as L-BFGS-B with our gradient.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw, fit_points
from scalevec.analysis.solver.law_points import points_of

DELTA = 1e-3
NEVER_WORSE = 1e-9
"""No contestant may end lower than this share of our objective."""
LBFGS, BFGS = "scipy L-BFGS-B, our analytic gradient, warm", "scipy BFGS, finite differences, warm"
LEAST_RATIOS = {LBFGS: 10, BFGS: 50}
"""How many times our time these take at least, on one thread."""
CHUNKS = 4
OURS = 7
"""How often our global fit is repeated among the chunks of the grid; the median counts."""
HOFFMANN = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
# The grid of the published notebooks (Hoffmann et al. 2022, section 3.3): 6 x 6 x 5 x 5 x 5 = 4,500 starts.
GRID = ((0, 5, 10, 15, 20, 25), (0, 5, 10, 15, 20, 25), (-1, -0.5, 0, 0.5, 1), *((0, 0.5, 1, 1.5, 2),) * 2)


class Points:
    """ln N, ln D and ln L of the points, and Huber's objective as the peers write it."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.n, self.d, self.y = (table[c].to_numpy(float) for c in ("n_params", "n_tokens", "loss"))
        self.logs = np.log(self.n), np.log(self.d), np.log(self.y)

    def value(self, theta: FloatArray, weights: FloatArray | float = 1.0) -> float:
        """Objective at (a, b, e, alpha, beta)."""
        return self.both(theta, weights)[0]

    def both(self, theta: FloatArray, weights: FloatArray | float = 1.0) -> tuple[float, FloatArray]:
        """Objective and analytic gradient."""
        a, b, e, alpha, beta = theta
        log_n, log_d, log_y = self.logs
        z = np.stack([a - alpha * log_n, b - beta * log_d, np.full(len(log_n), e)])
        top = z.max(axis=0)
        shares = np.exp(z - top)
        total = shares.sum(axis=0)
        residual = top + np.log(total) - log_y
        size = np.abs(residual)
        loss = np.where(size <= DELTA, 0.5 * residual**2, DELTA * (size - 0.5 * DELTA))
        p = shares / total * (weights * np.clip(residual, -DELTA, DELTA))
        gradient = np.array([p[0].sum(), p[1].sum(), p[2].sum(), -(p[0] @ log_n), -(p[1] @ log_d)])
        return float(np.sum(weights * loss)), gradient

    def ours(self) -> FittedLaw:
        """The global fit of this project."""
        points = points_of(law_named("chinchilla"), {"N": self.n, "D": self.d})
        return fit_points(points, self.y, AnalysisOptions(loss="huber", delta=DELTA))


def simulated(n_points: int) -> pd.DataFrame:
    """Points on Hoffmann's law with 0.5 % noise."""
    rng = np.random.default_rng(0)
    n, d = np.exp(rng.uniform(np.log(5e7), np.log(2e10), n_points)), np.exp(rng.uniform(20, 27, n_points))
    loss = law_named("chinchilla").predict(HOFFMANN, {"N": n, "D": d}) * np.exp(rng.normal(0, 5e-3, n_points))
    return pd.DataFrame({"n_params": n, "n_tokens": d, "loss": loss})


def timed(run: Callable[[], FloatArray]) -> tuple[float, FloatArray]:
    """CPU seconds and the objectives that ``run`` returns."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def bootstrap(points: Points, n_replicates: int) -> list[str]:
    """The same replicates through all contestants, in turn, a chunk at a time; what was not as promised."""
    fit = points.ours()
    result = fit.parameters()
    start = np.array(
        [np.log(result["A"]), np.log(result["B"]), np.log(result["E"]), result["alpha"], result["beta"]]
    )
    n = len(points.y)
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), n_replicates).astype(float)

    def bfgs(part: FloatArray) -> FloatArray:
        return np.array([minimize(points.value, start, (w,), method="BFGS").fun for w in part])

    def lbfgs(part: FloatArray) -> FloatArray:
        options = {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 10_000}
        return np.array(
            [minimize(points.both, start, (w,), "L-BFGS-B", jac=True, options=options).fun for w in part]
        )

    def bfgs_with_gradient(part: FloatArray) -> FloatArray:
        return np.array([minimize(points.both, start, (w,), method="BFGS", jac=True).fun for w in part])

    runs = {
        "ours": lambda part: fit.redone(weights=part).objective,
        LBFGS: lbfgs,
        "scipy BFGS, our analytic gradient, warm": bfgs_with_gradient,
        BFGS: bfgs,
    }
    times: dict[str, float] = dict.fromkeys(runs, 0.0)
    ends: dict[str, list[FloatArray]] = {name: [] for name in runs}
    for part in np.array_split(weights, CHUNKS):
        for name, run in runs.items():
            took, objectives = timed(lambda run=run, part=part: run(part))
            times[name] += took
            ends[name].append(objectives)
    best = np.concatenate(ends["ours"])
    print(f"\nBootstrap, {n_replicates} replicates of {n} points\n")
    print("| code | CPU s | times ours | worse than ours by > 1e-6 | better than ours by > 1e-9 (relative) |")
    print("| --- | ---: | ---: | ---: | ---: |")
    broken = []
    for name, took in times.items():
        gap, ratio = np.concatenate(ends[name]) / best - 1, took / times["ours"]
        worse, better = int(np.sum(gap > 1e-6)), int(np.sum(gap < -NEVER_WORSE))
        print(f"| {name} | {took:.3f} | {ratio:.1f} | {worse} | {better} |", flush=True)
        if better:
            broken.append(f"{name}: better than ours in {better} of {n_replicates} replicates")
        if ratio < LEAST_RATIOS.get(name, 0):
            broken.append(f"{name}: {ratio:.1f} times our time, promised {LEAST_RATIOS[name]}")
    return broken


def global_fit(points: Points, n_starts: int, with_package: bool) -> list[str]:
    """One fit from nothing: ours before each chunk of the grid of starts, and ``chinchilla`` from PyPI."""
    starts = list(itertools.product(*GRID))[:n_starts]

    def grid(part: FloatArray) -> FloatArray:
        return np.array([minimize(points.value, start, method="L-BFGS-B").fun for start in part])

    ours, theirs = [], []
    for part in np.array_split(np.array(starts, float), OURS):
        ours.append(timed(lambda: np.array([points.ours().objective])))
        theirs.append(timed(lambda part=part: grid(part)))
    rows = [("ours", float(np.median([took for took, _ in ours])), float(ours[0][1][0]))]
    if with_package:
        rows.append(_package(points))
    name = f"grid of {len(starts)} starts, L-BFGS-B, finite differences"
    rows.append((name, sum(took for took, _ in theirs), min(float(result.min()) for _, result in theirs)))
    print("\nOne global fit\n\n| code | CPU s | times ours | objective above ours (relative) |")
    print("| --- | ---: | ---: | ---: |")
    for name, took, end in rows:
        print(f"| {name} | {took:.4f} | {took / rows[0][1]:.0f} | {end / rows[0][2] - 1:.2g} |", flush=True)
    better = [name for name, _, end in rows if end / rows[0][2] - 1 < -NEVER_WORSE]
    return [f"{name}: a lower objective than ours in the global fit" for name in better]


def _package(points: Points) -> tuple[str, float, float]:
    """``chinchilla`` from PyPI with its log-Huber loss and 3 starts a parameter."""
    from chinchilla import Chinchilla
    from chinchilla._metrics import log_huber

    axes = {"e": (0.0, 0.5, 1.0), "a": (0.0, 10.0, 20.0), "b": (0.0, 10.0, 20.0)}
    axes |= {"alpha": (0.2, 0.6, 1.0), "beta": (0.2, 0.6, 1.0)}
    with tempfile.TemporaryDirectory() as folder:
        model = Chinchilla(
            folder,
            param_grid=axes,
            seed_ranges={"C": (1e18, 1e22), "N_to_D": (1, 100)},
            loss_fn=lambda seen, predicted: log_huber(seen, predicted, DELTA),
            log_level=50,
        )
        frame = pd.DataFrame({"C": 6 * points.n * points.d, "N": points.n, "D": points.d, "loss": points.y})
        model.database.df = frame
        start = time.process_time()
        model.fit(parallel=False, simulation=True)
        took = time.process_time() - start
    theta = [np.log(float(model.A)), np.log(float(model.B)), np.log(float(model.E)), model.alpha, model.beta]
    return "chinchilla (PyPI), 243 starts", took, points.value(np.array(theta, float))


def cost(largest: int) -> None:
    """CPU seconds of ours against points and replicates."""
    print("\nCost of ours, CPU s, on simulated points\n")
    print("| points | global fit | 100 replicates | 1,000 replicates |")
    print("| ---: | ---: | ---: | ---: |")
    for n_points in [n for n in (100, 1_000, 10_000, 100_000) if n <= largest]:
        points = Points(simulated(n_points))
        took, _ = timed(lambda points=points: np.array([points.ours().objective]))
        cells = [f"{took:.3f}"]
        fit = points.ours()
        for replicates in (100, 1_000):
            if n_points * replicates > 1e7:
                cells.append("not run")
                continue
            rng = np.random.default_rng(0)
            weights = rng.multinomial(n_points, np.full(n_points, 1 / n_points), replicates).astype(float)
            took, _ = timed(lambda fit=fit, weights=weights: fit.redone(weights=weights).objective)
            cells.append(f"{took:.3f}")
        print(f"| {n_points} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", nargs="?", type=Path)
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--starts", type=int, default=4500, help="how many of the grid's starts are run")
    parser.add_argument("--largest", type=int, default=100_000, help="most points of the table of costs")
    parser.add_argument("--package", action="store_true", help="run chinchilla from PyPI too")
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # With their own threads the peers take 4 to 25 times longer: BLAS threads spin on tiny arrays.
        sys.exit("set OMP_NUM_THREADS=1: one thread, for everyone")
    table = pd.read_csv(options.points) if options.points else simulated(240)
    if "excluded" in table:
        table = table[table["excluded"] == 0]
    points = Points(table)
    broken = bootstrap(points, options.replicates)
    broken += global_fit(points, options.starts, options.package)
    cost(options.largest)
    if broken:
        sys.exit("\n".join(broken))


if __name__ == "__main__":
    main()
