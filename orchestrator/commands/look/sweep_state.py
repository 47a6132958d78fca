"""The state of a sweep as one record: what ``status`` prints, what ``--watch`` and ``run`` show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.attempts.churn import little_progress
from scalevec.orchestrator.commands.look.cells import (
    SweepLook,
    cells,
    chosen,
    cost,
    failed,
    label_of,
    waiting,
)
from scalevec.orchestrator.commands.look.queued import Queues, jobs_of
from scalevec.orchestrator.commands.look.seeds import seeds_without_effect
from scalevec.orchestrator.commands.look.time_left import against_plan, sample_of, seconds_left
from scalevec.orchestrator.scheduling.ownership import is_owned, owner_directory
from scalevec.orchestrator.sources.readable import readable
from scalevec.orchestrator.sources.records import members_or_none
from scalevec.orchestrator.sources.sources import UNREADABLE, with_index
from scalevec.orchestrator.sources.sweep_files import refuse_imported, sweep_folder
from scalevec.results.claims import ClaimObserver
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import OPEN_STATES, RESULT_STATES, RunDirectory
from scalevec.results.sweep_folder import SweepFolder, sweep_names

if TYPE_CHECKING:
    from scalevec.results.index.store import ResultsIndex

Record = dict[str, Any]
MEASURED = ("cause", "loss", "wall_s", "evaluation_s")
"""The columns of the index that a look needs of every trial."""
STAGES = ("tuning", "comparison")


@dataclass
class LookMemory:
    """What is kept from look to look: it tells living workers of other machines from dead ones, spares queues
    a question that was asked already, and knows how many trials ran at a time before a gap.
    """

    observer: ClaimObserver = field(default_factory=ClaimObserver)
    queues: Queues = field(default_factory=Queues)
    at_a_time: dict[str, int] = field(default_factory=dict)


def names_of(source: str | None, runs_dir: Path) -> list[str]:
    """Return the name of the sweep ``source``, or of all in ``runs_dir`` that are run here."""
    if source:
        name = sweep_folder(source, runs_dir).name
        refuse_imported(name, runs_dir)
        return [name]
    return [name for name in sweep_names(runs_dir) if not SweepFolder.of(runs_dir, name).is_imported()]


def entries_of(names: Sequence[str], runs_dir: Path) -> dict[str, list[Record]]:
    """Return the trials of each sweep as members.json has them; none, which is said, where it is damaged."""
    return {name: members_or_none(SweepFolder.of(runs_dir, name)) for name in names}


def sweep_statuses(source: str | None, runs_dir: Path, memory: LookMemory | None = None) -> list[Record]:
    """Return the state of the sweep ``source``, or of each sweep; see :func:`states_of_sweeps`."""
    return states_of_sweeps(names_of(source, runs_dir), runs_dir, memory or LookMemory())


def states_of_sweeps(names: Sequence[str], runs_dir: Path, memory: LookMemory) -> list[Record]:
    """Return the state of each sweep, from an index that is brought up to date; running trials are looked at.

    A ``memory`` that is kept from look to look makes the later looks cheaper and surer.
    """
    if not names:
        return []
    entries = entries_of(names, runs_dir)
    ids = {entry["trial_id"] for of_sweep in entries.values() for entry in of_sweep}

    def read(index: "ResultsIndex") -> tuple[dict[str, str], dict[str, str], dict[str, Record]]:
        return *index.current_states(runs_dir, ids), index.values(runs_dir, ids, MEASURED)

    states, problems, values = with_index(runs_dir, read)
    states = states | dict.fromkeys(problems, UNREADABLE)
    statuses = []
    for name in names:
        folder = SweepFolder.of(runs_dir, name)
        to_come: list[Record] = readable(folder.to_come, [], "which trials are still to be named is unknown")
        statuses.append(
            _status(SweepLook(runs_dir, folder, entries[name], to_come, states, values), problems, memory)
        )
    return statuses


def _status(look: SweepLook, problems: Mapping[str, str], memory: LookMemory) -> Record:
    sweep, runs_dir, states = look.folder.name, look.runs_dir, look.states
    owner = owner_directory(runs_dir, sweep)
    silent_s = readable(partial(memory.observer.silent_s, owner), None, "who runs the sweep is unknown")
    is_alive = is_owned(runs_dir, sweep, memory.observer)
    running = [_running(look, name, memory.observer) for name in look.members if states[name] == "running"]
    stage, queue = _in_queues(look, memory.queues)
    at_a_time = sum(trial["worker_alive"] for trial in running)
    # Between two trials none runs; the next begins in a moment.
    at_a_time = memory.at_a_time[sweep] = at_a_time or (memory.at_a_time.get(sweep, 0) if is_alive else 0)
    return {
        "sweep": sweep,
        "trials": len(look.members),
        "states": dict(Counter(map(states.__getitem__, look.members))),
        "to_come": len(look.to_come),
        "stage": stage,
        "running": running,
        **_time(look, running, stage, at_a_time),
        "cells": cells(look),
        "waiting": waiting(look, queue["jobs"], is_owned=is_alive),
        "failed": failed(look),
        "chosen": chosen(look.folder),
        "queue": queue,
        "seeds_without_effect": seeds_without_effect(look.members, states, runs_dir),
        "problems": {name: problem for name, problem in problems.items() if name in look.members},
        "owned": is_alive,
        "seconds_since_sign_of_life": silent_s if is_alive else None,
    }


def _in_queues(look: SweepLook, queues: Queues) -> tuple[str | None, Record]:
    """Return which stage the sweep is in, and what queues say of its jobs."""
    left = [name for name in look.members if look.states[name] not in RESULT_STATES]
    stages = {look.members[name].get("stage") for name in left} | ({"comparison"} if look.to_come else set())
    # A job that was requeued waits although its trial is pending.
    open_ones = [name for name in left if look.states[name] in OPEN_STATES]
    open_ones.sort(key=lambda name: look.states[name] == "pending")
    stage = next((stage for stage in STAGES if stage in stages), None)
    return stage, jobs_of(look.folder.name, open_ones, look.runs_dir, queues)


def _time(look: SweepLook, running: Sequence[Record], stage: str | None, at_a_time: int) -> Record:
    """Estimate the time until stage and sweep are done and their cost, and compare times with the plan."""
    finished = [member for name, member in look.members.items() if look.states[name] in RESULT_STATES]
    took = {name: seconds for name, seconds in look.took().items() if seconds}
    timed = [
        (member, took[member["trial_id"]]) for member in sample_of(finished) if member["trial_id"] in took
    ]
    begun = {trial["trial_id"]: (trial["step"] or 0) / (trial["steps"] or 1) for trial in running}
    open_ones = [member for name, member in look.members.items() if look.states[name] in OPEN_STATES]
    of_stage = [member for member in open_ones if member["stage"] == stage]
    plan = against_plan(
        [*look.members.values(), *look.to_come],
        begun | {member["trial_id"]: 1.0 for member in finished},
        timed,
    )
    return {
        "seconds_left": seconds_left(of_stage, begun, timed, at_a_time),
        "sweep_seconds_left": seconds_left([*open_ones, *look.to_come], begun, timed, at_a_time),
        "plan": plan,
        "cost": cost([*open_ones, *look.to_come], finished, took, begun, plan),
    }


def _running(look: SweepLook, trial_id: str, observer: ClaimObserver) -> Record:
    """Return the progress of a running trial, and whether its worker is alive."""
    directory, member = RunDirectory.of(look.runs_dir, trial_id), look.members[trial_id]
    name = f"trial {trial_id[:12]}"
    steps = readable(partial(_steps, directory), None, f"{name}: its steps are unknown")
    events: list[Record] = readable(directory.events, [], f"{name}: what happened is unknown")
    row: Record = readable(directory.last_metrics, {}, f"{name}: its step is unknown")
    return {
        "trial_id": trial_id,
        "arm": member["arm"],
        "rung": member["rung"],
        "label": label_of(member, look.varied),
        "step": row.get("step"),
        "steps": steps,
        "loss": row.get("loss"),
        "tokens_per_s": row.get("tokens_per_s"),
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
