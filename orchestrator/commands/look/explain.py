"""``scalevec explain``: where a trial comes from, what became of it, and which code ran it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.retry_policy import FAULTS
from scalevec.orchestrator.cli.options import RUNS, Runs, TrialName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.errors import read_or_warn
from scalevec.orchestrator.progress import duration
from scalevec.orchestrator.sources.runs import Runs as RunsFolder
from scalevec.orchestrator.sources.sources import environments_of, members_or_none, tuning_choices
from scalevec.results.files import MOST_BYTES_OF_LINES, CorruptRecordError
from scalevec.results.opening import open_to_read
from scalevec.results.run_directory import RunDirectory, state_of
from scalevec.results.sweep_folder import SweepFolder, sweep_names

LOG_LINES = 3
LOG_BYTES = 65_536
NAMED_SETTINGS = ("optimizer", "schedule", "tokens_per_parameter")
SHOWN_DETAILS = ("cause", "note", "error", "reason", "executor", "exit_code", "micro_batch")

Record = dict[str, Any]


def explain(trial: TrialName, runs_dir: Runs = RUNS) -> Result:
    """Show why a trial ran, what happened to it, and which code ran it."""
    directory = RunsFolder(runs_dir).trial(trial)
    try:
        kept = directory.trial()
    except FileNotFoundError:
        raise CorruptRecordError(directory.trial_path, "is missing") from None
    events: list[Record] = read_or_warn(directory.events, [], "what happened is left out")
    result = read_or_warn(directory.result, None, "the result is left out")
    memberships = list(_memberships(directory.trial_id, runs_dir))
    planned_s = next((member["planned_s"] for member in memberships if member.get("planned_s")), None)
    record = {
        **kept,
        "directory": str(directory.path),
        "state": state_of(events, result).state,
        "members_of": memberships,
        "events": list(_with_logs(directory, events)),
        "resumed": [event["step"] for event in events if event["state"] == "running" and event.get("step")],
        "attempts": _attempts(directory),
        "job": read_or_warn(directory.job, None, "the newest job is left out"),
        "result": result,
    }
    return Result(record, "\n".join(_lines(record, accounts(result, planned_s))))


def _memberships(trial_id: str, runs_dir: Path) -> Iterator[Record]:
    """Yield each sweep that contains the trial, with the trial's entry and the choices it depends on."""
    for sweep in sweep_names(runs_dir):
        folder = SweepFolder.of(runs_dir, sweep)
        for member in members_or_none(folder).entries():
            if member["trial_id"] == trial_id:
                yield {"sweep": sweep, **member, "tuning": _choices(tuning_choices(folder), member)}


def _choices(choices: Sequence[Record], member: Record) -> list[Record]:
    """Return the choices that decided the member's tuned fields, or for which it was trained.

    An arm without choices has shared those of the reference.
    """
    # A member says its tokens per parameter even where the budget was given in another way.
    setting = {name: member[name] for name in NAMED_SETTINGS if name in member} | member.get("setting", {})
    arm, rung = member["arm"], member["rung"]
    shares = arm not in {choice["arm"] for choice in choices}
    return [
        choice
        for choice in choices
        if (shares or choice["arm"] == arm) and choice["rung"] == rung
        if choice["setting"].items() <= setting.items()
    ]


def _with_logs(directory: RunDirectory, events: Sequence[Record]) -> Iterator[Record]:
    """Yield each event; a fault with the last lines of its attempt's log."""
    began = 0
    for event in events:
        if event.get("cause") in FAULTS:
            yield event | {"log": _log(directory.log_path, began, event.get("log_bytes"))}
        else:
            yield event
        if event["state"] in ("queued", "running"):
            began = event.get("log_bytes", 0)


def _log(path: Path, start: Any, end: Any) -> Record:
    """Return the last lines between two byte offsets of the log, and the number of the last one."""
    record: Record = {"path": str(path), "line": None, "lines": []}
    if not (type(start) is type(end) is int and 0 <= start <= end and path.exists()):
        return record

    def read() -> Record:
        with open_to_read(path, MOST_BYTES_OF_LINES) as stream:
            head = stream.read(min(end, MOST_BYTES_OF_LINES))
        written = head[max(start, end - LOG_BYTES) :].decode(errors="replace").splitlines()
        lines = [line for line in written if line.strip()][-LOG_LINES:]
        return record | {"line": head.count(b"\n"), "lines": lines}

    return read_or_warn(read, record, "its lines are left out")


def _attempts(directory: RunDirectory) -> list[Record]:
    """Return code, versions and machine of each attempt in one flat record."""
    names = ("attempt", "host", "device", "commit", "dirty", "python", "plugins")
    environments = environments_of(directory)
    return [{name: each.get(name) for name in names} | (each.get("versions") or {}) for each in environments]


def accounts(result: Record | None, planned_s: float | None = None) -> list[str]:
    """Return what a trial took: time, beside that which its sweep planned, where it went, and memory.

    Nothing where the result kept no times, or is damaged.
    """
    # Another's file may hold anything in place of a number: what cannot be shown is no account.
    with suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        if result is not None:
            timing, step = result["timing"], result["timing"]["step_s"]
            planned = "" if planned_s is None else f", planned {duration(planned_s)}"
            shares = ", ".join(
                f"{name} {duration(timing[f'{name}_s'])}" for name in ("data", "checkpoints", "evaluation")
            )
            share = "" if timing["mfu"] is None else f"; {timing['mfu']:.0%} of the device's peak"
            lines = [
                f"  time: {duration(result['wall_s'] + timing['evaluation_s'])}{planned}; of it {shares}"
            ]
            if step:
                spread = f"{step['p5']:.3g} to {step['p95']:.3g}"
                lines.append(f"  step: {step['p50']:.3g} s (5 % to 95 %: {spread}){share}")
            return [*lines, f"  memory: {(result['peak_memory_bytes'] or 0) / 1e6:,.0f} MB"]
    return []


def _lines(record: Record, accounts: Sequence[str]) -> Iterator[str]:
    yield from _head(record)
    yield from accounts
    for member in record["members_of"]:
        yield from _membership(member)
    yield "what happened"
    for event in record["events"]:
        yield from _event_lines(event)
    if record["attempts"]:
        yield "which code ran"
    for attempt in record["attempts"]:
        yield from _attempt_lines(attempt)


def _head(record: Record) -> Iterator[str]:
    yield f"trial {record['trial_id']}"
    yield f"  in {record['directory']}"
    loss = (record["result"] or {}).get("loss")
    tested = "" if not isinstance(loss, int | float) else f", test loss {loss:.6f}"
    resumed = f", resumed {len(record['resumed'])} times"
    if record["resumed"]:
        resumed += f" (from step {', '.join(map(str, record['resumed']))})"
    hosts = ", ".join(sorted({str(attempt["host"]) for attempt in record["attempts"]}))
    yield f"  {record['state']}{tested}{resumed}{f', on {hosts}' if hosts else ''}"
    if record["job"]:
        job, executor, when = (record["job"].get(name) for name in ("job", "executor", "time"))
        yield f"  newest job: {job} of {executor}, {when}"


def _membership(member: Record) -> Iterator[str]:
    seed = member.get("seed", "unknown")
    what = f"{member['stage']} of arm {member['arm']} at {member['rung']}, seed {seed}"
    yield f"ran for sweep {member['sweep']}: {what}"
    for choice in member["tuning"]:
        yield f"  {_choice_text(choice, member)}"
    if member["stage"] == "comparison":
        yield f"  its test loss is used by: scalevec fit, compare, report {member['sweep']}"


def _choice_text(choice: Record, member: Record) -> str:
    field, chosen = choice["field"], choice["chosen"]
    if choice["arm"] != member["arm"]:
        return f"{field} = {chosen:g}: shared by all arms, as chosen for {choice['arm']}"
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


def _event_lines(event: Record) -> Iterator[str]:
    details = ", ".join(f"{name} {event[name]}" for name in SHOWN_DETAILS if event.get(name))
    attempt = f" attempt {event['attempt']}" if event.get("attempt") else ""
    step = f" at step {event['step']}" if event.get("step") else ""
    when, host = (event.get(name, "unknown") for name in ("time", "host"))
    happened = f"{when} {host} {event['state']}{attempt}{step}"
    yield f"  {happened} ({details})" if details else f"  {happened}"
    if log := event.get("log"):
        yield f"    log: {log['path']}" + ("" if log["line"] is None else f":{log['line']}")
        for line in log["lines"]:
            yield f"    | {line}"


def _attempt_lines(attempt: Record) -> Iterator[str]:
    changes = " with uncommitted changes" if attempt["dirty"] else ""
    commit = f"commit {str(attempt['commit'])[:12]}{changes}" if attempt["commit"] else "no commit recorded"
    yield f"  attempt {attempt['attempt']} on {attempt['host']} ({attempt['device']}): {commit}"
    plugins = attempt["plugins"]
    for module, digest in plugins.items() if isinstance(plugins, dict) else ():
        yield f"    plugin {module}, source {str(digest)[:12]}"
