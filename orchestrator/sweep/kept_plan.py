"""What a sweep's plan was before its file was edited: predictions, looks that bind, trials it dropped.

What was tuned stays as it was, and a person is told where the file asks for something else by now.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalevec.analysis.errors import DataError
from scalevec.model.identity import IDENTITY_VERSION, digest
from scalevec.orchestrator.errors import InvalidInputError, read_or_else, read_or_warn
from scalevec.orchestrator.progress import counted, listed
from scalevec.orchestrator.tuning.choices import Choice
from scalevec.orchestrator.tuning.tuner import Tuner
from scalevec.results.columns import semantic_columns
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.errors import SweepError
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.sections.schema import Sweep
from scalevec.sweeps.trainers.any_trial import AnyTrial, ForeignTrial

Entry = dict[str, Any]
Members = Iterable[Entry]
_KEPT = ("trial_id", "arm", "rung", "seed", "tokens_per_parameter", "optimizer", "schedule", "setting")
_NEVER_STARTED = ("pending", "queued")


@dataclass(frozen=True)
class Member:
    """One trial as this sweep holds it: its place in the grid, and how its tuned fields came about."""

    cell: Cell
    stage: str
    trial: AnyTrial
    lr_status: str
    carried_check: str | None = None
    """What the check of a carried learning rate found: ``inside`` where it is kept."""

    def to_json(self, name: str, trunk: str | None = None, planned_s: float | None = None) -> dict[str, Any]:
        """The entry of members.json; ``name`` is the trial's id, ``trunk`` what it shares with others.

        It has all that names the trial's cell: the row of a trial that never ran, or whose records are lost,
        is made of it alone.
        """
        of_row = ("optimizer", "schedule", "tokens_per_parameter")
        return {
            **semantic_columns(self.trial.semantic_fields()),
            "trial_id": name,
            "arm": self.cell.arm,
            "stage": self.stage,
            "rung": self.cell.rung,
            "n_params": self.cell.n_params,
            "identity_version": IDENTITY_VERSION,
            "lr_status": self.lr_status,
            **({"carried_check": self.carried_check} if self.carried_check else {}),
            "tokens_per_parameter": self.trial.tokens / self.cell.n_params,
            **({"cluster": trunk} if trunk else {}),
            **({} if planned_s is None else {"planned_s": planned_s}),
            **{key: value for key, value in self.cell.setting.items() if key in of_row},
            "setting": {key: value for key, value in self.cell.setting.items() if key not in of_row},
            **({"fields": fields} if (fields := self.trial.own_fields()) else {}),
        }


def members_before(folder: SweepFolder) -> list[Entry]:
    """Return the members of the sweep as it was run last."""
    return read_or_warn(lambda: folder.members() or [], [], "which trials the sweep had before is not known")


def with_those_before(members: Sequence[Entry], before: Members, places: Members) -> list[Entry]:
    """Return ``members`` and those from ``before`` whose place is still in the sweep file.

    Where rates are chosen again no compared trial has a name yet, and yet results of its place are known.
    """
    held, named = {_position(entry) for entry in places}, {entry["trial_id"] for entry in members}
    others = (entry for entry in before if entry["trial_id"] not in named)
    return [*members, *(entry for entry in others if _position(entry) in held)]


def with_result(members: Members, runs_dir: Path) -> list[Entry]:
    """Return those of the compared ``members`` that have a result: what a plan may not be fitted to."""
    compared = (entry for entry in members if entry["stage"] == "comparison")
    directories = ((entry, RunDirectory.of(runs_dir, entry["trial_id"])) for entry in compared)
    return [entry for entry, directory in directories if os.path.lexists(directory.result_path)]


def check_looks(folder: SweepFolder, sweep: Sweep, known: Members) -> None:
    """Raise ``InvalidInputError`` where looks are declared or edited after a result of a compared arm.

    ``known`` are the compared trials with a result. Those of the reference alone, which sweeps share, say
    nothing of a difference.
    """
    looks, before = sweep.compare.options().looks, _looks_before(folder)
    first = next((entry for entry in known if entry["arm"] != sweep.reference), None)
    if first is None or before == (list(looks) if looks else None):
        return
    raise InvalidInputError(
        f"compare.looks is {list(looks) if looks else 'none'}; declared before the first result: "
        f"{before or 'none'} ({first['arm']} {first['rung']}, seed {first['seed']} has one). "
        "Looks cannot be declared or edited once results are known: restore them, or give the sweep another "
        "name and new seeds"
    )


def _looks_before(folder: SweepFolder) -> list[Any] | None:
    """What the resolved sweep says of looks."""
    compare = (read_or_else(folder.resolved, None) or {}).get("compare")
    looks = compare.get("looks") if isinstance(compare, dict) else None
    return looks if isinstance(looks, list) else None


def holding(entries: Iterable[Entry], where: str) -> list[bool]:
    """Whether ``where`` holds of each trial, as members.json has it. Raises ``DataError``."""
    import pandas as pd

    from scalevec.analysis.data.where import holds

    rows = [dict(entry) for entry in entries]
    flat = [{**row.pop("setting"), **row.pop("fields", {}), **row} for row in rows]
    return list(holds(pd.DataFrame(flat), where))


def require_predicted(sweep: Sweep, places: Members) -> None:
    """Raise ``SweepError`` where a prediction speaks of no cell that both of its arms have.

    ``places`` are the comparison trials of the sweep's cells, as in members.json.
    """
    places, problems = list(places), []
    for position, prediction in enumerate(sweep.compare.predictions(sweep.reference)):
        path = ("compare", "predict", position, *(("where",) if "where" in prediction else ()))
        chosen, problem = _chosen(places, prediction)
        arms = {entry["arm"] for entry in chosen}
        if missing := [arm for arm in (prediction["arm"], prediction["reference"]) if arm not in arms]:
            rungs = ", ".join(dict.fromkeys(entry["rung"] for entry in places))
            problem = problem or f"matches no trial of {' and '.join(missing)}; rungs: {rungs}"
            problems.append(sweep.source.problem(path, problem))
    if problems:
        raise SweepError(problems)


def keep_predictions(folder: SweepFolder, sweep: Sweep, known: Members) -> None:
    """Keep what the sweep predicts, with how many of the trials it speaks of have a result by now."""
    predictions = sweep.compare.predictions(sweep.reference)
    if predictions:
        counts = [{"with_result": len(_chosen(known, prediction)[0])} for prediction in predictions]
        folder.keep_predictions(predictions, counts)


def keep_question(folder: SweepFolder, sweep: Sweep, arms: Iterable[str]) -> None:
    """Keep what the sweep asks of its ``arms``: for the time before the first result."""
    options = sweep.compare.options()
    folder.keep_question(
        {
            "reference": sweep.reference,
            "arms": sorted(set(arms)),
            "where": options.where,
            "margin": options.margin,
            "law": options.law,
        }
    )


def _chosen(entries: Members, prediction: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Those of ``entries`` that a prediction speaks of, and why its expression is refused, if it is."""
    arms = (prediction["arm"], prediction["reference"])
    of_arms = [entry for entry in entries if entry["arm"] in arms]
    if "where" not in prediction or not of_arms:
        return of_arms, ""
    try:
        is_chosen = holding(of_arms, prediction["where"])
    except DataError as error:
        return [], str(error)
    return [entry for entry, chosen in zip(of_arms, is_chosen, strict=True) if chosen], ""


def dropped_trials(
    folder: SweepFolder, before: Members, places: Members, runs_dir: Path
) -> list[dict[str, Any]]:
    """The comparison trials that were started and whose place is not in the sweep file any more, with why.

    ``places`` have ``arm``, ``rung``, ``seed`` and ``setting``. A trial that only changed its rate keeps its
    place. Those dropped by earlier edits stay on the list until their place returns.
    """
    held = {_position(entry) for entry in places}
    compared = (entry for entry in before if entry["stage"] == "comparison")
    gone = {_position(each): each for each in (*folder.dropped(), *compared) if _position(each) not in held}
    listed = (_dropped(entry, runs_dir) for entry in gone.values())
    return [entry for entry in listed if entry["state"] not in _NEVER_STARTED]


def keep_members(folder: SweepFolder, entries: list[dict[str, Any]], to_come: Members) -> None:
    """Keep the ``entries`` of members.json, and the compared trials ``to_come`` that more tuning will name.

    Where some rungs are compared already, a plan without those of the others would look whole, and a verdict
    would be given on it: there they are entries too. Their ids are of no trial: the rate, which is part of an
    id, is still to be chosen.
    """
    open_ones = [
        {**entry, "trial_id": digest({"to be tuned": _position(entry)}), "learning_rate": None}
        for entry in to_come
    ]
    is_begun = any(entry["stage"] == "comparison" for entry in entries)
    folder.write_to_come([] if is_begun else open_ones)
    folder.write_members([*entries, *open_ones] if is_begun else entries)


def _dropped(entry: dict[str, Any], runs_dir: Path) -> dict[str, Any]:
    kept: dict[str, Any] = {name: entry[name] for name in _KEPT if name in entry}
    try:
        state = RunDirectory.of(runs_dir, entry["trial_id"]).state()
    except (CorruptRecordError, OSError):
        return {**kept, "state": "unreadable", "cause": None}
    return {**kept, "state": state.state, "cause": state.cause}


def _position(entry: Mapping[str, Any]) -> str:
    setting = {**entry.get("setting", {}), **{name: entry.get(name) for name in ("optimizer", "schedule")}}
    setting = {name: str(value) for name, value in sorted(setting.items()) if value is not None}
    ratio = entry.get("tokens_per_parameter")
    tokens = None if ratio is None else f"{ratio:.4g}"
    return json.dumps([entry.get("arm"), entry.get("rung"), entry.get("seed"), tokens, setting])


def outdated(tuner: Tuner) -> list[str]:
    """Return a warning where frozen choices do not follow from the sweep file any more, else nothing."""
    changed = [
        f"{field} at {cell.rung}"
        for cell in tuner.cells
        for field, choice in tuner.of(cell).items()
        if not _follows(choice, cell, tuner)
    ]
    if not changed:
        return []
    return [
        f"tuning.json is frozen, but the sweep file tunes otherwise by now: {listed(changed)}. "
        "`scalevec run --retune` chooses again; finished trials are not retrained"
    ]


def _follows(choice: Choice, cell: Cell, tuner: Tuner) -> bool:
    """Whether the sweep file, as it is now, would have led to ``choice``, which may have tried more."""
    if choice.is_carried or not cell.tune_seeds:
        return choice.is_carried and not cell.tune_seeds
    grid = () if choice.predicted and tuner.predicts(cell) else cell.tune_grid[choice.field]
    return set(grid) <= set(choice.grid) and set(cell.tune_seeds) == set(choice.seeds)


def changed_code(folder: SweepFolder, cells: Iterable[Cell], runs_dir: Path) -> list[str]:
    """Return a line for each file of the trainer that is not what earlier trials of this sweep rest on."""
    templates = (cell.template for cell in cells)
    files = (file for trial in templates if isinstance(trial, ForeignTrial) for file in trial.trainer.files)
    now = {file.path: file.digest for file in files}
    outdated: Counter[str] = Counter()
    for record in members_before(folder) if now else ():
        with suppress(KeyError, FileNotFoundError, CorruptRecordError):  # of our own loop, or nowhere
            before = RunDirectory.of(runs_dir, record["trial_id"]).trial()["semantic"]["trainer"]["files"]
            then = {file["path"]: file["digest"] for file in before}
            outdated.update(name for name, digest in now.items() if then.get(name, digest) != digest)
    return [
        f"{name} has changed since {counted(count, 'trial')} of this sweep, which would be trained again "
        "(a code_version in the trainer's section keeps results across edits that change none)"
        for name, count in sorted(outdated.items())
    ]
