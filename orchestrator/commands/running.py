"""Commands that train: ``run`` and ``demo``."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from orchestrator.commands.naming import command
from orchestrator.errors import Exit, Lacking, Refused

if TYPE_CHECKING:
    from orchestrator.executors import Executor, Site
    from orchestrator.jobs import Request
    from orchestrator.profiles import Profile
    from orchestrator.sweep_run import StageIncomplete, SweepRun
    from sweeps.schema import Sweep


SIMULATE = "simulate"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
"""SIGUSR2 is how a cluster says that a job's time is up."""


@dataclass(frozen=True)
class Place:
    """Where a person wants trials to run; None and 0 leave it to the profile and the machine."""

    executor: str | None = None
    profile: str | None = None
    jobs: int = 0


def run_sweep(
    path: str, runs_dir: Path, place: Place, *, retune: bool = False, where: str | None = None
) -> Exit:
    """Run what is missing of the sweep file at ``path``; says on standard output what is there now.

    With ``where`` only the trials for which it holds, as far as the stages allow.
    """
    import sweeps
    from orchestrator.progress import progress_for
    from orchestrator.scheduler import Scheduler
    from orchestrator.sources import check_named_store
    from orchestrator.sweep_run import StageIncomplete, SweepRun

    sweep = sweeps.load(path)
    check_named_store(runs_dir)
    name, site = site_of(sweep, path, runs_dir, place)
    progress = progress_for(site.slots)
    try:
        with _executor(name, site) as executor:  # asked before the corpus is prepared: that may take long
            run = SweepRun(
                sweep,
                site.runs_dir,
                progress,
                retune=retune,
                simulated=name == SIMULATE,
                where=where,
                profile=site.profile,
            )
            for warning in run.warnings():
                progress.message(f"warning: {warning}")
            require_budget(run)
            if executor.sends_away:
                check_machines(executor, site, run)
            scheduler = Scheduler(site.runs_dir, executor, progress)
            with _stoppable(scheduler.request_stop, progress.message, executor.keeps_jobs):
                run.run(scheduler)
    except StageIncomplete as incomplete:
        given = {"executor": place.executor, "profile": place.profile, "where": where}
        again = command("run", path, runs_dir, retune=retune, **given)
        return _say_incomplete(incomplete, path, site.runs_dir, again)
    finally:
        progress.close()
    _say_done(run, path)
    return Exit.DONE


def site_of(sweep: "Sweep", path: str, runs_dir: Path, place: Place) -> tuple[str, "Site"]:
    """The name of the executor and what it is built from. Raises ``Refused``."""
    from orchestrator.executors import Site
    from orchestrator.profiles import request_for

    name, profile = executor_of(path, place, "local")
    simulated = name == SIMULATE
    requests = [request_for(sweep, profile, rung.name) for rung in sweep.ladder]
    site = Site(
        runs_dir_of(runs_dir, simulated=simulated),
        sweep.name,
        place.jobs or (sweep.simulate.nodes if simulated else _slots(requests)),
        profile,
        sweep.simulation() if simulated else {},
        max(one.cpus for one in requests),
    )
    return name, site


def executor_of(path: str, place: Place, otherwise: str) -> tuple[str, "Profile"]:
    """The executor's name (``otherwise`` where nobody names one) and the profile. Raises ``Refused``."""
    from orchestrator.executors import EXECUTORS
    from orchestrator.profiles import load_profile

    profile = load_profile(place.profile, Path(path).parent)
    name = place.executor or profile.executor or otherwise
    if name not in EXECUTORS:
        raise Refused(f"executor is {name!r}; allowed: {', '.join(EXECUTORS)}")
    return name, profile


def runs_dir_of(runs_dir: Path, *, simulated: bool) -> Path:
    """Real and simulated trials are kept apart. Raises ``Refused`` where they would not be."""
    from orchestrator.executors import simulated_runs

    if not simulated:
        simulated_runs.refuse_simulations(runs_dir)
        return runs_dir
    return simulated_runs.simulated_runs_dir(runs_dir)


def _slots(requests: "Sequence[Request]") -> int:
    """As many trials at a time as this machine has cores for, or GPUs where the trials need them."""
    from orchestrator.executors.local import visible_gpus

    slots = (os.cpu_count() or 1) // max(one.cpus for one in requests)
    gpus = max(one.gpus for one in requests)
    return max(1, min(slots, int(len(visible_gpus()) / gpus)) if gpus else slots)


def require_budget(run: "SweepRun") -> None:
    """Raise ``Refused`` where the plan needs more GPU hours than the sweep or the profile allows."""
    limit = run.max_gpu_hours
    if limit is None:
        return
    from orchestrator.planning import gpu_hours, planned

    hours = gpu_hours(planned(run))
    if hours > limit:
        raise Refused(f"max_gpu_hours is {limit:g}; what is left needs about {hours:.3g}. Nothing was sent")


def check_machines(executor: "Executor", site: "Site", run: "SweepRun") -> None:
    """A small job for each kind of machine that trials will be sent to, before any of them goes out.

    Trials whose rate is still open count too: their machines are looked at before the tuning, not after it.
    """
    from orchestrator.planning import bytes_to_come, named, not_done, planned
    from orchestrator.preflight import preflight

    asked = {member.cell.rung for member in run.asked_for([member for member, _ in named(run)])}
    rows = [row for row in planned(run) if row["rung"] in asked]
    first: dict[tuple[Request, str], str] = {}
    for row in not_done(rows):
        first.setdefault(_kind_of_machine(run, row["rung"]), row["rung"])
    for rung in first.values():
        preflight(
            executor,
            site,
            rung=rung,
            request=run.request(rung),
            corpora=[run.corpus_facts.fingerprint],
            free_bytes=bytes_to_come(rows),
        )


def _kind_of_machine(run: "SweepRun", rung: str) -> "tuple[Request, str]":
    """What decides where the trials of ``rung`` come to: the same for rungs that one look serves."""
    where = {"partition", "account", "qos", "constraint", "exclude", "setup", "flags"}
    settings = run.profile.for_rung(rung).model_dump_json(include=where)
    return replace(run.request(rung), time_s=None), settings


@contextmanager
def _executor(name: str, site: "Site") -> Iterator["Executor"]:
    """The executor; raises ``Lacking`` where the cluster that it sends to does not answer."""
    from orchestrator.executors import EXECUTORS

    executor = EXECUTORS[name](site)
    try:
        _require_an_answer(executor)
        yield executor
    finally:
        executor.close()


def _require_an_answer(executor: "Executor") -> int:
    return executor.free_slots if executor.sends_away else 0


@contextmanager
def _stoppable(
    request_stop: Callable[[], None], say: Callable[[str], None], keeps_jobs: bool
) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a stop with checkpoints; a second one ends everything at once.

    Jobs in a cluster's queue are left alone.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        say(
            "leaving: the jobs in the queue go on"
            if keeps_jobs
            else "stopping: the running trials write a checkpoint (again to end them at once)"
        )
        request_stop()

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_incomplete(incomplete: "StageIncomplete", path: str, runs_dir: Path, again: str) -> Exit:
    """``again`` is the command that goes on."""
    outcome = incomplete.outcome
    if outcome.no_space:
        raise Lacking(
            "no space left on the device of the runs; free some and give the same command again, "
            "nothing is lost"
        )
    if outcome.left_running:
        print(
            f"left; {outcome.left_running} jobs go on by themselves. To follow them: {again}; "
            f"to end them: {command('cancel', path, runs_dir)}",
            file=sys.stderr,
        )
        return Exit.INTERRUPTED
    if outcome.stopped:
        print(f"stopped; nothing is lost. To go on: {again}", file=sys.stderr)
        return Exit.INTERRUPTED
    if outcome.left_out and not outcome.failed and not outcome.cancelled:
        print(
            f"done as asked; {outcome.left_out} trials of this stage are left out by --where", file=sys.stderr
        )
        return Exit.DONE
    if outcome.cancelled:
        print(
            f"{len(outcome.cancelled)} trials were cancelled; {again} asks for them again",
            file=sys.stderr,
        )
    for reason in outcome.failed.values():
        print(f"failed: {reason}", file=sys.stderr)
    if outcome.failed:
        retry = command("retry", path, runs_dir)
        print(f"to try them again: {retry}, then {again}", file=sys.stderr)
    return Exit.SOME_FAILED


def _say_done(run: "SweepRun", path: str) -> None:
    from orchestrator.sources import states_or_warning

    ids = sorted({run.id_of(member.trial) for member in run.members()})
    states, warnings = states_or_warning(run.runs_dir, ids)
    counts = Counter(state for state in states.values() if state in ("completed", "diverged"))
    said = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    report = command("report", path, run.runs_dir)
    print(f"{run.sweep.name}: {len(ids)} trials, {said}. Next: {report}")
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def demo(runs_dir: Path, jobs: int, output: Path | None) -> Exit:
    """The quickstart sweep, then its verdict and its report."""
    import sweeps
    from orchestrator.commands.reading import compare, write_report

    path = str(sweeps.shipped("quickstart"))
    code = run_sweep(path, runs_dir, Place("local", jobs=jobs))
    if code is Exit.DONE:
        compare("quickstart", runs_dir, None, {}, where=None, as_json=False)
        write_report("quickstart", runs_dir, output)
    return code
