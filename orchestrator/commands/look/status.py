"""``scalevec status``: how many trials are in which state, and how far the running ones are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from scalevec.orchestrator.cli.options import RUNS, AnySweep, AsJson, Runs
from scalevec.orchestrator.cli.output import Result, terminal_width
from scalevec.orchestrator.commands.look.queued import gone_text, queue_lines
from scalevec.orchestrator.commands.look.sweep_state import sweep_statuses
from scalevec.orchestrator.commands.look.time_left import SAMPLE
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import counted, duration
from scalevec.orchestrator.sources.sources import UNREADABLE

WIDTH = 110
"""Of the table where standard output is no terminal."""

Record = dict[str, Any]


def status(
    source: AnySweep = None,
    runs_dir: Runs = RUNS,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Look again until every trial has a result or nobody runs the sweep."),
    ] = False,
    as_json: AsJson = False,
) -> Result | Exit:
    """Show a sweep's progress: states, losses, time left, failures.

    With --watch a table of rungs by arms, on the whole screen; with --watch --json one object per change.
    """
    if watch:
        from scalevec.orchestrator.commands.look.watch import watch as watched

        return watched(source, runs_dir, as_json=as_json)
    statuses = sweep_statuses(source, runs_dir)
    return Result(statuses, _text(statuses, runs_dir))


def _text(statuses: Sequence[Record], runs_dir: Path) -> str:
    return "\n".join(map(_status_text, statuses)) or f"no sweep has been run in {runs_dir}"


def _status_text(status: Record) -> str:
    from scalevec.orchestrator.commands.look.screen import failure_text, table

    lines = [
        f"{status['sweep']}: {counted(status['trials'], 'trial')} so far: {states_text(status['states'])}"
        f"{_stage_text(status)}"
    ]
    lines += _plan_lines(status["plan"])
    lines += [f"  warning: {status['seeds_without_effect']}"] if status["seeds_without_effect"] else []
    jobs = status["queue"]["jobs"]
    running = {trial["trial_id"] for trial in status["running"]}
    lines += queue_lines(status["queue"], [name for name in jobs if name not in running])
    lines += [f"  {line.plain}" for line in table(status, (terminal_width() or WIDTH) - 2).lines]
    lines += [f"  failed: {failure_text(failure)}" for failure in status["failed"]]
    for trial in status["running"]:
        job = jobs.get(trial["trial_id"])
        where = _job_text(job) if trial["worker_alive"] else f" ({gone_text(job, owned=status['owned'])})"
        lines.append(
            f"  {trial['label']} ({trial['trial_id'][:12]}): "
            f"step {_known(trial['step'])} of {_known(trial['steps'])}{where}"
        )
        lines += [f"    {trial['warning']}"] if trial["warning"] else []
    lines += [f"  {name[:12]} {UNREADABLE}: {problem}" for name, problem in status["problems"].items()]
    return "\n".join(lines)


def _plan_lines(plan: Record | None) -> Iterator[str]:
    if plan is None:
        return
    line = f"  {duration(plan['planned_s'])} of training planned, {plan['share_done']:.0%} of it done"
    if plan["compared"]:
        which = f"{SAMPLE} largest" if plan["compared"] == SAMPLE else plan["compared"]
        took, planned = (duration(plan[f"compared_{name}_s"]) for name in ("measured", "planned"))
        line += f"; finished trials ({which}) took {took}, planned {planned}"
    yield line


def _stage_text(status: Record) -> str:
    stage = f"; {status['stage']}" if status["stage"] else ""
    left = status["seconds_left"]
    return stage if left is None else f"{stage}, about {duration(left)} left"


def _job_text(job: Record | None) -> str:
    if job is None:
        return ""
    return f", job {job['job']}{' on ' + job['node'] if job['node'] else ''}"


def _known(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def states_text(states: Mapping[str, int]) -> str:
    """Return ``3 completed, 9 pending``."""
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
