"""What a sweep can detect before it is run, as a difference and as a multiplier, and what more would buy.

The test is the one of :func:`compare`: the mean of paired differences over rungs, judged by t, with each
rung's own noise or, at one seed and many rungs, that between rungs, and the test split's own error beside it.
Its power is the mean over the widths that the interval may have. Several arms are corrected for as Holm's
first step does, which is the strictest. Plain numbers in, plain numbers out.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray, compute_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count, degrees
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS, AnalysisOptions
from scalevec.analysis.statistics.noise import pooled_noise
from scalevec.analysis.statistics.paired import FEWEST_RUNGS_WITHOUT_SEEDS, MANY_BLOCKS
from scalevec.analysis.statistics.planned import planned_halves
from scalevec.analysis.statistics.rung_noise import Component

POWER = 0.8


@dataclass(frozen=True)
class PlannedRung:
    """One rung (and token budget) of a design: N, tokens, and seeds of each arm."""

    name: str
    n_params: float
    n_tokens: float
    seeds: int

    @property
    def flops(self) -> float:
        """6 N D of one trial."""
        return 6.0 * self.n_params * self.n_tokens


@dataclass(frozen=True)
class NoiseFigure:
    """``sd`` of a pair's difference in nats/token; ``slope``: nats/token that e times the compute saves.

    Without a slope no multiplier follows from a difference. ``source`` says where the figures come from.
    ``split`` is the standard error of the mean difference from the test split alone, which no seed reduces,
    with ``split_tokens`` test tokens.
    """

    sd: float
    slope: float | None
    source: str
    split: float = 0.0
    split_tokens: float = 0.0

    def with_test_tokens(self, tokens: float) -> "NoiseFigure":
        """The same with a test split of another length: its error falls as the square root of the tokens."""
        if not self.split or not self.split_tokens:
            return self
        split = self.split * float(np.sqrt(self.split_tokens / tokens))
        return dataclasses.replace(self, split=split, split_tokens=tokens)


TYPICAL = NoiseFigure(
    0.01,
    0.35,
    "typical of 25k to 200k parameters on 0.4M to 3M tokens (pairs 0.005 to 0.015); a pilot is better",
    # Measured on the demo's corpus: 64 blocks, the mean of two sizes x two seeds.
    split=0.003,
    split_tokens=84e3,
)


@dataclass(frozen=True)
class Detectable:
    """The smallest loss difference (nats/token) and multiplier detected with ``power``; None where none is.

    ``flops`` is the cost of all comparison trials, 6 N D, the reference's included.
    """

    what: str
    trials: int
    flops: float
    df: float
    """The most that the interval may have: the sum over rungs. What it gets follows from their noise."""
    difference: float | None
    multiplier: float | None
    between: str = ""
    """"rungs" where their spread is the noise, since no seed repeats."""
    seeds_error: float | None = None
    """The part of the standard error that is from seeds, nats/token."""


@dataclass(frozen=True)
class PowerAnalysis:
    """``design`` as it is, and ``more``: the same with one more seed, rung or token budget."""

    design: Detectable
    more: tuple[Detectable, ...]
    noise: NoiseFigure
    level: float
    power: float
    n_arms: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    @property
    def text(self) -> str:
        """A few lines for people."""
        lines = [f"with {100 * self.power:.0f} % power this design detects {_words(self.design)}"]
        lines += [
            f"  {more.what}: detects {_words(more)}, for {more.flops / self.design.flops:.2g} times the FLOPs"
            for more in self.more
        ]
        if self.noise.slope:
            convention = f"C: {C_CONVENTIONS['6nd']}, N: {N_CONVENTIONS['matrices']}"
            lines.append(
                f"  multiplier: {self.noise.slope:.2g} nats/token per e-fold of compute assumed; {convention}"
            )
        lines.append(f"  noise: sd {self.noise.sd:.2g} per pair, {self.noise.source}")
        return "\n".join([*lines, self._split])

    @property
    def _split(self) -> str:
        """What is taken for the test split's own error, and whether it is what limits."""
        if not self.noise.split:
            return "  the test split's own error is left out: nothing says how large it is"
        tokens = f" with {count(self.noise.split_tokens)} test tokens" if self.noise.split_tokens else ""
        line = f"  test split: standard error {self.noise.split:.2g} of the mean difference{tokens}"
        if not self._limited:
            return f"{line}, whatever the seeds"
        return f"{line}, which is what limits: more test tokens would detect more than more seeds"

    @property
    def _limited(self) -> bool:
        """Whether less than half of the variance is from seeds."""
        return self.design.seeds_error is not None and self.design.seeds_error < self.noise.split


def _words(effect: Detectable) -> str:
    if effect.difference is None:
        return (
            "nothing: without a second seed, or one seed at "
            f"{FEWEST_RUNGS_WITHOUT_SEEDS} rungs or more, there is no noise figure of its own"
        )
    multiplier = f", a compute multiplier of {effect.multiplier:.3f}" if effect.multiplier else ""
    basis = ", from the spread between rungs: one seed each, equal gain at all" if effect.between else ""
    freedom = f"{'' if effect.between else 'up to '}{degrees(effect.df)}{basis}"
    return f"a difference of {effect.difference:.4f} nats/token{multiplier} ({freedom})"


def detectable(
    rungs: Sequence[PlannedRung],
    noise: NoiseFigure = TYPICAL,
    *,
    n_arms: int = 1,
    level: float = 0.95,
    power: float = POWER,
    test_tokens: float | None = None,
) -> PowerAnalysis:
    """Compute what a design can detect before it is run, for each arm against the reference.

    Source: power of the two-sided t test on the mean of paired differences, over 2,000 draws of the noise
    that each rung shows.

    Args:
        rungs: The design: N, tokens and seeds of each rung and token budget.
        noise: The noise of one pair's difference (nats/token) and the slope that turns it into a multiplier.
        n_arms: Arms beside the reference; several are corrected for as in Holm's first step.
        level: Level of the interval that is to exclude zero.
        power: Chance of finding an effect of the size that is returned.
        test_tokens: Tokens of the test split; by default those that ``noise`` was measured with.

    Returns:
        The smallest difference (nats/token) and compute multiplier of the design as planned, and with one
        more seed, rung or token budget.

    Raises:
        DataError: A design without a rung, or a figure outside of its range.

    >>> ladder = [PlannedRung(str(n), n, 16 * n, seeds=2) for n in (25e3, 55e3, 83e3, 150e3)]
    >>> analysis = detectable(ladder, NoiseFigure(sd=0.01, slope=0.35, source="a pilot"))
    >>> round(analysis.design.difference, 4), round(analysis.design.multiplier, 3)
    (0.0208, 1.061)
    >>> [(more.what, round(more.difference, 4)) for more in analysis.more]
    [('one more seed', 0.0101), ('one more rung', 0.0161), ('one more token budget', 0.0147)]
    """
    noise = noise if test_tokens is None else noise.with_test_tokens(test_tokens)
    _check(rungs, noise, n_arms, level, power)
    variants = {
        "as planned": rungs,
        "one more seed": [dataclasses.replace(rung, seeds=rung.seeds + 1) for rung in rungs],
        "one more rung": [*rungs, _next_rung(rungs)],
        "one more token budget": [*rungs, *(dataclasses.replace(r, n_tokens=2 * r.n_tokens) for r in rungs)],
    }
    alpha = (1 - level) / n_arms
    design, *more = (
        _detectable(what, rungs, noise, n_arms, alpha, power) for what, rungs in variants.items()
    )
    return PowerAnalysis(design, tuple(more), noise, level, power, n_arms)


def _check(rungs: Sequence[PlannedRung], noise: NoiseFigure, n_arms: int, level: float, power: float) -> None:
    for name, value, good in (
        ("rungs", len(rungs), len(rungs) > 0),
        ("n_arms", n_arms, n_arms >= 1),
        ("noise", noise.sd, 0 < noise.sd < np.inf),
        ("level", level, 0 < level < 1),
        ("power", power, 0 < power < 1),
        ("seeds", min((rung.seeds for rung in rungs), default=0), all(rung.seeds >= 1 for rung in rungs)),
    ):
        if not good:
            raise DataError(f"{name} is {value!r}, with which no power can be computed")


def _next_rung(rungs: Sequence[PlannedRung]) -> PlannedRung:
    """One size above the largest, by the ladder's own ratio (twice, where it has one rung)."""
    ordered = sorted(rungs, key=lambda rung: rung.n_params)
    sizes = sorted({rung.n_params for rung in rungs})
    ratio = sizes[-1] / sizes[-2] if len(sizes) > 1 else 2.0
    top = ordered[-1]
    return PlannedRung("next", top.n_params * ratio, top.n_tokens * ratio, top.seeds)


def _detectable(
    what: str,
    rungs: Sequence[PlannedRung],
    noise: NoiseFigure,
    n_arms: int,
    alpha: float,
    power: float,
) -> Detectable:
    components, between = _components(rungs, noise.sd)
    df = int(sum(part.df for part in components))
    trials = sum(rung.seeds for rung in rungs) * (n_arms + 1)
    flops = float(sum(rung.flops * rung.seeds for rung in rungs)) * (n_arms + 1)
    if df == 0:
        return Detectable(what, trials, flops, 0, None, None)
    seeds_error = float(np.sqrt(sum(part.variance for part in components)))
    difference = detected(components, alpha, power, noise.split)
    multiplier = float(np.exp(min(difference / noise.slope, 700))) if noise.slope else None
    return Detectable(what, trials, flops, df, difference, multiplier, between, seeds_error)


def _components(rungs: Sequence[PlannedRung], sd: float) -> tuple[list[Component], str]:
    """The variance of the mean by rung with its df, or one part "between" rungs, where no seed repeats.

    The token budgets of a rung share their random numbers, so that they add no degree of freedom.
    """
    variance = (sd / len(rungs)) ** 2
    if all(rung.seeds == 1 for rung in rungs) and len(rungs) >= FEWEST_RUNGS_WITHOUT_SEEDS:
        return [Component(variance * len(rungs), len(rungs) - 1)], "rungs"
    budgets: dict[str, list[int]] = {}
    for rung in rungs:
        budgets.setdefault(rung.name, []).append(rung.seeds)
    return [Component(variance * sum(1 / n for n in seeds), max(seeds) - 1) for seeds in budgets.values()], ""


def detected(components: Sequence[Component], alpha: float, power: float, split: float = 0.0) -> float:
    """The true effect that the interval excludes zero for with ``power``, in the unit of the variances.

    ``components`` are the variance by rung, ``split`` the standard error from the test split.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    of_split = Component(split**2, MANY_BLOCKS) if split else None
    halves = planned_halves(components, 1 - alpha, of_split)
    error = float(np.sqrt(sum(part.variance for part in components) + split**2))

    def missing(effect: float) -> float:
        chance = ndtr((effect - halves) / error) + ndtr((-effect - halves) / error)
        return float(np.mean(chance)) - power

    return float(brentq(missing, 0.0, 10 * (float(halves.max()) + error)))


def pilot_noise(results: pd.DataFrame, reference: str) -> NoiseFigure:
    """The noise figure of pilot rows: pairs of every arm with ``reference``, pooled within rungs.

    Of pairs that share a cluster the one with the most tokens counts. The slope is that of the reference's
    loss on ln C. Raises :class:`DataError` where no rung has two seeds.
    """
    try:
        trials = compared_trials(results, reference, AnalysisOptions())
    except DataError as error:
        raise DataError(f"the pilot: {error}") from error
    differences, cells = [], []
    for number, arm in enumerate(trials.others):
        pairs = trials.pairs(arm)
        kept = _independent(pairs)
        differences.append(pairs.differences[kept])
        # Cells are numbered per arm: as many numbers for each arm as there are trials are enough.
        cells.append(pairs.cells[kept] + number * len(trials.rows))
    noise = pooled_noise(np.concatenate(differences), np.concatenate(cells))
    if noise.df == 0:
        raise DataError("the pilot has no rung with two pairs, so it has no noise figure")
    completed = trials.of_arm(reference, "completed")
    compute, slope = np.log(compute_of(completed)), None
    if np.ptp(compute) > 0:
        slope = max(-float(np.polyfit(compute, completed["loss"].to_numpy(float), 1)[0]), 0.0) or None
    source = f"a pilot with {degrees(noise.df)}"
    return NoiseFigure(noise.sd, slope, source, *_split_of(trials))


def _split_of(trials: ComparedTrials) -> tuple[float, float]:
    """The test split's part of the standard error of a mean difference, and its tokens; or zeros."""
    splits = [arm for arm in map(trials.paired, trials.others) if arm.estimate and arm.sample.split]
    errors = [arm.estimate.split_error for arm in splits if arm.estimate]
    known = [error for error in errors if error is not None]
    if not known or splits[0].sample.split is None:
        return 0.0, 0.0
    return float(np.sqrt(np.mean(np.square(known)))), float(splits[0].sample.split.tokens.sum())


def _independent(pairs: Pairs) -> BoolArray:
    """Of the complete pairs of each cluster the one with the most tokens."""
    tokens, clusters = pairs.complete["n_tokens"].to_numpy(float), pairs.clusters
    order = np.lexsort((-tokens, clusters))
    _, first = np.unique(clusters[order], return_index=True)
    kept = np.zeros(len(tokens), bool)
    kept[order[first]] = True
    return kept
