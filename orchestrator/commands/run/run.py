"""``scalevec run``: what is missing of a sweep, until it is done."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalevec.orchestrator.attempts.jobs import stop_signals_to
from scalevec.orchestrator.cli import options
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.cli.output import Result, command
from scalevec.orchestrator.commands.look.screen import state_of_run
from scalevec.orchestrator.commands.run.machines import opened_executor, prepared_run, send_along, site_of
from scalevec.orchestrator.errors import ClusterLostError, Exit, TryLaterError
from scalevec.orchestrator.executors.base import Executor
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.observers.trial_logs import TrialLogs
from scalevec.orchestrator.progress import counted, note, progress_for, states_text
from scalevec.orchestrator.sources import sources
from scalevec.orchestrator.sweep.controller import owned
from scalevec.orchestrator.trust import NO_TRUST, Trust, require_trust, writers_agreed_to
from scalevec.results.run_directory import RESULT_STATES, RunDirectory

if TYPE_CHECKING:
    from scalevec.orchestrator.scheduling.watched_jobs import Outcome
    from scalevec.orchestrator.sweep.sweep_run import SweepRun


def run(
    source: options.Sweep,
    runs_dir: options.Runs = options.RUNS,
    executor: options.Executor = None,
    profile: options.ProfileName = None,
    jobs: options.Jobs = 0,
    retune: Annotated[bool, typer.Option("--retune", help="Choose tuned values again.")] = False,
    where: options.TrialsWhere = None,
    trust: options.Trusted = False,
    log: options.Logs = None,
    as_json: options.AsJson = False,
) -> Result:
    """Run what is missing of a sweep until it is done; safe to stop and repeat."""
    placement = Placement(executor, profile, jobs)
    chosen: dict[str, Any] = {"retune": retune, "where": where}
    again = command("run", source, runs_dir, **vars(placement), **chosen, log=log, json=as_json)
    return run_sweep(source, runs_dir, placement, again=again, **chosen, trust=Trust(trust), logs=log or ())


def run_sweep(
    source: str,
    runs_dir: Path,
    placement: Placement,
    *,
    again: str,
    retune: bool = False,
    where: str | None = None,
    interactive: bool = True,
    trust: Trust = NO_TRUST,
    logs: Sequence[str] = (),
) -> Result:
    """Run what is missing; ``again`` is the command that goes on where this one is stopped.

    ``interactive``: a person gave the command now, so what was cancelled before counts no more.
    """
    from scalevec.orchestrator.sweep.sweep_run import StageIncompleteError

    outcome: Outcome | None = None
    sweep = sources.load_sweep(source, runs_dir)
    sources.check_named_store(runs_dir)
    name, site = site_of(sweep, runs_dir, placement, trust)
    if not EXECUTORS[name].simulates:
        require_trust(source, sources.own_code(sweep), trust, sources.code_folders(sweep))
        send_along(sweep, site, imports_here=not EXECUTORS[name].sends_away)
    progress = progress_for(state_of_run(sweep.name, site.runs_dir))
    try:
        # Another name, or a library that is not there, is refused here.
        names = dict.fromkeys([*logs, *site.profile.log])
        progress.observers = [TrialLogs(each, site.sweep, site.runs_dir, progress.message) for each in names]
        # The executor is asked before the corpus is prepared: that may take long.
        with opened_executor(name, site) as executor, owned(site.runs_dir, sweep.name):
            run = prepared_run(name, sweep, site, progress, retune=retune, where=where)
            run.writers_agreed_to = writers_agreed_to(source, writers_of_checkpoints(run), trust)
            if interactive:
                run.ask_again()
            _run_stages(run, executor)
    except StageIncompleteError as incomplete:
        outcome = incomplete.outcome
    except ClusterLostError as lost:
        raise ClusterLostError(f"{lost}. To go on: {again}") from None
    finally:
        progress.close()  # first: while it draws, the terminal breaks each line at its width
    if outcome is not None:
        return _incomplete(sweep.name, outcome, source, site.runs_dir, again)
    return _done(run, source)


def writers_of_checkpoints(run: "SweepRun") -> list[str]:
    """Who else may have written what own trainers would go on from."""
    from scalevec.orchestrator.attempts.kept_files import others_in

    if run.sweep.trainer is None or not run.sweep.trainer.checkpoint:
        return []
    trials = [RunDirectory.of(run.runs_dir, run.id_of(member.trial)) for member in run.members()]
    return sorted({writer for trial in trials if (writer := others_in(trial.out_path))})


def _run_stages(run: "SweepRun", executor: Executor) -> None:
    """Run; Ctrl-C and SIGTERM ask for a stop with checkpoints, a second one ends everything at once.

    Jobs in a cluster's queue are left alone.
    """
    from scalevec.orchestrator.scheduling.scheduler import Scheduler

    scheduler = Scheduler(
        run.runs_dir, executor, run.progress, lambda: not run.folder.is_called_off(), run.profile.private_dir
    )
    with stop_signals_to(scheduler.request_stop):
        run.run(scheduler)


def _incomplete(sweep: str, outcome: "Outcome", source: str, runs_dir: Path, again: str) -> Result:
    """Tell on standard error why trials have no result, and how to go on."""
    if outcome.no_space:
        raise TryLaterError(
            f"no space left on the device of {runs_dir}; free some and give the same command again, "
            "nothing is lost"
        )
    record = {
        "sweep": sweep,
        "done": False,
        "failed": dict(outcome.failed),
        "cancelled": sorted(outcome.cancelled),
        "left_running": outcome.left_running,
        "left_out": outcome.left_out,
        "next": again,
    }
    for reason in outcome.failed.values():
        note(f"failed: {reason}")
    if outcome.left_running:
        note(f"detached: {counted(outcome.left_running, 'job')} still queued or running. To follow: {again}")
        note(f"To cancel: {command('cancel', source, runs_dir)}")
        return Result(record, "", Exit.INTERRUPTED)
    if outcome.stopped:
        note(f"stopped; finished trials and checkpoints are kept. To go on: {again}")
        return Result(record, "", Exit.INTERRUPTED)
    if outcome.left_out and not outcome.failed and not outcome.cancelled:
        note(f"done; {counted(outcome.left_out, 'trial')} skipped by --where")
        return Result(record, "")
    if outcome.cancelled:
        note(f"{counted(len(outcome.cancelled), 'trial')} cancelled. To run again: {again}")
    if outcome.failed:
        note(f"to try again: {command('retry', source, runs_dir)}, then {again}")
    return Result(record, "", Exit.SOME_FAILED)


def _done(run: "SweepRun", source: str) -> Result:
    ids = sorted({run.id_of(member.trial) for member in run.members()})
    states = sources.states_of(run.runs_dir, ids).values()
    counts = Counter(state for state in states if state in RESULT_STATES)
    following = command("report", source, run.runs_dir)
    if not counts["completed"]:
        following = command("explain", ids[0][:12], run.runs_dir)
    return Result(
        {"sweep": run.sweep.name, "done": True, "trials": len(ids), "states": counts, "next": following},
        f"{run.sweep.name}: {counted(len(ids), 'trial')}, {states_text(counts)}. Next: {following}",
    )
