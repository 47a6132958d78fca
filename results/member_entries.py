"""What keeps an entry of members.json from being one."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalevec.results.columns import checked, checked_columns
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import is_trial_id

STAGES = ("tuning", "comparison")
_REQUIRED = ("trial_id", "arm", "stage", "rung")


def problems_in(path: Path, entries: Sequence[Any]) -> dict[int, str]:
    """What is wrong with the damaged ones of the ``entries`` of ``path``, by their indices.

    They are looked at one by one only where a column is not whole: a sweep may have 100,000 of them.
    """
    if _are_whole(path, entries):
        return {}
    problems = {index: _problem(path, entry) for index, entry in enumerate(entries)}
    return {index: problem for index, problem in problems.items() if problem}


def _problem(path: Path, entry: Any) -> str:
    """Empty for a whole entry."""
    if not isinstance(entry, dict):
        return f"is {entry!r:.80}, not an object"
    for name in _REQUIRED:
        if not isinstance(entry.get(name), str):
            return f"has no text {name!r}"
    if not is_trial_id(entry["trial_id"]):
        return f"has trial_id {entry['trial_id']!r:.80}"
    if entry["stage"] not in STAGES:
        return f"has stage {entry['stage']!r:.80}; allowed: {', '.join(STAGES)}"
    try:
        checked_columns(path, entry)
        _check_setting(path, entry.get("setting", {}))
        _check_setting(path, entry.get("fields", {}))
    except CorruptRecordError as error:
        return error.problem
    return ""


def _check_setting(path: Path, setting: Any) -> None:
    if not isinstance(setting, dict):
        raise CorruptRecordError(path, f"has setting {setting!r:.80}, not an object")
    for name, value in setting.items():
        if type(value) in (int, float, str):
            checked(path, name, type(value), value)


def _are_whole(path: Path, entries: Sequence[Any]) -> bool:
    """Whether :func:`_problem` finds nothing in any of them: each different value is checked once."""
    if set(map(type, entries)) != {dict}:
        return False
    columns = _columns(entries)
    for name in _REQUIRED:
        if len(columns.get(name, ())) < len(entries) or set(map(type, columns[name])) != {str}:
            return False
    if not (all(map(is_trial_id, columns.pop("trial_id"))) and set(columns["stage"]) <= set(STAGES)):
        return False
    settings = [*columns.pop("setting", []), *columns.pop("fields", [])]
    if not set(map(type, settings)) <= {dict}:
        return False
    try:
        for name, value in _different(columns):
            checked_columns(path, {name: value})
        for name, value in _different(_columns(settings)):
            _check_setting(path, {name: value})
    except CorruptRecordError:
        return False
    return True


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values under each name, of the rows that have it."""
    shapes = {tuple(row) for row in rows}
    if len(shapes) == 1:
        return {name: [row[name] for row in rows] for name in next(iter(shapes))}
    names = set[str]().union(*shapes)
    return {name: [row[name] for row in rows if name in row] for name in names}


def _different(columns: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """Yield each value of each column once; true, 1 and 1.0 are equal to Python, and are not one value."""
    for name, values in columns.items():
        kinds = set(map(type, values))
        for kind in kinds:
            of_kind = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
            yield from ((name, value) for value in (of_kind if kind in (list, dict) else set(of_kind)))
