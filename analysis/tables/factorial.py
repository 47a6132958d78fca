"""The table of main effects: of arms that are a full factorial, what each part changes over the others.

An effect is the mean loss of the arms with a part less that of the arms without it, over every combination
of the other parts; each seed of a cell gives one value of it (Box, Hunter & Hunter, Statistics for
Experimenters, chapter 5).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, product
from math import prod
from typing import Any

import numpy as np

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value, percent, plural, signed, span
from scalevec.analysis.statistics.paired import holm, overall
from scalevec.analysis.statistics.sample import PairedSample, SplitLosses, sample_of
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.ablation import FIELDS, strategies
from scalevec.analysis.tables.render import Table

Levels = tuple[str, ...]
MOST_DESIGNS = 100_000
COLUMNS = ("factor", "level", "against", "effect", "interval", "Holm p", "values")


def build(trials: ComparedTrials) -> Table:
    """A row for each level but the first of each factor. Raises :class:`DataError` without a factorial."""
    arms = _largest_factorial(trials)
    samples = _differences(trials, list(arms.values()))
    effects = [
        (factor, level, base, _effect(arms, samples, at, level, base))
        for at, factor in enumerate(FIELDS)
        for base, *others in [list(dict.fromkeys(levels[at] for levels in arms))]
        for level in others
    ]
    estimates = [overall(sample) for *_, sample in effects]
    corrected = holm([estimate.p_value() for estimate in estimates])
    rows, records = [], []
    for (factor, level, base, sample), estimate, p in zip(effects, estimates, corrected, strict=True):
        interval = estimate.interval(trials.options.level) if estimate.has_noise else None
        texts = span(interval) if interval else "", "" if p is None else p_value(p), str(len(sample.values))
        rows.append((factor.removeprefix("vector_"), level, base, signed(estimate.value), *texts))
        bounds = notes.bounds("effect", estimate.value, interval)
        shown: dict[str, Any] = {"factor": factor, "level": level, "against": base, **bounds}
        records.append({**shown, "p_holm": p, "values": len(sample.values)})
    return Table(
        title="Main effects",
        columns=COLUMNS,
        rows=tuple(rows),
        numeric=(False, False, False, True, True, True, True),
        notes=(
            f"Effect: mean {trials.options.y} with the level less that with the other one, over every "
            "combination of the other factors; negative is better. Values: one for each cell and seed in "
            f"which all {plural(len(arms), 'arm')} completed: {', '.join(arms.values())}.",
            f"Interval: {percent(trials.options.level)}, t; p: corrected by Holm over the effects.",
            *notes.convention_notes(trials),
        ),
        records=tuple(records),
    )


def _largest_factorial(trials: ComparedTrials) -> dict[Levels, str]:
    """The arms by their levels: the largest part of them with every combination of two factors or more."""
    fields = strategies(trials)
    if not fields:
        raise DataError("table 'factorial' needs the strategies of the arms, which this source does not hold")
    arms: dict[Levels, str] = {}
    for arm in trials.arms:
        # An arm that differs from one above it in something else is no other combination.
        arms.setdefault(tuple(fields[arm].values()), arm)
    choices = [list(_subsets(tuple(dict.fromkeys(levels)))) for levels in zip(*arms, strict=True)]
    if prod(map(len, choices)) > MOST_DESIGNS:
        raise DataError("too many strategies for table 'factorial'; choose arms with --where")
    designs = [chosen for chosen in product(*choices) if sum(len(levels) > 1 for levels in chosen) > 1]
    for chosen in sorted(designs, key=lambda chosen: -prod(map(len, chosen))):
        if all(combination in arms for combination in product(*chosen)):
            return {combination: arms[combination] for combination in product(*chosen)}
    raise DataError("no arms have every combination of two factors, such as a, b, a+b and neither")


def _subsets(levels: Levels) -> Iterator[Levels]:
    """Every choice of at least one level, the largest first."""
    return chain.from_iterable(combinations(levels, size) for size in range(len(levels), 0, -1))


def _differences(trials: ComparedTrials, arms: list[str]) -> dict[str, PairedSample]:
    """The differences of each arm to the reference in those pairs that all ``arms`` have."""
    keys: dict[str, list[tuple[Any, ...]]] = {}
    for arm in (arm for arm in arms if arm != trials.reference):
        complete = trials.pairs(arm).complete  # those of every arm stand in the same order
        keys[arm] = list(zip(trials.keys(complete), complete["seed"].tolist(), strict=True))
    common = set.intersection(*map(set, keys.values()))
    if not common:
        raise DataError("no cell and seed in which all arms of the factorial completed")
    return {
        arm: sample_of(trials.pairs(arm)).kept(np.array([key in common for key in of_arm]))
        for arm, of_arm in keys.items()
    }


def _effect(
    arms: Mapping[Levels, str], samples: Mapping[str, PairedSample], at: int, level: str, base: str
) -> PairedSample:
    """The mean of the arms with ``level`` of a factor less that of those with ``base``, pair by pair.

    The differences to the reference are summed with shares that sum to zero, so that it cancels.
    """
    half = sum(levels[at] == level for levels in arms)
    shares = {arm: ((levels[at] == level) - float(levels[at] == base)) / half for levels, arm in arms.items()}
    first = next(iter(samples.values()))
    values = sum(
        (shares[arm] * sample.values for arm, sample in samples.items()), np.zeros(len(first.values))
    )
    splits = {arm: sample.split for arm, sample in samples.items() if sample.split is not None}
    if first.split is None or len(splits) < len(samples):
        return replace(first, values=values, split=None)
    blocks = np.sum([shares[arm] * split.differences for arm, split in splits.items()], axis=0)
    return replace(
        first, values=values, split=SplitLosses(np.stack([0 * blocks, blocks]), first.split.tokens)
    )
