"""What nominal 95 % intervals cover, on simulated data sets of several designs.

Each data set is drawn from a known law with seed noise, then goes through the functions that ``scalevec fit``
and ``scalevec compare`` call, with their defaults; so the table says what a user's interval covers. Run it
with ``python benchmarks/calibration.py [DATA_SETS] [DESIGN ...]``; the table goes to standard output.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import paired_designs
import pandas as pd

from scalevec.analysis.comparison.independence import Independence
from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.data.pairs import paired_by
from scalevec.analysis.data.tidy import FloatArray, checked
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits import intervals
from scalevec.analysis.fits.fit import fit_arm
from scalevec.analysis.fits.profile_likelihood import prediction_profile, profile
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import fit_points
from scalevec.analysis.solver.design import DesignMatrix
from scalevec.analysis.statistics import paired as inference

LEVEL, DRAWS = 0.95, 200
NOISE = 3e-3
"""sd of the log loss of one trial, beside twice that which the arms of a seed share."""
GAIN = 1.1
SMALL_NOISE = 7e-3
"""The same at the sizes of the quickstart, in nats: differences of pairs vary by 0.01."""
BOWL, FLAT_BOWL, GRID_STEP = 0.06, 0.02, np.log2(2.5)
"""Nats by which the loss rises at twice the best rate (median and least of the six bowls of the kept
quickstart, which go to 0.1), and the grid's step there in powers of two. The flatter the bowl, the more is
left to luck in tuning, and that is a difference between the arms."""
POWER = {"A": np.exp(3.9), "alpha": 0.09}
CHINCHILLA = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
Covered = Mapping[str, float]


@dataclass(frozen=True)
class Design:
    """A named design: ``simulate`` draws a data set and says which intervals cover the truth."""

    name: str
    simulate: Callable[[np.random.Generator, AnalysisOptions], Covered]
    settings: AnalysisOptions


def pairs_of_arms(n_rungs: int, n_seeds: int) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Two arms on one power law in C, of which one needs 1/GAIN of the compute."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        table = _two_arms(rng, n_rungs, n_seeds)
        pairs = paired_by(checked(table), "reference", "arm", AnalysisOptions())
        truth = pairs.complete["truth_arm"] - pairs.complete["truth_reference"]
        wanted = float(np.mean([cell.mean() for _, cell in truth.groupby(pairs.cells)]))
        mean = inference.overall(Independence.of(pairs).sample(pairs)).interval(LEVEL)
        lines = ArmLaws(pairs, settings, "C")
        middle = float(np.sqrt(np.prod(lines.range())))
        interval = lines.multiplier("middle", middle, middle).interval
        largest = lines.multiplier("largest", lines.range()[1], lines.range()[1]).interval
        reference = table[table["arm"] == "reference"]
        compute = 6 * reference["n_params"].to_numpy() * reference["n_tokens"].to_numpy()
        runs = np.arange(len(compute))
        alone = _alone({"x": compute}, reference["loss"].to_numpy(), runs, "power", POWER, settings)
        return {
            "mean difference": _covers(mean, wanted),
            "log multiplier, middle": _covers(interval, GAIN),
            "log multiplier, largest": _covers(largest, GAIN),
            **alone,
        }

    return simulate


def _two_arms(rng: np.random.Generator, n_rungs: int, n_seeds: int) -> pd.DataFrame:
    n_params = np.repeat(np.geomspace(3e4, 3e5, n_rungs).round(), n_seeds)
    seeds = np.tile(np.arange(n_seeds), n_rungs)
    shared = rng.normal(0, 2 * NOISE, len(n_params))
    parts = []
    for arm, gain in (("reference", 1.0), ("arm", GAIN)):
        truth = POWER["A"] * (gain * 96 * n_params**2) ** -POWER["alpha"]
        noise = shared + rng.normal(0, NOISE, len(n_params))
        # The mean of exp(noise) is not one: the truth of a mean difference is of expected losses.
        expected = truth * np.exp(0.5 * NOISE**2 * 5)
        columns = {"n_params": n_params, "n_tokens": 16 * n_params, "seed": seeds, "truth": expected}
        parts.append(pd.DataFrame(columns).assign(arm=arm, loss=truth * np.exp(noise)))
    return pd.concat(parts, ignore_index=True)


def grid(
    n_sizes: int, n_budgets: int, n_seeds: int
) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Hoffmann's law on sizes x token budgets x seeds."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        sizes, tokens = np.meshgrid(np.geomspace(1e7, 1e9, n_sizes), np.geomspace(1e8, 1e10, n_budgets))
        n, d = (np.repeat(values.ravel(), n_seeds) for values in (sizes, tokens))
        loss = law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d})
        loss = loss * np.exp(rng.normal(0, NOISE, len(n)))
        return _alone({"N": n, "D": d}, loss, np.arange(len(n)), "chinchilla", CHINCHILLA, settings)

    return simulate


def checkpoints(n_runs: int, n_points: int) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Checkpoints along runs of different sizes: a run's points share two thirds of their variance."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        sizes = np.geomspace(1e7, 1e9, n_runs)
        n = np.repeat(sizes, n_points)
        d = n * np.tile(np.geomspace(10, 160, n_points), n_runs)
        run = np.repeat(np.arange(n_runs), n_points)
        loss = law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d})
        noise = rng.normal(0, NOISE, n_runs)[run] + rng.normal(0, NOISE / np.sqrt(2), len(n))
        return _alone({"N": n, "D": d}, loss * np.exp(noise), run, "chinchilla", CHINCHILLA, settings)

    return simulate


def isoflops(n_budgets: int, n_sizes: int) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Sizes around the optimum of Hoffmann's law at each budget, and the power law of the vertices."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        budgets = np.repeat(np.geomspace(1e19, 1e21, n_budgets), n_sizes)
        n = _optimal_size(budgets) * np.tile(np.geomspace(0.25, 4.0, n_sizes), n_budgets)
        return _of_optima(n, budgets / 6 / n, np.arange(len(n)), rng.normal(0, NOISE, len(n)), settings)

    return simulate


def curves(n_runs: int) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Training curves on Hoffmann's law, each with an offset of its own, and the law of their envelope."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        n = np.repeat(np.geomspace(1e7, 1e10, n_runs), 60)
        d = np.tile(np.geomspace(1e8, 1e13, 60), n_runs)
        run = np.repeat(np.arange(n_runs), 60)
        return _of_optima(n, d, run, rng.normal(0, NOISE, n_runs)[run], settings)

    return simulate


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
        fitted = fit_arm(checked(table), replace(settings, hold_out="none"))
    except DataError:
        return {}
    at = fitted.prediction["at"]["C"]
    exponent = CHINCHILLA["beta"] / (CHINCHILLA["alpha"] + CHINCHILLA["beta"])
    return {
        "a": _covers(fitted.intervals.get("a"), exponent),
        "prediction at 2 C": _covers(fitted.prediction["interval"], float(_optimal_size(np.array([at]))[0])),
    }


def clustered_pairs(
    n_shapes: int, n_budgets: int
) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Two arms on the same shapes, each at several token budgets; the effect differs from shape to shape."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        shape = np.repeat(np.arange(n_shapes), n_budgets)
        sizes = np.geomspace(3e4, 3e5, n_shapes).round()[shape]
        budgets = np.tile(np.geomspace(16, 18, n_budgets), n_shapes)
        parts = []
        effects = {"reference": np.zeros(n_shapes), "arm": rng.normal(0, 2 * NOISE, n_shapes)}
        for (arm, effect), gain in zip(effects.items(), (1.0, GAIN), strict=True):
            loss = POWER["A"] * (gain * 6 * budgets * sizes**2) ** -POWER["alpha"]
            loss = loss * np.exp(effect[shape] + rng.normal(0, NOISE, len(shape)))
            columns = {"n_params": sizes, "n_tokens": budgets * sizes, "loss": loss, "shape": shape}
            parts.append(pd.DataFrame(columns).assign(arm=arm, cluster=shape.astype(str)))
        pairs = paired_by(checked(pd.concat(parts, ignore_index=True)), "reference", "arm", AnalysisOptions())
        mean = inference.overall(Independence.of(pairs).sample(pairs)).interval(LEVEL)
        base = POWER["A"] * (6 * budgets * sizes**2) ** -POWER["alpha"]
        spread = np.exp(0.5 * NOISE**2), np.exp(0.5 * 5 * NOISE**2)
        wanted = float(np.mean(base * (GAIN ** -POWER["alpha"] * spread[1] - spread[0])))
        lines = ArmLaws(pairs, settings, "C")
        middle = float(np.sqrt(np.prod(lines.range())))
        interval = lines.multiplier("middle", middle, middle).interval
        return {"mean difference": _covers(mean, wanted), "log multiplier, middle": _covers(interval, GAIN)}

    return simulate


def trunks(
    n_rungs: int, n_budgets: int, n_seeds: int
) -> Callable[[np.random.Generator, AnalysisOptions], Covered]:
    """Two arms on one power law in C at several token budgets that are branches of one trunk.

    Branches share three quarters of their trial's variance; arms share what belongs to a seed.
    """

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        trunk = np.repeat(np.arange(n_rungs * n_seeds), n_budgets)
        sizes = np.geomspace(3e4, 3e5, n_rungs).round()[trunk // n_seeds]
        tokens = sizes * np.tile(np.geomspace(8, 32, n_budgets), n_rungs * n_seeds)
        of_seed = rng.normal(0, 2 * NOISE, n_rungs * n_seeds)[trunk]
        parts = []
        for arm, gain in (("reference", 1.0), ("arm", GAIN)):
            truth = POWER["A"] * (gain * 6 * sizes * tokens) ** -POWER["alpha"]
            of_trunk = rng.normal(0, NOISE * 0.75**0.5, n_rungs * n_seeds)[trunk]
            noise = of_seed + of_trunk + rng.normal(0, NOISE * 0.25**0.5, len(trunk))
            columns = {"n_params": sizes, "n_tokens": tokens, "seed": trunk % n_seeds}
            columns |= {"loss": truth * np.exp(noise), "truth": truth * np.exp(0.5 * NOISE**2 * 5)}
            clusters = [f"{arm} {name}" for name in trunk]
            parts.append(pd.DataFrame(columns).assign(arm=arm, cluster=clusters))
        pairs = paired_by(checked(pd.concat(parts, ignore_index=True)), "reference", "arm", AnalysisOptions())
        gaps = pairs.complete["truth_arm"] - pairs.complete["truth_reference"]
        wanted = float(np.mean([cell.mean() for _, cell in gaps.groupby(pairs.cells)]))
        mean = inference.overall(Independence.of(pairs).sample(pairs)).interval(LEVEL)
        lines = ArmLaws(pairs, settings, "C")
        middle = float(np.sqrt(np.prod(lines.range())))
        interval = lines.multiplier("middle", middle, middle).interval
        loss = parts[0]["loss"].to_numpy()
        alone = _alone({"x": 6 * sizes * tokens}, loss, trunk, "power", POWER, settings)
        return {
            "mean difference": _covers(mean, wanted),
            "log multiplier, middle": _covers(interval, GAIN),
            **alone,
        }

    return simulate


def tuned_sweep(
    gain: float, bowl: float = BOWL, n_rungs: int = 4, n_seeds: int = 2
) -> Callable[..., Covered]:
    """A whole small sweep: each arm's learning rate is tuned on its own seed, then both are compared.

    The loss rises by ``bowl`` nats at twice or half the best rate; each arm tunes two rungs on a grid of
    three rates, takes the vertex of the parabola (inside the grid) to steps of 2^(1/4), and carries the mean
    to the other rungs: a simple form of what the tuner does, which also extends grids and fits the slope of
    the rates. "called better" and "called worse" are what ``compare`` would say of one arm.
    """

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        n_params = np.repeat(np.geomspace(25e3, 150e3, n_rungs).round(), n_seeds)
        shared = rng.normal(0, 2 * SMALL_NOISE, len(n_params))
        parts = []
        # Where the best rate lies between the grid's; the same for both arms, as the grid is.
        best = GRID_STEP * rng.uniform(-0.5, 0.5)
        for arm, times in (("reference", 1.0), ("arm", gain)):
            off = np.repeat(_tuned(rng, n_rungs, best, bowl), n_seeds)
            truth = POWER["A"] * (times * 96 * n_params**2) ** -POWER["alpha"]
            loss = truth + bowl * off**2 + shared + rng.normal(0, SMALL_NOISE, len(n_params))
            columns = {"n_params": n_params, "n_tokens": 16 * n_params, "loss": loss}
            parts.append(pd.DataFrame(columns).assign(arm=arm, seed=np.tile(np.arange(n_seeds), n_rungs)))
        table = checked(pd.concat(parts, ignore_index=True))
        pairs = paired_by(table, "reference", "arm", AnalysisOptions())
        mean = inference.overall(Independence.of(pairs).sample(pairs)).interval(LEVEL)
        lines = ArmLaws(pairs, settings, "C")
        middle = float(np.sqrt(np.prod(lines.range())))
        interval = lines.multiplier("middle", middle, middle).interval
        return {
            "called better": mean is not None and mean[1] < 0,
            "called worse": mean is not None and mean[0] > 0,
            "log multiplier, middle": _covers(interval, gain),
        }

    return simulate


def _tuned(rng: np.random.Generator, n_rungs: int, best: float, bowl: float) -> FloatArray:
    """How far each rung's chosen rate is from the best, in powers of two [rungs]."""
    grid = GRID_STEP * np.array([-1.0, 0.0, 1.0]) - best
    chosen = []
    for _ in range(2):
        losses = bowl * grid**2 + rng.normal(0, SMALL_NOISE, 3)
        curve = np.polynomial.Polynomial.fit(grid, losses, 2).convert().coef
        vertex = -curve[1] / (2 * curve[2]) if curve[2] > 0 else grid[np.argmin(losses)]
        chosen.append(np.round(4 * np.clip(vertex, grid[0], grid[-1])) / 4)
    return np.array([*chosen, *np.full(n_rungs - 2, np.mean(chosen))])


def _alone(
    variables: dict[str, FloatArray],
    loss: FloatArray,
    clusters: FloatArray,
    law: str,
    truth: dict[str, float],
    settings: AnalysisOptions,
) -> Covered:
    """The intervals of one arm's parameters and of its prediction at twice the largest compute."""
    fit = fit_points(DesignMatrix(law_named(law), variables), loss, settings)
    cells = np.unique(np.stack(list(variables.values())), axis=1, return_inverse=True)[1].ravel()
    names = pd.Series([str(cluster) for cluster in clusters])
    far = {name: float(v.max() * (2.0 if name == "x" else 2**0.5)) for name, v in variables.items()}
    wanted = float(law_named(law).predict(truth, {name: np.array([v]) for name, v in far.items()})[0])
    if settings.interval == "profile":
        profiled = {name: profile(fit, name, LEVEL).interval for name in truth}
        profiled["prediction at 2 C"] = prediction_profile(fit, far, LEVEL).interval
        truths = {**truth, "prediction at 2 C": wanted}
        return {name: _covers(interval, truths[name]) for name, interval in profiled.items()}
    built = intervals.replicates(fit, cells.astype(float), names, settings)
    if isinstance(built, intervals.NoInterval):
        return {}
    covered = {name: _covers(b, truth[name]) for name, b in built.parameters(fit, LEVEL)[0].items()}
    covered["prediction at 2 C"] = _covers(built.prediction(fit, far, LEVEL), wanted)
    return covered


def _covers(interval: tuple[float, float] | None, truth: float) -> bool:
    """An interval that is not given covers nothing and is counted as a miss."""
    return interval is not None and interval[0] <= truth <= interval[1]


def designs() -> dict[str, Design]:
    """The designs, each with the settings that a user gets by default (and least squares beside them)."""
    default = AnalysisOptions(bootstrap=DRAWS)
    grown = replace(default, law="chinchilla")
    designs = []
    for loss in ("huber", "l2"):
        item, two = replace(default, loss=loss), replace(grown, loss=loss)
        designs += [
            Design(f"5 rungs x 2 seeds, {loss}", pairs_of_arms(5, 2), item),
            Design(f"5 rungs x 3 seeds, {loss}", pairs_of_arms(5, 3), item),
            Design(f"12 rungs x 1 seed, {loss}", pairs_of_arms(12, 1), item),
            Design(f"5 sizes x 3 budgets x 3 seeds, {loss}", grid(5, 3, 3), two),
            Design(f"12 sizes x 10 budgets x 1 seed, {loss}", grid(12, 10, 1), two),
            Design(f"15 runs x 8 checkpoints, {loss}", checkpoints(15, 8), two),
        ]
    profiled = replace(grown, loss="l2", interval="profile")
    designs += [
        Design("16 sizes x 15 budgets x 1 seed, huber", grid(16, 15, 1), grown),
        Design("5 sizes x 3 budgets x 3 seeds, l2, profile", grid(5, 3, 3), profiled),
        Design("trunks: 5 rungs x 3 budgets x 3 seeds", trunks(5, 3, 3), default),
        Design("12 shapes x 4 budgets, pairs clustered by shape", clustered_pairs(12, 4), default),
    ]
    isoflop, envelope = replace(default, law="isoflop"), replace(default, law="envelope")
    designs += [Design(f"isoflop, {n} budgets x 9 sizes", isoflops(n, 9), isoflop) for n in (6, 10)]
    designs += [Design(f"envelope, {n} curves", curves(n), envelope) for n in (12, 24)]
    for gain, bowl, kind in ((1.0, BOWL, ""), (1.1, BOWL, ""), (1.0, FLAT_BOWL, "flat bowls, ")):
        name = f"tuned sweep, 4 rungs x 2 seeds, {kind}multiplier {gain:.2f}"
        designs.append(Design(name, tuned_sweep(gain, bowl), default))
    designs += [
        Design(name, paired_designs.differences(of), default) for name, of in paired_designs.layouts().items()
    ]
    for name, of in paired_designs.layouts().items():
        if of.settings == 1 and of.seeds == 3:
            designs.append(Design(f"multipliers: {name}", paired_designs.multipliers(of, POWER), default))
    for bend in (0.0, 1e-3, 2e-3):
        designs.append(Design(f"lack of fit, bend {bend:g}", paired_designs.wrong_law(bend), default))
    return {design.name: design for design in designs}


def _part(name: str, first: int, last: int) -> list[Covered]:
    design = designs()[name]
    return [
        design.simulate(np.random.default_rng([7, number]), replace(design.settings, seed=number))
        for number in range(first, last)
    ]


def coverage(name: str, n_sets: int, n_workers: int = 1) -> dict[str, float]:
    """Share of ``n_sets`` data sets of design ``name`` whose interval covers the truth, by quantity."""
    edges = np.linspace(0, n_sets, 8 * n_workers + 1).astype(int)
    if n_workers == 1:
        results = _part(name, 0, n_sets)
    else:
        with ProcessPoolExecutor(n_workers) as pool:
            parts = pool.map(_part, [name] * (len(edges) - 1), edges[:-1], edges[1:])
            results = [item for part in parts for item in part]
    quantities = dict.fromkeys(key for item in results for key in item)
    return {key: _summary(key, [item.get(key, False) for item in results]) for key in quantities}


def _summary(quantity: str, values: list[float]) -> float:
    """The share of data sets, or the median of a length."""
    return float(np.median(values) if quantity.startswith(paired_designs.LENGTH) else np.mean(values))


def rows(n_sets: int, names: list[str], n_workers: int) -> Iterator[str]:
    """The table, line by line."""
    yield f"| design | quantity | covered (or called), % of {n_sets} | s |"
    yield "| --- | --- | ---: | ---: |"
    for name in names:
        start = time.perf_counter()
        for quantity, share in coverage(name, n_sets, n_workers).items():
            took = time.perf_counter() - start
            is_length = quantity.startswith(paired_designs.LENGTH)
            shown = f"{share:.2f} times" if is_length else f"{100 * share:.1f}"
            yield f"| {name} | {quantity} | {shown} | {took:.0f} |"


def main() -> None:
    """Print the table."""
    n_sets = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    names = [name for name in designs() if any(word in name for word in sys.argv[2:] or [""])]
    for line in rows(n_sets, names, len(os.sched_getaffinity(0))):
        print(line, flush=True)


if __name__ == "__main__":
    main()
