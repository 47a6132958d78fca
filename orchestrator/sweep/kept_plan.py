"""What a sweep's plan was before its file was edited: looks that bind, trials that the file dropped."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sources.readable import readable
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RESULT_STATES, RunDirectory
from scalevec.results.sweep_folder import SweepFolder

Members = Iterable[dict[str, Any]]
_KEPT = ("trial_id", "arm", "rung", "seed", "tokens_per_parameter", "optimizer", "schedule", "setting")
_NEVER_STARTED = ("pending", "queued")


def check_looks(
    folder: SweepFolder, looks: tuple[int, ...] | None, reference: str, members: Members, runs_dir: Path
) -> None:
    """Raise ``InvalidInputError`` where looks are declared or edited after a result of a compared arm.

    ``members`` are the sweep's trials as its file has them now. Results of the ``reference`` alone, which
    sweeps share, say nothing of a difference.
    """
    before = _looks_before(folder)
    if before == (list(looks) if looks else None):
        return
    compared = (entry for entry in members if entry["stage"] == "comparison" and entry["arm"] != reference)
    known = next((entry for entry in compared if _state(runs_dir, entry)[0] in RESULT_STATES), None)
    if known is None:
        return
    now = list(looks) if looks else "none"
    raise InvalidInputError(
        f"compare.looks is {now}; declared before the first result: {before or 'none'} "
        f"({known['arm']} {known['rung']}, seed {known['seed']} has one). Looks cannot be declared or edited "
        "once results are known: restore them, or give the sweep another name and new seeds"
    )


def _looks_before(folder: SweepFolder) -> list[int] | None:
    try:
        resolved = folder.resolved() or {}
    except CorruptRecordError:
        return None
    compare = resolved.get("compare")
    looks = compare.get("looks") if isinstance(compare, dict) else None
    return looks if isinstance(looks, list) else None


def dropped_trials(folder: SweepFolder, places: Members, runs_dir: Path) -> list[dict[str, Any]]:
    """The comparison trials that were started and whose place is not in the sweep file any more, with why.

    ``places`` have ``arm``, ``rung``, ``seed`` and ``setting``. A trial that only changed its rate keeps its
    place. Those dropped by earlier edits stay on the list until their place returns.
    """
    held = {_position(entry) for entry in places}
    members: list[dict[str, Any]] = readable(
        lambda: folder.members() or [], [], "which trials the sweep file dropped is not known"
    )
    before = (entry for entry in members if entry["stage"] == "comparison")
    gone = {_position(entry): entry for entry in (*folder.dropped(), *before) if _position(entry) not in held}
    listed = (_dropped(entry, runs_dir) for entry in gone.values())
    return [entry for entry in listed if entry["state"] not in _NEVER_STARTED]


def _dropped(entry: dict[str, Any], runs_dir: Path) -> dict[str, Any]:
    state, cause = _state(runs_dir, entry)
    kept: dict[str, Any] = {name: entry[name] for name in _KEPT if name in entry}
    return {**kept, "state": state, "cause": cause}


def _position(entry: dict[str, Any]) -> str:
    setting = {**entry.get("setting", {}), **{name: entry.get(name) for name in ("optimizer", "schedule")}}
    setting = {name: str(value) for name, value in sorted(setting.items()) if value is not None}
    ratio = entry.get("tokens_per_parameter")
    tokens = None if ratio is None else f"{ratio:.4g}"
    return json.dumps([entry.get("arm"), entry.get("rung"), entry.get("seed"), tokens, setting])


def _state(runs_dir: Path, entry: dict[str, Any]) -> tuple[str, str | None]:
    try:
        state = RunDirectory.of(runs_dir, entry["trial_id"]).state()
    except (CorruptRecordError, OSError):
        return "unreadable", None
    return state.state, state.cause
