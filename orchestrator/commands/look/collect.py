"""``scalevec collect``: finished results into the index, and what is missing."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.cli.options import RUNS, AnySweep, Runs
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.look.sweep_state import entries_of, names_of
from scalevec.orchestrator.progress import counted, states_text
from scalevec.orchestrator.sources.sources import UNREADABLE, with_index
from scalevec.results.run_directory import RESULT_STATES

Record = dict[str, Any]


def collect(source: AnySweep = None, runs_dir: Runs = RUNS) -> Result:
    """Collect finished results into the index (idempotent).

    It says what is missing. Any machine that sees the runs directory can do it, without the sweep file.
    """
    names = names_of(source, runs_dir)
    entries = entries_of(names, runs_dir)
    members = {name: {entry["trial_id"] for entry in entries[name]} for name in names}
    ids = set[str]().union(*members.values())
    report, known = with_index(
        runs_dir,
        lambda index: (index.collect(runs_dir, ids if source else None), index.states(runs_dir, ids)),
    )
    states = dict.fromkeys(ids, "pending") | known
    states |= {name: UNREADABLE for name in report.problems if name in ids}
    record = {
        "collected": {name: getattr(report, name) for name in ("added", "updated", "unchanged", "removed")},
        "problems": report.problems | report.incomplete,
        "sweeps": [_collected(name, source or name, members[name], states, runs_dir) for name in names],
    }
    return Result(record, _text(record))


def _collected(
    sweep: str, source: str, members: Collection[str], states: Mapping[str, str], runs_dir: Path
) -> Record:
    counts = Counter(states[name] for name in members)
    missing = {state: count for state, count in counts.items() if state not in RESULT_STATES}
    return {
        "sweep": sweep,
        "trials": len(members),
        "states": dict(counts),
        "missing": sum(missing.values()),
        "next": _next(source, missing, runs_dir),
    }


def _next(source: str, missing: Mapping[str, int], runs_dir: Path) -> str:
    """Return the command that continues the sweep."""
    if missing.get("queued") or missing.get("running"):
        return command("status", source, runs_dir, watch=True)
    if missing.get("failed"):
        return command("retry", source, runs_dir)
    return command("run" if missing else "report", source, runs_dir)


def _text(record: Record) -> str:
    changes = ", ".join(f"{count} {name}" for name, count in record["collected"].items() if count)
    lines = [f"index: {changes or 'no trials'}"]
    for sweep in record["sweeps"]:
        lines.append(f"{sweep['sweep']}: {counted(sweep['trials'], 'trial')}: {states_text(sweep['states'])}")
        lines.append(f"  {sweep['missing']} without a result; next: {sweep['next']}")
    lines += [f"warning: {name[:12]}: {problem}" for name, problem in record["problems"].items()]
    return "\n".join(lines)
