"""What nominal 95 % intervals cover, on simulated data sets of several designs.

Each data set is drawn from a known law with seed noise, then goes through the functions that ``scalevec fit``
and ``scalevec compare`` call, with their defaults; so the table says what a user's interval covers. Run it
with ``python benchmarks/calibration.py [DATA_SETS] [DESIGN ...]``; the table goes to standard output.
"""

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import arm_designs
import law_designs
import numpy as np
import paired_designs
import unpaired_designs
import verdict_designs
from law_designs import Covered, Simulate

from scalevec.analysis.options import AnalysisOptions

DRAWS = 200


@dataclass(frozen=True)
class Design:
    """A named design: ``simulate`` draws a data set and says which intervals cover the truth."""

    name: str
    simulate: Simulate
    settings: AnalysisOptions


def designs() -> dict[str, Design]:
    """The designs, each with the settings that a user gets by default, where its name says no other."""
    of_all_kinds = [*_of_two_arms(), *_of_one_arm(), *_of_differences(), *_of_claims()]
    return {design.name: design for design in of_all_kinds}


def _of_two_arms() -> Iterator[Design]:
    default = AnalysisOptions(bootstrap=DRAWS)
    huber = replace(default, loss="huber")
    yield Design("5 rungs x 2 seeds", arm_designs.pairs_of_arms(5, 2), default)
    yield Design("5 rungs x 3 seeds", arm_designs.pairs_of_arms(5, 3), default)
    yield Design("5 rungs x 3 seeds, huber", arm_designs.pairs_of_arms(5, 3), huber)
    yield Design("12 rungs x 1 seed", arm_designs.pairs_of_arms(12, 1), default)
    yield Design("trunks: 5 rungs x 3 budgets x 3 seeds", arm_designs.trunks(5, 3, 3), default)
    yield Design(
        "12 shapes x 4 budgets, pairs clustered by shape", arm_designs.clustered_pairs(12, 4), default
    )
    bowl, flat = arm_designs.BOWL, arm_designs.FLAT_BOWL
    for gain, rise, kind in ((1.0, bowl, ""), (1.1, bowl, ""), (1.0, flat, "flat bowls, ")):
        name = f"tuned sweep, 4 rungs x 2 seeds, {kind}multiplier {gain:.2f}"
        yield Design(name, arm_designs.tuned_sweep(gain, rise), default)


def _of_one_arm() -> Iterator[Design]:
    default = AnalysisOptions(bootstrap=DRAWS)
    grown = replace(default, law="chinchilla")
    squares = replace(grown, loss="l2")
    grid, checkpoints = law_designs.grid, law_designs.checkpoints
    yield Design("5 sizes x 3 budgets x 3 seeds", grid(5, 3, 3), grown)
    for clause in ("fix E = 1.69", "bounds alpha = 0.3:0.38, E = 1.6:1.8"):
        law = f"chinchilla; {clause}"
        yield Design(f"5 sizes x 3 budgets x 3 seeds, {clause}", grid(5, 3, 3, law), replace(grown, law=law))
    yield Design("5 sizes x 3 budgets x 1 seed", grid(5, 3, 1), grown)
    yield Design("12 sizes x 10 budgets x 1 seed", grid(12, 10, 1), grown)
    yield Design("16 sizes x 15 budgets x 1 seed", grid(16, 15, 1), grown)
    yield Design("15 runs x 8 checkpoints", checkpoints(15, 8), grown)
    yield Design("15 runs x 8 checkpoints, l2", checkpoints(15, 8), squares)
    yield Design("predictions: 5 sizes x 3 budgets x 3 seeds", law_designs.predicted_grid(5, 3, 3), grown)
    yield Design("predictions: 6 isoFLOP budgets x 9 sizes", law_designs.predicted_isoflops(6, 9), grown)
    isoflop = replace(default, law="isoflop")
    for n in (6, 10):
        yield Design(f"isoflop, {n} budgets x 9 sizes", law_designs.isoflops(n, 9), isoflop)
    for correlation in (0.0, 0.5, 0.9):
        name = f"unpaired, 10 arms x 22 runs x 5 checkpoints, within-run correlation {correlation:g}"
        yield Design(name, unpaired_designs.unpaired(22, 5, correlation), grown)
    for bend in (0.0, 1e-3, 2e-3):
        yield Design(f"lack of fit, bend {bend:g}", paired_designs.wrong_law(bend), default)


def _of_differences() -> Iterator[Design]:
    default = AnalysisOptions(bootstrap=DRAWS)
    for name, layout in paired_designs.layouts().items():
        yield Design(name, paired_designs.differences(layout), default)
        if layout.settings == 1 and not layout.rungs_share:
            yield Design(
                f"multipliers: {name}", paired_designs.multipliers(layout, arm_designs.POWER), default
            )
    for looks in ((4,), (2, 4), (2, 3, 4)):
        name = f"3 rungs, looks at {', '.join(map(str, looks))} seeds"
        yield Design(name, paired_designs.looked_at(looks), default)


def _of_claims() -> Iterator[Design]:
    default = AnalysisOptions(bootstrap=DRAWS)
    margin = verdict_designs.MARGIN
    for away, ratio in ((0.0, 1.0), (0.0, 10.0), (0.0, 0.1), (margin, 1.0), (-margin, 1.0)):
        name = f"claims: 6 arms x 4 rungs x 3 seeds, {away:+g} nats, noise {ratio:g}:1"
        yield Design(name, verdict_designs.several_arms(away, ratio=ratio), default)
    for multiplier, per_decade in ((1.5, 0.0), (1.1, 0.0), (1.2, 0.05)):
        name = f"claims: above a floor, multiplier {multiplier:g}, times {10**per_decade:.2f} per decade"
        yield Design(name, verdict_designs.above_floor(multiplier, per_decade), default)
    for kind, truth in verdict_designs.LINE.items():
        yield Design(
            f"claims: far predictions of the default law, {kind}", verdict_designs.beyond(truth, 1), default
        )
    for decades in (0.6, 1.0):
        name = f"claims: far predictions of the default law, 4 sizes over {decades:g} decades of C"
        hoffmann = verdict_designs.GRID["its own law"]
        yield Design(name, verdict_designs.beyond(hoffmann, 1, 4, decades), default)
    for ratio, rungs, decades, floor in ((1, 6, 2, 1.8), (4, 6, 2, 1.8), (0.25, 6, 2, 1.8), (3, 5, 1, 0)):
        name = f"claims: a law above {floor:g}, {rungs} rungs x 3 seeds, noise 1:{ratio:g}"
        yield Design(name, verdict_designs.growing_noise(ratio, rungs, decades, floor), default)
    grown = replace(default, law="chinchilla")
    for kind, truth in verdict_designs.GRID.items():
        yield Design(
            f"claims: far predictions of chinchilla, {kind}", verdict_designs.beyond(truth, 3), grown
        )


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
