"""From a sweep to its trials: a pure function of the file and three facts about the corpus."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from scalevec.model.config import ConfigurationError
from scalevec.model.identity import digest
from scalevec.sweeps.errors import Path, Problem, SweepError, refused
from scalevec.sweeps.expansion.trials import (
    Budget,
    Cell,
    CorpusFacts,
    Exclusion,
    ForeignBudget,
    base_of,
    batch_tokens,
    merged,
)
from scalevec.sweeps.ladders import BUDGETS, matrices, setting_name
from scalevec.sweeps.trainers import formula
from scalevec.sweeps.trainers.any_trial import AnyTrial, ForeignTrial, OwnTrial

if TYPE_CHECKING:  # pydantic is imported only where a sweep is read
    from scalevec.sweeps.sections.rungs import Rung
    from scalevec.sweeps.sections.schema import Sweep

__all__ = ["Cell", "CorpusFacts", "arms_of_other_budgets", "expand", "identical_arms"]

T = TypeVar("T")
Values = dict[str, Any]
"""Trial fields by their flat names."""
LARGEST_SWEEP = 250_000
"""Trials of one sweep; more are refused before they are written out."""


@dataclass(frozen=True)
class _Choice:
    """One point of one axis: the fields it sets, how a setting shows them, and where the file gives them."""

    values: Values
    setting: Values
    paths: dict[str, Path]


def expand(sweep: "Sweep", corpus: CorpusFacts) -> list[Cell]:
    """Expand a sweep into its cells: the trials of one arm that differ only in seed and tuned fields.

    Args:
        sweep: A loaded sweep.
        corpus: The fingerprint, vocabulary and training tokens of its corpus.

    Returns:
        The cells rung by rung, the arms of one setting beside each other, without those that are excluded.

    Raises:
        SweepError: Every problem that shows only in whole trials, with its line.
    """
    _check_size(sweep)
    problems: set[Problem] = set()
    cells: list[Cell] = []
    axes = _axes(sweep)
    arms = [(label, _given(fields.given(), "arms", label)) for label, fields in sweep.arms.items()]
    of_corpus = {} if sweep.trainer is not None else {"sequence_length": sweep.corpus.sequence_length}
    places = [
        (position, rung, amount)
        for position, rung in enumerate(sweep.ladder)
        for amount in sweep.budgets or (float(rung.tokens or 0),)
    ]
    for position, rung, amount in places:
        # What the rung itself gives, every other section overrules.
        of_rung = _given(rung.trial_fields(), "ladder", position)
        base = [_Choice(of_corpus, {}, {}), of_rung, _given(sweep.trial.given(), "trial")]
        for point in itertools.product(*axes):
            shared = merged(choice.values for choice in (*base, *point))
            make = partial(_foreign, sweep, rung, amount, corpus, shared)
            if sweep.trainer is None:
                # What arms share has one base, which takes long to make.
                stream_base = cache(partial(base_of, rung.size, corpus, shared))
                make = partial(_ours, sweep, rung, amount, corpus, stream_base)
            for arm, fields in arms:
                choices = [*base, *point, fields]
                try:
                    cells.append(_cell(sweep, arm, rung, amount, choices, make))
                except ConfigurationError as error:
                    problems.add(_problem(sweep, position, choices, error))
    problems |= {*_tuning_problems(sweep, cells), *_too_small(sweep, cells, corpus)}
    if problems:
        raise SweepError(problems)
    left = _after_exclusion(sweep, cells)
    if further := {*_twins(sweep, left), *_without_a_reference(sweep, left)}:
        raise SweepError(further)
    return left


def _check_size(sweep: "Sweep") -> None:
    n_trials = len(sweep.seeds)
    if sweep.tune is not None:
        n_trials += len(sweep.tune.seeds) * math.prod(map(len, sweep.tune.grids.values()))
    n_trials *= math.prod(map(len, (sweep.ladder, sweep.budgets or (0,), sweep.arms, *_axes(sweep))))
    if n_trials > LARGEST_SWEEP:
        message = f"about {n_trials} trials; allowed: at most {LARGEST_SWEEP} in one sweep"
        raise SweepError([sweep.source.problem((), message)])


def _given(values: Values, *path: str | int) -> _Choice:
    return _Choice(values, {}, {name: (*path, name) for name in values})


def _axes(sweep: "Sweep") -> list[list[_Choice]]:
    """The lists whose product is run, apart from rungs, tokens and arms."""
    axes = [
        [_entry(part, position, entry) for position, entry in enumerate(entries)]
        for part, entries in (("optimizer", sweep.optimizers), ("schedule", sweep.schedules))
        if entries is not None
    ]
    axes += [
        [_listed("grid", position, {name: item}) for position, item in enumerate(items)]
        for name, items in sweep.grid.choices().items()
    ]
    if lists := sweep.zip.choices():
        rows = zip(*lists.values(), strict=True)
        axes.append([_listed("zip", i, dict(zip(lists, row, strict=True))) for i, row in enumerate(rows)])
    return axes


def _entry(part: str, position: int, entry: Any) -> _Choice:
    values = entry.given()
    listed: Path = (f"{part}s", position)
    paths: dict[str, Path] = {name: (*listed, name) for name in values}
    return _Choice({part: values.pop("name"), **values}, {part: entry.label}, paths | {part: listed})


def _listed(section: str, position: int, items: Mapping[str, tuple[Any, Any]]) -> _Choice:
    return _Choice(
        {name: value for name, (value, _) in items.items()},
        {name: label for name, (_, label) in items.items()},
        {name: (section, name, position) for name in items},
    )


def _cell(
    sweep: "Sweep",
    arm: str,
    rung: "Rung",
    amount: float,
    choices: list[_Choice],
    make: Callable[[Values], tuple[Budget | ForeignBudget, str]],
) -> Cell:
    values = merged(choice.values for choice in choices)
    budget, stream_base = make(values)
    template = budget.trial(values, 0, stream_base)
    setting = _recipe(template)
    if not sweep.budget_is_rungs:
        setting[setting_name(sweep.budget_kind)] = amount
    for choice in choices:
        setting |= choice.setting
    tuned_arm = sweep.reference if sweep.tune is not None and sweep.tune.share else arm
    is_tuned = rung.name in sweep.tuned_rungs and arm == tuned_arm
    return Cell(
        arm=arm,
        rung=rung.name,
        n_params=budget.n_params,
        setting=setting,
        template=template,
        seeds=sweep.seeds,
        tune_seeds=sweep.tune.seeds if sweep.tune is not None and is_tuned else (),
        tune_grid=sweep.tune.grids if sweep.tune is not None else {},
        tuned_arm=tuned_arm,
        budget=budget,
        values=values,
        stream_base=stream_base,
    )


def _ours(
    sweep: "Sweep",
    rung: "Rung",
    amount: float,
    corpus: CorpusFacts,
    stream_base: Callable[[], str],
    values: Values,
) -> tuple[Budget | ForeignBudget, str]:
    """What makes the trials of a cell of our own model, and the base of their streams."""
    n_params = matrices(rung.size)
    ratio = BUDGETS[sweep.budget_kind](amount, n_params)
    budget = Budget(rung.size, n_params, ratio, corpus, _unit(sweep, values))
    return budget, stream_base()


def _foreign(
    sweep: "Sweep", rung: "Rung", amount: float, corpus: CorpusFacts, shared: Values, values: Values
) -> tuple[Budget | ForeignBudget, str]:
    """What makes the trials of a cell of a foreign trainer, and the base of their streams."""
    assert sweep.trainer is not None
    section, folder = sweep.trainer, sweep.source.folder
    n_params = rung.given().get("n_params")
    if n_params is None:
        if sweep.n_params is None:
            allowed = "a number at the rung, or a formula n_params for the whole sweep"
            raise ConfigurationError("n_params", None, allowed)
        n_params = formula.value_of(sweep.n_params, shared)
    first = {name: grid[0] for name, grid in sweep.tune.grids.items()} if sweep.tune is not None else {}
    budget = ForeignBudget(
        n_params=n_params,
        tokens_per_parameter=BUDGETS[sweep.budget_kind](amount, n_params),
        unit=_unit(sweep, {**first, **values}),
        trainer=section.trainer(),
        names=section.named_files(folder),
        folder=folder,
        resume=section.resume or (),
        first=first,
        planted=corpus.fingerprint,
    )
    kept = {name: value for name, value in shared.items() if name != "learning_rate"}
    return budget, digest({"foreign": 1, "n_params": n_params, "values": kept})


def _unit(sweep: "Sweep", values: Values) -> int:
    """Tokens that a budget comes in: those that all batches to be tried divide; 1 where none is tuned."""
    unit = sweep.tune.batch_unit if sweep.tune is not None else 1
    return math.lcm(unit, batch_tokens(values)) if unit > 1 else 1


def _recipe(template: AnyTrial) -> dict[str, Any]:
    """The names of optimizer and schedule, which a foreign trainer has where its own fields say so."""
    if isinstance(template, ForeignTrial):
        return {name: value for name, value in template.values.items() if name in ("optimizer", "schedule")}
    return {"optimizer": template.optimizer.name, "schedule": template.schedule.name}


def _after_exclusion(sweep: "Sweep", cells: list[Cell]) -> list[Cell]:
    """The cells with the seeds that ``exclude`` leaves; those without any are gone."""
    exclusion = Exclusion(sweep.exclude)
    left = [_after(exclusion, cell, sweep.budget_kind) for cell in cells]
    kept = [cell for cell in left if cell.seeds or cell.tune_seeds]
    problems = list(exclusion.problems(sweep.source))
    if not kept:
        problems.append(sweep.source.problem(("exclude",), "drops every trial; nothing is left"))
    elif sweep.reference in sweep.arms and all(cell.arm != sweep.reference for cell in kept):
        problems.append(sweep.source.problem(("exclude",), "drops every trial of the reference"))
    if problems:
        raise SweepError(problems)
    return kept


def _twins(sweep: "Sweep", cells: list[Cell]) -> Iterator[Problem]:
    """Cells of an arm that have the same trials, which would count twice: a size or a budget twice."""
    rungs, seen = [rung.name for rung in sweep.ladder], dict[tuple[str, AnyTrial], Cell]()
    for cell in cells:
        if (twin := seen.setdefault((cell.arm, cell.template), cell)) is not cell:
            differ = {name: value for name, value in cell.setting.items() if twin.setting.get(name) != value}
            path: Path = ("ladder", rungs.index(cell.rung))
            if cell.rung == twin.rung:
                path = (sweep.budget_kind,) if setting_name(sweep.budget_kind) in differ else ()
            where = ", ".join([cell.rung, *(f"{name} {value}" for name, value in differ.items())])
            message = f"{where} has the same trials as {twin.rung}; allowed: one, or they count twice"
            yield sweep.source.problem(path, message)


def _without_a_reference(sweep: "Sweep", cells: list[Cell]) -> Iterator[Problem]:
    """An arm that shall take the tuned values of a reference that has no such rung or setting."""
    known = {(cell.arm, _setting_of(cell)) for cell in cells}
    for cell in cells:
        if (cell.tuned_arm, _setting_of(cell)) not in known:
            allowed = "the reference wherever an arm has trials, with the arm's optimizer and schedule"
            message = (
                f"{cell.tuned_arm} has no trial at {cell.rung} as {cell.arm} has there; allowed: {allowed}"
            )
            yield sweep.source.problem(("tune", "share"), message)
            return


def _after(exclusion: Exclusion, cell: Cell, budget: str) -> Cell:
    view = {
        "arm": cell.arm,
        "rung": cell.rung,
        **cell.setting,
        budget: cell.setting.get(setting_name(budget)),
    }
    seeds = exclusion.left(view, "comparison", cell.seeds)
    return replace(cell, seeds=seeds, tune_seeds=exclusion.left(view, "tuning", cell.tune_seeds))


_PLACES: dict[str, Path] = {
    "sequence_length": ("corpus", "sequence_length"),
    "vocabulary_size": ("corpus", "tokenizer"),
    "command": ("trainer", "command"),
}


def _problem(sweep: "Sweep", rung: int, choices: list[_Choice], error: ConfigurationError) -> Problem:
    """``error`` at the line that gave the field: the last choice that sets it, as in :func:`merged`."""
    name = error.field.partition(".")[0]
    path = (sweep.budget_kind,) if name == "tokens" else _PLACES.get(name, ("ladder", rung))
    for choice in choices:
        path = choice.paths.get(name, path)
    prefix = "" if name in path else f"{name}: "
    return sweep.source.problem(path, prefix + refused(error.value, error.allowed))


def _tuning_problems(sweep: "Sweep", cells: list[Cell]) -> Iterator[Problem]:
    """Points of the tuning grid that no trial can have, tried on two cells of every arm and recipe.

    They are those with the fewest and with the most tokens.
    """
    recipes = ("optimizer", "schedule")
    searched = sorted((cell for cell in cells if cell.tune_grid), key=lambda cell: cell.template.tokens)
    named = [((cell.arm, *(cell.setting.get(name) for name in recipes)), cell) for cell in searched]
    for cell in (*dict(named).values(), *dict(reversed(named)).values()):
        for point in itertools.product(*cell.tune_grid.values()):
            try:
                cell.trial(0, **dict(zip(cell.tune_grid, point, strict=True)))
            except ConfigurationError as error:
                name = error.field if error.field in cell.tune_grid else next(iter(cell.tune_grid))
                prefix = "" if name == error.field else f"{error.field}: "
                message = prefix + refused(error.value, error.allowed)
                yield sweep.source.problem(("tune", name), message)


def _too_small(sweep: "Sweep", cells: list[Cell], corpus: CorpusFacts) -> Iterator[Problem]:
    """A corpus without tokens for one batch; targets are one token further than inputs."""
    ours = (cell.template for cell in cells if isinstance(cell.template, OwnTrial))
    largest = max((trial.batch_tokens for trial in ours), default=0)
    if corpus.training_tokens <= largest:
        lack = f"{corpus.training_tokens} training tokens are too few for one batch"
        yield sweep.source.problem(("corpus",), f"{lack}; allowed: more than batch_tokens, {largest}")


def identical_arms(cells: Iterable[Cell]) -> list[str]:
    """A warning for each pair of arms whose trials have one identity, wherever both have them."""
    pairs: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for identities in _by_setting(cells, lambda trial: trial.trial_id()).values():
        for first, second in itertools.combinations(identities, 2):
            pairs[first, second].append(identities[first] == identities[second])
    return [
        f"arms {first} and {second} are identical by construction"
        + ("" if all(same) else f" in {sum(same)} of {len(same)} cells")
        + ": each trial is run once for both"
        for (first, second), same in pairs.items()
        if any(same)
    ]


def arms_of_other_budgets(cells: Iterable[Cell]) -> list[str]:
    """A warning for each rung at which the budgets of arms differ: trials of other tokens are no pairs.

    They do where arms have batches of their own, to whole ones of which a budget is rounded.
    """
    tokens = _by_setting(cells, lambda trial: trial.tokens)
    unlike = {rung: of_arms for (rung, *_), of_arms in tokens.items() if len(set(of_arms.values())) > 1}
    return [
        f"{rung}: the budgets of the arms differ "
        f"({', '.join(f'{arm} {n_tokens:,} tokens' for arm, n_tokens in of_arms.items())}), so they make no "
        "pairs there; give a budget that is whole batches of each"
        for rung, of_arms in unlike.items()
    ]


def _by_setting(cells: Iterable[Cell], value: Callable[[AnyTrial], T]) -> dict[tuple[Any, ...], dict[str, T]]:
    """The ``value`` of the trials of each arm, by the rung and what it shares with other arms."""
    values: defaultdict[tuple[Any, ...], dict[str, T]] = defaultdict(dict)
    for cell in cells:
        values[_setting_of(cell)][cell.arm] = value(cell.template)
    return values


def _setting_of(cell: Cell) -> tuple[Any, ...]:
    """The rung of a cell and what it shares with other arms."""
    return (cell.rung, *sorted((name, str(value)) for name, value in cell.setting.items()))


def code_files(cells: Iterable[Cell]) -> list[str]:
    """The files beside the sweep file on which trials of a foreign trainer rest, sorted."""
    names: set[str] = set()
    for cell in cells:
        if isinstance(cell.budget, ForeignBudget) and isinstance(cell.template, ForeignTrial):
            names.update(cell.budget.file_names(cell.template))
    return sorted(names)
