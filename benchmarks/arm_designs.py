"""Data sets of two arms on one law, as tables: what the intervals of a whole comparison contain."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from law_designs import LEVEL, NOISE, Covered, Simulate, covers, of_one_arm

from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.data.pairs import Pairs, paired_by
from scalevec.analysis.data.tidy import FloatArray, checked
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.sample import sample_of

GAIN = 1.1
SMALL_NOISE = 7e-3
"""The same at the sizes of the quickstart, in nats: differences of pairs vary by 0.01."""
BOWL, FLAT_BOWL, GRID_STEP = 0.06, 0.02, np.log2(2.5)
"""Nats by which the loss rises at twice the best rate (median and least of the six bowls of the kept
quickstart, which go to 0.1), and the grid's step there in powers of two. The flatter the bowl, the more is
left to luck in tuning, and that is a difference between the arms."""
POWER = {"A": np.exp(3.9), "alpha": 0.09}
Interval = tuple[float, float] | None


def pairs_of_arms(n_rungs: int, n_seeds: int) -> Simulate:
    """Two arms on one power law in C, of which one needs 1/GAIN of the compute."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        table = _two_arms(rng, n_rungs, n_seeds)
        pairs = paired_by(checked(table), "reference", "arm", AnalysisOptions())
        truth = pairs.complete["truth_arm"] - pairs.complete["truth_reference"]
        wanted = float(np.mean([cell.mean() for _, cell in truth.groupby(pairs.cells)]))
        mean = _mean(pairs)
        lines = ArmLaws(pairs, settings)
        low, high = lines.range()
        middle, largest = (lines.multiplier("", at).interval for at in ((low * high) ** 0.5, high))
        reference = table[table["arm"] == "reference"]
        compute = 6 * reference["n_params"].to_numpy() * reference["n_tokens"].to_numpy()
        runs = np.arange(len(compute))
        alone = of_one_arm({"x": compute}, reference["loss"].to_numpy(), runs, "power", POWER, settings)
        return {
            "mean difference": covers(mean, wanted),
            "log multiplier, middle": covers(middle, GAIN),
            "log multiplier, largest": covers(largest, GAIN),
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


def clustered_pairs(n_shapes: int, n_budgets: int) -> Simulate:
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
        mean = _mean(pairs)
        base = POWER["A"] * (6 * budgets * sizes**2) ** -POWER["alpha"]
        spread = np.exp(0.5 * NOISE**2), np.exp(0.5 * 5 * NOISE**2)
        wanted = float(np.mean(base * (GAIN ** -POWER["alpha"] * spread[1] - spread[0])))
        return {
            "mean difference": covers(mean, wanted),
            "log multiplier, middle": covers(_middle(pairs, settings), GAIN),
        }

    return simulate


def trunks(n_rungs: int, n_budgets: int, n_seeds: int) -> Simulate:
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
        mean = _mean(pairs)
        loss = parts[0]["loss"].to_numpy()
        alone = of_one_arm({"x": 6 * sizes * tokens}, loss, trunk, "power", POWER, settings)
        return {
            "mean difference": covers(mean, wanted),
            "log multiplier, middle": covers(_middle(pairs, settings), GAIN),
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
        mean = _mean(pairs)
        return {
            "called better": mean is not None and mean[1] < 0,
            "called worse": mean is not None and mean[0] > 0,
            "log multiplier, middle": covers(_middle(pairs, settings), gain),
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


def _mean(pairs: Pairs) -> Interval:
    """The interval of the mean difference."""
    return inference.overall(sample_of(pairs)).interval(LEVEL)


def _middle(pairs: Pairs, settings: AnalysisOptions) -> Interval:
    """The interval of the multiplier in the middle of the range."""
    lines = ArmLaws(pairs, settings)
    at = float(np.sqrt(np.prod(lines.range())))
    return lines.multiplier("middle", at).interval
