"""Tables by the arms' scale-vector strategies: the ablation, and the main effects of a full factorial.

Of arms that are a full factorial, an effect is the mean loss of the arms with a part less that of the arms
without it, over every combination of the other parts; each seed of a cell gives one value of it (Box, Hunter
& Hunter, Statistics for Experimenters, chapter 5).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from math import prod
from typing import Any

import numpy as np

from scalevec.analysis.comparison.differences import corrected_differences
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value, percent, plural, signed, span
from scalevec.analysis.statistics.paired import holm, overall
from scalevec.analysis.statistics.sample import PairedSample, SplitLosses, sample_of
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.render import Table

FIELDS = ("vector_branches", "vector_placement", "vector_reparameterization", "vector_decay")
"""The columns of the tidy table that hold an arm's scale-vector strategy."""
Fields = Mapping[str, str]
CHOICES: dict[str, Callable[[Fields], bool]] = {
    "vectors": lambda f: f["vector_branches"] != "none" or f["vector_placement"].startswith("dual"),
    "HG": lambda f: f["vector_branches"] == "heterogeneous",
    "AP": lambda f: f["vector_placement"] == "dual" and f["vector_branches"] == "none",
    "DP": lambda f: f["vector_placement"] == "dual" and f["vector_branches"] != "none",
    "DNP": lambda f: f["vector_placement"] == "dual-normalized",
    "OR": lambda f: f["vector_reparameterization"] == "or",
    "ER": lambda f: f["vector_reparameterization"] == "er",
}
"""What a column is called, and whether the fields of an arm have it."""
VARIANTS = {"normalized": "DNP", "product": "OR", "exponential-sum": "ER"}
"""What is not the paper's, and the column that it comes nearest to, in which it stands by its name."""
CHOICES_NOTE = (
    "vectors: has scale vectors; HG: one for each branch; AP: behind a map only; DP, DNP: on both sides of "
    "it, DNP with a normalization between; OR, ER: magnitude and direction apart, in the original and the "
    "exponential space; decay: which of the vectors decay."
)
Levels = tuple[str, ...]
MOST_DESIGNS = 100_000
COLUMNS = ("factor", "level", "against", "effect", "interval", "Holm p", "values")


def strategies(trials: ComparedTrials) -> dict[str, Fields]:
    """Each arm's strategy by column of :data:`FIELDS`; empty where the source does not say.

    Several values of a column are joined, so that none is hidden.
    """
    if not all(trials.has(name) for name in FIELDS):
        return {}
    return {
        arm: {n: ", ".join(sorted({str(v) for v in trials.of_arm(arm)[n].dropna()} - {""})) for n in FIELDS}
        for arm in trials.arms
    }


def marks(fields: Fields) -> tuple[str, ...]:
    """A check mark (or the variant's name) for each of :data:`CHOICES`, then the decay policy."""
    variants = {VARIANTS[value]: value for value in fields.values() if value in VARIANTS}
    texts = {name: "✓" if has(fields) else "" for name, has in CHOICES.items()} | variants
    return (*texts.values(), fields["vector_decay"] if CHOICES["vectors"](fields) else "")


def by_choices(choices: Mapping[str, Sequence[str]], arms: Sequence[str]) -> list[str]:
    """The ``arms`` by the number of their :func:`marks` and by name; one without vectors comes first."""
    numbers = {arm: sum(map(bool, of[:-1])) + (of[-1] == "input") for arm, of in choices.items()}
    return sorted(arms, key=lambda arm: (numbers.get(arm, 0), arm))


def ablation(trials: ComparedTrials) -> Table:
    """The reference first, then the arms by the number of their design choices and by name.

    Raises :class:`DataError` where there is no pair at all.
    """
    fields = strategies(trials)
    choices = {arm: marks(of) for arm, of in fields.items()}
    arms = by_choices(choices, trials.others)
    family = [trials.paired(arm) for arm in arms]
    if not any(paired.estimate for paired in family):
        raise DataError("no arm has a completed pair with the reference, so there is no difference to show")
    means = corrected_differences(family)
    of_cells = {arm: trials.differences(arm) for arm in arms}
    cells = [cell for cell in trials.cells if any(cell.key in of_arm for of_arm in of_cells.values())]
    before = ("arm", *((*CHOICES, "decay") if fields else ()))
    after = (*(cell.name for cell in cells), "all", "Holm p", "pairs")
    rows = [(trials.reference, *choices.get(trials.reference, ()), "reference", *[""] * (len(after) - 1))]
    records: list[dict[str, Any]] = []
    for arm, mean in zip(arms, means, strict=True):
        pairs = trials.pairs(arm)
        p = "same trials" if pairs.same_trials else "" if mean.p_holm is None else p_value(mean.p_holm)
        shown = [notes.difference(of_cells[arm].get(cell.key)) for cell in cells]
        total = (notes.difference(mean), p, str(len(pairs.complete)))
        rows.append((arm, *choices.get(arm, ()), *shown, *total))
        has = {name: has(fields[arm]) for name, has in CHOICES.items()} if fields else {}
        of_arm = {"arm": arm, **fields.get(arm, {}), **has}
        for cell in cells:
            of_cell = of_cells[arm].get(cell.key)
            size = {"cell": cell.name, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
            figures = {**notes.of_mean("difference", of_cell), "pairs": of_cell.n if of_cell else 0}
            records.append({**of_arm, **size, **figures})
        whole = {**notes.of_mean("difference", mean), "p_holm": mean.p_holm}
        records.append({**of_arm, "cell": "all", **whole, "pairs": len(pairs.complete)})
    return Table(
        title=f"Ablation: differences to {trials.reference}",
        columns=(*before, *after),
        rows=tuple(rows),
        numeric=(False,) * len(before) + (True,) * len(after),
        notes=(
            *notes.loss_notes(trials, len(arms) + trials.n_arms_left_out),
            CHOICES_NOTE if fields else "The source does not hold the strategies of its arms.",
            *notes.convention_notes(trials),
        ),
        breaks=frozenset({1}),
        records=tuple(records),
    )


def factorial(trials: ComparedTrials) -> Table:
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
        rows.append((factor.removeprefix("vector_"), level, base, signed(estimate.value, interval), *texts))
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
    for (*others, decay), arm in list(arms.items()):
        # Without vectors behind the maps, decay of all vectors is decay of those before them.
        if fields[arm]["vector_placement"] == "input" and decay == "all":
            arms.setdefault((*others, "input"), arm)
    choices = [list(_subsets(tuple(dict.fromkeys(levels)))) for levels in zip(*arms, strict=True)]
    if prod(map(len, choices)) > MOST_DESIGNS:
        raise DataError("too many strategies for table 'factorial'; choose arms with --where")
    designs = [chosen for chosen in product(*choices) if sum(len(levels) > 1 for levels in chosen) > 1]
    for chosen in sorted(designs, key=lambda chosen: -prod(map(len, chosen))):
        of_design = {levels: arms[levels] for levels in product(*chosen) if levels in arms}
        if len(set(of_design.values())) == prod(map(len, chosen)):
            return of_design
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
