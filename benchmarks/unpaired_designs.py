"""Ten arms of checkpoints that share no trial, and what comparisons by their laws cover and call."""

from dataclasses import replace

import numpy as np
import pandas as pd
from law_designs import CHINCHILLA, NOISE, Covered, Simulate, covers

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.law_comparison import compare_arms
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions

GAIN = 1.22
"""The compute multiplier of the last arm; all others equal the reference."""
N_ARMS = 10


def unpaired(n_runs: int, n_points: int, correlation: float) -> Simulate:
    """Arms whose runs have sizes and lengths of their own; ``correlation`` is that of a run's points."""

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        gains = {f"arm {number}": 1.0 for number in range(N_ARMS - 1)} | {"faster": GAIN}
        parts = [_arm(rng, name, gain, n_runs, n_points, correlation) for name, gain in gains.items()]
        table = pd.concat(parts, ignore_index=True)
        options = replace(settings, cluster="run", n_convention="as-given")
        _, compared = compare_arms(table, reference="arm 0", options=options, by="laws")
        shares: dict[str, list[float]] = {}
        for comparison in compared:
            gain = gains[comparison.arm]
            for name, value in _seen(comparison, gain).items():
                shares.setdefault(f"{name}, multiplier {gain:.2f}", []).append(value)
        equal = "called better or worse, multiplier 1.00"
        return {name: float(np.mean(values)) for name, values in shares.items()} | {
            "any of the equal arms called better or worse": float(np.max(shares[equal]))
        }

    return simulate


def _arm(
    rng: np.random.Generator, name: str, gain: float, n_runs: int, n_points: int, correlation: float
) -> pd.DataFrame:
    """Checkpoints of runs on Hoffmann's law, of which the arm needs ``gain`` times less compute."""
    size = np.geomspace(1e7, 1e9, n_runs) * np.exp(rng.uniform(-0.1, 0.1, n_runs))
    length = np.exp(rng.uniform(-0.3, 0.3, n_runs))
    run = np.repeat(np.arange(n_runs), n_points)
    n = size[run]
    d = n * np.tile(np.geomspace(5, 80, n_points), n_runs) * length[run]
    apart, shared = rng.standard_normal(len(n)), rng.standard_normal(n_runs)[run]
    noise = NOISE * (np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * apart)
    loss = _truth(n, d, gain) * np.exp(noise)
    names = [f"{name}, run {number}" for number in run]
    return pd.DataFrame({"arm": name, "n_params": n, "n_tokens": d, "loss": loss, "run": names})


def _truth(n: FloatArray, d: FloatArray, gain: float) -> FloatArray:
    return law_named("chinchilla").predict(CHINCHILLA, {"N": n * gain**0.5, "D": d * gain**0.5})


def _seen(comparison: Comparison, gain: float) -> dict[str, float]:
    """What is covered of one arm, and what is said of it."""
    line = comparison.by_rung
    n, d = np.array([at.n_params for at in line]), np.array([at.n_tokens for at in line])
    difference = float(np.mean(_truth(n, d, gain) - _truth(n, d, 1.0)))
    mean, verdict = comparison.loss_difference, comparison.verdict
    alone = 1.0 if mean.p_value is None else mean.p_value
    return {
        "mean difference": covers(mean.interval, difference),
        "multiplier at the largest C": covers(comparison.compute_multipliers[0].interval, gain),
        "called better": float(verdict == "better"),
        "called better or worse": float(verdict in ("better", "worse")),
        "called better without Holm": float(alone < 1 - comparison.options.level and (mean.mean or 0.0) < 0),
    }
