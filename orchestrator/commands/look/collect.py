"""``scalevec collect``: finished results into the index, and what is missing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalevec.orchestrator.cli.options import RUNS, AnySweep, Runs
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.commands.look.sweep_state import entries_of, names_of, sweep_statuses
from scalevec.orchestrator.progress import counted, states_text
from scalevec.orchestrator.sources.sources import with_index
from scalevec.results.run_directory import RESULT_STATES

Record = dict[str, Any]


def collect(source: AnySweep = None, runs_dir: Runs = RUNS) -> Result:
    """Collect finished results into the index (idempotent).

    It says what is missing. Any machine that sees the runs directory can do it, without the sweep file.
    """
    entries = entries_of(names_of(source, runs_dir), runs_dir).values()
    ids = {entry["trial_id"] for of_sweep in entries for entry in of_sweep}
    report = with_index(runs_dir, lambda index: index.collect(runs_dir, ids if source else None))
    sweeps = [
        {
            **{key: status[key] for key in ("sweep", "trials", "states")},
            "missing": sum(_missing(status).values()),
            "next": _next(source or status["sweep"], _missing(status), runs_dir),
        }
        for status in sweep_statuses(source, runs_dir)
    ]
    record = {
        "collected": {name: getattr(report, name) for name in ("added", "updated", "unchanged", "removed")},
        "problems": report.problems,
        "sweeps": sweeps,
    }
    return Result(record, _text(record))


def _missing(status: Record) -> Record:
    """How many trials are in which state without a result."""
    return {state: count for state, count in status["states"].items() if state not in RESULT_STATES}


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
