"""Data sets of paired differences that look for trouble: unequal noise, heavy tails, shared seeds, test text.

:mod:`calibration` counts what the intervals of a comparison cover on them. Without multipliers a data set is
an array of differences, which takes milliseconds; designs with multipliers make a table, as people bring one.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from law_designs import LEVEL, Covered, Simulate

from scalevec.analysis.comparison.line_laws import ArmLaws
from scalevec.analysis.data.pairs import paired_by
from scalevec.analysis.data.tidy import FloatArray, checked
from scalevec.analysis.fits.hold_out import lack_of_fit
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.law_points import points_of
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.looks import nominal
from scalevec.analysis.statistics.noise import RungNoise, t_quantile
from scalevec.analysis.statistics.paired import Estimate
from scalevec.analysis.statistics.sample import PairedSample, SplitLosses, over_whole_seeds

LENGTH = "length"
"""Quantities with this prefix are medians of a length over that with noise pooled over all pairs."""
SPLIT_COMMON, SPLIT_OWN, N_BLOCKS = 0.024, 0.032, 64
"""sd over blocks of a difference, nats/token: common to all pairs, and of each pair alone."""
NEIGHBOURS = 0.3
"""Correlation of neighbouring blocks of the test split; the kept results show .15 to .38."""
PAIR_SD, LOG_NOISE = 0.01, 3e-3
"""sd of a pair's difference between seeds, nats/token, and of the log loss of one trial."""


@dataclass(frozen=True)
class Layout:
    """Rungs x settings x seeds, with noise ``ratio`` times larger at the smallest rung than at the largest.

    ``settings_share`` and ``rungs_share`` of a difference's variance are common to the settings of a rung and
    seed, and to all rungs of a seed.
    """

    rungs: int
    settings: int
    seeds: int
    ratio: float = 1.0
    heavy: bool = False
    settings_share: float = 0.0
    rungs_share: float = 0.0
    streams: bool = False
    split: bool = False
    alone: float = 0.0
    """Where above zero the last rung has one seed, with noise this many times that of the others."""

    @property
    def places(self) -> tuple[npt.NDArray[np.intp], ...]:
        """Rung, setting and seed of each pair [pairs]."""
        return tuple(axis.ravel() for axis in np.indices((self.rungs, self.settings, self.seeds)))

    def noise(self, rng: np.random.Generator) -> FloatArray:
        """Of each pair, standard deviation one at the largest rung [pairs]."""
        shape = (self.rungs, self.settings, self.seeds)

        def drawn(*size: int) -> FloatArray:
            return rng.standard_t(3, size) / 3**0.5 if self.heavy else rng.standard_normal(size)

        rest = 1 - self.settings_share - self.rungs_share
        parts = (
            self.rungs_share**0.5 * drawn(1, 1, self.seeds),
            self.settings_share**0.5 * drawn(self.rungs, 1, self.seeds),
            rest**0.5 * drawn(*shape),
        )
        sds = np.geomspace(self.ratio, 1.0, self.rungs)[:, None, None]
        sds[-1] *= self.alone or 1.0
        return np.asarray((sds * sum(np.broadcast_to(part, shape) for part in parts)).ravel())

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """The pairs that are run [pairs]."""
        rung, _, seed = self.places
        return np.asarray((seed == 0) | (rung < self.rungs - 1) | (self.alone == 0))


def differences(layout: Layout) -> Simulate:
    """No true difference, rungs one decade of compute apart."""
    rung, setting, seed = (axis[layout.kept] for axis in layout.places)
    cells = rung * layout.settings + setting

    def simulate(rng: np.random.Generator, _: AnalysisOptions) -> Covered:
        values = PAIR_SD * layout.noise(rng)[layout.kept]
        split = _split(rng, len(values)) if layout.split else None
        if split is not None:
            by_block = values[:, None] + split
            values = by_block.mean(axis=1)
        sample = PairedSample.of(values, cells, rungs=rung)
        sample = sample if layout.streams else over_whole_seeds(sample, seed)
        if split is not None:
            losses = np.stack([np.zeros_like(by_block), by_block])
            sample = replace(sample, split=SplitLosses(losses, np.ones(N_BLOCKS)))
        if layout.alone:  # a rung of one run is left out of what decides
            judged = rung < layout.rungs - 1
            sample, along = sample.kept(judged), rung[judged].astype(float)
        else:
            along = rung.astype(float)
        mean, trend = inference.overall(sample), inference.slope(sample, along)
        pooled = RungNoise(sample.values[None], sample.cells, np.arange(len(sample.values)), sample.rungs)
        even = sample.weights(np.full(len(sample.counts), 1 / len(sample.counts)))
        covered = {"mean difference": _covers_zero(mean), "trend": trend is not None and _covers_zero(trend)}
        interval = mean.interval(LEVEL)
        covered |= {
            "by rung": _by_rung(sample, sample.rungs),
            "called better": interval is not None and interval[1] < 0,
        }
        part = pooled.pooled(even[None])
        usual = t_quantile(LEVEL, part.df) * part.variance**0.5
        covered["length of the mean's interval"] = (
            t_quantile(LEVEL, mean.df) * mean.standard_error / usual if mean.df else np.inf
        )
        return covered

    return simulate


def _split(rng: np.random.Generator, n_pairs: int) -> FloatArray:
    """What each block adds to each pair [pairs, blocks]: a part common to all pairs, and one of its own."""
    parts = rng.standard_normal((n_pairs + 1, N_BLOCKS))
    for block in range(1, N_BLOCKS):
        parts[:, block] *= (1 - NEIGHBOURS**2) ** 0.5
        parts[:, block] += NEIGHBOURS * parts[:, block - 1]
    return np.asarray(SPLIT_COMMON * parts[0] + SPLIT_OWN * parts[1:])


def _covers_zero(estimate: Estimate) -> bool:
    interval = estimate.interval(LEVEL)
    return interval is not None and interval[0] <= 0 <= interval[1]


def _by_rung(sample: PairedSample, rungs: npt.NDArray[np.intp]) -> float:
    """The share of rungs whose own interval covers."""
    parts = [sample.kept(rungs == rung) for rung in np.unique(rungs)]
    return float(np.mean([_covers_zero(inference.overall(part)) for part in parts]))


def multipliers(layout: Layout, law: dict[str, float]) -> Simulate:
    """Two arms on one power law in C with one setting; log losses of pairs differ by the layout's noise."""
    rung, _, seed = layout.places
    n_params = np.geomspace(3e4, 3e5, layout.rungs).round()[rung]
    compute = 96 * n_params**2
    truth = law["A"] * compute ** -law["alpha"]

    def simulate(rng: np.random.Generator, settings: AnalysisOptions) -> Covered:
        shared = 2 * LOG_NOISE * rng.standard_normal(len(truth))
        noise = {"reference": shared, "arm": shared + LOG_NOISE * 2**0.5 * layout.noise(rng)}
        blocks = _split(rng, len(truth)) if layout.split else None
        parts = []
        for arm, of_arm in noise.items():
            loss = truth * np.exp(of_arm)
            columns = {
                "n_params": n_params,
                "n_tokens": 16 * n_params,
                "seed": seed,
                "rung": rung.astype(str),
            }
            table = pd.DataFrame(columns).assign(arm=arm, loss=loss)
            if layout.streams:
                table = table.assign(stream=[f"{r} {s}" for r, s in zip(rung, seed, strict=True)])
            if blocks is not None:
                by_block = loss[:, None] + (blocks if arm == "arm" else np.zeros_like(blocks))
                table = table.assign(
                    loss=by_block.mean(axis=1),
                    loss_blocks=list(by_block),
                    block_tokens=[np.ones(N_BLOCKS)] * len(loss),
                )
            parts.append(table)
        pairs = paired_by(checked(pd.concat(parts, ignore_index=True)), "reference", "arm", AnalysisOptions())
        lines = ArmLaws(pairs, settings)
        low, high = lines.range()
        points = {"middle": (low * high) ** 0.5, "largest": high}
        bounds = {name: lines.multiplier(name, at).interval for name, at in points.items()}
        change = lines.change(low, high)
        bounds["change per decade"] = change["interval"] if change else None
        return {
            f"log multiplier, {name}": interval is not None and interval[0] <= 1 <= interval[1]
            for name, interval in bounds.items()
        }

    return simulate


def looked_at(looks: tuple[int, ...], n_rungs: int = 3) -> Simulate:
    """No true difference, judged at declared numbers of seeds that share one alpha: is one found?"""
    rung, seed = (axis.ravel() for axis in np.indices((n_rungs, looks[-1])))
    limits = np.array(nominal(looks, 1 - LEVEL))

    def simulate(rng: np.random.Generator, _: AnalysisOptions) -> Covered:
        sample = PairedSample.of(PAIR_SD * rng.standard_normal(len(rung)), rung)
        reached = [inference.overall(sample.kept(seed < look)) for look in looks]
        is_below = np.array([estimate.p_value() for estimate in reached], float) < limits
        # The first look that finds a difference is the last one.
        decided = reached[int(np.argmax(is_below))] if is_below.any() else None
        return {
            "mean difference, over all looks": decided is None,
            "called better": decided is not None and decided.value < 0,
        }

    return simulate


def wrong_law(bend: float, n_rungs: int = 4, n_seeds: int = 3) -> Simulate:
    """A power law whose exponent changes by ``bend`` per e-fold of compute, or none: called a lack of fit?"""

    def simulate(rng: np.random.Generator, _: AnalysisOptions) -> Covered:
        compute = np.repeat(np.geomspace(1e11, 1e13, n_rungs), n_seeds)
        away = np.log(compute / 1e12)
        loss = np.exp(1.2 - 0.09 * away + bend * away**2 + LOG_NOISE * rng.standard_normal(len(compute)))
        test = lack_of_fit(points_of(law_named("power"), {"x": compute}), loss)
        return {"called a lack of fit": test is not None and test < 0.05}

    return simulate


def layouts() -> dict[str, Layout]:
    """Every layout by its name."""
    named = {}
    for ratio in (1.0, 3.0, 6.0, 10.0, 0.1):
        for rungs, seeds in ((4, 2), (4, 3)):
            named[f"{rungs} rungs x {seeds} seeds, noise {ratio:g}:1"] = Layout(
                rungs, 1, seeds, ratio, streams=True
            )
    named["4 rungs x 3 seeds, t3 tails"] = Layout(4, 1, 3, heavy=True, streams=True)
    named["4 rungs x 3 seeds, noise 6:1, t3 tails"] = Layout(4, 1, 3, 6.0, heavy=True, streams=True)
    for alone in (1.0, 3.0):
        named[f"seeds (3, 3, 3, 1), the last with {alone:g} times the noise"] = Layout(
            4, 1, 3, streams=True, alone=alone
        )
    for share in (0.0, 0.15, 0.3, 0.5):
        named[f"2 rungs x 4 settings x 3 seeds, settings share {share:g}"] = Layout(
            2, 4, 3, settings_share=share
        )
        named[f"4 rungs x 3 seeds, rungs share {share:g}"] = Layout(4, 1, 3, rungs_share=share)
    named["4 rungs x 3 seeds, test split of 64 blocks"] = Layout(4, 1, 3, streams=True, split=True)
    return named
