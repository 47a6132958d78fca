"""The differences of one arm's pairs: at each size, on average, cell by cell, along compute, in a margin.

The mean that decides is over the sizes that can carry it. One with a single run has no noise figure, and that
of the others is not its own: it is left out and said. A cell in which a side is only a bound (line 3) counts
for the direction alone that it cannot flatter.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from scalevec.analysis.comparison.fairness import Bounds, bounds_of
from scalevec.analysis.data.pairs import Pairs, varying
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.formatting import count, is_loss
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.looks import Look
from scalevec.analysis.statistics.noise import pooled_noise
from scalevec.analysis.statistics.paired import Estimate
from scalevec.analysis.statistics.sample import PairedSample, sample_of

EQUIVALENCE_LEVEL = 0.90
"""Two one-sided tests at 5 % are a 90 % interval inside the margin."""
ONE_SIDED = (1 - EQUIVALENCE_LEVEL) / 2
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
    """Arm minus reference over the ``n_pairs`` that decide, nats/token or y's unit; cells weigh alike."""

    mean: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    p_holm: float | None
    df: float
    """Degrees of freedom by Satterthwaite, rarely a whole number."""
    standard_error: float | None = None
    """None without a noise figure. While planned pairs have no result it stands without interval and p."""
    seeds_error: float | None = None
    """The part of the standard error that is from seeds (None without a degree of freedom)."""
    split_error: float | None = None
    """The part that is from the test split (None where its blocks are not known)."""
    n_pairs: int = 0


@dataclass(frozen=True)
class RungDifference:
    """One cell, or a point of a line of laws, descriptive; ``interval`` is from the noise of its rung."""

    rung: str
    n_params: float
    n_tokens: float
    setting: dict[str, Any]
    differences: tuple[float, ...]
    """One for each complete pair; their number is ``n``."""
    seeds: tuple[str, ...]
    """The seed of each of them."""
    n: int
    mean: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Part:
    """The mean difference at one size, or in one setting over all sizes; nats/token, arm minus reference.

    ``p_holm`` is corrected over the sizes (settings). ``one_run``: no seed repeats here, so that there is no
    noise figure; ``bound`` are the sides whose learning rate leaves only a bound.
    """

    name: str
    flops: float
    n_pairs: int
    mean: float
    interval: tuple[float, float] | None
    p_value: float | None
    p_holm: float | None
    equivalence_p: float | None
    one_run: bool
    bound: tuple[str, ...]


@dataclass(frozen=True)
class PairedArm:
    """One arm's pairs with the reference and the mean difference that decides; None without a complete pair.

    Verdicts, tables and figures all read their differences from here. ``keep`` [complete pairs] are those of
    the mean; ``one_sided``: bounds leave no claim in the direction that it has.
    """

    arm: str
    pairs: Pairs
    sample: PairedSample
    estimate: Estimate | None
    keep: BoolArray
    one_sided: bool = False
    look: Look | None = None
    """The look at which ``pairs`` stand, where looks were declared and one has been reached."""
    beyond: Pairs | None = None
    """All pairs, where ``pairs`` are those that the verdict is due on and more may have come after it."""

    @classmethod
    def of(cls, arm: str, pairs: Pairs, beyond: Pairs | None = None) -> "PairedArm":
        """Return the arm with its mean difference, each cell of ``pairs`` with the same weight."""
        sample = sample_of(pairs)
        if not len(sample.values):
            return cls(arm, pairs, sample, None, np.zeros(0, bool), beyond=beyond)
        estimate, keep, one_sided = _deciding(pairs, sample)
        return cls(arm, pairs, sample, estimate, keep, one_sided, beyond=beyond)

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
        if self.estimate is None:
            return None
        p = self.estimate.p_value()
        return 1.0 if self.one_sided and p is not None else p

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
    def sizes(self) -> list[tuple[str, BoolArray]]:
        """The sizes (rungs, each with its budget of tokens) by name and pairs, the largest C last."""
        return _sizes(self.pairs)

    @cached_property
    def settings(self) -> list[tuple[str, BoolArray]]:
        """The values of each setting that varies, by name and pairs."""
        complete = self.pairs.complete
        columns = varying(complete, self.pairs.settings)
        return [
            (str(value), (complete[name].astype(str) == str(value)).to_numpy(bool))
            for name in columns
            for value in complete[name].unique()
        ]

    @cached_property
    def bounds(self) -> Bounds:
        """In which pairs a side is only a bound."""
        return bounds_of(self.pairs)

    def parts(self, groups: Sequence[tuple[str, BoolArray]], options: AnalysisOptions) -> tuple[Part, ...]:
        """The mean difference in each of ``groups``, :attr:`sizes` or :attr:`settings`."""
        interim, level = self.pairs.is_interim, self.level(options.level)
        estimates = [inference.overall(self.sample.kept(of_part)) for _, of_part in groups]
        p_values = [None if interim else estimate.p_value() for estimate in estimates]
        compute = self.pairs.complete["compute_reference"].to_numpy(float)
        sides = (("reference", self.bounds.reference), ("arm", self.bounds.arm))
        # A part without a p-value is none of the family here.
        corrected = iter(inference.holm([p for p in p_values if p is not None]))
        return tuple(
            Part(
                name=name,
                flops=float(compute[of_part].max()),
                n_pairs=int(of_part.sum()),
                mean=estimate.value,
                interval=None if interim else estimate.interval(level),
                p_value=p,
                p_holm=None if p is None else next(corrected),
                equivalence_p=None if interim else _inside(estimate, options),
                one_run=not estimate.has_noise,
                bound=tuple(side for side, is_bound in sides if is_bound[of_part].any()),
            )
            for (name, of_part), estimate, p in zip(groups, estimates, p_values, strict=True)
        )


def inside_all(parts: Sequence[Part]) -> float | None:
    """The largest p of two one-sided tests over the ``parts`` that carry one, if any does."""
    p_values = [part.equivalence_p for part in parts if not part.bound and part.equivalence_p is not None]
    return max(p_values, default=None)


def _inside(estimate: Estimate, options: AnalysisOptions) -> float | None:
    if options.margin is None or not is_loss(options.y):
        return None
    return inference.equivalence_p(estimate, options.margin)


def _sizes(pairs: Pairs) -> list[tuple[str, BoolArray]]:
    complete = pairs.complete
    places = complete[["rung", "n_tokens", "compute_reference"]].drop_duplicates(["rung", "n_tokens"])
    places = places.sort_values("compute_reference", kind="stable")
    several = places["rung"].duplicated(keep=False).any()
    return [
        (
            f"{rung} with {count(tokens)} tokens" if several else str(rung),
            ((complete["rung"] == rung) & (complete["n_tokens"] == tokens)).to_numpy(bool),
        )
        for rung, tokens, _ in places.itertuples(index=False, name=None)
    ]


def _deciding(pairs: Pairs, sample: PairedSample) -> tuple[Estimate, BoolArray, bool]:
    """The mean that decides, its pairs [complete pairs], and whether bounds forbid a claim by its sign."""
    sizes = [of_size for _, of_size in _sizes(pairs)]
    has_noise = [inference.overall(sample.kept(of_size)).has_noise for of_size in sizes]
    usable = np.ones(len(sample.values), bool)
    if any(has_noise):
        for of_size, known in zip(sizes, has_noise, strict=True):
            usable &= known | ~of_size
    bounds = bounds_of(pairs)
    if not (bounds.any & usable).any():
        return inference.overall(sample.kept(usable)), usable, False
    # Lower than a bound says nothing, higher than a bound does; each direction is tested at half of alpha.
    fitting = []
    for keep, sign in ((usable & ~bounds.reference, -1), (usable & ~bounds.arm, 1)):
        if keep.any():
            estimate = inference.overall(sample.kept(keep))
            p = estimate.p_value()
            if estimate.value * sign > 0:
                fitting.append((1.0 if p is None else p, estimate, keep))
    if fitting:
        _, estimate, keep = min(fitting, key=lambda each: each[0])
        return estimate, keep, False
    unbounded = usable & ~bounds.any
    keep = unbounded if unbounded.any() else usable
    return inference.overall(sample.kept(keep)), keep, True


def corrected_differences(
    family: Sequence[PairedArm], level: float, n_others: int = 0
) -> list[LossDifference]:
    """Return the mean difference of each arm, with p-values corrected by Holm over ``family``.

    ``n_others`` arms more were run, which count in the family although they are not among the rows.
    """
    p_holm = inference.holm([*(arm.p_value() for arm in family), *[None] * n_others])
    differences = []
    for paired, p in zip(family, p_holm, strict=False):
        estimate, interval = paired.estimate, paired.interval(level)
        if estimate is None:
            differences.append(LossDifference(None, None, None, None, 0))
            continue
        differences.append(
            LossDifference(
                mean=estimate.value,
                interval=interval,
                p_value=paired.p_value(),
                p_holm=p,
                df=estimate.df,
                standard_error=estimate.standard_error if estimate.has_noise else None,
                seeds_error=estimate.seeds_error if estimate.has_noise else None,
                split_error=estimate.split_error,
                n_pairs=int(paired.keep.sum()),
            )
        )
    return differences


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
                mean=difference.mean,
                interval=None if pairs.is_interim else difference.interval,
            )
        )
    return rows


def trend_per_decade(paired: PairedArm, level: float) -> dict[str, Any]:
    """How the difference changes with each decade of the reference's compute, nats/token per decade."""
    decades = np.log10(paired.pairs.complete["compute_reference"].to_numpy(float))[paired.keep]
    slope = inference.slope(paired.sample.kept(paired.keep), decades) if len(decades) else None
    if slope is None:
        return {"per_decade": None, "interval": None, "p_value": None, "df": 0, "note": "one value of C"}
    shown: dict[str, Any] = {"per_decade": slope.value, "interval": None, "p_value": None, "df": slope.df}
    if paired.pairs.is_interim:
        return {**shown, "note": INTERIM}
    note = "noise from the spread between rungs: one seed each" if slope.between == "rungs" else ""
    return {
        **shown,
        "interval": slope.interval(level),
        "p_value": slope.p_value(),
        "interval_90": slope.interval(EQUIVALENCE_LEVEL),
        "note": note,
    }
