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

from scalevec.analysis.comparison.differences import PairedArm
from scalevec.analysis.comparison.fairness import Line
from scalevec.analysis.data.pairs import PairKind, Pairs
from scalevec.analysis.data.tidy import BoolArray
from scalevec.analysis.formatting import signed
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.looks import Look, sequential_p
from scalevec.analysis.statistics.paired import holm

VERDICTS, DROPPED, DECLARED = "verdicts", "dropped", "declared"
"""Keys of ``DataFrame.attrs``."""
ASKED = ("reference", "arms", "where", "margin", "law")
"""What a comparison asks, as it was declared before the first loss and as it is asked now."""
Record = Mapping[str, Any]


def at_looks(
    family: Mapping[str, Pairs], looks: tuple[int, ...], options: AnalysisOptions
) -> dict[str, PairedArm]:
    """Return each arm at the look that decides it, or at its last one so far.

    A look takes the first seeds of every cell, whatever else has come in; it is reached once all of their
    pairs have a result. The first look at which Holm's correction of the sequential p-values over ``family``
    leaves an arm significant is its last; it counts in the family as it stood.
    """
    cuts = {arm: _reached(pairs, looks) for arm, pairs in family.items()}
    at_each = {arm: [PairedArm.of(arm, cut) for cut in of_arm] for arm, of_arm in cuts.items()}
    p_values = {arm: [each.own_p_value() for each in of_arm] for arm, of_arm in at_each.items()}
    p_so_far = {
        arm: [sequential_p(looks, each[: number + 1]) for number in range(len(each))]
        for arm, each in p_values.items()
    }
    final = _final_looks(p_so_far, len(looks), 1 - options.level)
    return {
        arm: _at_look(family[arm], of_arm, looks, p_so_far[arm], final.get(arm))
        if of_arm
        else PairedArm.of(arm, family[arm].before(looks[0]))
        for arm, of_arm in at_each.items()
    }


def _reached(pairs: Pairs, looks: Sequence[int]) -> list[Pairs]:
    """The pairs of each look that has been reached."""
    planned = pairs.table[pairs.table["kind"] != PairKind.UNPAIRED]
    rank = planned.groupby("cell")["seed"].rank(method="dense")
    cuts = []
    for look in looks:
        cut = pairs.cut((rank <= look).reindex(pairs.table.index, fill_value=False).to_numpy(bool))
        if len(planned) == 0 or rank.max() < look or cut.n_without_result:
            break
        cuts.append(cut)
    return cuts


def _final_looks(p_so_far: Mapping[str, list[float | None]], n_looks: int, alpha: float) -> dict[str, int]:
    """The look at which each arm was found to differ; arms that were not are left out."""
    final: dict[str, int] = {}
    for number in range(n_looks):
        latest = [of_arm[min(number, len(of_arm) - 1)] if of_arm else None for of_arm in p_so_far.values()]
        for arm, p in zip(p_so_far, holm(latest), strict=True):
            if p is not None and p < alpha and number < len(p_so_far[arm]):
                final.setdefault(arm, number)
    return final


def _at_look(
    pairs: Pairs,
    reached: Sequence[PairedArm],
    looks: tuple[int, ...],
    p_so_far: Sequence[float | None],
    final: int | None,
) -> PairedArm:
    """The arm at its difference (the look ``final``), or at the last look that was ``reached``."""
    number = len(reached) - 1 if final is None else final
    look, at = Look(looks, number, p_so_far[number]), reached[number]
    is_over = final is not None or look.is_last
    shown = at.pairs if is_over else at.pairs.before(look.looks[number + 1])
    beyond = pairs if is_over else None
    return replace(at, pairs=shown, look=look, beyond=beyond)


def as_first_judged(paired: PairedArm, verdicts: Sequence[Record], reference: str) -> PairedArm:
    """Return ``paired`` with the pairs of its kept verdict only, where further ones were planned after it."""
    record = kept_verdict(paired, verdicts, reference)
    if record is None:
        return paired
    kept = _is_kept(paired.pairs, record)
    planned = (paired.pairs.table["kind"] != PairKind.UNPAIRED).to_numpy()
    if not (kept & planned).any() or not (planned & ~kept).any():
        return paired
    return PairedArm.of(paired.arm, paired.pairs.cut(kept & planned), beyond=paired.pairs)


def kept_verdict(paired: PairedArm, verdicts: Sequence[Record], reference: str) -> Record | None:
    """The latest kept verdict on the arm that shares a pair with ``paired``, if there is one."""
    on_arm = reversed(_on_arm(verdicts, paired, reference))
    return next((record for record in on_arm if _is_kept(paired.pairs, record).any()), None)


def is_due(paired: PairedArm, verdicts: Sequence[Record], reference: str) -> bool:
    """Whether these pairs carry a verdict that is not among the kept ones."""
    if paired.pairs.is_interim or paired.beyond is not None:
        return False
    pairs, kept = set(map(tuple, pair_ids(paired.pairs))), kept_verdict(paired, verdicts, reference)
    return bool(pairs) and (kept is None or set(map(tuple, kept["pairs"])) != pairs)


def pair_ids(pairs: Pairs) -> list[list[str]]:
    """The trials of each planned pair, reference first; none for a table without ids."""
    planned = pairs.table[pairs.table["kind"] != PairKind.UNPAIRED]
    if "trial_id_arm" not in planned:
        return []
    return cast(list[list[str]], planned[["trial_id_reference", "trial_id_arm"]].to_numpy().tolist())


def _is_kept(pairs: Pairs, record: Record) -> BoolArray:
    if "trial_id_arm" not in pairs.table:
        return np.zeros(len(pairs.table), bool)
    kept = set(map(tuple, record["pairs"]))
    ids = pairs.table[["trial_id_reference", "trial_id_arm"]].itertuples(index=False, name=None)
    return np.array([pair in kept for pair in ids], bool)


def history_of(results: pd.DataFrame, name: str) -> tuple[Record, ...]:
    """What the table brings along under ``name``, without what cannot be what was written."""
    needed = {VERDICTS: ("reference", "arm", "verdict", "pairs"), DROPPED: ("arm", "rung", "seed", "state")}
    entries = results.attrs.get(name, ())
    return tuple(
        entry for entry in entries if isinstance(entry, Mapping) and all(key in entry for key in needed[name])
    )


def earlier_verdict(paired: PairedArm, source: pd.DataFrame, reference: str) -> list[str]:
    """A caution where a kept verdict stood on other pairs than those of now."""
    here = set(map(tuple, pair_ids(paired.beyond or paired.pairs)))
    on_arm = _on_arm(history_of(source, VERDICTS), paired, reference)
    gone = [(record, len(set(map(tuple, record["pairs"])) - here)) for record in on_arm]
    return [
        f"an earlier verdict ({last['verdict']}, {str(last.get('at', 'no date'))[:10]}) stood on "
        f"{len(last['pairs'])} pairs, of which {n_gone} are not in this comparison"
        for last, n_gone in [each for each in gone if each[1]][-1:]
    ]


def _on_arm(verdicts: Sequence[Record], paired: PairedArm, reference: str) -> list[Record]:
    return [record for record in verdicts if (record["reference"], record["arm"]) == (reference, paired.arm)]


def plan_of(paired: PairedArm) -> dict[str, Any]:
    """The plan of a comparison and how far it is, as plain JSON values."""
    look, after, pairs = paired.look, paired.exploratory(), paired.pairs
    plan: dict[str, Any] = {
        "pairs": pairs.n_planned,
        "with_result": pairs.n_planned - pairs.n_without_result,
        "looks": list(look.looks) if look else None,
        "look": look.size if look else None,
        "next_look": pairs.next_look,
        "exploratory": None,
    }
    if after and (estimate := after.estimate):
        error = estimate.standard_error if estimate.has_noise else None
        n_pairs = len(after.pairs.complete)
        plan["exploratory"] = {"mean": estimate.value, "standard_error": error, "pairs": n_pairs}
    return plan


def claim_status(trials: Mapping[Any, Any], plan: Mapping[str, Any], chosen: Mapping[str, Any]) -> Line:
    """Line 4 of an answer: whether the question was asked before the results.

    Args:
        trials: What the table brings along in ``DataFrame.attrs``.
        plan: The plan of the comparison and how far it is.
        chosen: The question that is asked, by the names of :data:`ASKED`.
    """
    declared = trials.get(DECLARED)
    changed = [
        f"{name} {_shown(chosen[name])} (declared {_shown(declared[name])})"
        for name in ASKED
        if declared and name in declared and _shown(declared[name]) != _shown(chosen[name])
    ]
    rows = f"; rows where {chosen['where']}" if chosen["where"] else ""
    if plan["looks"] and plan["next_look"] is None and not changed:
        number, of_all = plan["looks"].index(plan["look"]) + 1, len(plan["looks"])
        verb = "ended" if number == of_all else "decided"
        return Line("decided_at_look", f"{verb} at look {number} of {of_all} ({plan['look']} seeds)")
    if plan["with_result"] < plan["pairs"] or plan["next_look"] is not None:
        return Line("interim", f"interim: {plan['with_result']} of {plan['pairs']} pairs{rows}")
    if changed:
        return Line("chosen_after", f"chosen after the results: {'; '.join(changed)}")
    if declared is None and VERDICTS not in trials and not plan["looks"]:
        return Line("no_plan", f"no plan{rows}")
    if chosen["where"] and not declared:
        return Line("chosen_after", f"chosen after the results{rows}")
    return Line("planned", "planned")


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def exploratory_sentence(plan: Mapping[str, Any]) -> list[str]:
    """The estimate over all pairs, where some came after the verdict; else nothing."""
    after = plan["exploratory"]
    if not after:
        return []
    error = after["standard_error"]
    shown = "no noise figure" if error is None else f"standard error {error:.4f}"
    estimate = f"over all {after['pairs']} pairs the difference is {signed(after['mean'])} ({shown})"
    return [f"Exploratory, after the plan: {estimate}."]


def dropped_trials(source: pd.DataFrame, arms: Sequence[str]) -> list[str]:
    """The trials of ``arms`` that the sweep file dropped, each with its state and cause, as one sentence."""
    dropped = [
        f"{entry['arm']} {entry['rung']}, seed {entry['seed']} "
        f"({': '.join(str(entry[key]) for key in ('state', 'cause') if entry.get(key))})"
        for entry in history_of(source, DROPPED)
        if entry["arm"] in arms
    ]
    return [f"dropped by the sweep file: {'; '.join(dropped)}"] if dropped else []
