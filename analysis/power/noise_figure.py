"""The noise of a pair's difference: what is typical of its size, and what a pilot shows."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray, FloatArray, compute_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import degrees
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.noise import pooled_noise


@dataclass(frozen=True)
class NoiseFigure:
    """``sd`` of a pair's difference in nats/token; ``slope``: nats/token that e times the compute saves.

    Without a slope no multiplier follows from a difference. ``source`` says where the figures come from.
    ``split`` is the standard error of the mean difference from the test split alone, which no seed reduces,
    with ``split_tokens`` test tokens. With ``n_params``, ``sd`` is that of models of so many matrix
    parameters and falls as N^-``exponent``; without, it is that of every size. ``spread``: by what factor
    the noise may be smaller or larger.
    """

    sd: float
    slope: float | None
    source: str
    split: float = 0.0
    split_tokens: float = 0.0
    n_params: float | None = None
    exponent: float = 0.0
    spread: float = 1.0

    def at(self, n_params: float) -> float:
        """The sd of a pair's difference between models of ``n_params`` matrix parameters."""
        return self.sd if self.n_params is None else self.sd * (n_params / self.n_params) ** -self.exponent

    def with_test_tokens(self, tokens: float) -> "NoiseFigure":
        """The same with a test split of another length: its error falls as the square root of the tokens."""
        if not self.split or not self.split_tokens:
            return self
        split = self.split * float(np.sqrt(self.split_tokens / tokens))
        return dataclasses.replace(self, split=split, split_tokens=tokens)


TYPICAL = NoiseFigure(
    0.0155,
    0.35,
    "typical of its size: fitted to sweeps of 25k to 609k parameters (not to 310k, where it is four times as "
    "large), extrapolated beyond; a pilot is better",
    # Measured on the demo's corpus: 64 blocks, the mean of two sizes x two seeds.
    split=0.003,
    split_tokens=84e3,
    n_params=50e3,
    exponent=0.17,
    spread=2.0,
)
"""What ``benchmarks/noise_by_size.py`` fitted to sweeps of identity version 2, which are kept no more."""


def pilot_noise(results: pd.DataFrame, reference: str) -> NoiseFigure:
    """The noise figure of pilot rows: pairs of every arm with ``reference``, pooled within rungs.

    Of pairs that share a cluster the one with the most tokens counts. The slope is that of the reference's
    loss on ln C. Raises :class:`DataError` where no rung has two seeds.
    """
    try:
        trials = compared_trials(results, reference, AnalysisOptions())
    except DataError as error:
        raise DataError(f"the pilot: {error}") from error
    differences, cells, _ = independent_differences(trials)
    noise = pooled_noise(differences, cells)
    if noise.df == 0:
        raise DataError("the pilot has no rung with two pairs, so it has no noise figure")
    completed = trials.of_arm(reference, "completed")
    compute, slope = np.log(compute_of(completed)), None
    if np.ptp(compute) > 0:
        slope = max(-float(np.polyfit(compute, completed["loss"].to_numpy(float), 1)[0]), 0.0) or None
    source = f"a pilot with {degrees(noise.df)}"
    return NoiseFigure(noise.sd, slope, source, *_split_of(trials))


def independent_differences(trials: ComparedTrials) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of the independent pairs of every arm: differences, cells (numbered by arm) and sizes, [pairs] each."""
    differences, cells, sizes = [], [], []
    for number, arm in enumerate(trials.others):
        pairs = trials.pairs(arm)
        kept = _independent(pairs) & ~_one_trial(pairs)
        differences.append(pairs.differences[kept])
        # Cells are numbered per arm: as many numbers for each arm as there are trials are enough.
        cells.append(pairs.cells[kept] + number * len(trials.rows))
        sizes.append(pairs.complete["size"].to_numpy(float)[kept])
    return np.concatenate(differences), np.concatenate(cells), np.concatenate(sizes)


def _split_of(trials: ComparedTrials) -> tuple[float, float]:
    """The test split's part of the standard error of a mean difference, and its tokens; or zeros."""
    splits = [arm for arm in map(trials.paired, trials.others) if arm.estimate and arm.sample.split]
    errors = [arm.estimate.split_error for arm in splits if arm.estimate]
    known = [error for error in errors if error is not None]
    if not known or splits[0].sample.split is None:
        return 0.0, 0.0
    return float(np.sqrt(np.mean(np.square(known)))), float(splits[0].sample.split.tokens.sum())


def _one_trial(pairs: Pairs) -> BoolArray:
    """Which complete pairs are two names of one trial, which has no noise against itself."""
    if "trial_id_arm" not in pairs.complete:
        return np.zeros(len(pairs.complete), bool)
    return np.asarray(pairs.complete["trial_id_arm"] == pairs.complete["trial_id_reference"], bool)


def _independent(pairs: Pairs) -> BoolArray:
    """Of the complete pairs of each cluster the one with the most tokens."""
    tokens, clusters = pairs.complete["n_tokens"].to_numpy(float), pairs.clusters
    order = np.lexsort((-tokens, clusters))
    _, first = np.unique(clusters[order], return_index=True)
    kept = np.zeros(len(tokens), bool)
    kept[order[first]] = True
    return kept
