"""What a sweep can detect before it is run, as a difference and as a multiplier, and what more would buy.

The test is the one of :func:`compare`: the mean of paired differences over rungs, judged by t, with each
rung's own noise or, at one seed and many rungs, that between rungs, and the test split's own error beside it.
Its power is the mean over the widths that the interval may have. Several arms are corrected for as Holm's
first step does, which is the strictest. The noise is what is typical of a size, or that of a pilot's pairs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.data.tidy import FloatArray, variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count, degrees
from scalevec.analysis.options import C_CONVENTIONS, AnalysisOptions
from scalevec.analysis.statistics.noise import COMPARED_AT, Component, pooled_noise
from scalevec.analysis.statistics.paired import FEWEST_RUNGS_WITHOUT_SEEDS, MANY_BLOCKS

POWER = 0.8
LEVEL = 0.95
DRAWS = 2000


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
    pairs = independent_pairs(trials)
    noise = pooled_noise(pairs["difference"].to_numpy(float), pairs["cell"].to_numpy(float))
    if noise.df == 0:
        raise DataError("the pilot has no rung with two pairs, so it has no noise figure")
    completed = trials.of_arm(reference, "completed")
    compute, slope = np.log(variable_of(completed, "C", AnalysisOptions())), None
    if np.ptp(compute) > 0:
        slope = max(-float(np.polyfit(compute, completed["loss"].to_numpy(float), 1)[0]), 0.0) or None
    splits = [
        (arm.estimate.split_error, float(arm.sample.split.tokens.sum()))
        for arm in map(trials.paired, trials.others)
        if arm.sample.split and arm.estimate and arm.estimate.split_error is not None
    ]
    source, split, tokens = f"a pilot with {degrees(noise.df)}", 0.0, 0.0
    if splits:
        split, tokens = float(np.sqrt(np.mean([error**2 for error, _ in splits]))), splits[0][1]
    return NoiseFigure(noise.sd, slope, source, split, tokens)


def independent_pairs(trials: ComparedTrials) -> pd.DataFrame:
    """Of the independent pairs of every arm: ``difference``, ``cell`` (numbered by arm) and ``size``."""
    parts = []
    for number, arm in enumerate(trials.others):
        pairs = trials.pairs(arm)
        # Cells are numbered per arm: as many numbers for each arm as there are trials are enough.
        cells = pairs.cells + number * len(trials.rows)
        rows = pairs.complete.assign(difference=pairs.differences, cell=cells, number=pairs.clusters)
        rows = rows.sort_values("n_tokens", ascending=False, kind="stable").drop_duplicates("number")
        if "trial_id_arm" in rows:
            # Two names of one trial have no noise against each other.
            rows = rows[rows["trial_id_arm"] != rows["trial_id_reference"]]
        parts.append(rows.sort_index()[["difference", "cell", "size"]])
    return pd.concat(parts)


@dataclass(frozen=True)
class PlannedRung:
    """One rung (and token budget, and setting) of a design: N, tokens, and seeds of each arm.

    Settings are those that have random numbers of their own: other optimizers, say, not other budgets.
    """

    name: str
    n_params: float
    n_tokens: float
    seeds: int
    setting: str = ""

    @property
    def flops(self) -> float:
        """6 N D of one trial."""
        return 6.0 * self.n_params * self.n_tokens


@dataclass(frozen=True)
class Detectable:
    """The smallest loss difference (nats/token) and multiplier detected with ``power``; None where none is.

    ``flops`` is the cost of all comparison trials, 6 N D, the reference's included.
    """

    what: str
    flops: float
    df: float
    """The most that the interval may have: the sum over rungs. What it gets follows from their noise."""
    difference: float | None
    multiplier: float | None
    range: tuple[float, float] | None = None
    """``difference`` with the least and the most noise that is thought possible."""
    between: str = ""
    """"rungs" where their spread is the noise, since no seed repeats."""


@dataclass(frozen=True)
class PowerAnalysis:
    """``design`` as it is, and ``more``: the same with one more seed.

    ``sds`` are the noise at the smallest and at the largest rung. ``parts`` are smaller designs within it:
    of arms that are not run in all cells, or of one setting.
    """

    design: Detectable
    more: Detectable
    sds: tuple[float, float]
    noise: NoiseFigure
    n_arms: int
    parts: tuple[Detectable, ...] = ()
    level: float = LEVEL
    power: float = POWER

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    @property
    def text(self) -> str:
        """A few lines for people: what is detected, and what is taken for the noise and the test split."""
        noise, times = self.noise, self.more.flops / self.design.flops
        lines = [f"with {100 * self.power:.0f} % power this design detects {_words(self.design)}"]
        lines += [f"  {part.what}: detects {_words(part)}" for part in self.parts]
        lines.append(f"  {self.more.what}: detects {_words(self.more)}, for {times:.2g} times the FLOPs")
        if noise.slope:
            assumed = f"{noise.slope:.2g} nats/token per e-fold of compute assumed"
            lines.append(f"  multiplier: {assumed}; C: {C_CONVENTIONS['6nd']}")
        sds = " to ".join(dict.fromkeys(f"{sd:.2g}" for sd in self.sds))
        between = f"; in brackets at 1/{noise.spread:g} and {noise.spread:g} times that"
        lines.append(f"  noise: sd {sds} per pair, {noise.source}{between if noise.spread != 1 else ''}")
        if noise.split:
            tokens = f" if it has {count(noise.split_tokens)} tokens" if noise.split_tokens else ""
            error = f"standard error {noise.split:.2g} of the mean difference"
            return "\n".join([*lines, f"  test split: {error}{tokens}, whatever the seeds"])
        return "\n".join([*lines, "  the test split's own error is left out: nothing says how large it is"])


def _words(effect: Detectable) -> str:
    if effect.difference is None:
        many = f"one seed at {FEWEST_RUNGS_WITHOUT_SEEDS} rungs or more"
        return f"nothing: without a second seed, or {many}, there is no noise figure of its own"
    multiplier = f", a compute multiplier of {effect.multiplier:.3f}" if effect.multiplier else ""
    basis = ", from the spread between rungs: one seed each, equal gain at all" if effect.between else ""
    freedom = f"{'' if effect.between else 'up to '}{degrees(effect.df)}{basis}"
    between = "" if effect.range is None else " [{:.4f}, {:.4f}]".format(*effect.range)
    return f"a difference of {effect.difference:.4f}{between} nats/token{multiplier} ({freedom})"


def detectable(
    rungs: Sequence[PlannedRung],
    noise: NoiseFigure = TYPICAL,
    *,
    n_arms: int = 1,
    test_tokens: float | None = None,
    parts: Mapping[str, Sequence[PlannedRung]] | None = None,
) -> PowerAnalysis:
    """Compute what a design can detect with 80 % power before it is run, for each arm against the reference.

    Source: power of the two-sided t test on the mean of paired differences, over 2,000 draws of the noise
    that each rung shows.

    Args:
        rungs: The design: N, tokens and seeds of each rung and token budget.
        noise: The noise of one pair's difference (nats/token) and the slope that turns it into a multiplier.
        n_arms: Arms beside the reference; several are corrected for as in Holm's first step.
        test_tokens: Tokens of the test split; by default those that ``noise`` was measured with.
        parts: Smaller designs within it by what they are, an arm that is run in fewer cells, say.

    Returns:
        The smallest difference (nats/token) and compute multiplier of the design as planned, and with one
        more seed.

    Raises:
        DataError: A design without a rung, or a figure outside of its range.

    Examples:
        >>> ladder = [PlannedRung(str(n), n, 16 * n, seeds=2) for n in (25e3, 55e3, 83e3, 150e3)]
        >>> analysis = detectable(ladder, NoiseFigure(sd=0.01, slope=0.35, source="a pilot"))
        >>> round(analysis.design.difference, 4), round(analysis.design.multiplier, 3)
        (0.0208, 1.061)
        >>> analysis.more.what, round(analysis.more.difference, 4)
        ('one more seed', 0.0101)
    """
    if test_tokens and noise.split and noise.split_tokens:
        # The error of another test split falls as the square root of its tokens.
        split = noise.split * float(np.sqrt(noise.split_tokens / test_tokens))
        noise = dataclasses.replace(noise, split=split, split_tokens=test_tokens)
    fewest = min((rung.seeds for rung in rungs), default=0)
    if fewest < 1 or n_arms < 1 or not 0 < noise.sd < np.inf:
        raise DataError(
            f"no power can be computed of {fewest} seeds, {n_arms} arms and a noise of {noise.sd:g}; "
            "allowed: numbers above zero"
        )
    more = [dataclasses.replace(rung, seeds=rung.seeds + 1) for rung in rungs]
    variants = {"as planned": rungs, "one more seed": more, **(parts or {})}
    design, with_more, *others = (_detectable(what, of, noise, n_arms) for what, of in variants.items())
    sizes = sorted(rung.n_params for rung in rungs)
    sds = (noise.at(sizes[0]), noise.at(sizes[-1]))
    return PowerAnalysis(design, with_more, sds, noise, n_arms, tuple(others))


def _detectable(what: str, rungs: Sequence[PlannedRung], noise: NoiseFigure, n_arms: int) -> Detectable:
    components, between = _components(rungs, noise)
    df, alpha = int(sum(part.df for part in components)), (1 - LEVEL) / n_arms
    flops = float(sum(rung.flops * rung.seeds for rung in rungs)) * (n_arms + 1)
    if df == 0:
        return Detectable(what, flops, 0, None, None)
    least, difference, most = (
        detected([Component(part.variance * factor**2, part.df) for part in components], alpha, noise.split)
        for factor in (1 / noise.spread, 1.0, noise.spread)
    )
    multiplier = float(np.exp(min(difference / noise.slope, 700))) if noise.slope else None
    limits = (least, most) if noise.spread > 1 else None
    return Detectable(what, flops, df, difference, multiplier, limits, between)


def _components(rungs: Sequence[PlannedRung], noise: NoiseFigure) -> tuple[list[Component], str]:
    """The variance of the mean by rung with its df, or one part "between" rungs, where no seed repeats.

    Settings of a rung have random numbers of their own. Its token budgets share them, so that they add no
    degree of freedom.
    """
    variances = [(noise.at(rung.n_params) / len(rungs)) ** 2 / rung.seeds for rung in rungs]
    if all(rung.seeds == 1 for rung in rungs) and len(rungs) >= FEWEST_RUNGS_WITHOUT_SEEDS:
        return [Component(sum(variances), len(rungs) - 1)], "rungs"
    of_rung: dict[str, float] = {}
    seeds: dict[tuple[str, str], int] = {}
    for rung, variance in zip(rungs, variances, strict=True):
        of_rung[rung.name] = of_rung.get(rung.name, 0.0) + variance
        seeds[rung.name, rung.setting] = max(rung.seeds, seeds.get((rung.name, rung.setting), 1))
    degrees_of = {name: sum(n - 1 for (rung, _), n in seeds.items() if rung == name) for name in of_rung}
    return [Component(variance, degrees_of[name]) for name, variance in of_rung.items()], ""


def detected(components: Sequence[Component], alpha: float, split: float = 0.0) -> float:
    """The true effect that the interval excludes zero for with :data:`POWER`, in the unit of the variances.

    ``components`` are the variance by rung, ``split`` the standard error from the test split.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    of_split = Component(split**2, MANY_BLOCKS) if split else None
    halves = planned_halves(components, 1 - alpha, of_split)
    error = float(np.sqrt(sum(part.variance for part in components) + split**2))

    def missing(effect: float) -> float:
        chance = ndtr((effect - halves) / error) + ndtr((-effect - halves) / error)
        return float(np.mean(chance)) - POWER

    return float(brentq(missing, 0.0, 10 * (float(halves.max()) + error)))


def planned_halves(rungs: Sequence[Component], level: float, split: Component | None = None) -> FloatArray:
    """Half the width of the ``level`` interval [draws] of a mean with these variances by rung.

    The interval of a comparison takes its degrees of freedom from the noise that each rung shows, so its
    width is drawn: equal normal noise between seeds at all rungs. A rung of 0 degrees of freedom takes the
    noise of the others; ``split`` is the test split's part. The interval is the longest of those with the
    noise by rung and pooled, with and without that part.
    """
    from scipy.special import stdtrit

    variances, df = np.array(rungs, float).T
    repeated = df > 0
    known = df[repeated]
    drawn = np.random.default_rng(0).chisquare(known, (DRAWS, len(known))) / known
    lent = variances[~repeated].sum() * known / known.sum()
    pooled = drawn @ known / known.sum() * variances.sum()
    sums = [((variances[repeated] + lent) * drawn, known), (pooled[:, None], known.sum(keepdims=True))]
    if split:
        sums += [(np.insert(parts, 0, split.variance, 1), np.insert(df, 0, split.df)) for parts, df in sums]
    halves = np.empty((2, len(sums), DRAWS))
    for number, (parts, of_parts) in enumerate(sums):
        total = parts.sum(axis=1)
        freedom = total**2 / (parts**2 / of_parts).sum(axis=1)
        for column, at in enumerate((COMPARED_AT, level)):
            halves[column, number] = stdtrit(freedom, 0.5 + at / 2) * np.sqrt(total)
    return np.asarray(np.take_along_axis(halves[1], halves[0].argmax(axis=0)[None], 0)[0])
