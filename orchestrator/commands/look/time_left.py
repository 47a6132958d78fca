"""How long a sweep's stage may still take, and how its finished trials compare with the plan."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
Sample = Sequence[tuple[Record, float]]
"""Finished members with the seconds that they took."""

SAMPLE = 30
"""Finished trials whose times are looked up: the largest ones, which say most of those to come."""


def sample_of(finished: Sequence[Record]) -> list[Record]:
    """Return the finished members from which the pace is taken."""
    work = _work_of(finished)
    return sorted(filter(work, finished), key=work, reverse=True)[:SAMPLE]


def seconds_left(
    members: Sequence[Record], done: Mapping[str, float], sample: Sample, at_a_time: int
) -> float | None:
    """Return the estimated seconds until ``members``, which have no result, are done.

    Args:
        members: Entries of members.json.
        done: By trial id, the share of its steps that a running trial has made.
        sample: What finished members took.
        at_a_time: How many run now.

    Returns:
        None where nothing runs, or nothing is finished and nothing planned: then nobody can say.
    """
    everyone = [*members, *(member for member, _ in sample)]
    work = _work_of(everyone)
    if not at_a_time or not all(map(work, everyone)):
        return None
    if sample:
        pace = sum(seconds for _, seconds in sample) / sum(work(member) for member, _ in sample)
    elif work is _planned:
        pace = 1.0
    else:
        return None
    left = [work(member) * (1.0 - done.get(member["trial_id"], 0.0)) * pace for member in members]
    return max(max(left, default=0.0), sum(left) / at_a_time)


def against_plan(members: Sequence[Record], done: Mapping[str, float], sample: Sample) -> Record | None:
    """Return what was planned of ``members`` and how much of it is done; None where an entry has no plan.

    Args:
        members: Every entry of members.json.
        done: By trial id, the share of its steps that a trial has made, 1 of finished ones.
        sample: What finished members took.

    Returns:
        ``planned_s`` of all members; ``share_done``; ``compared``, how many finished trials are,
        ``compared_planned_s`` and ``compared_measured_s``.
    """
    if not members or _work_of(members) is not _planned:
        return None
    total = sum(map(_planned, members))
    return {
        "planned_s": total,
        "share_done": sum(_planned(member) * done.get(member["trial_id"], 0.0) for member in members) / total,
        "compared": len(sample),
        "compared_planned_s": sum(_planned(member) for member, _ in sample),
        "compared_measured_s": sum(seconds for _, seconds in sample),
    }


def _work_of(members: Iterable[Record]) -> Callable[[Record], float]:
    """What the time of training is about proportional to, and known of all ``members`` alike."""
    return _planned if all(map(_planned, members)) else _product


def _planned(member: Record) -> float:
    """Entries of earlier versions have no plan."""
    return float(member.get("planned_s") or 0.0)


def _product(member: Record) -> float:
    """Parameters times tokens; 0 where they are unknown."""
    n_params, n_tokens = member.get("n_params"), member.get("n_tokens")
    return float(n_params * n_tokens) if n_params and n_tokens else 0.0
