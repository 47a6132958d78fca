"""What a sweep's plan was before its file was edited: predictions, looks that bind, trials it dropped.

What was tuned stays as it was, and a person is told where the file asks for something else by now.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.model.identity import IDENTITY_VERSION, digest
from scalevec.orchestrator.errors import InvalidInputError, read_or_warn
from scalevec.orchestrator.tuning.choices import Choice
from scalevec.orchestrator.tuning.tuner import Tuner
from scalevec.results.columns import semantic_columns
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RESULT_STATES, RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.errors import SweepError
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.trainers.any_trial import AnyTrial, ForeignTrial, semantic_fields

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

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
            **semantic_columns(semantic_fields(self.trial)),
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
            **({"fields": dict(self.trial.values)} if isinstance(self.trial, ForeignTrial) else {}),
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


def check_looks(folder: SweepFolder, sweep: "Sweep", members: Members, runs_dir: Path) -> None:
    """Raise ``InvalidInputError`` where looks are declared or edited after a result of a compared arm.

    ``members`` are the sweep's trials in the places that its file has now. Results of the reference alone,
    which sweeps share, say nothing of a difference.
    """
    looks, before = sweep.compare.options().looks, _looks_before(folder)
    if before == (list(looks) if looks else None):
        return
    compared = (
        entry for entry in members if entry["stage"] == "comparison" and entry["arm"] != sweep.reference
    )
    known = next((entry for entry in compared if _state(runs_dir, entry)[0] in RESULT_STATES), None)
    if known is None:
        return
    raise InvalidInputError(
        f"compare.looks is {list(looks) if looks else 'none'}; declared before the first result: "
        f"{before or 'none'} ({known['arm']} {known['rung']}, seed {known['seed']} has one). "
        "Looks cannot be declared or edited once results are known: restore them, or give the sweep another "
        "name and new seeds"
    )


def _looks_before(folder: SweepFolder) -> list[Any] | None:
    """What the resolved sweep says of looks."""
    try:
        resolved = folder.resolved() or {}
    except CorruptRecordError:
        return None
    compare = resolved.get("compare")
    looks = compare.get("looks") if isinstance(compare, dict) else None
    return looks if isinstance(looks, list) else None


def described(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that an expression may name, of a trial as members.json has it."""
    row = dict(entry)
    return {**row.pop("setting"), **row.pop("fields", {}), **row}


def require_predicted(sweep: "Sweep", places: Members) -> None:
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


def keep_predictions(folder: SweepFolder, sweep: "Sweep", members: Members, runs_dir: Path) -> None:
    """Keep what the sweep predicts, with how many of the trials it speaks of have a result by now.

    ``members`` are the sweep's trials as far as they can be, or could be, named: others have no result.
    """
    predictions = sweep.compare.predictions(sweep.reference)
    if not predictions:
        return
    compared = [entry for entry in members if entry["stage"] == "comparison"]
    spoken_of = [_chosen(compared, prediction)[0] for prediction in predictions]
    known = [sum(_state(runs_dir, entry)[0] in RESULT_STATES for entry in chosen) for chosen in spoken_of]
    folder.keep_predictions(predictions, [{"with_result": number} for number in known])


def keep_question(
    folder: SweepFolder, sweep: "Sweep", arms: Iterable[str], members: Members, runs_dir: Path
) -> None:
    """Keep what the sweep asks of its ``arms``, while none of the compared ``members`` has a result."""
    compared = [entry for entry in members if entry["stage"] == "comparison" and entry["trial_id"]]
    if any(_state(runs_dir, entry)[0] in RESULT_STATES for entry in compared):
        return
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
    import pandas as pd

    from scalevec.analysis.data.where import holds
    from scalevec.analysis.errors import DataError

    try:
        is_chosen = holds(pd.DataFrame([described(entry) for entry in of_arms]), prediction["where"])
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
    open_ones = [{**entry, "trial_id": _of_no_trial(entry), "learning_rate": None} for entry in to_come]
    is_begun = any(entry["stage"] == "comparison" for entry in entries)
    folder.write_to_come([] if is_begun else open_ones)
    folder.write_members([*entries, *open_ones] if is_begun else entries)


def _of_no_trial(entry: Mapping[str, Any]) -> str:
    return digest({"to be tuned": _position(entry)})


def _dropped(entry: dict[str, Any], runs_dir: Path) -> dict[str, Any]:
    state, cause = _state(runs_dir, entry)
    kept: dict[str, Any] = {name: entry[name] for name in _KEPT if name in entry}
    return {**kept, "state": state, "cause": cause}


def _position(entry: Mapping[str, Any]) -> str:
    setting = {**entry.get("setting", {}), **{name: entry.get(name) for name in ("optimizer", "schedule")}}
    setting = {name: str(value) for name, value in sorted(setting.items()) if value is not None}
    ratio = entry.get("tokens_per_parameter")
    tokens = None if ratio is None else f"{ratio:.4g}"
    return json.dumps([entry.get("arm"), entry.get("rung"), entry.get("seed"), tokens, setting])


def _state(runs_dir: Path, entry: dict[str, Any]) -> tuple[str, str | None]:
    try:
        state = RunDirectory.of(runs_dir, entry["trial_id"]).state()
    except (CorruptRecordError, OSError):
        return "unreadable", None
    return state.state, state.cause


SHOWN = 3
"""Changes of the sweep file that a warning names."""


def outdated(tuner: Tuner) -> list[str]:
    """Return a warning where frozen choices do not follow from the sweep file any more, else nothing."""
    changes = list(dict.fromkeys(text for cell in tuner.cells for text in _differences(cell, tuner)))
    if not changes:
        return []
    shown = "; ".join(changes[:SHOWN])
    more = f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    return [
        f"tuning.json is frozen, but the sweep file has changed since: {shown}{more}. "
        "`scalevec run --retune` chooses again; finished trials are not retrained"
    ]


def _differences(cell: Cell, tuner: Tuner) -> Iterator[str]:
    for field, choice in tuner.of(cell).items():
        at = f"{field} at {cell.rung}"
        if choice.is_carried and cell.tune_seeds:
            yield f"{at} was carried and is now to be tuned"
        elif not choice.is_carried and not cell.tune_seeds:
            yield f"{at} was tuned and is now to be carried"
        elif cell.tune_seeds:
            grid = () if choice.predicted and tuner.predicts(cell) else cell.tune_grid[field]
            yield from _otherwise_tuned(at, choice, grid, cell.tune_seeds)


def _otherwise_tuned(at: str, choice: Choice, grid: Sequence[float], seeds: Sequence[int]) -> Iterator[str]:
    untried = [value for value in grid if value not in choice.grid]
    if untried:
        yield f"{at} was tuned without {', '.join(f'{value:g}' for value in untried)}"
    if set(seeds) != set(choice.seeds):
        yield f"{at} was tuned with seeds {', '.join(map(str, choice.seeds))}"
