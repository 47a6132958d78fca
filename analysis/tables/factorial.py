"""The table of main effects: of arms that are a full factorial, what each part changes over the others.

An effect is the mean loss of the arms with a part less that of the arms without it, over every combination
of the other parts; each seed of a cell gives one value of it (Box, Hunter & Hunter, Statistics for
Experimenters, chapter 5).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value, percent, plural, signed, span
from scalevec.analysis.statistics.paired import Estimate, holm, overall
from scalevec.analysis.statistics.sample import PairedSample, SplitLosses, sample_of
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.ablation import FIELDS, strategies
from scalevec.analysis.tables.content import Table

Levels = tuple[str, ...]
MOST_DESIGNS = 100_000


@dataclass(frozen=True)
class _Factorial:
    """The ``levels`` of each factor, and the arm of each combination of them."""

    levels: Mapping[str, Levels]
    arms: Mapping[Levels, str]

    @property
    def factors(self) -> list[str]:
        """The factors with more than one level."""
        return [name for name, levels in self.levels.items() if len(levels) > 1]


@dataclass(frozen=True)
class _Effect:
    factor: str
    level: str
    base: str
    estimate: Estimate
    n_values: int


def build(trials: ComparedTrials) -> Table:
    """A row for each level but the first of each factor. Raises :class:`DataError` without a factorial."""
    design = _largest_factorial(trials)
    samples = _differences(trials, list(design.arms.values()))
    effects = list(_effects(design, samples))
    corrected = holm([effect.estimate.p_value() for effect in effects])
    rows, records = [], []
    for effect, p in zip(effects, corrected, strict=True):
        interval = effect.estimate.interval(trials.options.level) if effect.estimate.has_noise else None
        name = effect.factor.removeprefix("vector_")
        texts = span(interval) if interval else "", "" if p is None else p_value(p), str(effect.n_values)
        rows.append((name, effect.level, effect.base, signed(effect.estimate.value), *texts))
        record = notes.bounds("effect", effect.estimate.value, interval)
        shown = {"factor": effect.factor, "level": effect.level, "against": effect.base, **record}
        records.append({**shown, "p_holm": p, "values": effect.n_values})
    return Table(
        title="Main effects",
        columns=("factor", "level", "against", "effect", "interval", "Holm p", "values"),
        rows=tuple(rows),
        numeric=(False, False, False, True, True, True, True),
        notes=(
            f"Effect: mean {trials.options.y} with the level less that with the other one, over every "
            "combination of the other factors; negative is better. Values: one for each cell and seed in "
            f"which all {plural(len(design.arms), 'arm')} completed: {', '.join(design.arms.values())}.",
            f"Interval: {percent(trials.options.level)}, t; p: corrected by Holm over the effects.",
            *notes.convention_notes(trials),
        ),
        records=tuple(records),
    )


def _largest_factorial(trials: ComparedTrials) -> _Factorial:
    """The largest part of the arms that has every combination of at least two factors."""
    fields = strategies(trials)
    if not fields:
        raise DataError("table 'factorial' needs the strategies of the arms, which this source does not hold")
    arms: dict[Levels, str] = {}
    for arm in trials.arms:
        # An arm that differs from one above it in something else is no other combination.
        arms.setdefault(tuple(fields[arm].values()), arm)
    levels = [tuple(dict.fromkeys(values)) for values in zip(*arms, strict=True)]
    choices = [list(_subsets(of_factor)) for of_factor in levels]
    best: tuple[Levels, ...] = ()
    if np.prod([len(subsets) for subsets in choices]) > MOST_DESIGNS:
        raise DataError("too many strategies for table 'factorial'; choose arms with --where")
    for chosen in product(*choices):
        several = sum(len(subset) > 1 for subset in chosen)
        size, most = (np.prod([len(subset) for subset in part]) for part in (chosen, best or ((),)))
        if several > 1 and size > most and all(combination in arms for combination in product(*chosen)):
            best = chosen
    if not best:
        raise DataError("no arms have every combination of two factors, such as a, b, a+b and neither")
    return _Factorial(
        dict(zip(FIELDS, best, strict=True)),
        {combination: arms[combination] for combination in product(*best)},
    )


def _subsets(levels: Levels) -> Iterator[Levels]:
    """Every choice of at least one level, the largest first."""
    return chain.from_iterable(combinations(levels, size) for size in range(len(levels), 0, -1))


def _differences(trials: ComparedTrials, arms: list[str]) -> dict[str, PairedSample]:
    """The differences of each arm to the reference in those pairs that all ``arms`` have."""
    others = [arm for arm in arms if arm != trials.reference]
    keys = {arm: _keys(trials, arm) for arm in others}
    common = set.intersection(*map(set, keys.values()))
    if not common:
        raise DataError("no cell and seed in which all arms of the factorial completed")
    samples = {arm: sample_of(trials.pairs(arm)) for arm in others}
    return {arm: samples[arm].kept(np.array([key in common for key in keys[arm]])) for arm in others}


def _keys(trials: ComparedTrials, arm: str) -> list[tuple[Any, ...]]:
    """What tells the complete pairs of ``arm`` apart; those of every arm stand in the same order."""
    complete = trials.pairs(arm).complete
    seeds = complete["seed"].tolist()
    return [(*cell, seed) for cell, seed in zip(trials.keys(complete), seeds, strict=True)]


def _effects(design: _Factorial, samples: Mapping[str, PairedSample]) -> Iterator[_Effect]:
    for name in design.factors:
        position = list(design.levels).index(name)
        base, *others = design.levels[name]
        for level in others:
            shares = {
                arm: (levels[position] == level) - float(levels[position] == base)
                for levels, arm in design.arms.items()
            }
            half = sum(share > 0 for share in shares.values())
            sample = _combined(samples, {arm: share / half for arm, share in shares.items()})
            yield _Effect(name, level, base, overall(sample), len(sample.values))


def _combined(samples: Mapping[str, PairedSample], shares: Mapping[str, float]) -> PairedSample:
    """The sum of the arms' differences with these ``shares``, which sum to zero: the reference cancels."""
    first = next(iter(samples.values()))
    parts = [(shares[arm], sample) for arm, sample in samples.items()]
    values = sum((share * sample.values for share, sample in parts), np.zeros(len(first.values)))
    if any(sample.split is None for sample in samples.values()):
        return replace(first, values=values, split=None)
    blocks = sum(share * sample.split.differences for share, sample in parts if sample.split is not None)
    split = (
        SplitLosses(np.stack([np.zeros_like(blocks), blocks]), first.split.tokens) if first.split else None
    )
    return replace(first, values=values, split=split)
