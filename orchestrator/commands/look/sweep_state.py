"""The state of a sweep as one record: ``status``, ``--watch``, ``--json`` and a running sweep show it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.model.fields import ConfigurationError
from scalevec.orchestrator.attempts.retry_policy import FAULTS, little_progress, why_failed
from scalevec.orchestrator.commands.look.queued import jobs_of, state_text
from scalevec.orchestrator.errors import read_or_warn
from scalevec.orchestrator.sources import sources
from scalevec.orchestrator.sweep.controller import is_owned
from scalevec.results.claims import ClaimObserver
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import OPEN_STATES, RESULT_STATES, RunDirectory
from scalevec.results.sweep_folder import SweepFolder, TrialsByCells, sweep_names
from scalevec.sweeps.trainers.any_trial import trial_from_fields

if TYPE_CHECKING:
    from scalevec.results.index.store import Known

Record = dict[str, Any]
MOST_FAILED = 20
"""Failed trials whose records are read for the cause."""
STAGES = ("tuning", "comparison")
_WORDS = {"tokens_per_parameter": "D/N", "tokens_budget": "D", "flops_budget": "C"}
_OPEN_RATES = "for the rates that tuning chooses"


@dataclass(frozen=True)
class SweepScan:
    """What was read of a sweep: its trials, those ``to_come`` without names yet, and by id what is known."""

    runs_dir: Path
    folder: SweepFolder
    members: TrialsByCells
    to_come: TrialsByCells
    states: Mapping[str, str]
    known: Mapping[str, "Known"]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each trial among the members; arms that are identical by construction share one."""
        return {trial_id: number for number, trial_id in enumerate(self.members.ids)}

    @cached_property
    def cell_of(self) -> dict[str, Record]:
        """The cell of each trial, also of those to come."""
        lists = (self.members, self.to_come)
        return {id_: cell for each in lists for id_, cell in zip(each.ids, each.cells_of(), strict=True)}

    @cached_property
    def stage(self) -> str | None:
        """The first stage of which a trial has no result; None where all have one."""
        without_result = self.by_state.keys() - set(RESULT_STATES)
        left = {self.cell_of[id_]["stage"] for id_ in self.ids_in(*without_result)}
        left |= {"comparison"} if self.to_come.ids else set()
        return next((stage for stage in STAGES if stage in left), None)

    @cached_property
    def by_state(self) -> Mapping[str, list[str]]:
        """The trials, each once, by state."""
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for trial_id in self.numbers:
            groups[self.states[trial_id]].append(trial_id)
        return groups

    def ids_in(self, *states: str) -> list[str]:
        """Return the trials in one of ``states``."""
        return [trial_id for state in states for trial_id in self.by_state.get(state, ())]

    def entries_in(self, *states: str) -> list[Record]:
        """Return the entries of the trials in one of ``states``."""
        return [self.members.entry(self.numbers[trial_id]) for trial_id in self.ids_in(*states)]

    @cached_property
    def settings(self) -> Mapping[tuple[Any, ...], list[str]]:
        """The trials, also those to come, by stage, N, rung, arm and setting."""
        groups: defaultdict[tuple[Any, ...], list[str]] = defaultdict(list)
        for trials in (self.members, self.to_come):
            by_cell: list[list[str]] = [[] for _ in trials.cells]
            for cell, trial_id in zip(trials.columns["cell"], trials.ids, strict=True):
                by_cell[cell].append(trial_id)
            for of_cell, ids in zip(trials.cells, by_cell, strict=True):
                n_params = of_cell.get("n_params") or 0
                key = of_cell["stage"], n_params, of_cell["rung"], of_cell["arm"], _setting(of_cell)
                groups[key] += ids
        return groups

    @cached_property
    def _varied(self) -> set[str]:
        """The settings that tell cells of one rung apart."""
        seen: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for *_, rung, _, setting in self.settings:
            for name, value in setting:
                seen[rung, name].add(value)
        return {name for (_, name), values in seen.items() if len(values) > 1}

    def shown(self, setting: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return those parts of a cell's ``setting`` that tell it from others of its rung."""
        varied = self._varied
        return tuple((_WORDS.get(name, name), value) for name, value in setting if name in varied)

    def label_of(self, entry: Record) -> str:
        """Return what a person calls a trial: arm, rung, setting, seed, and the rate that tuning tries."""
        words = [entry["arm"], place_of(entry["rung"], dict(self.shown(_setting(entry))))]
        words += [f"seed {entry['seed']}"] if entry.get("seed") is not None else []
        if entry["stage"] == "tuning" and entry.get("learning_rate") is not None:
            words.append(f"rate {entry['learning_rate']:.3g}")
        return " ".join(words)


def _setting(entry: Record) -> tuple[tuple[str, str], ...]:
    """The settings of an entry, name and value, as they are shown."""
    further = entry.get("setting", {})
    names = ("optimizer", "schedule", "tokens_per_parameter", *further)
    values = (str(value) if isinstance(value, dict | list) else value for value in further.values())
    return _shown_setting(names, *map(entry.get, names[:3]), *values)


@lru_cache(maxsize=None, typed=True)  # one for all trials of a cell
def _shown_setting(names: tuple[str, ...], *values: Any) -> tuple[tuple[str, str], ...]:
    setting = dict(zip(names, values, strict=True))
    if setting.keys() & {"tokens_budget", "flops_budget"}:
        del setting["tokens_per_parameter"]
    return tuple((name, _shown(value)) for name, value in setting.items() if value is not None)


def _shown(value: Any) -> str:
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return f"{value:.3g}" if is_number else str(value)


def place_of(rung: str, setting: Mapping[str, str]) -> str:
    """Return ``25k wsd D/N 4`` of rung and setting: names stand where values do not speak for themselves."""
    named = setting.items()
    words = [value if name in ("optimizer", "schedule") else f"{name} {value}" for name, value in named]
    return " ".join([rung, *words])


def sweep_statuses(source: str | None, runs_dir: Path, observer: ClaimObserver | None = None) -> list[Record]:
    """Return the state of a sweep, or of each, from an index that is brought up to date.

    Args:
        source: The sweep's name or file; None: every sweep.
        runs_dir: Where they run.
        observer: Kept from call to call, it tells living workers of other machines from dead ones.

    Returns:
        A record per sweep, as ``status --json`` prints it.

    Raises:
        InvalidInputError: There is no such sweep.
    """
    names = [sources.sweep_folder(source, runs_dir).name] if source else sweep_names(runs_dir)
    if not names:
        return []
    folders = [SweepFolder.of(runs_dir, name) for name in names]
    members = list(map(sources.members_or_none, folders))
    ids = {trial_id for each in members for trial_id in each.ids}

    known, problems = sources.with_index(runs_dir, lambda index: index.current(runs_dir, ids))
    states = {trial_id: row.state for trial_id, row in known.items()}
    states |= dict.fromkeys(problems, sources.UNREADABLE)
    observer = observer or ClaimObserver()
    statuses = []
    for folder, of_sweep in zip(folders, members, strict=True):
        to_come = read_or_warn(
            folder.to_come, TrialsByCells(), "which trials are still to be named is unknown"
        )
        scan = SweepScan(runs_dir, folder, of_sweep, to_come, states, known)
        statuses.append(_status(scan, problems, observer))
    return statuses


def _status(scan: SweepScan, problems: Mapping[str, str], observer: ClaimObserver) -> Record:
    sweep, runs_dir = scan.folder.name, scan.runs_dir
    is_alive = is_owned(runs_dir, sweep, observer)
    running = [_running(scan, entry, observer) for entry in scan.entries_in("running")]
    begun = {trial["trial_id"]: (trial["step"] or 0) / (trial["steps"] or 1) for trial in running}
    # Between two trials none runs; the next begins in a moment.
    at_a_time = sum(trial["worker_alive"] for trial in running) or int(is_alive)
    # A job that was requeued waits although its trial is pending: those are asked for last.
    in_queues = scan.ids_in(*OPEN_STATES)
    in_queues.sort(key=lambda trial_id: scan.states[trial_id] == "pending")
    queue = jobs_of(sweep, in_queues, runs_dir)
    return {
        "sweep": sweep,
        "trials": len(scan.numbers),
        "states": {state: len(ids) for state, ids in scan.by_state.items()},
        "to_come": len(scan.to_come.ids),
        "stage": scan.stage,
        "running": running,
        **_time_and_cost(scan, begun, at_a_time),
        "cells": _cells(scan),
        "waiting": _waiting(scan, queue, is_owned=is_alive),
        "failed": [_failed(scan, entry) for entry in scan.entries_in("failed")[:MOST_FAILED]],
        "chosen": _chosen(scan.folder),
        "queue": queue,
        "problems": {name: problem for name, problem in problems.items() if name in scan.numbers},
        "owned": is_alive,
    }


def _running(scan: SweepScan, entry: Record, observer: ClaimObserver) -> Record:
    """The progress of a running trial, and whether its worker is alive."""
    directory = RunDirectory.of(scan.runs_dir, entry["trial_id"])
    name = f"trial {directory.trial_id[:12]}"
    steps = read_or_warn(partial(_steps, directory), None, f"{name}: its steps are unknown")
    events: list[Record] = read_or_warn(directory.events, [], f"{name}: what happened is unknown")
    row: Record = read_or_warn(directory.last_metrics, {}, f"{name}: its step is unknown")
    unknown = f"{name}: nobody can tell who runs it"
    return {
        "trial_id": directory.trial_id,
        "arm": entry["arm"],
        "rung": entry["rung"],
        "label": scan.label_of(entry),
        **{column: row.get(column) for column in ("step", "loss", "tokens_per_s")},
        "steps": steps,
        "warning": little_progress(events, steps) if steps else None,
        "worker_alive": read_or_warn(partial(observer.is_alive, directory), False, unknown),
    }


def _steps(directory: RunDirectory) -> int | None:
    try:
        return trial_from_fields(directory.trial()["semantic"]).steps or None
    except ConfigurationError as error:
        raise CorruptRecordError(directory.trial_path, str(error)) from None


def _time_and_cost(scan: SweepScan, begun: Mapping[str, float], at_a_time: int) -> Record:
    """Estimate what the sweep still takes and costs, from its plan and the times of finished trials.

    ``begun`` is the share of its steps that a running trial has made. Nobody can say the time left where
    nothing runs, or nothing is planned and nothing finished.
    """
    finished = scan.ids_in(*RESULT_STATES)
    known = zip(finished, map(scan.known.__getitem__, finished), strict=True)
    took = {id_: row.wall_s + (row.evaluation_s or 0) for id_, row in known if row.wall_s}
    is_planned = bool(scan.cell_of) and all(cell.get("planned_s") for cell in scan.cell_of.values())
    work = {id_: cell["planned_s"] if is_planned else _work(cell) for id_, cell in scan.cell_of.items()}
    planned_s, compared_s, measured_s = sum(work.values()), sum(work[id_] for id_ in took), sum(took.values())
    # Without a plan the work is no time until a trial has finished.
    pace = measured_s / compared_s if compared_s else float(is_planned)
    is_known = at_a_time > 0 and all(work.values()) and (is_planned or compared_s > 0)
    open_ones = [*scan.ids_in(*OPEN_STATES), *scan.to_come.ids]
    left = {id_: work[id_] * pace * (1 - begun.get(id_, 0.0)) for id_ in open_ones}
    unit = "gpus" if any(cell.get("gpus") for cell in scan.cell_of.values()) else "cores"

    def hours(seconds: Mapping[str, float]) -> float:
        return sum(spent * float(scan.cell_of[id_].get(unit, 0)) for id_, spent in seconds.items()) / 3600

    done_s = sum(work[id_] * share for id_, share in begun.items()) + sum(work[id_] for id_ in finished)
    plan = {
        "planned_s": planned_s,
        "share_done": done_s / (planned_s or 1.0),
        "pace": measured_s / compared_s if compared_s else None,
    }
    return {
        # However many run at a time, the longest is waited for.
        "seconds_left": max(0.0, *left.values(), sum(left.values()) / at_a_time) if is_known else None,
        "plan": plan if is_planned else None,
        "cost": {
            "unit": "GPU hours" if unit == "gpus" else "core hours",
            "spent": hours({**took, **{id_: work[id_] * pace * share for id_, share in begun.items()}}),
            "left": hours(left) if is_planned else None,
        },
    }


def _work(entry: Record) -> float:
    """What the time of training is about proportional to, where a trainer of somebody else has no plan."""
    return float((entry.get("n_params") or 0) * (entry.get("n_tokens") or 0))


def _cells(scan: SweepScan) -> list[Record]:
    """Return a record for each stage, rung, setting and arm, rungs by size, arms as in the sweep."""
    groups: defaultdict[tuple[Any, ...], list[str]] = defaultdict(list)
    for (stage, n_params, rung, arm, setting), ids in scan.settings.items():
        groups[stage, n_params, rung, scan.shown(setting), arm] += ids
    arms = list(dict.fromkeys(arm for *_, arm, _ in scan.settings))
    order = sorted(groups, key=lambda key: (key[0] != "tuning", *key[1:4], arms.index(key[4])))
    return [_cell(scan, key, groups[key]) for key in order]


def _cell(scan: SweepScan, key: tuple[Any, ...], ids: Sequence[str]) -> Record:
    stage, n_params, rung, setting, arm = key
    states = [scan.states.get(trial_id, "pending") for trial_id in ids]
    completed = (id_ for id_, state in zip(ids, states, strict=True) if state == "completed")
    losses = [loss for id_ in completed if (loss := scan.known[id_].loss) is not None]
    return {
        "stage": stage,
        "rung": rung,
        "n_params": n_params or None,
        "setting": dict(setting),
        "arm": arm,
        "trials": len(ids),
        "states": dict(Counter(states)),
        "loss": sum(losses) / len(losses) if losses and stage == "comparison" else None,
    }


def _waiting(scan: SweepScan, queue: Record, *, is_owned: bool) -> list[Record]:
    """Return which reasons trials wait for, the commonest first, with their jobs and how these go on."""
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for entry in scan.entries_in("pending", "queued", "cancelling"):
        job = queue["jobs"].get(entry["trial_id"], {})
        groups[_reason(scan, entry, job, queue["unknown"], is_owned=is_owned)].append(job)
    if scan.to_come.ids:
        failed = sum(scan.cell_of[id_]["stage"] == "tuning" for id_ in scan.ids_in("failed"))
        why = f"; {failed} of its trials failed: repair them, or take their arms out" * bool(failed)
        groups[_OPEN_RATES + why] += [{}] * len(scan.to_come.ids)
    return [
        {
            "reason": reason,
            "trials": len(jobs),
            "jobs": list(dict.fromkeys(job["job"] for job in jobs if job)),
            "remedy": jobs[0].get("remedy", ""),
        }
        for reason, jobs in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]


def _reason(scan: SweepScan, entry: Record, job: Record, unknown: str | None, *, is_owned: bool) -> str:
    state = scan.states[entry["trial_id"]]
    cause = scan.known[entry["trial_id"]].cause
    if entry.get("learning_rate") is None and not entry.get("lr_status"):
        return _OPEN_RATES
    if state == "cancelling":
        return "to end, cancelled"
    if job and job["state"]:
        return f"in the queue: {state_text(job)}"
    if state == "queued" and (job or is_owned):
        missing = f"for the queue to answer: {unknown}" if unknown else "not in the queue any more"
        return missing if job else "for its worker to start"
    if not is_owned:
        return "for somebody to run the sweep"
    return f"to be tried again after {cause.replace('_', ' ')}" if cause in FAULTS else "for a free slot"


def _failed(scan: SweepScan, entry: Record) -> Record:
    """Why a trial failed: what its last error said, and why it was given up."""
    directory = RunDirectory.of(scan.runs_dir, entry["trial_id"])
    unknown = f"trial {directory.trial_id[:12]}: why it failed is unknown"
    events: list[Record] = read_or_warn(directory.events, [], unknown)
    last = events[-1] if events else {}
    return {
        "trial_id": directory.trial_id,
        "label": scan.label_of(entry),
        "cause": last.get("cause"),
        "reason": last.get("reason"),
        "error": why_failed(events, directory),
        "log": str(directory.log_path),
    }


def _chosen(folder: SweepFolder) -> list[Record]:
    """What tuning decided, one record for each arm, rung, setting and field."""
    kept = ("arm", "rung", "n_params", "setting", "field", "chosen", "status")
    choices = sources.tuning_choices(folder) if folder.tuning_path.exists() else []
    return [{name: choice[name] for name in kept} for choice in choices]
