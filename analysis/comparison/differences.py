"""The differences of one arm's pairs: overall, cell by cell, along compute, and against a margin."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from scalevec.analysis.comparison.independence import Independence
from scalevec.analysis.data.pairs import Pairs, varying
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.formatting import is_loss
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.looks import Look, nominal
from scalevec.analysis.statistics.noise import pooled_noise
from scalevec.analysis.statistics.paired import Estimate
from scalevec.analysis.statistics.sample import PairedSample

EQUIVALENCE_LEVEL = 0.90
"""Two one-sided tests at 5 % are a 90 % interval inside the margin."""
INTERIM = "interim: no interval before every planned pair has a result"
_Cell = TypeVar("_Cell", bound=Hashable)


@dataclass(frozen=True)
class CellMean:
    """The mean of ``n`` values of a cell with its interval (None without a degree of freedom), nats/token."""

    mean: float
    interval: tuple[float, float] | None
    n: int


def excludes_zero(interval: tuple[float, float] | None) -> bool:
    """Whether there is an interval, and zero lies outside of it."""
    return interval is not None and not interval[0] <= 0 <= interval[1]


def cell_means(
    values: FloatArray, cells: Sequence[_Cell], clusters: npt.NDArray[np.intp], level: float
) -> dict[_Cell, CellMean]:
    """Return the mean of ``values`` [points] in each of ``cells`` [points], in the order of the points.

    Each has the noise of its own seeds.
    """
    codes = {cell: code for code, cell in enumerate(dict.fromkeys(cells))}
    code_of = np.array([codes[cell] for cell in cells], int)
    sample = PairedSample.of(values, code_of, clusters)
    return {cell: _cell_mean(sample, code, level) for cell, code in codes.items()}


def _cell_mean(sample: PairedSample, code: float, level: float) -> CellMean:
    """The mean of one cell: with the noise of its rung, where the cells of that are independent."""
    of_cell = sample.cells == code
    of_rung = sample.rungs == sample.rungs[of_cell][0]
    part = sample.kept(of_cell if sample.kept(of_rung).dependent else of_rung)
    chosen = (np.unique(part.cells) == code).astype(float)
    estimate = inference.contrast(part, chosen)
    return CellMean(estimate.value, estimate.interval(level), int(of_cell.sum()))


@dataclass(frozen=True)
class LossDifference:
    """Arm minus reference over all complete pairs, nats/token (or y's unit), equal weight for each cell."""

    mean: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    p_holm: float | None
    df: float
    """Degrees of freedom by Satterthwaite, rarely a whole number."""
    pair_sd: float | None
    """Noise of one pair's difference, pooled within cells; None where no seed repeats."""
    standard_error: float | None = None
    """None without a noise figure. While planned pairs have no result it stands without interval and p."""
    seeds_error: float | None = None
    """The part of the standard error that is from seeds (None without a degree of freedom)."""
    split_error: float | None = None
    """The part that is from the test split (None where its blocks are not known)."""


@dataclass(frozen=True)
class RungDifference:
    """One cell, descriptive: ``sd`` of its own pairs, ``interval`` from the noise of its rung."""

    rung: str
    n_params: int
    n_tokens: int
    setting: dict[str, Any]
    differences: tuple[float, ...]
    """One for each complete pair; their number is ``n``."""
    seeds: tuple[str, ...]
    """The seed of each of them."""
    n: int
    loss_reference: float
    loss_arm: float
    mean: float
    sd: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class PairedArm:
    """One arm's pairs with the reference and its mean difference; None without a complete pair.

    Verdicts, tables and figures all read their differences from here.
    """

    arm: str
    pairs: Pairs
    sample: PairedSample
    independence: Independence
    estimate: Estimate | None
    look: Look | None = None
    """The look at which ``pairs`` stand, where looks were declared and one has been reached."""
    beyond: Pairs | None = None
    """All pairs, where ``pairs`` are those that the verdict is due on and more may have come after it."""

    @classmethod
    def of(cls, arm: str, pairs: Pairs, beyond: Pairs | None = None) -> "PairedArm":
        """Return the arm with its mean difference, each cell of ``pairs`` with the same weight."""
        independence = Independence.of(pairs)
        sample = independence.sample(pairs)
        estimate = inference.overall(sample) if len(sample.values) else None
        return cls(arm, pairs, sample, independence, estimate, beyond=beyond)

    @property
    def pair_sd(self) -> float | None:
        """Noise of one pair's difference, pooled within cells; None where no seed repeats."""
        noise = pooled_noise(self.pairs.differences, self.pairs.cells)
        return noise.sd if noise.df else None

    @property
    def progress(self) -> str:
        """How far the plan is, as text."""
        if self.look is None:
            return self.pairs.progress
        return f"look at {self.look.size} of {self.look.looks[-1]} seeds"

    def exploratory(self) -> "PairedArm | None":
        """The arm over all pairs that have a result by now, where there are more than its verdict is on."""
        if self.beyond is None or len(self.beyond.complete) <= len(self.pairs.complete):
            return None
        return PairedArm.of(self.arm, self.beyond)

    def level(self, level: float) -> float:
        """The level of an interval that holds at ``level`` over all looks."""
        return level if self.look is None else self.look.level(level)

    def own_p_value(self) -> float | None:
        """Two-sided, against zero, of these pairs alone: as if they were all that was ever looked at."""
        return None if self.estimate is None else self.estimate.p_value()

    def interval(self, level: float) -> tuple[float, float] | None:
        """The interval of the mean difference; None while a planned pair has no result."""
        if self.estimate is None or self.pairs.is_interim:
            return None
        return self.estimate.interval(self.level(level))

    def p_value(self) -> float | None:
        """Two-sided, against zero; None while a planned pair has no result."""
        if self.pairs.is_interim:
            return None
        return self.own_p_value() if self.look is None else self.look.p

    @cached_property
    def over_seeds(self) -> Estimate | None:
        """The mean with whole seeds as what varies; None where it asks for no such check."""
        return self.independence.over_seeds(self.pairs, self.sample) if self.estimate else None

    def checked_p_value(self) -> float | None:
        """The p-value that a claim needs: the larger of the interval's own and the one over whole seeds."""
        p_plain, over_seeds = self.p_value(), self.over_seeds
        if over_seeds is None or p_plain is None:
            return p_plain
        p = over_seeds.p_value()
        if p is not None and self.look is not None:
            p = self.look.sequential_p(p)
        return None if p is None else max(p_plain, p)


@dataclass(frozen=True)
class OverSeeds:
    """What a claim needs beside its interval where rungs repeat seeds without recorded streams.

    ``interval``, ``df`` and ``equivalence_p`` (None without a margin) are of the mean difference with whole
    seeds as what varies, never shorter than its own; ``p_holm`` is corrected over the arms.
    """

    interval: tuple[float, float] | None
    df: float
    p_holm: float | None
    equivalence_p: float | None


def checks_over_seeds(family: Sequence[PairedArm], options: AnalysisOptions) -> list[OverSeeds | None]:
    """The check of each arm; None where its pairs ask for none."""
    p_holm = inference.holm([arm.checked_p_value() for arm in family])
    return [_over_seeds(arm, p, options) for arm, p in zip(family, p_holm, strict=True)]


def _over_seeds(paired: PairedArm, p_holm: float | None, options: AnalysisOptions) -> OverSeeds | None:
    estimate, margin = paired.over_seeds, options.margin
    if estimate is None or paired.pairs.is_interim:
        return None
    inside = inference.equivalence_p(estimate, margin) if margin else None
    return OverSeeds(estimate.interval(paired.level(options.level)), estimate.df, p_holm, inside)


def corrected_differences(family: Sequence[PairedArm], level: float) -> list[LossDifference]:
    """Return the mean difference of each arm, with p-values corrected by Holm over ``family``."""
    p_holm = inference.holm([arm.p_value() for arm in family])
    return [_loss_difference(arm, p, level) for arm, p in zip(family, p_holm, strict=True)]


def _loss_difference(paired: PairedArm, p_holm: float | None, level: float) -> LossDifference:
    estimate = paired.estimate
    if estimate is None:
        return LossDifference(None, None, None, None, 0, None)
    error = estimate.standard_error if estimate.has_noise else None
    return LossDifference(
        estimate.value,
        paired.interval(level),
        paired.p_value(),
        p_holm,
        estimate.df,
        paired.pair_sd,
        error,
        estimate.seeds_error if estimate.has_noise else None,
        estimate.split_error,
    )


def cell_differences(paired: PairedArm, cells: Sequence[_Cell], level: float) -> dict[_Cell, CellMean]:
    """Return the mean difference in each of ``cells`` [pairs], in the order of the pairs."""
    codes = dict(zip(cells, paired.sample.cells.tolist(), strict=True))
    return {cell: _cell_mean(paired.sample, code, level) for cell, code in codes.items()}


def rung_differences(paired: PairedArm, level: float) -> list[RungDifference]:
    """The difference in each cell, descriptive."""
    pairs = paired.pairs
    complete, differences, cells = pairs.complete, pairs.differences, pairs.cells
    settings = varying(complete, pairs.settings)
    rows = []
    for cell, difference in cell_differences(paired, cells.tolist(), level).items():
        of_cell, values = complete[cells == cell], differences[cells == cell]
        first = of_cell.iloc[0]
        rows.append(
            RungDifference(
                rung=str(first["rung"]),
                n_params=int(first["n_params_reference"]),
                n_tokens=int(first["n_tokens"]),
                setting={name: str(first[name]) for name in settings},
                differences=tuple(values.tolist()),
                seeds=tuple(map(str, of_cell["seed"])),
                n=difference.n,
                loss_reference=float(of_cell["loss_reference"].mean()),
                loss_arm=float(of_cell["loss_arm"].mean()),
                mean=difference.mean,
                sd=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                interval=None if pairs.is_interim else difference.interval,
            )
        )
    return rows


def trend_per_decade(paired: PairedArm, level: float) -> dict[str, Any]:
    """How the difference changes with each decade of the reference's compute, nats/token per decade."""
    decades = np.log10(paired.pairs.complete["compute_reference"].to_numpy(float))
    slope = inference.slope(paired.sample, decades) if len(decades) else None
    if slope is None:
        return {"per_decade": None, "interval": None, "p_value": None, "df": 0, "note": "one value of C"}
    note = "noise from the spread between rungs: one seed each" if slope.between == "rungs" else ""
    if paired.pairs.is_interim:
        return {"per_decade": slope.value, "interval": None, "p_value": None, "df": slope.df, "note": INTERIM}
    return {
        "per_decade": slope.value,
        "interval": slope.interval(level),
        "p_value": slope.p_value(),
        "df": slope.df,
        "note": note,
    }


def equivalence_test(paired: PairedArm, options: AnalysisOptions) -> dict[str, Any]:
    """Two one-sided tests against the margin, or a ``note`` that says why there is none."""
    margin, estimate = options.margin, paired.estimate
    if margin is None:
        return {"margin": None, "note": "no margin was given"}
    if not is_loss(options.y):
        return {"margin": None, "note": f"the margin is in nats/token, {options.y} is not"}
    if paired.pairs.is_interim:
        return {"margin": margin, "p_value": None, "interval": None, "note": INTERIM}
    if estimate is None or estimate.df == 0:
        return {"margin": margin, "p_value": None, "interval": None, "note": "no degree of freedom"}
    if paired.look is not None and paired.look.until == "decided":
        return _equivalence_at(paired.look, margin, estimate)
    if paired.look is not None and not paired.look.is_last:
        note = "tested at the last of the declared looks only"
        return {"margin": margin, "p_value": None, "interval": None, "note": note}
    return {
        "margin": margin,
        "p_value": inference.equivalence_p(estimate, margin),
        "interval": estimate.interval(EQUIVALENCE_LEVEL),
        "level": EQUIVALENCE_LEVEL,
    }


def _equivalence_at(look: Look, margin: float, estimate: Estimate) -> dict[str, Any]:
    """The two one-sided tests of a look that shares their level with the others."""
    level = 1 - nominal(look.looks, 1 - EQUIVALENCE_LEVEL, look.until)[look.number]
    return {
        "margin": margin,
        "p_value": look.equivalence_p,
        "interval": estimate.interval(level),
        "level": EQUIVALENCE_LEVEL,
    }
