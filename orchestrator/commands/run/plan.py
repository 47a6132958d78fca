"""``scalevec plan``: every trial of a sweep and what it will cost, before anything is spent."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scalevec.model.data.system import usable_cpus
from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.cli.options import RUNS, Executor, Jobs, Placement, ProfileName, Runs, Sweep
from scalevec.orchestrator.cli.output import Result, command, terminal_width
from scalevec.orchestrator.commands.run.machines import executor_of
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.registry import EXECUTORS, SIMULATOR
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.sources.sources import load_sweep
from scalevec.orchestrator.sweep import controller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scalevec.orchestrator.sweep.planning import Row
    from scalevec.orchestrator.sweep.sweep_run import SweepRun


def plan(
    source: Sweep,
    runs_dir: Runs = RUNS,
    executor: Executor = None,
    profile: ProfileName = None,
    jobs: Jobs = 0,
    noise: Annotated[
        float | None,
        typer.Option(metavar="SD", help="Standard deviation of a paired difference, in nats/token."),
    ] = None,
    pilot: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Results (sweep or table) to take the noise from.")
    ] = None,
    without_corpus: Annotated[
        bool, typer.Option("--without-corpus", help="Plan without a corpus (epochs are not computed).")
    ] = False,
    only_power: Annotated[bool, typer.Option("--power", help="Only what the comparison can detect.")] = False,
    script: Annotated[
        bool, typer.Option("--script", help="Only the job scripts that SLURM would get; nothing is sent.")
    ] = False,
) -> Result:
    """Show every trial of a sweep: its cost, and what exists already.

    With --executor simulate, or where the runs directory holds simulations, it is the plan of the
    simulation. --json prints a list of trials, with --power an object.
    """
    from scalevec.orchestrator.sweep.corpus_of_sweep import NOT_PREPARED
    from scalevec.orchestrator.sweep.plan_text import plan_text
    from scalevec.orchestrator.sweep.planning import noise_figure, planned, power, without_identity

    placement = Placement(executor, profile, jobs or usable_cpus())
    run, name = run_to_plan(source, runs_dir, placement, without_corpus=without_corpus)
    figure = noise_figure(noise, pilot, run.sweep.reference, runs_dir)
    for warning in run.warnings():
        run.progress.message(f"warning: {warning}")
    trials = planned(run)
    if script:
        return job_scripts(run, trials, name)
    if only_power:
        analysis = power(run, trials, figure)
        return Result(analysis.to_dict(), analysis.text, wraps=True)
    keeps_jobs, at_a_time = EXECUTORS[name].keeps_jobs, run.profile.max_parallel or placement.jobs
    is_prepared = run.corpus_facts.fingerprint != NOT_PREPARED
    shown = partial(plan_text, run, trials, at_a_time, figure, in_queue=keeps_jobs)
    record = trials if is_prepared else without_identity(trials)
    return Result(record, lambda: shown(width=terminal_width()), wraps=True)


def job_scripts(run: "SweepRun", trials: "Sequence[Row]", executor: str) -> Result:
    """Return the script of a trial of each rung that is left, and that of the controller."""
    from scalevec.orchestrator.executors.slurm.submission import job_script
    from scalevec.orchestrator.sweep.planning import queued_rungs

    if executor != "slurm":
        raise InvalidInputError(f"--script shows scripts for SLURM; the executor is {executor!r}")
    site, here = Site(run.runs_dir, run.sweep.name, 1, run.profile), run.runs_dir / "trials"
    jobs = {
        f"{rung.stage} of {rung.rung}": Job(
            "0" * 64, (), here, rung=rung.rung, request=run.request(rung.rung), estimate_s=rung.longest_job_s
        )
        for rung in queued_rungs(run, trials)
    }
    scripts = {name: job_script(site, job) for name, job in jobs.items()}
    alone = controller.site_of_controller(site)
    request = alone.profile.request(controller.RUNG, controller.REQUEST)
    job = Job("0" * 64, (), here, rung=controller.RUNG, request=request)
    scripts["controller"] = job_script(alone, job)
    return Result(scripts, "\n".join(f"# --- {name} ---\n{text}" for name, text in scripts.items()))


def run_to_plan(
    source: str, runs_dir: Path, placement: Placement, *, without_corpus: bool
) -> tuple["SweepRun", str]:
    """Return the run of the sweep, simulated where that is meant, and the name of its executor."""
    from scalevec.orchestrator.executors.simulate.planted_law import is_simulated, nominal_corpus, runs_dir_of
    from scalevec.orchestrator.sweep.corpus_of_sweep import NOT_PREPARED, known_facts, unprepared_facts
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

    sweep = load_sweep(source, runs_dir, look_for_files=not without_corpus)
    name, profile = executor_of(sweep, placement, SIMULATOR if is_simulated(runs_dir) else "local", None)
    simulated, progress = EXECUTORS[name].simulates, Progress()
    if simulated:
        facts = nominal_corpus(sweep)
    elif without_corpus:
        facts = unprepared_facts(sweep)
    else:
        facts = known_facts(sweep, runs_dir, progress.message)
        if facts.fingerprint == NOT_PREPARED:
            prepare = command("corpus prepare", source, runs_dir)
            progress.message(f"to see epochs and trial ids: {prepare}")
    planned_in = runs_dir_of(runs_dir, simulated=simulated)
    run = SweepRun(sweep, planned_in, progress, facts, profile=profile, only_plan=True)
    return run, name
