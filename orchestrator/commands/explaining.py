"""``scalevec explain``: where a trial comes from, what became of it, and which code ran it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Exit, Refused

if TYPE_CHECKING:
    from results.run_directory import RunDirectory

SHORTEST_PREFIX = 4
LOG_LINES = 3
LOG_BYTES = 65_536
OWN_SETTINGS = ("optimizer", "schedule", "tokens_per_parameter")
SHOWN_DETAILS = ("cause", "note", "error", "reason", "executor", "exit_code", "micro_batch")

Record = dict[str, Any]


def explain(prefix: str, runs_dir: Path, *, as_json: bool) -> Exit:
    """Why a trial ran, what sets it apart from its nearest neighbour, and what happened to it."""
    from results.run_directory import RunDirectory

    found = explanation(RunDirectory.of(runs_dir, _whole_id(prefix, runs_dir)), runs_dir)
    print(json.dumps(found, indent=1) if as_json else _text(found))
    return Exit.DONE


def explanation(directory: "RunDirectory", runs_dir: Path) -> Record:
    """All that is known of a trial, as JSON values."""
    trial, events, result = directory.trial(), directory.events(), directory.result()
    return {
        **trial,
        "directory": str(directory.path),
        "state": directory.state().state,
        "members_of": list(_memberships(directory.trial_id, runs_dir)),
        "nearest": _nearest(directory.trial_id, trial["semantic"], runs_dir),
        "events": [_with_log(directory, events, place) for place in range(len(events))],
        "resumed": [event["step"] for event in events if event["state"] == "running" and event.get("step")],
        "attempts": _attempts(directory),
        "job": directory.job(),
        "result": result,
    }


def _whole_id(prefix: str, runs_dir: Path) -> str:
    from results.files import names_in
    from results.run_directory import is_trial_id

    names = names_in(runs_dir / "trials" / prefix[:2]) if len(prefix) >= SHORTEST_PREFIX else []
    found = [name for name in names if is_trial_id(name) and name.startswith(prefix)]
    if len(found) != 1:
        raise Refused(
            f"trial {prefix!r}: {len(found)} trials in {runs_dir} begin so; allowed: at least "
            f"{SHORTEST_PREFIX} digits of an id, as many as make it one trial"
        )
    return found[0]


def _nearest(trial_id: str, semantic: Record, runs_dir: Path) -> Record:
    """The nearest neighbour and ``{field: [own value, its value]}``."""
    from model.identity import differences
    from orchestrator.neighbours import nearest
    from orchestrator.sources import open_index
    from results.run_directory import RunDirectory, trial_ids

    present = set(trial_ids(runs_dir))
    with open_index(runs_dir) as index:
        # What a trial is never changes, so rows that are there need no second look.
        index.collect(runs_dir, present - index.states(runs_dir).keys())
        with closing(index.semantics(runs_dir)) as trials:
            other = nearest(trial_id, semantic, (one for one in trials if one[0] in present))
    if other is None:
        return {"trial_id": None, "differences": {}}
    theirs = RunDirectory.of(runs_dir, other).trial()["semantic"]
    return {"trial_id": other, "differences": differences(semantic, theirs)}


def _memberships(trial_id: str, runs_dir: Path) -> Iterator[Record]:
    """The sweeps that hold the trial: its place in each, and how its tuned fields came about."""
    from results.sweep_folder import SweepFolder, sweep_names

    for sweep in sweep_names(runs_dir):
        folder = SweepFolder.of(runs_dir, sweep)
        for member in folder.members() or []:
            if member["trial_id"] == trial_id:
                yield {"sweep": sweep, **member, "tuning": _choices(folder.tuning(), member)}


def _choices(tuning: Record | None, member: Record) -> list[Record]:
    """The choices that decided the member's tuned fields, or that it was measured for."""
    own = {name: member[name] for name in OWN_SETTINGS if name in member}
    setting = own | member.get("setting", {})
    place = (member["arm"], member["rung"])
    made = tuning["choices"] if tuning else []
    # A member says its tokens per parameter even where the budget was given in another way.
    return [
        choice
        for choice in made
        if (choice["arm"], choice["rung"]) == place and choice["setting"].items() <= setting.items()
    ]


def _with_log(directory: "RunDirectory", events: Sequence[Record], place: int) -> Record:
    """The event, with the log's last lines before it where it is a fault."""
    from orchestrator.policy import FAULTS

    event = events[place]
    if event.get("cause") not in FAULTS:
        return event
    before = [one.get("log_bytes", 0) for one in events[:place] if one["state"] in ("queued", "running")]
    return event | {"log": _log(directory.log_path, before[-1] if before else 0, event.get("log_bytes"))}


def _log(path: Path, start: int, end: int | None) -> Record:
    """The last lines that were written between two sizes of the log, and the number of the last one."""
    found: Record = {"path": str(path), "line": None, "lines": []}
    if end is None:
        return found
    with path.open("rb") as stream:
        head = stream.read(end)
    written = head[max(start, end - LOG_BYTES) :].decode(errors="replace").splitlines()
    lines = [line for line in written if line.strip()][-LOG_LINES:]
    return found | {"line": head.count(b"\n"), "lines": lines}


def _attempts(directory: "RunDirectory") -> list[Record]:
    """The code and machine of each attempt, and ``since``: what of it is different now."""
    from orchestrator.provenance import environment

    now = _code(environment()) if directory.environment_path.exists() else {}
    return [
        {
            **{name: record.get(name) for name in ("attempt", "host", "device")},
            **then,
            "since": {name: [then[name], now.get(name)] for name in then if then[name] != now.get(name)},
        }
        for record in directory.environments()
        for then in [_code(record)]
    ]


def _code(record: Mapping[str, Any]) -> Record:
    """Commit, uncommitted changes and versions in one flat record."""
    versions = record.get("versions") or {}
    return {name: record.get(name) for name in ("commit", "dirty", "python")} | dict(sorted(versions.items()))


def _text(found: Record) -> str:
    parts = (_head(found), *map(_membership_text, found["members_of"]), _nearest_text(found["nearest"]))
    happened = [line for event in found["events"] for line in _event_lines(event)]
    code = [line for attempt in found["attempts"] for line in _attempt_lines(attempt)]
    return "\n".join(
        [
            *(part for part in parts if part),
            "what happened",
            *happened,
            *(["which code ran"] if code else []),
            *code,
        ]
    )


def _head(found: Record) -> str:
    result = found["result"] or {}
    lines = [f"trial {found['trial_id']}", f"  in {found['directory']}", f"  {found['state']}"]
    if result.get("loss") is not None:
        lines[-1] += f", test loss {result['loss']:.6f}"
    hosts = sorted({str(attempt["host"]) for attempt in found["attempts"]})
    steps = ", ".join(map(str, found["resumed"]))
    resumed = f"resumed {len(found['resumed'])} times" + (f" (from step {steps})" if steps else "")
    lines[-1] += f", {resumed}" + (f", on {', '.join(hosts)}" if hosts else "")
    if found["job"]:
        lines.append("  newest job: {job} of {executor}, {time}".format_map(found["job"]))
    return "\n".join(lines)


def _membership_text(member: Record) -> str:
    lines = [
        "ran for sweep {sweep}: {stage} of arm {arm} at {rung}, seed {seed}".format_map(member),
        *(f"  {_choice_text(choice, member)}" for choice in member["tuning"]),
    ]
    if member["stage"] == "comparison":
        lines.append(f"  its test loss is used by: scalevec fit, compare, report {member['sweep']}")
    return "\n".join(lines)


def _choice_text(choice: Record, member: Record) -> str:
    field, chosen = choice["field"], choice["chosen"]
    grid = zip(choice["grid"], choice["losses"], strict=True)
    points = ", ".join(f"{value:g}: {'diverged' if loss is None else f'{loss:.4f}'}" for value, loss in grid)
    if member["stage"] == "tuning":
        return f"its validation loss helped to choose {field} = {chosen:g} ({choice['status']}; {points})"
    if not points:
        bound = ", where the best was at the edge of the grid" if choice["status"] == "censored" else ""
        return f"{field} = {chosen:g}: carried by a power law in N from the tuned rungs{bound}"
    how = "the best is at the edge of the grid, so it is a bound"
    if choice["status"] == "tuned":
        how = "the lowest point of a parabola through the best three"
    return f"{field} = {chosen:g} ({choice['status']}): {how} ({points})"


def _nearest_text(nearest: Record) -> str:
    if nearest["trial_id"] is None:
        return "no other trial is in these runs"
    lines = [f"  {name}: {own} here, {other} there" for name, (own, other) in nearest["differences"].items()]
    return "\n".join([f"nearest trial {nearest['trial_id'][:12]}, which differs in", *lines])


def _event_lines(event: Record) -> Iterator[str]:
    details = [f"{name} {event[name]}" for name in SHOWN_DETAILS if event.get(name)]
    step = [f"at step {event['step']}"] if event.get("step") else []
    attempt = [f"attempt {event['attempt']}"] if event.get("attempt") else []
    words = [event["time"], event["host"], event["state"], *attempt, *step]
    yield "  " + " ".join(words) + (f" ({', '.join(details)})" if details else "")
    if log := event.get("log"):
        place = f"{log['path']}:{log['line']}" if log["line"] is not None else log["path"]
        yield f"    log: {place}"
        yield from (f"    | {line}" for line in log["lines"])


def _attempt_lines(attempt: Record) -> Iterator[str]:
    changes = {None: "", True: " with uncommitted changes", False: ""}[attempt["dirty"]]
    commit = f"commit {attempt['commit'][:12]}{changes}" if attempt["commit"] else "no commit recorded"
    yield f"  attempt {attempt['attempt']} on {attempt['host']} ({attempt['device']}): {commit}"
    if attempt["since"]:
        since = ", ".join(f"{name} {then} then, {now} now" for name, (then, now) in attempt["since"].items())
        yield f"    changed since: {since}"
