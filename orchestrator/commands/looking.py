"""Commands that look: plan, status, collect, schema, and the upkeep of the index."""

import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.commands.naming import command
from orchestrator.errors import Exit

if TYPE_CHECKING:
    from orchestrator.commands.running import Place
    from orchestrator.sweep_run import SweepRun

WATCH_S = 2.0
UNREADABLE = "unreadable"

Record = dict[str, Any]


@dataclass(frozen=True)
class KnownNoise:
    """What the power of a plan is computed from: an sd in nats a token, or the results of a pilot."""

    sd: float | None = None
    pilot: str | None = None


def plan(
    path: str,
    runs_dir: Path,
    place: "Place",
    *,
    every_trial: bool,
    as_json: bool,
    known: KnownNoise,
    without_corpus: bool = False,
    only_power: bool = False,
) -> Exit:
    """Every trial of a sweep with what it will cost, what exists already, and what it can detect.

    Where ``place`` names the executor that simulates, or ``runs_dir`` holds simulations and nobody names
    another, it is the plan of the simulation.
    With ``only_power`` the last alone; as JSON an object, where the trials are a list.
    """
    from orchestrator.planning import noise_figure, planned, power, show, write_json

    with _no_garbage_collection():
        run, jobs = _run_to_plan(path, runs_dir, place, without_corpus=without_corpus)
        noise = noise_figure(known.sd, known.pilot, run.sweep.reference, runs_dir)
        for warning in run.warnings():
            run.progress.message(f"warning: {warning}")
        trials = planned(run)
    if only_power:
        found = power(run, trials, noise)
        print(json.dumps(found.to_dict(), indent=1, allow_nan=False) if as_json else found.text)
        return Exit.DONE
    if as_json:
        write_json(trials, sys.stdout)
    else:
        show(run, trials, jobs, noise, every_trial=every_trial)
    return Exit.DONE


def _run_to_plan(
    path: str, runs_dir: Path, place: "Place", *, without_corpus: bool
) -> tuple["SweepRun", int]:
    """The run of the sweep file, of a simulation where that is meant, and how many trials run at a time."""
    import sweeps
    from orchestrator.commands.running import SIMULATE, executor_of, runs_dir_of
    from orchestrator.corpora import unprepared_facts
    from orchestrator.executors.simulated_runs import is_simulated
    from orchestrator.progress import Progress
    from orchestrator.sweep_run import SweepRun

    sweep = sweeps.load(path, look_for_files=not without_corpus)
    name, profile = executor_of(path, place, SIMULATE if is_simulated(runs_dir) else "local")
    simulated, jobs = name == SIMULATE, place.jobs or os.cpu_count() or 1
    run = SweepRun(
        sweep,
        runs_dir_of(runs_dir, simulated=simulated),
        Progress(jobs),
        simulated=simulated,
        corpus_facts=unprepared_facts(sweep) if without_corpus and not simulated else None,
        profile=profile,
    )
    return run, jobs


def status(source: str | None, runs_dir: Path, *, watch: bool, as_json: bool) -> Exit:
    """How many trials of each sweep are in which state, and how far the running ones are."""
    if watch and not as_json:
        return _watch(source, runs_dir)
    found = _statuses(source, runs_dir)
    print(json.dumps(found, indent=1) if as_json else _statuses_text(found, runs_dir))
    return Exit.DONE


def _names(source: str | None, runs_dir: Path) -> list[str]:
    from orchestrator.sources import sweep_folder
    from results.sweep_folder import sweep_names

    return [sweep_folder(source, runs_dir).name] if source else sweep_names(runs_dir)


def _watch(source: str | None, runs_dir: Path) -> Exit:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            found = _statuses(source, runs_dir)
            live.update(Text(_statuses_text(found, runs_dir)), refresh=True)
            if not any(one["running"] or one["states"].get("queued") for one in found):
                return Exit.DONE
            time.sleep(WATCH_S)


def _members(names: Sequence[str], runs_dir: Path) -> dict[str, dict[str, Record]]:
    """Of each sweep its trials by id."""
    from results.sweep_folder import SweepFolder

    folders = [SweepFolder.of(runs_dir, name) for name in names]
    return {
        folder.name: {member["trial_id"]: member for member in folder.members() or []} for folder in folders
    }


def _statuses(source: str | None, runs_dir: Path) -> list[Record]:
    """The state of each sweep, from an index that is brought up to date; running trials are looked at."""
    from orchestrator.sources import open_index

    names = _names(source, runs_dir)
    if not names:
        return []
    with _no_garbage_collection():
        with open_index(runs_dir) as index, ThreadPoolExecutor(1) as beside:
            # The database works while the members are parsed.
            asked = None if source else beside.submit(index.states, runs_dir)
            members = _members(names, runs_dir)
            stored = asked.result() if asked else None
            found, problems = index.current_states(runs_dir, set().union(*members.values()), stored)
        states = found | dict.fromkeys(problems, UNREADABLE)
        return [_status(sweep, members[sweep], states, problems, runs_dir) for sweep in names]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """While very many small objects are made that all stay: looking for cycles among them costs a sixth."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _status(
    sweep: str,
    members: Mapping[str, Record],
    states: Mapping[str, str],
    problems: Mapping[str, str],
    runs_dir: Path,
) -> Record:
    counts = Counter(map(states.__getitem__, members))
    return {
        "sweep": sweep,
        "trials": len(members),
        "states": dict(counts),
        "running": _running(members, states, runs_dir) if counts["running"] else [],
        "problems": {name: problem for name, problem in problems.items() if name in members},
    }


def _running(members: Mapping[str, Record], states: Mapping[str, str], runs_dir: Path) -> list[Record]:
    return [
        {"trial_id": name, "arm": member["arm"], "rung": member["rung"], **_reached(runs_dir, name)}
        for name, member in members.items()
        if states[name] == "running"
    ]


def _reached(runs_dir: Path, name: str) -> Record:
    """How far a running trial is, and whether its worker lives."""
    from model.identity import trial_from_fields
    from results.claims import ClaimObserver
    from results.run_directory import RunDirectory

    directory = RunDirectory.of(runs_dir, name)
    steps = trial_from_fields(directory.trial()["semantic"]).steps
    return {
        "step": directory.last_step(),
        "steps": steps,
        "worker_alive": ClaimObserver().is_alive(directory),
    }


def _statuses_text(found: Sequence[Record], runs_dir: Path) -> str:
    return "\n".join(map(_status_text, found)) or f"no sweep has been run in {runs_dir}"


def _status_text(found: Record) -> str:
    lines = [f"{found['sweep']}: {found['trials']} trials named so far: {_counts(found['states'])}"]
    for one in found["running"]:
        gone = "" if one["worker_alive"] else " (its worker is gone; run the sweep again)"
        lines.append(
            f"  {one['arm']} {one['rung']} {one['trial_id'][:12]}: step {one['step']} of {one['steps']}{gone}"
        )
    lines += [f"  {name[:12]} {UNREADABLE}: {problem}" for name, problem in found["problems"].items()]
    return "\n".join(lines)


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"


def collect(source: str | None, runs_dir: Path, *, as_json: bool) -> Exit:
    """Take the results of a sweep (None: of all that RUNS_DIR holds) into the index, and say what is missing.

    May be repeated, from any machine that sees RUNS_DIR; needs no sweep file for a sweep that ran there.
    """
    from orchestrator.sources import open_index

    names = _names(source, runs_dir)
    with _no_garbage_collection(), open_index(runs_dir) as index:
        members = _members(names, runs_dir)
        ids = set().union(*members.values())
        report = index.collect(runs_dir, ids if source else None)
        states = dict.fromkeys(ids, "pending") | index.states(runs_dir, ids)
    states |= {name: UNREADABLE for name in report.problems if name in ids}
    found = {
        "collected": {name: getattr(report, name) for name in ("added", "updated", "unchanged", "removed")},
        "problems": report.problems,
        "sweeps": [_collected(name, source or name, members[name], states, runs_dir) for name in names],
    }
    print(json.dumps(found, indent=1) if as_json else _collected_text(found))
    return Exit.DONE


def _collected(
    sweep: str, source: str, members: Mapping[str, Record], states: Mapping[str, str], runs_dir: Path
) -> Record:
    counts = Counter(states[name] for name in members)
    missing = {state: count for state, count in counts.items() if state not in ("completed", "diverged")}
    return {
        "sweep": sweep,
        "trials": len(members),
        "states": dict(counts),
        "missing": sum(missing.values()),
        "next": _next(source, missing, runs_dir),
    }


def _next(source: str, missing: Mapping[str, int], runs_dir: Path) -> str:
    """The command that brings the sweep on."""
    if missing.get("queued") or missing.get("running"):
        return f"{command('status', source, runs_dir)} --watch"
    if missing.get("failed"):
        return command("retry", source, runs_dir)
    if missing and not Path(source).suffix:
        return f"scalevec run with the sweep file of {source}"
    return command("run" if missing else "report", source, runs_dir)


def _collected_text(found: Record) -> str:
    did = ", ".join(f"{count} {name}" for name, count in found["collected"].items() if count)
    lines = [f"index: {did or 'no trials'}"]
    for one in found["sweeps"]:
        lines.append(f"{one['sweep']}: {one['trials']} trials: {_counts(one['states'])}")
        lines.append(f"  {one['missing']} without a result; next: {one['next']}")
    lines += [f"warning: {name[:12]}: {problem}" for name, problem in found["problems"].items()]
    return "\n".join(lines)


def schema() -> Exit:
    """The JSON Schema of the sweep file."""
    import sweeps

    print(json.dumps(sweeps.json_schema(), indent=1))
    return Exit.DONE


def rebuild_store(runs_dir: Path) -> Exit:
    """The index, made anew from the run directories."""
    from orchestrator.sources import open_index

    with open_index(runs_dir) as index:
        report = index.rebuild(runs_dir)
    print(f"index rebuilt: {report.added + report.updated} trials")
    for name, problem in report.problems.items():
        print(f"left out {name[:12]}: {problem}")
    return Exit.DONE
