"""Which machines a sweep runs on, and what is asked of them before anything is sent."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec.model.data.system import usable_cpus
from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, ResourceRequest
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.snapshots.snapshot import carry, taken
from scalevec.orchestrator.trust import NO_TRUST, Trust
from scalevec.sweeps.plugins.locate import snapshot_files

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.profiles import Profile
    from scalevec.orchestrator.sweep.planning import Row
    from scalevec.orchestrator.sweep.sweep_run import SweepRun
    from scalevec.sweeps.sections.schema import Sweep

SIMULATED_AT_A_TIME = 16
"""Trials that a simulation has under way, as a cluster would."""


def site_of(
    sweep: "Sweep", runs_dir: Path, placement: Placement, trust: Trust = NO_TRUST
) -> tuple[str, Site]:
    """Return the executor's name and what it is built from. Raises ``InvalidInputError``."""
    from scalevec.orchestrator.executors.profiles import request_for

    name, profile = executor_of(sweep, placement, "local", trust)
    if "simulate" in sweep.model_fields_set and not (placement.executor or profile.executor):
        raise InvalidInputError(
            f"sweep {sweep.name} has a section simulate: give --executor simulate, or local to train it"
        )
    simulated = EXECUTORS[name].simulates
    requests = [request_for(sweep, profile, rung.name) for rung in sweep.ladder]
    site = Site(
        runs_dir_of(runs_dir, simulated=simulated),
        sweep.name,
        placement.jobs or (SIMULATED_AT_A_TIME if simulated else _slots(requests)),
        profile,
        sweep.simulation() if simulated else {},
        max(request.cpus_of_node for request in requests),
    )
    return name, site


def executor_of(
    sweep: "Sweep", placement: Placement, otherwise: str, trust: Trust | None
) -> tuple[str, "Profile"]:
    """Return the executor's name (``otherwise`` where nobody names one) and the profile.

    Without ``trust`` it is only read. Raises ``InvalidInputError``.
    """
    from scalevec.orchestrator.executors.profiles import load_profile

    profile = load_profile(placement.profile, sweep.source.folder, placement.executor, otherwise, trust)
    name = placement.executor or profile.executor or otherwise
    if name not in EXECUTORS:
        raise InvalidInputError(f"executor is {name!r}; allowed: {', '.join(EXECUTORS)}")
    if name == "slurm":
        from scalevec.orchestrator.executors.slurm.partitions import with_limits

        profile = with_limits(profile)
    return name, profile


def runs_dir_of(runs_dir: Path, *, simulated: bool) -> Path:
    """Return where the trials are kept: real and simulated ones apart. Raises ``InvalidInputError``."""
    from scalevec.orchestrator.executors.simulate import planted_law

    if not simulated:
        planted_law.refuse_simulations(runs_dir)
        return runs_dir
    return planted_law.simulated_runs_dir(runs_dir)


def send_along(sweep: "Sweep", site: Site, *, imports_here: bool = False) -> None:
    """Put the plugins of ``sweep`` into the code that workers run from, and nothing of another sweep.

    With ``imports_here`` a process of this machine imports them first: elsewhere each worker does.
    Raises ``InvalidInputError``.
    """
    carry(snapshot_files(list(sweep.found_plugins)))
    if not sweep.found_plugins or not imports_here:
        return
    command = taken(site.private).command((*PYTHON_MODULE, "scalevec.orchestrator.worker.preflight"))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise InvalidInputError(f"a plugin cannot be used; nothing was run: {done.stderr.strip()}")


def _slots(requests: "Sequence[ResourceRequest]") -> int:
    """Return how many trials fit on this machine at a time, by cores, or by GPUs if they need any."""
    from scalevec.orchestrator.executors.local.gpus import visible_gpus

    slots = usable_cpus() // max(request.cpus_of_node for request in requests)
    gpus = max(request.gpus for request in requests)
    return max(1, min(slots, int(len(visible_gpus().names) / gpus)) if gpus else slots)


def prepared_run(
    name: str,
    sweep: "Sweep",
    site: Site,
    progress: Progress,
    *,
    retune: bool = False,
    where: str | None = None,
) -> "SweepRun":
    """Return the run of a sweep on the executor ``name``; its corpus is prepared unless trials are simulated.

    Raises ``InvalidInputError``, also where what is left needs more GPU hours than sweep or profile allow,
    and ``MissingRequirementError`` where it needs more space than there is.
    """
    from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
    from scalevec.orchestrator.sweep.corpus_of_sweep import prepared_facts
    from scalevec.orchestrator.sweep.planning import planned, require_room
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

    simulates = EXECUTORS[name].simulates
    facts = nominal_corpus(sweep) if simulates else prepared_facts(sweep, site.runs_dir, progress.message)
    run = SweepRun(sweep, site.runs_dir, progress, facts, retune=retune, where=where, profile=site.profile)
    trials = planned(run)
    for warning in run.warnings():
        progress.message(f"warning: {warning}")
    if EXECUTORS[name].keeps_jobs:
        require_times(run, trials)
    require_budget(run, trials)
    if EXECUTORS[name].sends_away:
        require_space(run, trials)
    require_room(trials)
    return run


def require_times(run: "SweepRun", trials: "Sequence[Row]") -> None:
    """Raise ``InvalidInputError`` where a queue would get a time limit for trials of unknown length."""
    from scalevec.orchestrator.costs import UNKNOWN_TIME
    from scalevec.orchestrator.sweep.planning import not_done

    if run.sweep.trainer is None:
        return
    rungs = dict.fromkeys(row["rung"] for row in not_done(trials) if row["rate"] == UNKNOWN_TIME)
    if unknown := [rung for rung in rungs if run.profile.for_rung(rung).time == "auto"]:
        raise InvalidInputError(
            f"{UNKNOWN_TIME} ({', '.join(unknown)}), and a queue asks for a time limit: give minutes, as in "
            "resources: {default: {time: 30}}, or time: 30 in the profile. Nothing was sent"
        )


def require_budget(run: "SweepRun", trials: "Sequence[Row]") -> None:
    """Raise ``InvalidInputError`` where what is left needs more GPU hours than sweep or profile allow."""
    from scalevec.orchestrator.sweep.planning import gpu_hours

    limit, hours = run.max_gpu_hours, gpu_hours(trials)
    if limit is not None and hours > limit:
        raise InvalidInputError(
            f"max_gpu_hours is {limit:g}; what is left needs about {hours:.3g}. Nothing was sent"
        )


def require_space(run: "SweepRun", trials: "Sequence[Row]") -> None:
    """Raise ``MissingRequirementError`` where RUNS_DIR has less space than what is left will take."""
    from scalevec.orchestrator.sweep.planning import bytes_to_come, named

    asked = {member.cell.rung for member in run.asked_for([member for member, _ in named(run)])}
    needed = bytes_to_come([row for row in trials if row["rung"] in asked])
    free = shutil.disk_usage(run.runs_dir).free
    if free < needed:
        raise MissingRequirementError(
            f"{run.runs_dir}: {free / 1e9:.3g} GB are free, what is left takes about {needed / 1e9:.3g} GB. "
            "Nothing was sent; free some space, or keep fewer checkpoints"
        )


@contextmanager
def opened_executor(name: str, site: Site) -> Iterator[Executor]:
    """Yield the executor, closed afterwards.

    Raises ``MissingRequirementError`` where the cluster that it sends to does not answer: asking for free
    slots is the question.
    """
    with closing(EXECUTORS[name].build(site)) as executor:
        if EXECUTORS[name].sends_away:
            _ = executor.free_slots
        yield executor
