"""Trials that a sweep once sent and that neither its file nor any other sweep holds any more."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scalevec import sweeps
from scalevec.orchestrator.executors.simulate.planted_law import nominal_corpus
from scalevec.orchestrator.executors.simulate.runs_folder import is_simulated
from scalevec.orchestrator.progress import Progress, note
from scalevec.orchestrator.sources.sweep_files import sweep_folder
from scalevec.orchestrator.sweep.corpus_of_sweep import prepared_facts
from scalevec.orchestrator.sweep.kept_plan import Member, with_those_before
from scalevec.orchestrator.sweep.sweep_run import TUNING, SweepRun
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder, sweep_names

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
