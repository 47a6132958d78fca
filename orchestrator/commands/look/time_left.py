"""How long a sweep's stage may still take, from how long its finished trials took."""

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

SAMPLE = 30
"""Finished trials whose times are looked up: the largest ones, which say most of those to come."""


def sample_of(finished: Sequence[Record]) -> list[Record]:
    """Return the finished members from which the pace is taken."""
    return sorted((member for member in finished if _work(member)), key=_work, reverse=True)[:SAMPLE]


def seconds_left(
    members: Sequence[Record],
    done: Mapping[str, float],
    sample: Sequence[tuple[Record, float]],
    at_a_time: int,
) -> float | None:
    """Return the estimated seconds until ``members``, which have no result, are done.

    Args:
        members: Entries of members.json.
        done: By trial id, the share of its steps that a running trial has made.
        sample: Finished members with the seconds that they took.
        at_a_time: How many run now.

    Returns:
        None where nothing is finished or nothing runs: then nobody can say.
    """
    work = sum(_work(member) for member, _ in sample)
    if not work or not at_a_time or not all(map(_work, members)):
        return None
    pace = sum(seconds for _, seconds in sample) / work
    left = [_work(member) * (1.0 - done.get(member["trial_id"], 0.0)) * pace for member in members]
    return max(max(left, default=0.0), sum(left) / at_a_time)


def _work(member: Record) -> float:
    """What training takes is about proportional to: parameters times tokens; 0 where it is unknown."""
    n_params, n_tokens = member.get("n_params"), member.get("n_tokens")
    return float(n_params * n_tokens) if n_params and n_tokens else 0.0
