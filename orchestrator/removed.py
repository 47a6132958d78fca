"""Trials that a sweep once sent and that neither its file nor any other sweep holds any more."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sweeps
from orchestrator.executors.simulated_runs import is_simulated
from orchestrator.progress import Progress
from orchestrator.sources import SWEEP_FILES, sweep_folder
from orchestrator.sweep_run import SweepRun
from results.files import CorruptRecord
from results.run_directory import RunDirectory, trial_ids
from results.sweep_folder import SweepFolder, sweep_names

Members = list[dict[str, Any]]


def removed_trials(source: str, runs_dir: Path) -> list[RunDirectory]:
    """Those of the sweep that ``source`` names, by its file as it is now, else by what was last sent."""
    folder = sweep_folder(source, runs_dir)
    sent = folder.members() or []
    if Path(source).suffix in SWEEP_FILES:
        held = _held_by(source, runs_dir, sent)
    else:
        _say(f"what scalevec run or submit sent last counts for {source}; to compare with its file, name it")
        held = _ids(sent)
    for other in sweep_names(runs_dir):
        if other != folder.name:
            held |= _ids(SweepFolder.of(runs_dir, other).members() or [])
    own = _ids(sent)
    directories = [RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir) if name not in held]
    return [one for one in directories if one.trial_id in own or _was_made_by(folder.name, one)]


def _held_by(path: str, runs_dir: Path, sent: Members) -> set[str]:
    """What the file holds, and what a tuning of it that is under way may have sent."""
    run = SweepRun(sweeps.load(path), runs_dir, Progress(1), simulated=is_simulated(runs_dir))
    run.tuner.widen()
    checked = {(cell.arm, cell.rung) for cell in run.tuner.to_check}
    checks = (one for one in sent if one["lr_status"] == "check" and (one["arm"], one["rung"]) in checked)
    return {run.id_of(member.trial) for member in run.members()} | _ids(checks)


def _was_made_by(sweep: str, directory: RunDirectory) -> bool:
    try:
        return bool(directory.trial()["descriptive"].get("first_sweep") == sweep)
    except (FileNotFoundError, CorruptRecord) as problem:
        _say(f"{problem}; left alone, as nobody can tell which sweep made it")
        return False


def _ids(members: Iterable[dict[str, Any]]) -> set[str]:
    return {member["trial_id"] for member in members}


def _say(text: str) -> None:
    print(text, file=sys.stderr)
