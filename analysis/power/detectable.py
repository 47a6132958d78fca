"""What a sweep can detect before it is run, as a difference and as a multiplier, and what more would buy.

The test is the one of :func:`compare`: the mean of paired differences over rungs, judged by t, with each
rung's own noise or, at one seed and many rungs, that between rungs, and the test split's own error beside it.
Its power is the mean over the widths that the interval may have. Several arms are corrected for as Holm's
first step does, which is the strictest. Plain numbers in, plain numbers out.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count, degrees
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS
from scalevec.analysis.power.noise_figure import TYPICAL, NoiseFigure
from scalevec.analysis.statistics.paired import FEWEST_RUNGS_WITHOUT_SEEDS, MANY_BLOCKS
from scalevec.analysis.statistics.rung_noise import COMPARED_AT, Component

POWER = 0.8
DRAWS = 2000
Parts = tuple[FloatArray, FloatArray]
"""The parts of a variance in several draws [draws, parts], with their degrees of freedom [parts]."""


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
    trials: int
    flops: float
    df: float
    """The most that the interval may have: the sum over rungs. What it gets follows from their noise."""
    difference: float | None
    multiplier: float | None
    range: tuple[float, float] | None = None
    """``difference`` with the least and the most noise that is thought possible."""
    between: str = ""
    """"rungs" where their spread is the noise, since no seed repeats."""
    seeds_error: float | None = None
    """The part of the standard error that is from seeds, nats/token."""


@dataclass(frozen=True)
class PowerAnalysis:
    """``design`` as it is, and ``more``: the same with one more seed, rung or token budget.

    ``sds`` are the noise at the smallest and at the largest rung. ``parts`` are smaller designs within it:
    of arms that are not run in all cells, or of one setting.
    """

    design: Detectable
    more: tuple[Detectable, ...]
    sds: tuple[float, float]
    noise: NoiseFigure
    level: float
    power: float
    n_arms: int
    parts: tuple[Detectable, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)

    @property
    def text(self) -> str:
        """A few lines for people."""
        lines = [f"with {100 * self.power:.0f} % power this design detects {_words(self.design)}"]
        lines += [f"  {part.what}: detects {_words(part)}" for part in self.parts]
        lines += [
            f"  {more.what}: detects {_words(more)}, for {more.flops / self.design.flops:.2g} times the FLOPs"
            for more in self.more
        ]
        if self.noise.slope:
            convention = f"C: {C_CONVENTIONS['6nd']}, N: {N_CONVENTIONS['matrices']}"
            lines.append(
                f"  multiplier: {self.noise.slope:.2g} nats/token per e-fold of compute assumed; {convention}"
            )
        return "\n".join([*lines, self._noise, self._split])

    @property
    def _noise(self) -> str:
        """What is taken for the noise, by size where it differs."""
        sds = " to ".join(dict.fromkeys(f"{sd:.2g}" for sd in self.sds))
        line = f"  noise: sd {sds} per pair, {self.noise.source}"
        if self.noise.spread == 1:
            return line
        return f"{line}; in brackets at 1/{self.noise.spread:g} and {self.noise.spread:g} times that"

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
    between = "" if effect.range is None else " [{:.4f}, {:.4f}]".format(*effect.range)
    return f"a difference of {effect.difference:.4f}{between} nats/token{multiplier} ({freedom})"


def detectable(
    rungs: Sequence[PlannedRung],
    noise: NoiseFigure = TYPICAL,
    *,
    n_arms: int = 1,
    level: float = 0.95,
    power: float = POWER,
    test_tokens: float | None = None,
    parts: Mapping[str, Sequence[PlannedRung]] | None = None,
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
        parts: Smaller designs within it by what they are, an arm that is run in fewer cells, say.

    Returns:
        The smallest difference (nats/token) and compute multiplier of the design as planned, and with one
        more seed, rung or token budget.

    Raises:
        DataError: A design without a rung, or a figure outside of its range.

    Examples:
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
        "one more rung": [*rungs, *_next_rungs(rungs)],
        "one more token budget": [*rungs, *(dataclasses.replace(r, n_tokens=2 * r.n_tokens) for r in rungs)],
    }
    alpha = (1 - level) / n_arms
    design, *more = (
        _detectable(what, rungs, noise, n_arms, alpha, power) for what, rungs in variants.items()
    )
    others = tuple(
        _detectable(what, rungs, noise, n_arms, alpha, power) for what, rungs in (parts or {}).items()
    )
    sizes = sorted(rung.n_params for rung in rungs)
    sds = (noise.at(sizes[0]), noise.at(sizes[-1]))
    return PowerAnalysis(design, tuple(more), sds, noise, level, power, n_arms, others)


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


def _next_rungs(rungs: Sequence[PlannedRung]) -> list[PlannedRung]:
    """One size above the largest, by the ladder's own ratio (twice, where it has one rung)."""
    sizes = sorted({rung.n_params for rung in rungs})
    ratio = sizes[-1] / sizes[-2] if len(sizes) > 1 else 2.0
    tops = {rung.setting: rung for rung in rungs if rung.n_params == sizes[-1]}
    return [
        PlannedRung("next", top.n_params * ratio, top.n_tokens * ratio, top.seeds, top.setting)
        for top in tops.values()
    ]


def _detectable(
    what: str,
    rungs: Sequence[PlannedRung],
    noise: NoiseFigure,
    n_arms: int,
    alpha: float,
    power: float,
) -> Detectable:
    components, between = _components(rungs, noise)
    df = int(sum(part.df for part in components))
    trials = sum(rung.seeds for rung in rungs) * (n_arms + 1)
    flops = float(sum(rung.flops * rung.seeds for rung in rungs)) * (n_arms + 1)
    if df == 0:
        return Detectable(what, trials, flops, 0, None, None)
    seeds_error = float(np.sqrt(sum(part.variance for part in components)))
    least, difference, most = (
        detected(
            [Component(part.variance * factor**2, part.df) for part in components], alpha, power, noise.split
        )
        for factor in (1 / noise.spread, 1.0, noise.spread)
    )
    multiplier = float(np.exp(min(difference / noise.slope, 700))) if noise.slope else None
    limits = (least, most) if noise.spread > 1 else None
    return Detectable(what, trials, flops, df, difference, multiplier, limits, between, seeds_error)


def _components(rungs: Sequence[PlannedRung], noise: NoiseFigure) -> tuple[list[Component], str]:
    """The variance of the mean by rung with its df, or one part "between" rungs, where no seed repeats.

    Settings of a rung have random numbers of their own. Its token budgets share them, so that they add no
    degree of freedom.
    """
    variances = [(noise.at(rung.n_params) / len(rungs)) ** 2 / rung.seeds for rung in rungs]
    if all(rung.seeds == 1 for rung in rungs) and len(rungs) >= FEWEST_RUNGS_WITHOUT_SEEDS:
        return [Component(sum(variances), len(rungs) - 1)], "rungs"
    of_rung: dict[str, float] = {}
    seeds: dict[str, dict[str, int]] = {}
    for rung, variance in zip(rungs, variances, strict=True):
        of_rung[rung.name] = of_rung.get(rung.name, 0.0) + variance
        by_setting = seeds.setdefault(rung.name, {})
        by_setting[rung.setting] = max(rung.seeds, by_setting.get(rung.setting, 1))
    degrees_of = {name: sum(n - 1 for n in by_setting.values()) for name, by_setting in seeds.items()}
    return [Component(variance, degrees_of[name]) for name, variance in of_rung.items()], ""


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


def planned_halves(rungs: Sequence[Component], level: float, split: Component | None = None) -> FloatArray:
    """Half the width of the ``level`` interval [draws] of a mean with these variances by rung.

    The interval of a comparison takes its degrees of freedom from the noise that each rung shows, so its
    width is drawn: equal normal noise between seeds at all rungs. A rung of 0 degrees of freedom takes the
    noise of the others; ``split`` is the test split's part.
    """
    variances, df = np.array(rungs, float).T
    repeated = df > 0
    if not repeated.any():
        raise ValueError("no rung repeats a seed")
    lent = variances[~repeated].sum() * df[repeated] / df.sum()
    drawn = np.random.default_rng(0).chisquare(df[repeated], (DRAWS, int(repeated.sum()))) / df[repeated]
    one_noise = drawn @ df[repeated] / df.sum() * variances.sum()
    by_rung = (variances[repeated] + lent) * drawn, df[repeated]
    return longest_halves([by_rung, (one_noise[:, None], np.array([df.sum()]))], level, split)


def longest_halves(errors: Sequence[Parts], level: float, split: Component | None = None) -> FloatArray:
    """Half the width [draws] of the longest of the intervals whose variances are sums of these parts.

    No interval is shorter with the test split's part than without it.
    """
    added = [
        (np.insert(parts, 0, split.variance, 1), np.insert(df, 0, split.df)) for parts, df in errors if split
    ]
    sums = [_satterthwaite(*error) for error in (*errors, *added)]
    compared, halves = (np.stack([_half(*each, at) for each in sums]) for at in (COMPARED_AT, level))
    return np.asarray(np.take_along_axis(halves, compared.argmax(axis=0)[None], 0)[0])


def _satterthwaite(parts: FloatArray, df: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard errors [draws] and degrees of freedom [draws] of sums of ``parts`` [draws, parts]."""
    total = parts.sum(axis=1)
    return np.sqrt(total), total**2 / (parts**2 / df).sum(axis=1)


def _half(error: FloatArray, df: FloatArray, level: float) -> FloatArray:
    from scipy.special import stdtrit

    return np.asarray(stdtrit(df, 0.5 + level / 2) * error)
