"""``scalevec status``: how many trials are in which state, and how far the running ones are."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from scalevec.orchestrator.attempts.churn import little_progress
from scalevec.orchestrator.cli.hints import command
from scalevec.orchestrator.cli.options import RUNS, AnySweep, AsJson, Runs
from scalevec.orchestrator.cli.output import Result, versioned
from scalevec.orchestrator.commands.look.queued import Queues, jobs_of, queue_lines
from scalevec.orchestrator.commands.look.seeds import seeds_without_effect
from scalevec.orchestrator.commands.look.time_left import SAMPLE, against_plan, sample_of, seconds_left
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import counted, duration, printable
from scalevec.orchestrator.scheduling.ownership import is_owned
from scalevec.orchestrator.sources.readable import readable
from scalevec.orchestrator.sources.records import members_or_none
from scalevec.orchestrator.sources.sources import UNREADABLE, with_index
from scalevec.orchestrator.sources.sweep_files import refuse_imported, sweep_folder
from scalevec.results.claims import ClaimObserver
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import OPEN_STATES, RESULT_STATES, RunDirectory
from scalevec.results.sweep_folder import SweepFolder, sweep_names

WATCH_S = 2.0

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
    """Show how many trials are in which state.

    With --watch --json one line per change.
    """
    if watch:
        looks = _looks(source, runs_dir)
        _print_changes(looks) if as_json else _show_live(looks, runs_dir)
        return Exit.DONE
    statuses = sweep_statuses(source, runs_dir)
    return Result(statuses, _text(statuses, runs_dir))


def names_of(source: str | None, runs_dir: Path) -> list[str]:
    """Return the name of the sweep ``source``, or of all in ``runs_dir`` that are run here."""
    if source:
        name = sweep_folder(source, runs_dir).name
        refuse_imported(name, runs_dir)
        return [name]
    return [name for name in sweep_names(runs_dir) if not SweepFolder.of(runs_dir, name).is_imported()]


def members_of(names: Sequence[str], runs_dir: Path) -> dict[str, dict[str, Record]]:
    """Return the trials of each sweep by their ids; none, which is said, where they cannot be read."""
    folders = [SweepFolder.of(runs_dir, name) for name in names]
    return {
        folder.name: {member["trial_id"]: member for member in members_or_none(folder)} for folder in folders
    }


def sweep_statuses(
    source: str | None,
    runs_dir: Path,
    observer: ClaimObserver | None = None,
    queues: Queues | None = None,
) -> list[Record]:
    """Return the state of each sweep, from an index that is brought up to date; running trials are looked at.

    An ``observer`` that is kept from look to look tells the living workers of other machines from dead ones;
    ``queues`` that are kept are not asked at each look.
    """
    observer, queues = observer or ClaimObserver(), queues or Queues()
    names = names_of(source, runs_dir)
    if not names:
        return []
    members = members_of(names, runs_dir)
    ids = set[str]().union(*members.values())
    states, problems = with_index(runs_dir, lambda index: index.current_states(runs_dir, ids))
    states = states | dict.fromkeys(problems, UNREADABLE)
    return [
        {**_status(name, members[name], states, problems, runs_dir, observer), **jobs}
        for name in names
        for jobs in [_in_queues(name, members[name], states, runs_dir, queues)]
    ]


def _in_queues(
    sweep: str, members: Mapping[str, Record], states: Mapping[str, str], runs_dir: Path, queues: Queues
) -> Record:
    """Return which stage the sweep is in, and what queues say of its jobs."""
    left = [name for name in members if states[name] not in RESULT_STATES]
    stages = {members[name].get("stage") for name in left}
    # A job that was requeued waits although its trial is pending.
    open_ones = [name for name in left if states[name] in OPEN_STATES]
    open_ones.sort(key=lambda name: states[name] == "pending")
    return {
        "stage": next((stage for stage in ("tuning", "comparison") if stage in stages), None),
        "queue": jobs_of(sweep, open_ones, runs_dir, queues),
    }


def _status(
    sweep: str,
    members: Mapping[str, Record],
    states: Mapping[str, str],
    problems: Mapping[str, str],
    runs_dir: Path,
    observer: ClaimObserver,
) -> Record:
    counts = Counter(map(states.__getitem__, members))
    names = [name for name in members if states[name] == "running"] if counts["running"] else []
    running = [_running(members[name], runs_dir, observer) for name in names]
    return {
        "sweep": sweep,
        "trials": len(members),
        "states": dict(counts),
        "running": running,
        **_time(members, states, running, runs_dir),
        "seeds_without_effect": seeds_without_effect(members, states, runs_dir),
        "problems": {name: problem for name, problem in problems.items() if name in members},
        "owned": is_owned(runs_dir, sweep, observer),
    }


def _time(
    members: Mapping[str, Record], states: Mapping[str, str], running: Sequence[Record], runs_dir: Path
) -> Record:
    """Estimate the time until all that is known of the sweep is done, and compare times with the plan."""
    finished = [member for name, member in members.items() if states[name] in RESULT_STATES]
    sample = sample_of(finished)
    ids = [member["trial_id"] for member in sample]
    rows = with_index(runs_dir, lambda index: index.rows(runs_dir, ids)) if ids else []
    took = {row["trial_id"]: row["wall_s"] + (row["evaluation_s"] or 0.0) for row in rows if row["wall_s"]}
    timed = [(member, took[member["trial_id"]]) for member in sample if member["trial_id"] in took]
    begun = {trial["trial_id"]: (trial["step"] or 0) / (trial["steps"] or 1) for trial in running}
    open_ones = [
        member for name, member in members.items() if states[name] in ("pending", "queued", "running")
    ]
    done = begun | {member["trial_id"]: 1.0 for member in finished}
    at_a_time = sum(trial["worker_alive"] for trial in running)
    return {
        "seconds_left": seconds_left(open_ones, begun, timed, at_a_time) if running else None,
        "plan": against_plan(list(members.values()), done, timed),
    }


def _running(member: Record, runs_dir: Path, observer: ClaimObserver) -> Record:
    """Return the progress of a running trial, and whether its worker is alive."""
    directory = RunDirectory.of(runs_dir, member["trial_id"])
    name = f"trial {member['trial_id'][:12]}"
    steps = readable(partial(_steps, directory), None, f"{name}: its steps are unknown")
    events: list[Record] = readable(directory.events, [], f"{name}: what happened is unknown")
    return {
        "trial_id": member["trial_id"],
        "arm": member["arm"],
        "rung": member["rung"],
        "step": readable(directory.last_step, None, f"{name}: its step is unknown"),
        "steps": steps,
        "warning": little_progress(events, steps) if steps else None,
        "worker_alive": readable(
            partial(observer.is_alive, directory), False, f"{name}: nobody can tell who runs it"
        ),
    }


def _steps(directory: RunDirectory) -> int | None:
    from scalevec.model.fields import ConfigurationError
    from scalevec.sweeps.trainers.any_trial import trial_from_fields

    try:
        return trial_from_fields(directory.trial()["semantic"]).steps or None
    except ConfigurationError as error:
        raise CorruptRecordError(directory.trial_path, str(error)) from None


def _text(statuses: Sequence[Record], runs_dir: Path) -> str:
    return "\n".join(map(_status_text, statuses)) or f"no sweep has been run in {runs_dir}"


def _status_text(status: Record) -> str:
    lines = [
        f"{status['sweep']}: {counted(status['trials'], 'trial')} so far: {states_text(status['states'])}"
        f"{_stage_text(status)}"
    ]
    lines += _plan_lines(status["plan"])
    lines += [f"  warning: {status['seeds_without_effect']}"] if status["seeds_without_effect"] else []
    jobs = status["queue"]["jobs"]
    running = {trial["trial_id"] for trial in status["running"]}
    lines += queue_lines(status["queue"], [name for name in jobs if name not in running])
    for trial in status["running"]:
        gone = "" if trial["worker_alive"] else " (its worker is gone; run the sweep again)"
        lines.append(
            f"  {trial['arm']} {trial['rung']} {trial['trial_id'][:12]}: "
            f"step {_known(trial['step'])} of {_known(trial['steps'])}"
            f"{_job_text(jobs.get(trial['trial_id']))}{gone}"
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


def _looks(source: str | None, runs_dir: Path) -> Iterator[list[Record]]:
    """Yield the state until nothing can change any more; before the first run of a sweep, wait for it."""
    observer, queues = ClaimObserver(), Queues()
    while True:
        statuses = sweep_statuses(source, runs_dir, observer, queues)
        yield statuses
        begun = [status for status in statuses if status["trials"]]
        if statuses and not any(map(_may_change, begun or statuses)):
            return
        time.sleep(WATCH_S)


def _print_changes(looks: Iterable[list[Record]]) -> None:
    printed = ""
    for statuses in looks:
        line = json.dumps(versioned(statuses))
        if line != printed:
            print(line, flush=True)
        printed = line


def _show_live(looks: Iterable[list[Record]], runs_dir: Path) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        for statuses in looks:
            live.update(Text(printable(_text(statuses, runs_dir))), refresh=True)
    print("\n".join(_ending(status, runs_dir) for status in statuses))


def _may_change(status: Record) -> bool:
    """Whether the sweep is still to begin, somebody advances it, or a job of it waits or lives."""
    lives = any(trial["worker_alive"] for trial in status["running"])
    return status["owned"] or lives or bool(status["states"].get("queued")) or not status["trials"]


def _ending(status: Record, runs_dir: Path) -> str:
    missing = sum(count for state, count in status["states"].items() if state not in RESULT_STATES)
    if not missing:
        return f"{status['sweep']}: every trial has a result"
    again = command("run", status["sweep"], runs_dir)
    return (
        f"{status['sweep']}: nobody runs it any more; {counted(missing, 'trial')} without a result. "
        f"To go on: {again}"
    )
