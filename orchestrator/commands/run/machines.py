"""Which machines a sweep runs on, and what is asked of them before anything is sent."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec.model.data.system import usable_cpus
from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, ResourceRequest
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.observers.trial_logs import places_of_logs
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.snapshots.snapshot import carry, taken
from scalevec.orchestrator.trust import NO_TRUST, Trust
from scalevec.sweeps.plugins.locate import snapshot_files

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.profiles import Profile
    from scalevec.orchestrator.sweep.sweep_run import SweepRun
    from scalevec.sweeps.sections.schema import Sweep

SIMULATED_AT_A_TIME = 16
"""Trials that a simulation has under way, as a cluster would."""


def site_of(
    sweep: "Sweep", runs_dir: Path, placement: Placement, trust: Trust = NO_TRUST
) -> tuple[str, Site]:
    """Return the executor's name and what it is built from. Raises ``InvalidInputError``."""
    from scalevec.orchestrator.executors.profiles import request_for
    from scalevec.orchestrator.executors.simulate.planted_law import runs_dir_of

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
    for log in profile.log:
        places_of_logs(log, f"log of profile {placement.profile}")
    if name == "slurm":
        from scalevec.orchestrator.executors.slurm.partitions import with_limits

        profile = with_limits(profile)
    return name, profile


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
    from scalevec.orchestrator.executors.local.local_executor import visible_gpus

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
    from scalevec.orchestrator.sweep import planning
    from scalevec.orchestrator.sweep.corpus_of_sweep import prepared_facts
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

    simulates = EXECUTORS[name].simulates
    facts = nominal_corpus(sweep) if simulates else prepared_facts(sweep, site.runs_dir, progress.message)
    run = SweepRun(sweep, site.runs_dir, progress, facts, retune=retune, where=where, profile=site.profile)
    trials = planning.planned(run)
    for warning in run.warnings():
        progress.message(f"warning: {warning}")
    if EXECUTORS[name].keeps_jobs:
        planning.require_times(run, trials)
    planning.require_budget(run, trials)
    if EXECUTORS[name].sends_away:
        planning.require_space(run, trials)
    planning.require_room(trials)
    return run


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
