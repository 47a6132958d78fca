"""Trials that are there under another identity: with other code, or with other random numbers."""

from collections import Counter
from contextlib import suppress
from typing import Any

from scalevec.orchestrator.progress import counted
from scalevec.orchestrator.sweep.kept_plan import Member
from scalevec.orchestrator.sweep.sweep_run import SweepRun
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, is_trial_id
from scalevec.results.sweep_folder import SweepFolder, sweep_names
from scalevec.sweeps.trainers.any_trial import learning_rate, semantic_fields
from scalevec.sweeps.trainers.foreign_trial import ForeignTrial

Record = dict[str, Any]
_ALIKE = ("n_params", "n_tokens", "seed", "learning_rate")
"""What members of two sweeps agree in where they are one trial but for the stream."""


def notes_on_identity(run: SweepRun) -> list[str]:
    """What a plan says of trials that are there under another identity."""
    return _trials_elsewhere(run) if run.sweep.trainer is None else _changed_code(run)


def _changed_code(run: SweepRun) -> list[str]:
    """A line for each file of a foreign trainer that is not what earlier trials of this sweep rest on."""
    templates = (cell.template for cell in run.cells)
    files = (file for trial in templates if isinstance(trial, ForeignTrial) for file in trial.trainer.files)
    now = {file.path: file.digest for file in files}
    outdated: Counter[str] = Counter()
    for record in _members(run.folder):
        with suppress(FileNotFoundError, CorruptRecordError):
            before = RunDirectory.of(run.runs_dir, record["trial_id"]).trial()["semantic"]["trainer"]["files"]
            then = {file["path"]: file["digest"] for file in before}
            outdated.update(name for name, digest in now.items() if then.get(name, digest) != digest)
    return [
        f"{name} has changed since {counted(count, 'trial')} of this sweep, which would be trained again "
        "(a code_version in the trainer's section keeps results across edits that change none)"
        for name, count in sorted(outdated.items())
    ]


def _members(folder: SweepFolder) -> list[Record]:
    """The members of a sweep that can be read."""
    try:
        members = folder.members() or []
    except CorruptRecordError:
        return []
    of_records = (member for member in members if isinstance(member, dict))
    return [member for member in of_records if is_trial_id(str(member.get("trial_id")))]


def _trials_elsewhere(run: SweepRun) -> list[str]:
    """A line for each arm whose trials other sweeps have with other random numbers.

    There the fields of the arm belong to the setting, from which the stream follows.
    """
    others: dict[tuple[Any, ...], list[tuple[str, Record]]] = {}
    for name in set(sweep_names(run.runs_dir)) - {run.sweep.name}:
        for record in _members(SweepFolder.of(run.runs_dir, name)):
            others.setdefault(tuple(record.get(field) for field in _ALIKE), []).append((name, record))
    alike: Counter[tuple[str, str, str]] = Counter()
    for member in run.members() if others else []:
        for name, record in others.get(_alike(member), []):
            if _differ_in_stream(run, member, record):
                alike[member.cell.arm, name, str(record.get("arm"))] += 1
    return [
        f"{counted(count, 'trial')} of arm {arm} would be of arm {other} in sweep {name} but for the random "
        "numbers: these follow from the fields before those of the arm, so that each is another trial, "
        "trained on its own"
        for (arm, name, other), count in sorted(alike.items())
    ]


def _alike(member: Member) -> tuple[Any, ...]:
    trial = member.trial
    return member.cell.n_params, trial.tokens, trial.seed, learning_rate(trial)


def _differ_in_stream(run: SweepRun, member: Member, other: Record) -> bool:
    """Whether the stream is all that tells ``other`` from the trial of ``member``."""
    if other.get("stream") in (None, member.trial.stream):
        return False
    try:
        theirs = RunDirectory.of(run.runs_dir, other["trial_id"]).trial()["semantic"]
    except (FileNotFoundError, CorruptRecordError):
        return False
    return bool({**theirs, "stream": member.trial.stream} == semantic_fields(member.trial))
