"""What comparisons and predictions claim on simulated sweeps: of several arms, above a floor, far beyond.

:mod:`calibration` counts how often the claims are false, intervals hold, or are withheld.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from law_designs import CHINCHILLA, Covered, Simulate, covers

from scalevec.analysis.comparison.compare import compare
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.fits.fit import fit
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions

MARGIN = 0.01
"""Nats/token within which arms are equivalent."""
FLOOR, A, ALPHA = 1.8, 40.0, 0.12
NOISE, SHARED = 0.002, 0.004
"""sd of a trial's log loss between arms, and of the part that a seed's trials share."""
Truth = Callable[[FloatArray, FloatArray], FloatArray]
"""The loss at N and D."""


def _ladder(n_rungs: int, n_seeds: int, decades: float = 1.0) -> pd.DataFrame:
    """The trials of one arm: rungs of 20 tokens for each parameter, with a stream for each rung and seed."""
    rung, seed = (axis.ravel() for axis in np.indices((n_rungs, n_seeds)))
    n_params = np.geomspace(2e7, 2e7 * 10**decades, n_rungs).round()[rung]
    names = [f"{r} {s}" for r, s in zip(rung, seed, strict=True)]
    columns = {"n_params": n_params, "n_tokens": 20 * n_params, "rung": rung.astype(str), "seed": seed}
    return pd.DataFrame(columns).assign(stream=names)


def _law(compute: FloatArray) -> FloatArray:
    return np.asarray(FLOOR + A * compute**-ALPHA)


def several_arms(difference: float, n_arms: int = 6, ratio: float = 1.0) -> Simulate:
    """Arms that differ from the baseline by ``difference`` everywhere; noise ``ratio`` times larger below."""
    ladder = _ladder(4, 3)
    truth = _law(6 * ladder["n_params"].to_numpy() * ladder["n_tokens"].to_numpy())
    sds = NOISE * np.geomspace(ratio, 1.0, 4)[ladder["rung"].astype(int)]

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        shared = SHARED * rng.standard_normal(len(ladder))
        arms = {"baseline": 0.0} | {f"arm {number}": difference for number in range(n_arms)}
        table = pd.concat(
            ladder.assign(
                arm=arm, loss=truth * np.exp(shared + sds * rng.standard_normal(len(ladder))) + away
            )
            for arm, away in arms.items()
        )
        compared = compare(table, "baseline", replace(settings, margin=MARGIN, bootstrap=0)).values()
        verdicts = [comparison.verdict for comparison in compared]
        return {f"some arm called {word}": word in verdicts for word in ("better", "worse", "equivalent")} | {
            "arms called equivalent": verdicts.count("equivalent") / n_arms,
        }

    return simulate


def above_floor(multiplier: float, per_decade: float = 0.0) -> Simulate:
    """Two arms on a law with a floor; the arm's multiplier changes by a factor 10^``per_decade`` a decade."""
    ladder = _ladder(5, 3, decades=1.5)
    compute = 6 * ladder["n_params"].to_numpy() * ladder["n_tokens"].to_numpy()
    of_arm = multiplier * (compute / compute.max()) ** per_decade

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        shared = SHARED * rng.standard_normal(len(ladder))
        losses = {"baseline": _law(compute), "arm": _law(compute * of_arm)}
        table = pd.concat(
            ladder.assign(arm=arm, loss=loss * np.exp(shared + NOISE * rng.standard_normal(len(ladder))))
            for arm, loss in losses.items()
        )
        compared = compare(table, "baseline", settings).only
        largest = [m for m in compared.compute_multipliers if m.interval]
        interval = largest[0].interval if largest else None
        change = (compared.trend["multiplier_per_decade"] or {}).get("interval")
        of_change = change is not None and change[0] <= 10**per_decade <= change[1]
        return {
            "multiplier": covers(interval, multiplier),
            "multiplier withheld": interval is None,
            "multiplier covered or withheld": interval is None or covers(interval, multiplier),
            "change per decade covered or withheld": change is None or of_change,
            "said to shrink": compared.with_scale.code == "shrinks",
        }

    return simulate


def _cross(n: FloatArray, d: FloatArray) -> FloatArray:
    """Hoffmann's law with a term in N and D together."""
    a, b = CHINCHILLA["alpha"], CHINCHILLA["beta"]
    return _chinchilla(n, d) + 30 * CHINCHILLA["A"] * n**-a * d**-b


def _slow_cross(n: FloatArray, d: FloatArray) -> FloatArray:
    """The same with half the exponents, so that no law that is fitted has the form."""
    a, b = CHINCHILLA["alpha"] / 2, CHINCHILLA["beta"] / 2
    return _chinchilla(n, d) + 20 * n**-a * d**-b


def _chinchilla(n: FloatArray, d: FloatArray) -> FloatArray:
    return law_named("chinchilla").predict(CHINCHILLA, {"N": n, "D": d})


def _broken(n: FloatArray, d: FloatArray) -> FloatArray:
    """A power law in C whose exponent halves in the upper half of the ladder (a smooth break)."""
    compute = 6 * n * d / 4e17
    return np.asarray(2.5 * compute**-0.1 * (1 + compute**2) ** (0.05 / 2))


LINE: Mapping[str, Truth] = {"the law with a floor": lambda n, d: _law(6 * n * d), "a broken law": _broken}
GRID: Mapping[str, Truth] = {
    "its own law": _chinchilla,
    "a cross term": _cross,
    "a slow cross term": _slow_cross,
}


def beyond(truth: Truth, n_budgets: int, n_sizes: int = 5, decades: float = 2.0) -> Simulate:
    """What ``scalevec predict`` says at ten times the largest compute, where the loss is ``truth``."""
    ladder = _ladder(n_sizes, 3, decades)
    parts = [ladder.assign(n_tokens=ladder["n_params"] * 20 * 4.0**k) for k in range(n_budgets)]
    table = pd.concat(parts, ignore_index=True).assign(cluster=lambda rows: rows.index.astype(str))
    n, d = table["n_params"].to_numpy(float), table["n_tokens"].to_numpy(float)
    largest = int(np.argmax(n * d))
    far = {"N": np.array([n[largest]]) * 10**0.5, "D": np.array([d[largest]]) * 10**0.5}

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        table["loss"] = truth(n, d) * np.exp(NOISE * rng.standard_normal(len(table)))
        [row] = fit(table, settings).only.predict(pd.DataFrame(far)).itertuples()
        withheld = bool(row.low != row.low)
        covered = covers((row.low, row.high), float(truth(far["N"], far["D"])[0]))
        return {
            "withheld at ten times C": withheld,
            "covered or withheld at ten times C": withheld or covered,
        }

    return simulate


def growing_noise(ratio: float, n_rungs: int, decades: float, floor: float) -> Simulate:
    """The right law where seeds differ ``ratio`` times as much at the largest rung as at the smallest."""
    table = _ladder(n_rungs, 3, decades)
    compute = 6 * table["n_params"].to_numpy() * table["n_tokens"].to_numpy()
    truth, sds = floor + A * compute**-ALPHA, np.geomspace(1.0, ratio, n_rungs) * 2 * NOISE / (1 + ratio)
    factors = np.array([1.0, 10.0])
    wanted = floor + A * (compute.max() * factors) ** -ALPHA
    sds_of_run = sds[-1] * ratio ** (np.log10(factors) / np.log10(compute.max() / compute.min()))

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        table["loss"] = truth + sds[table["rung"].astype(int)] * rng.standard_normal(len(table))
        fitted = fit(table, settings).only
        covered: dict[str, float] = {"law refuted": bool(fitted.refuted)}
        run = wanted + sds_of_run * rng.standard_normal(len(factors))
        for what, kind, values in (("covered", "law", wanted), ("a further run covered", "run", run)):
            rows = fitted.predict({"C": compute.max() * factors}, kind).itertuples()
            for factor, row, value in zip(factors, rows, values, strict=True):
                is_covered = bool(fitted.refuted) or covers((row.low, row.high), float(value))
                covered[f"{what} or withheld at {factor:g} C"] = is_covered
        return covered

    return simulate
