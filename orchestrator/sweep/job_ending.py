"""Ending the jobs of trials, all that are not known to have ended, on whichever executors they are.

Among them those of removed trials, which a sweep once sent and neither its file nor another sweep holds.
"""

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalevec import sweeps
from scalevec.orchestrator.attempts.jobs import unreached, unreached_text
from scalevec.orchestrator.attempts.retry_policy import attempt_of
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError, read_or_else
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.executors.simulate.planted_law import is_simulated, nominal_corpus
from scalevec.orchestrator.progress import Progress, note
from scalevec.orchestrator.sources.sources import sweep_folder
from scalevec.orchestrator.sweep.corpus_of_sweep import prepared_facts
from scalevec.orchestrator.sweep.kept_plan import Member, with_those_before
from scalevec.orchestrator.sweep.sweep_run import TUNING, SweepRun
from scalevec.results.claims import ClaimObserver, end_claim
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, trial_ids, user_name
from scalevec.results.sweep_folder import SweepFolder, sweep_names

END_WAIT_S = 60.0
"""How long the jobs are waited for, to write their checkpoints and end."""
SILENCE_S = 50.0
"""After so long without a beat, several of which are due, a claim of another machine has nobody behind it."""
LOOK_S = 1.0

Places = Mapping[str, tuple[RunDirectory, dict[str, Any]]]
"""The run directory and the record of each job, by number."""


@dataclass
class Ending:
    """What became of the jobs."""

    left: set[str] = field(default_factory=set)
    """Those that still run, or of which nobody knows."""
    alive: set[RunDirectory] = field(default_factory=set)
    """Where something may still be written."""
    had_jobs: set[str] = field(default_factory=set)
    """The trials for which a job waited or ran."""
    problems: list[str] = field(default_factory=list)
    """Why jobs could not be ended, or asked for."""


def end_jobs(sweep: str, runs_dir: Path, directories: Iterable[RunDirectory], profile: Profile) -> Ending:
    """Ask the open jobs of ``directories`` to end and wait for them, and for workers that no job names."""
    directories = list(directories)
    ending = Ending()
    for name, places in _open_jobs(directories).items():
        try:
            with closing(EXECUTORS[name].build(Site(runs_dir, sweep, 1, profile))) as executor:
                _end_on(name, executor, places, ending)
        except MissingRequirementError as problem:
            ending.problems.append(str(problem))
            ending.left |= places.keys()
            ending.alive |= {directory for directory, _ in places.values()}
    beyond = unreached(directories)
    if beyond:
        ending.problems.append(unreached_text(job for _, job in beyond))
        ending.left |= {str(job["job"]) for _, job in beyond}
        ending.alive |= {directory for directory, _ in beyond}
    _await_claims([directory for directory in directories if directory not in ending.alive], ending)
    return ending


def _open_jobs(directories: Iterable[RunDirectory], *, is_first_look: bool = False) -> Mapping[str, Places]:
    """The open jobs by executor; of records that cannot be read a later look tells."""
    by_executor: defaultdict[str, dict[str, tuple[RunDirectory, dict[str, Any]]]] = defaultdict(dict)
    for directory in directories:
        try:
            jobs = directory.open_jobs()
        except CorruptRecordError as problem:
            if not is_first_look:
                note(f"{problem}; if a job of it still runs, it cannot be ended from here")
            continue
        for job in jobs:
            by_executor[job["executor"]][job["job"]] = (directory, job)
    return by_executor


def _end_on(name: str, executor: Executor, places: Places, ending: Ending) -> None:
    alive = executor.adopt(places.keys())
    if alive != places.keys():  # to ask for a job may bring to light under which number it exists
        directories = {directory for directory, _ in places.values()}
        places = {**places, **_open_jobs(directories).get(name, {})}
        alive |= executor.adopt(places.keys() - alive)
    ending.had_jobs |= {places[number][0].trial_id for number in alive}
    for number in places.keys() - alive:
        if not places[number][0].trial_path.exists():  # a controller that never began would count as one
            places[number][0].end_job(number)
    executor.cancel(alive)
    deadline = time.monotonic() + END_WAIT_S
    while alive and time.monotonic() < deadline:
        for ended in executor.wait(LOOK_S):
            alive.discard(ended.number)
            _note_end(*places[ended.number])
    ending.left |= alive
    ending.alive |= {places[number][0] for number in alive}


def _note_end(directory: RunDirectory, job: Mapping[str, Any]) -> None:
    directory.end_job(job["job"])
    if not directory.trial_path.exists():
        return
    if attempt := read_or_else(lambda: attempt_of(directory, job["token"]), 0):
        end_claim(directory, attempt, "its job was cancelled")


def _await_claims(directories: Collection[RunDirectory], ending: Ending) -> None:
    """Wait for workers whose job only another process can reach, as a driver of Ray; it asks them to end."""
    observer = ClaimObserver(lease_s=SILENCE_S)
    deadline = time.monotonic() + END_WAIT_S
    alive = {directory for directory in directories if _has_worker(directory, observer)}
    while alive and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        alive = {directory for directory in alive if _has_worker(directory, observer)}
    ending.alive |= alive


def _has_worker(directory: RunDirectory, observer: ClaimObserver) -> bool:
    try:
        return directory.trial_path.exists() and observer.is_alive(directory)
    except CorruptRecordError:
        return False
    except OSError:  # who cannot look does not know that nobody is there
        return True


def refuse_others_jobs(
    sweep: str, runs_dir: Path, directories: Iterable[RunDirectory], profile: Profile
) -> None:
    """Raise ``InvalidInputError`` where a job of ``directories`` that waits or runs is another user's.

    To be asked before anything is written: what a cancel leaves on record, that user's scheduler would obey.
    """
    if os.geteuid() == 0:
        return
    here, observer = user_name(), ClaimObserver()
    for name, places in _open_jobs(directories, is_first_look=True).items():
        others = {
            number: (directory, job)
            for number, (directory, job) in places.items()
            if job.get("user", here) != here
        }
        if not others:
            continue
        with closing(EXECUTORS[name].build(Site(runs_dir, sweep, 1, profile))) as executor:
            adopted = executor.adopt(others.keys())
        for number, (directory, job) in others.items():
            if number in adopted or observer.is_alive(directory):
                raise InvalidInputError(
                    f"{directory.path}: its job {number} belongs to {job['user']}, and you are {here}; "
                    f"nothing was cancelled. To cancel it, {job['user']} gives the same command"
                )


Members = list[dict[str, Any]]


def removed_trials(source: str, runs_dir: Path) -> list[RunDirectory]:
    """Return the removed trials of a sweep: by its file as it is now, else by what was last submitted."""
    folder = sweep_folder(source, runs_dir)
    sent = folder.members() or []
    sent_ids = _ids(sent)
    if Path(source).is_file():
        held = _held_by(source, runs_dir, sent)
    else:
        note(f"using the last submitted version of {source}; pass the sweep file to use its current content")
        held = set(sent_ids)
    for other in set(sweep_names(runs_dir)) - {folder.name}:
        held |= _ids(SweepFolder.of(runs_dir, other).members() or [])
    others = (RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir) if name not in held)
    return [trial for trial in others if trial.trial_id in sent_ids or _was_made_by(folder.name, trial)]


def _held_by(path: str, runs_dir: Path, sent: Members) -> set[str]:
    """What the file holds, and what a tuning of it that is under way, or chooses again, may have sent."""
    sweep = sweeps.load(path)
    facts = nominal_corpus(sweep) if is_simulated(runs_dir) else prepared_facts(sweep, runs_dir, note)
    runs = (SweepRun(sweep, runs_dir, Progress(), facts, retune=retune) for retune in (False, True))
    return {name for run in runs for name in (*_named(run), *_ids(_sent_by_tuning(run, sent)))}


def _named(run: SweepRun) -> list[str]:
    """The trials of ``run`` with the widest grids that its tuning may come to."""
    run.tuner.widen()
    return [run.id_of(member.trial) for member in run.members()]


def _sent_by_tuning(run: SweepRun, sent: Members) -> Members:
    """What was sent with rates that followed from losses: checks, and grids around a prediction."""
    checked = {(cell.arm, cell.rung) for cell in run.tuner.to_check}
    checks = [
        member
        for member in sent
        if member["lr_status"] == "check" and (member["arm"], member["rung"]) in checked
    ]
    predicted = filter(run.tuner.predicts, run.cells)
    trials = ((cell, cell.trial(seed)) for cell in predicted for seed in cell.tune_seeds)
    places = [Member(cell, TUNING, trial, "").to_json("") for cell, trial in trials]
    return with_those_before(checks, sent, places)


def _was_made_by(sweep: str, directory: RunDirectory) -> bool:
    try:
        return bool(directory.trial()["descriptive"].get("first_sweep") == sweep)
    except (FileNotFoundError, CorruptRecordError) as problem:
        note(f"{problem}; left alone: its sweep is unknown")
        return False


def _ids(members: Iterable[dict[str, Any]]) -> set[str]:
    return {member["trial_id"] for member in members}
