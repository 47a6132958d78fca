"""Hoffmann's law as the truth of tests: losses at sizes and budgets, and the best sizes along 6ND."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.laws import law_named

HOFFMANN = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
EXPONENT = 0.28 / 0.62
"""Of the best size in C."""


def hoffmann(n, d) -> np.ndarray:
    """The loss of N and D."""
    sizes, tokens = np.asarray(n, float), np.asarray(d, float)
    return law_named("chinchilla").predict(HOFFMANN, {"N": sizes, "D": tokens})


def best_size(budget: float) -> float:
    """N* by setting the derivative along C = 6ND to zero."""
    ratio = 0.34 * 406.4 / (0.28 * 410.7)
    return float(ratio ** (1 / 0.62) * (budget / 6) ** EXPONENT)


def grid(sizes: Sequence[float], tokens: Sequence[float], noise: float = 0.0) -> pd.DataFrame:
    """Each of ``sizes`` with each of ``tokens``, with normal noise in log loss."""
    n, d = (values.ravel() for values in np.meshgrid(sizes, tokens))
    loss = hoffmann(n, d) * np.exp(np.random.default_rng(0).normal(0, noise, len(n)))
    return pd.DataFrame({"n_params": n, "n_tokens": d, "loss": loss})


def isoflops(noise: float = 0.0, width: float = 2.5, n_budgets: int = 5) -> pd.DataFrame:
    """Nine sizes around the best of budgets from 1e19 to 1e21 FLOPs."""
    budgets = np.repeat(np.geomspace(1e19, 1e21, n_budgets), 9)
    n = np.array([best_size(c) for c in budgets]) * np.tile(np.geomspace(1 / width, width, 9), n_budgets)
    loss = hoffmann(n, budgets / 6 / n) * np.exp(np.random.default_rng(1).normal(0, noise, len(n)))
    return pd.DataFrame({"n_params": n, "n_tokens": budgets / 6 / n, "loss": loss})
