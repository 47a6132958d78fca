"""``scalevec cancel``: what a sweep has waiting or running is called off."""

from pathlib import Path
from typing import Annotated, Any

import typer

from scalevec.orchestrator.cli.options import RUNS, ProfileName, Runs, Sweep, Trusted
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.progress import counted, note
from scalevec.orchestrator.sources.sources import exit_after, recorded_state, recorded_states, sweep_folder
from scalevec.orchestrator.sweep.controller import directory_of, wanted_elsewhere
from scalevec.orchestrator.trust import Trust
from scalevec.results.run_directory import RunDirectory
from scalevec.results.trial_state import OPEN_STATES

States = list[tuple[RunDirectory, str]]


def cancel(
    source: Sweep,
    runs_dir: Runs = RUNS,
    profile: ProfileName = None,
    removed: Annotated[
        bool, typer.Option("--removed", help="Only trials that the edited sweep file no longer has.")
    ] = False,
    trust: Trusted = False,
) -> Result:
    """Cancel a sweep's waiting and running trials; results and checkpoints stay."""
    from scalevec.orchestrator.executors.profiles import load_profile
    from scalevec.orchestrator.sweep.job_ending import end_jobs, refuse_others_jobs, removed_trials

    folder = sweep_folder(source, runs_dir)
    if removed:
        states = [(directory, recorded_state(directory)) for directory in removed_trials(source, runs_dir)]
    else:
        states = recorded_states(source, runs_dir)
    elsewhere = wanted_elsewhere(runs_dir, folder.name, _open(states))
    ours = [(directory, state) for directory, state in states if directory.trial_id not in elsewhere]
    of_sweep = [] if removed else [directory_of(runs_dir, folder.name)]
    directories = [*of_sweep, *(directory for directory, _ in ours)]
    agreed = load_profile(profile, Path(source).parent, trust=Trust(trust))
    refuse_others_jobs(folder.name, runs_dir, directories, agreed)
    # Before a job is ended: from here on nobody sends any of them, whatever becomes of this process.
    if not removed:
        folder.call_off()
    for directory, state in ours:
        if state in OPEN_STATES and state != "cancelling":
            directory.append_event("cancelling", cause="cancelled")
    ended = end_jobs(folder.name, runs_dir, directories, agreed)
    alive = {directory.trial_id for directory in ended.alive}
    done = [name for name in _open(ours) if name not in alive]
    for name in done:
        RunDirectory.of(runs_dir, name).append_event("cancelled", cause="cancelled")
    sent = {
        directory.trial_id for directory, state in ours if state in ("queued", "running")
    } | ended.had_jobs
    record: dict[str, Any] = {
        "cancelled": done,
        "cancelling": sorted(set(_open(ours)) & alive),
        "sent": len(sent & set(done)),
        "jobs_left": sorted(ended.left),
        "left_to": elsewhere,
        "next": command("run", source, runs_dir),
    }
    for problem in ended.problems:
        note(f"scalevec: {problem}")
    code = Exit.MISSING_REQUIREMENT if ended.problems else exit_after(states)
    return Result(record, "\n".join(_lines(record, source, runs_dir, known=not ended.problems)), code)


def _open(states: States) -> list[str]:
    return [directory.trial_id for directory, state in states if state in OPEN_STATES]


def _lines(record: dict[str, Any], source: str, runs_dir: Path, *, known: bool) -> list[str]:
    """What a person is told; not ``known`` is what became of the jobs."""
    status, again = (command(verb, source, runs_dir) for verb in ("status", "cancel"))
    cancelled, cancelling, left, elsewhere = (
        record[name] for name in ("cancelled", "cancelling", "jobs_left", "left_to")
    )
    lines = [f"{counted(len(cancelled), 'trial')} cancelled, {record['sent']} of them had been sent"]
    if cancelling:
        lines.append(
            f"{counted(len(cancelling), 'trial')} cancelling: nothing more is sent, but jobs may still run"
        )
    if left and known:
        lines.append(f"{counted(len(left), 'job')} still ending; to follow: {status}")
    if cancelling or left:
        lines.append(f"to end what is left: {again}")
    for sweep in sorted(set(elsewhere.values())):
        count = sum(wanted == sweep for wanted in elsewhere.values())
        them = "it" if count == 1 else "them"
        left_alone = f"{counted(count, 'trial')} left alone"
        lines.append(f"{left_alone}: sweep {sweep}, which is being run, has {them} too")
    return [*lines, f"results and checkpoints are kept. To go on: {record['next']}"]
