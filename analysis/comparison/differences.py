"""The differences of one arm's pairs: at each size, on average, cell by cell, along compute, in a margin.

The mean that decides is over the sizes that can carry it. One with a single run has no noise figure, and that
of the others is not its own: it is left out and said. A cell in which a side is only a bound (line 3) counts
for the direction alone that it cannot flatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.fairness import SIDES, bounds_of
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray, varying
from scalevec.analysis.formatting import count, is_loss, shortened
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


@dataclass(frozen=True)
class CellMean:
    """The mean of ``n`` values of a cell with its interval (None without a degree of freedom), nats/token."""

    mean: float
    interval: tuple[float, float] | None
    n: int


def cell_means(sample: PairedSample, cells: Sequence[Any], level: float | None) -> dict[Any, CellMean]:
    """Return the mean of ``sample`` in each of ``cells``, the names of its cells [points], in their order.

    Each has the noise of its rung, where the cells of that are independent, else that of its own seeds;
    there are no intervals without a ``level``.
    """
    means = {}
    for cell, code in dict(zip(cells, sample.cells.tolist(), strict=True)).items():
        of_cell = sample.cells == code
        estimate = _of_cell(sample, of_cell)
        interval = estimate.interval(level) if level else None
        means[cell] = CellMean(estimate.value, interval, int(of_cell.sum()))
    return means


def _of_cell(sample: PairedSample, of_cell: BoolArray) -> Estimate:
    of_rung = sample.rungs == sample.rungs[of_cell][0]
    part = sample.kept(of_cell if sample.kept(of_rung).dependent else of_rung)
    return inference.contrast(part, (np.unique(part.cells) == sample.cells[of_cell][0]).astype(float))


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
    """One arm's pairs with the reference and what they say of it, each cell with the same weight.

    Verdicts, tables and figures all read their differences from here.
    """

    reference: str
    arm: str
    pairs: Pairs
    options: AnalysisOptions
    n_arms: int = 1
    """How many arms the source has beside the reference."""
    look: Look | None = None
    """The look at which ``pairs`` stand, where looks were declared and one has been reached."""
    beyond: Pairs | None = None
    """All pairs, where ``pairs`` are those that the verdict is due on and more may have come after it."""

    @property
    def names(self) -> dict[str, str]:
        """The arm of each side."""
        return dict(zip(SIDES, (self.reference, self.arm), strict=True))

    @cached_property
    def sample(self) -> PairedSample:
        """The differences of the complete pairs with what their inference needs to know."""
        return sample_of(self.pairs)

    @cached_property
    def bounds(self) -> dict[str, BoolArray]:
        """In which complete pairs the loss of each side is only a bound."""
        return bounds_of(self.pairs)

    @property
    def estimate(self) -> Estimate | None:
        """The mean difference that decides; None without a complete pair."""
        return self._deciding[0]

    @property
    def keep(self) -> BoolArray:
        """The pairs of that mean [complete pairs]."""
        return self._deciding[1]

    @property
    def one_sided(self) -> bool:
        """Whether bounds leave no claim in the direction that it has."""
        return self._deciding[2]

    @cached_property
    def _deciding(self) -> tuple[Estimate | None, BoolArray, bool]:
        """The mean that decides, its pairs [complete pairs], whether bounds forbid a claim by its sign."""
        sample, masks = self.sample, [of_size for _, of_size in self._of_sizes]
        usable = np.ones(len(sample.values), bool)
        if not len(usable):
            return None, usable, False
        one_run = [not inference.overall(sample.kept(of_size)).has_noise for of_size in masks]
        if not all(one_run):
            usable &= ~np.any([of_size for of_size, is_one in zip(masks, one_run, strict=True) if is_one], 0)
        bounded = self.bounds["reference"] | self.bounds["arm"]
        if not (bounded & usable).any():
            return inference.overall(sample.kept(usable)), usable, False
        # Lower than a bound says nothing, higher does; each direction is tested at half of alpha.
        fitting = []
        for side, sign in (("reference", -1), ("arm", 1)):
            keep = usable & ~self.bounds[side]
            estimate = inference.overall(sample.kept(keep)) if keep.any() else None
            if estimate and estimate.value * sign > 0:
                p = estimate.p_value()
                fitting.append((1.0 if p is None else p, estimate, keep))
        if fitting:
            _, estimate, keep = min(fitting, key=lambda each: each[0])
            return estimate, keep, False
        keep = usable & ~bounded if (usable & ~bounded).any() else usable
        return inference.overall(sample.kept(keep)), keep, True

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

    def over_looks(self, level: float) -> float:
        """The level of an interval that holds at ``level`` over all looks."""
        return level if self.look is None else self.look.level(level)

    @property
    def level(self) -> float:
        """The level of an interval that holds at that of the options over all looks."""
        return self.over_looks(self.options.level)

    @property
    def own_p_value(self) -> float | None:
        """Two-sided, against zero, of these pairs alone: as if they were all that was ever looked at."""
        p = self.estimate.p_value() if self.estimate else None
        return 1.0 if self.one_sided and p is not None else p

    @property
    def p_value(self) -> float | None:
        """Two-sided, against zero; None while a planned pair has no result."""
        if self.pairs.is_interim:
            return None
        return self.own_p_value if self.look is None else self.look.p

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the mean difference; None while a planned pair has no result."""
        if self.estimate is None or self.pairs.is_interim:
            return None
        return self.estimate.interval(self.level)

    @cached_property
    def _of_sizes(self) -> list[tuple[str, BoolArray]]:
        """The sizes by name and pairs [complete pairs]."""
        complete = self.pairs.complete
        places = complete.drop_duplicates(["rung", "n_tokens"])
        places = places.sort_values("compute_reference", kind="stable")
        several, sizes = places["rung"].duplicated(keep=False).any(), []
        for rung, tokens in zip(places["rung"], places["n_tokens"], strict=True):
            name = f"{rung} with {count(tokens)} tokens" if several else str(rung)
            of_size = (complete["rung"] == rung) & (complete["n_tokens"] == tokens)
            sizes.append((name, of_size.to_numpy(bool)))
        return sizes

    @cached_property
    def sizes(self) -> tuple[Part, ...]:
        """The mean difference at each size (a rung with its budget of tokens), the largest C last."""
        return self._parts(self._of_sizes)

    @cached_property
    def judged(self) -> list[Part]:
        """The sizes that the mean which decides is over."""
        both = zip(self.sizes, self._of_sizes, strict=True)
        return [size for size, (_, of_size) in both if self.keep[of_size].any()]

    @cached_property
    def settings(self) -> tuple[Part, ...]:
        """The mean difference with each value of each setting that varies."""
        texts = self._setting_texts
        return self._parts(
            [
                (f"{name} {value}".removeprefix("optimizer "), (texts[name] == value).to_numpy(bool))
                for name in texts
                for value in texts[name].unique()
            ]
        )

    @cached_property
    def _setting_texts(self) -> pd.DataFrame:
        """The settings that vary, as text [complete pairs]."""
        complete = self.pairs.complete
        return complete[varying(complete, self.pairs.settings)].astype(str)

    @cached_property
    def joint_settings(self) -> "pd.Series[str]":
        """The same as one text, empty where none varies [complete pairs]."""
        texts = [", ".join(row) for row in self._setting_texts.itertuples(index=False)]
        return pd.Series(texts, self._setting_texts.index, dtype=object)

    @cached_property
    def _of_cells(self) -> list[tuple[str, str, BoolArray]]:
        """Setting, size and pairs of each cell, where settings vary, the largest C of each last."""
        joint, sizes = self.joint_settings.to_numpy(), self._of_sizes
        pairs = [(setting, *of_size) for setting in dict.fromkeys(joint) if setting for of_size in sizes]
        cells = [(setting, size, of_size & (joint == setting)) for setting, size, of_size in pairs]
        return [cell for cell in cells if cell[2].any()]

    @cached_property
    def cells(self) -> tuple[Part, ...]:
        """The mean difference in each setting at each size, where settings vary."""
        groups = [(f"{setting} at {size}", of_cell) for setting, size, of_cell in self._of_cells]
        return self._parts(groups, are_cells=True)

    @property
    def ends(self) -> list[Part]:
        """The cell of the largest size in each setting."""
        settings = [setting for setting, *_ in self._of_cells]
        return list(dict(zip(settings, self.cells, strict=True)).values())

    def _parts(self, groups: Sequence[tuple[str, BoolArray]], *, are_cells: bool = False) -> tuple[Part, ...]:
        interim, margin = self.pairs.is_interim, self.options.margin if is_loss(self.options.y) else None
        estimates = [
            _of_cell(self.sample, of_part) if are_cells else inference.overall(self.sample.kept(of_part))
            for _, of_part in groups
        ]
        p_values = [None if interim else estimate.p_value() for estimate in estimates]
        compute = self.pairs.complete["compute_reference"].to_numpy(float)
        # A part without a p-value is none of the family here.
        corrected = iter(inference.holm([p for p in p_values if p is not None]))
        return tuple(
            Part(
                name=name,
                flops=float(compute[of_part].max()),
                n_pairs=int(of_part.sum()),
                mean=estimate.value,
                interval=None if interim else estimate.interval(self.level),
                p_value=p,
                p_holm=None if p is None else next(corrected),
                equivalence_p=None
                if interim or margin is None
                else inference.equivalence_p(estimate, margin),
                one_run=not estimate.has_noise,
                bound=tuple(side for side, where in self.bounds.items() if where[of_part].any()),
            )
            for (name, of_part), estimate, p in zip(groups, estimates, p_values, strict=True)
        )

    def differing(
        self, parts: Sequence[Part], sign: int, *, alone: bool = False, against: bool = False
    ) -> list[Part]:
        """The ``parts`` that are lower (``sign`` -1) or higher (+1) by Holm over them, or each ``alone``.

        A claim is held to the level divided by the number of arms, what stands ``against`` one is not. A
        bound that flatters the direction counts for nothing.
        """
        flattering = "reference" if sign < 0 else "arm"
        alpha = (1 - self.level) / (1 if alone or against else self.n_arms)
        return [
            part
            for part in parts
            for p in [part.p_value if alone else part.p_holm]
            if p is not None and p < alpha and part.mean * sign > 0 and flattering not in part.bound
        ]

    @cached_property
    def crossing(self) -> str:
        """How settings contradict each other, or a size, as text; empty where they do not."""
        settings, sizes, cells = (
            [self.differing(parts, sign) for sign in (-1, 1)]
            for parts in (self.settings, self.sizes, self.cells)
        )
        settings = settings if any(settings) else cells
        if not any(settings):
            return ""
        told = [
            f"{word} {'with' if within else 'at'} {shortened([part.name for part in within or at])}"
            for word, within, at in zip(("lower", "higher"), settings, sizes, strict=True)
            if within or at
        ]
        return "; ".join(told) if len(told) == len(settings) else ""

    @property
    def equivalence_p(self) -> float | None:
        """The largest p of two one-sided tests over sizes, settings and cells; None before the last look."""
        if self.look is not None and not self.look.is_last:
            return None
        parts = [part for part in (*self.sizes, *self.settings, *self.cells) if not part.bound]
        return max([part.equivalence_p for part in parts if part.equivalence_p is not None], default=None)


def corrected(p_values: Sequence[float | None], n_arms: int) -> list[float | None]:
    """The p-values by Holm over ``n_arms``: these, and others that were run and are not among the rows."""
    return inference.holm([*p_values, *[None] * (n_arms - len(p_values))])[: len(p_values)]


def corrected_differences(family: Sequence[PairedArm]) -> list[LossDifference]:
    """Return the mean difference of each arm, with p-values :func:`corrected` over ``family``."""
    differences, p_values = [], corrected([arm.p_value for arm in family], family[0].n_arms)
    for paired, p in zip(family, p_values, strict=True):
        if (estimate := paired.estimate) is None:
            differences.append(LossDifference(None, None, None, None, 0))
            continue
        differences.append(
            LossDifference(
                mean=estimate.value,
                interval=paired.interval,
                p_value=paired.p_value,
                p_holm=p,
                df=estimate.df,
                standard_error=estimate.standard_error if estimate.has_noise else None,
                seeds_error=estimate.seeds_error if estimate.has_noise else None,
                split_error=estimate.split_error,
                n_pairs=int(paired.keep.sum()),
            )
        )
    return differences
