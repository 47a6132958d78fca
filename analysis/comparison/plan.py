"""When a verdict is due: declared looks, pairs that were added afterwards, trials that were dropped.

The tidy table of a sweep brings its history along, in ``DataFrame.attrs``: ``verdicts`` (those that the sweep
folder keeps, each with the pairs it had) and ``dropped`` (the trials that the sweep file left out after they
had been started). A table without a history has no plan but its column ``status``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.differences import PairedArm, corrected_differences
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.statistics.looks import Look, sequential_p
from scalevec.analysis.statistics.paired import holm

VERDICTS, DROPPED, DECLARED = "verdicts", "dropped", "declared"
"""Keys of ``DataFrame.attrs``."""
Record = Mapping[str, Any]
Ids = tuple[str, ...]
"""The trials of a pair, reference first."""


def at_looks(family: Sequence[PairedArm], looks: tuple[int, ...]) -> list[PairedArm]:
    """Return each arm of ``family`` at the look that decides it, or at its last one so far.

    A look takes the first seeds of every cell, whatever else has come in; it is reached once all of their
    pairs have a result. The first look at which Holm's correction of the sequential p-values over ``family``
    leaves an arm significant is its last; it counts in the family as it stood.
    """
    reached = [_reached(paired, looks) for paired in family]
    final: dict[str, PairedArm] = {}
    for number in range(len(looks)):
        latest = [of_arm[: number + 1][-1].p_value if of_arm else None for of_arm in reached]
        for of_arm, p in zip(reached, holm(latest), strict=True):
            if p is not None and p < 1 - family[0].options.level and number < len(of_arm):
                final.setdefault(of_arm[number].arm, of_arm[number])
    decided = []
    for paired, of_arm in zip(family, reached, strict=True):
        at = final.get(paired.arm, of_arm[-1] if of_arm else paired)
        if paired.arm in final or len(of_arm) == len(looks):
            decided.append(replace(at, beyond=paired.pairs))
        else:
            decided.append(replace(at, pairs=replace(at.pairs, next_look=looks[len(of_arm)])))
    return decided


def _reached(paired: PairedArm, looks: tuple[int, ...]) -> list[PairedArm]:
    """The arm at each look that has been reached."""
    planned = paired.pairs.planned
    rank = planned.groupby("cell")["seed"].rank(method="dense")
    reached: list[PairedArm] = []
    p_values: list[float | None] = []
    for number, look in enumerate(looks):
        is_in = (rank <= look).reindex(paired.pairs.table.index, fill_value=False).to_numpy(bool)
        at = replace(paired, pairs=paired.pairs.cut(is_in))
        if planned.empty or rank.max() < look or at.pairs.n_without_result:
            break
        p_values.append(at.own_p_value)
        reached.append(replace(at, look=Look(looks, number, sequential_p(looks, p_values))))
    return reached


def as_first_judged(paired: PairedArm, verdicts: Sequence[Record]) -> PairedArm:
    """Return ``paired`` with the pairs of its kept verdict only, where further ones were planned after it."""
    judged, table = _judged_pairs(paired, verdicts), paired.pairs.table
    if not judged or not _ids(paired.pairs) - judged:
        return paired
    ids = zip(table["trial_id_reference"], table["trial_id_arm"], strict=True)
    kept = np.array([pair in judged for pair in ids], bool)
    return replace(paired, pairs=paired.pairs.cut(kept), beyond=paired.pairs)


def is_due(paired: PairedArm, verdicts: Sequence[Record]) -> bool:
    """Whether these pairs carry a verdict that is not among the kept ones."""
    if paired.pairs.is_interim or paired.beyond is not None:
        return False
    return _ids(paired.pairs) != _judged_pairs(paired, verdicts)


def pair_ids(pairs: Pairs) -> list[list[str]]:
    """The trials of each planned pair, reference first; none for a table without ids."""
    planned = pairs.planned
    if "trial_id_arm" not in planned:
        return []
    return cast(list[list[str]], planned[["trial_id_reference", "trial_id_arm"]].to_numpy().tolist())


def _ids(pairs: Pairs) -> set[Ids]:
    return set(map(tuple, pair_ids(pairs)))


def _on_arm(paired: PairedArm, verdicts: Sequence[Record]) -> list[tuple[Record, set[Ids]]]:
    """The kept verdicts on the arm, each with the pairs it had."""
    names = (paired.reference, paired.arm)
    on_arm = [record for record in verdicts if (record["reference"], record["arm"]) == names]
    return [(record, set(map(tuple, record["pairs"]))) for record in on_arm]


def _judged_pairs(paired: PairedArm, verdicts: Sequence[Record]) -> set[Ids]:
    """The pairs of the latest kept verdict on the arm that has a pair of now; none without such a verdict."""
    here = _ids(paired.pairs)
    return next((pairs for _, pairs in reversed(_on_arm(paired, verdicts)) if pairs & here), set())


def earlier_verdict(paired: PairedArm, source: pd.DataFrame) -> list[str]:
    """A caution where a kept verdict stood on other pairs than those of now; none of chosen rows."""
    if paired.options.where is not None:
        return []
    here = _ids(paired.beyond or paired.pairs)
    on_arm = _on_arm(paired, source.attrs.get(VERDICTS, ()))
    return [
        f"an earlier verdict ({record['verdict']}, {str(record.get('at', 'no date'))[:10]}) stood on "
        f"{len(record['pairs'])} pairs, of which {len(pairs - here)} are not in this comparison"
        for record, pairs in on_arm
        if pairs - here
    ][-1:]


def plan_of(paired: PairedArm) -> dict[str, Any]:
    """The plan of a comparison and how far it is, as plain JSON values."""
    look, pairs, beyond = paired.look, paired.pairs, paired.beyond
    exploratory = None
    if beyond is not None and len(beyond.complete) > len(pairs.complete):
        [later] = corrected_differences([replace(paired, pairs=beyond)])
        error, n_pairs = later.standard_error, len(beyond.complete)
        exploratory = {"mean": later.mean, "standard_error": error, "pairs": n_pairs}
    return {
        "pairs": len(pairs.planned),
        "with_result": len(pairs.planned) - pairs.n_without_result,
        "looks": list(look.looks) if look else None,
        "look": look.size if look else None,
        "next_look": pairs.next_look,
        "exploratory": exploratory,
    }


def dropped_trials(source: pd.DataFrame, arms: Sequence[str]) -> list[str]:
    """The trials of ``arms`` that the sweep file dropped, each with its state and cause, as one sentence."""
    dropped = [
        f"{entry['arm']} {entry['rung']}, seed {entry['seed']} "
        f"({': '.join(str(entry[key]) for key in ('state', 'cause') if entry.get(key))})"
        for entry in source.attrs.get(DROPPED, ())
        if entry["arm"] in arms
    ]
    return [f"dropped by the sweep file: {'; '.join(dropped)}"] if dropped else []
