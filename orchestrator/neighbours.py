"""The trial that differs least from a given one, among very many."""

from collections.abc import Iterable, Mapping
from typing import Any

Fields = Mapping[str, Any]


def nearest(trial_id: str, own: Fields, others: Iterable[tuple[str, Fields]]) -> str | None:
    """Of ``others``, in the order of ids, the first of those with the fewest fields that differ from ``own``.

    Two trials differ in one field at least, so the first that differs in no more ends the search. None where
    there is no other trial.
    """
    least, best = None, None
    for name, fields in others:
        if name == trial_id:
            continue
        found = distance(own, fields, least)
        if least is None or found < least:
            least, best = found, name
        if found <= 1:
            break
    return best


def distance(one: Fields, other: Fields, limit: int | None = None) -> int:
    """The number of fields in which two trials differ, as ``model.identity.differences`` lists them.

    Beyond ``limit`` nobody counts on, and equal parts are not looked into: a hundred thousand trials take
    seconds.
    """
    count = 0
    for name in one.keys() | other.keys() if one.keys() != other.keys() else one:
        first, second = one.get(name), other.get(name)
        if first == second:
            continue
        if isinstance(first, dict) and isinstance(second, dict):
            count += distance(first, second, None if limit is None else limit - count)
        else:
            count += 1
        if limit is not None and count > limit:
            break
    return count
