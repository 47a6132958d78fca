"""The choice of a tuned field: what is frozen in tuning.json, and the arithmetic behind it."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalevec.model.identity import digest
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.sweeps.axes import LINEAR, LOG, LOG_ONE_MINUS, SHARES, is_whole, position_on, rounded, value_at
from scalevec.sweeps.expansion.trials import Cell
from scalevec.sweeps.fields import tunable_fields
from scalevec.sweeps.trainers.any_trial import AnyTrial

if TYPE_CHECKING:
    from scalevec.sweeps.sections.schema import Sweep

TUNING_VERSION = 1
_AS_WRITTEN = {"extra": "forbid", "allow_inf_nan": False}
"""How pydantic reads tuning.json: nothing more and nothing else than was written."""
LrStatus = Literal["tuned", "carried", "censored"]
CheckStatus = Literal["below", "inside", "above", "diverged"]
CHECKED = "learning_rate"
"""The field of which a carried value is checked."""
SIDES: tuple[CheckStatus, ...] = ("below", "inside", "above")
"""Where the best of the values of a check lies; the middle one is the carried value."""


@dataclass(frozen=True)
class CarriedCheck:
    """What a step to each side of a carried value came to, at the rung it was carried to.

    ``grid`` is (below, the carried value, above); ``losses`` are as in :class:`Choice`. ``status`` is
    ``inside`` where neither side is better, else the side that is best, ``below`` or ``above``, or
    ``diverged`` where all three are. ``gain`` is how much better that side is, nats/token; None where the
    carried value diverged.
    """

    grid: tuple[float, ...]
    losses: tuple[float | None, ...]
    seeds: tuple[int, ...]
    vertex: float | None
    status: CheckStatus
    gain: float | None

    __pydantic_config__ = _AS_WRITTEN


@dataclass(frozen=True)
class Predicted:
    """What the grid of a larger rung started around, and the ``whole`` grid that it was spared."""

    value: float
    whole: tuple[float, ...]

    __pydantic_config__ = _AS_WRITTEN


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The frozen value of one tuned field for one arm at one rung, with what it was chosen from.

    ``key`` identifies the arm's trial without the tuned fields and the seed. ``losses`` are mean
    validation losses (nats/token) over ``seeds`` (and the token budgets that could share a trunk) along
    ``grid``, None where a trial diverged; where several fields are tuned, along the line through the best
    point. ``vertex`` is the unrounded
    optimum. ``status`` is tuned, censored (the optimum is at the edge: a bound) or carried; an optimum at the
    end of what the field can be, such as no decay, is tuned. ``axis`` is where the parabola was fitted
    (``sweeps.axes``). ``check`` is there where a carried value was checked, ``predicted`` where the grid
    started with a few values around what the smaller rungs predict.
    """

    key: str
    arm: str
    rung: str
    n_params: int
    setting: dict[str, Any]
    field: str
    grid: tuple[float, ...] = ()
    losses: tuple[float | None, ...] = ()
    seeds: tuple[int, ...] = ()
    vertex: float | None = None
    chosen: float
    status: LrStatus
    extensions: int = 0
    axis: str = LOG
    check: CarriedCheck | None = None
    predicted: Predicted | None = None

    __pydantic_config__ = _AS_WRITTEN

    @classmethod
    def at(cls, cell: Cell, field: str, axis: str, chosen: float, status: LrStatus) -> "Choice":
        """Return a choice for ``cell`` that was made without a grid there."""
        return cls(
            key=choice_key(cell),
            arm=cell.arm,
            rung=cell.rung,
            n_params=cell.n_params,
            setting=dict(cell.setting),
            field=field,
            chosen=chosen,
            status=status,
            axis=axis,
        )

    @property
    def is_carried(self) -> bool:
        """Whether nothing was tuned at this rung."""
        return not self.grid

    @property
    def lr_status(self) -> LrStatus:
        """Return ``status``, or censored where a check found the optimum beyond the carried value."""
        return self.status if self.check is None or self.check.status == "inside" else "censored"


def to_json(choices: Sequence[Choice]) -> dict[str, Any]:
    """Return the content of tuning.json."""
    return {"version": TUNING_VERSION, "choices": [asdict(choice) for choice in choices]}


def from_json(content: Mapping[str, Any] | None, trainer_fields: Collection[str] = ()) -> list[Choice]:
    """Return the choices in tuning.json (None: not written yet); ``trainer_fields`` may be tuned too.

    Raises ``InvalidInputError`` for another version, and for a choice that tuning cannot have made.
    """
    if content is None:
        return []
    if content.get("version") != TUNING_VERSION:
        raise InvalidInputError(
            f"tuning.json has version {content.get('version')!r:.80}; this scalevec reads {TUNING_VERSION}"
        )
    choices = _parsed(content.get("choices"))
    for number, choice in enumerate(choices):
        if problem := _problem(choice, trainer_fields):
            raise InvalidInputError(f"tuning.json: choices.{number}: {problem}")
    return choices


def _parsed(choices: Any) -> list[Choice]:
    from pydantic import TypeAdapter, ValidationError

    try:
        # As JSON, where lists may stand for tuples and nothing else for anything else.
        return TypeAdapter(list[Choice]).validate_json(json.dumps(choices), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, ("choices", *first["loc"])))
        raise InvalidInputError(f"tuning.json: {where}: {first['msg']}") from None


def _problem(choice: Choice, trainer_fields: Collection[str]) -> str:
    """What is wrong with the numbers of a choice; empty where nothing is."""
    if choice.field not in tunable_fields() and choice.field not in trainer_fields:
        return f"field is {choice.field!r:.80}, which no trial has"
    if choice.axis not in (LOG, LOG_ONE_MINUS, LINEAR):
        return f"axis is {choice.axis!r:.80}"
    if choice.n_params <= 0:
        return f"n_params is {choice.n_params}"
    check = choice.check
    if len(choice.grid) != len(choice.losses):
        return f"has {len(choice.grid)} values in its grid and {len(choice.losses)} losses"
    if check is not None and {len(check.grid), len(check.losses)} != {len(SIDES)}:
        return f"its check has {len(check.grid)} values and {len(check.losses)} losses"
    try:
        whole = choice.predicted.whole if choice.predicted else ()
        for value in (choice.chosen, *choice.grid, *whole, *(check.grid if check else ())):
            position_on(choice.axis, value)
    except ValueError:
        return f"{value} is not on its axis, {choice.axis}"
    return ""


def choice_key(cell: Cell) -> str:
    """Return the digest of the trial of ``cell`` with the tuned fields, the seed and its stream left open."""
    semantic = cell.template.semantic_fields()
    for path in ("seed", "stream", *map(cell.template.place_of, cell.tune_grid)):
        *groups, name = path.split(".")
        part = semantic
        for group in groups:
            part = part[group]
        part[name] = None
    return digest({**semantic, "tuned": sorted(cell.tune_grid)})


def vertex(values: Sequence[float], losses: Sequence[float], axis: str = LOG) -> float | None:
    """Return the vertex of the parabola through three points (value on ``axis``, loss), the middle lowest.

    None where a neighbour diverged (no parabola) or all three are equal (no minimum).
    """
    if not all(math.isfinite(loss) for loss in losses):
        return None
    low, middle, high = (position_on(axis, value) for value in values)
    falling = (losses[1] - losses[0]) / (middle - low)
    rising = (losses[2] - losses[1]) / (high - middle)
    curvature = (rising - falling) / (high - low)
    if curvature <= 0:
        return None
    return value_at(axis, (low + middle) / 2 - falling / (2 * curvature))


def settled(field: str, axis: str, value: float, grid: Sequence[float], *, whole: bool) -> float:
    """Return ``value`` rounded; for a ``whole`` number, the nearest value of ``grid``."""
    if whole:
        return min(grid, key=lambda tried: abs(position_on(axis, tried) - position_on(axis, value)))
    return min(rounded(axis, value, grid), 1.0) if field in SHARES else rounded(axis, value, grid)


def carry(cell: Cell, field: str, sources: Sequence[Choice]) -> Choice:
    """Extrapolate to an untuned rung by a power law in N whose slope the arms share, with a level per arm.

    The law is of what the field's axis holds: of 1 - beta for a beta; on a linear axis the value itself goes
    linearly in log N. One tuned rung alone carries its value unchanged. A censored source makes the carried
    one censored.
    """
    of_arm = sources_of(cell, field, sources)
    axis = common_axis(sources)
    slope = shared_slope(sources)
    levels = [position_on(axis, choice.chosen) - slope * math.log(choice.n_params) for choice in of_arm]
    value = value_at(axis, math.fsum(levels) / len(levels) + slope * math.log(cell.n_params))
    censored = any(choice.status == "censored" for choice in of_arm)
    tried = sorted({value for choice in of_arm for value in choice.grid})
    return Choice.at(
        cell,
        field,
        axis,
        settled(field, axis, value, tried, whole=is_whole(field, cell.tune_grid.get(field, ()))),
        "censored" if censored else "carried",
    )


def sources_of(cell: Cell, field: str, sources: Sequence[Choice]) -> list[Choice]:
    """Return the ``sources`` of the arm of ``cell``; raises ``InvalidInputError`` where there are none."""
    of_arm = [choice for choice in sources if choice.arm == cell.arm]
    if not of_arm:
        raise InvalidInputError(
            f"tune: arm {cell.arm} has no tuned rung to carry {field} from to {place_text(cell)}; tune it at "
            "another rung, or exclude it there too"
        )
    return of_arm


def common_axis(choices: Sequence[Choice]) -> str:
    """Return the axis on which all ``choices`` can be placed: linear as soon as one of them needs it."""
    return LINEAR if any(choice.axis == LINEAR for choice in choices) else choices[0].axis


def shared_slope(choices: Sequence[Choice]) -> float:
    """Return the slope in log(N) of the choices on their axis, over all arms, each with its own level.

    0 with one rung.
    """
    axis = common_axis(choices)
    x, y = [], []
    for arm in {choice.arm for choice in choices}:
        of_arm = [choice for choice in choices if choice.arm == arm]
        places = np.array(
            [[math.log(choice.n_params), position_on(axis, choice.chosen)] for choice in of_arm]
        )
        centred = places - places.mean(axis=0)
        x.extend(centred[:, 0])
        y.extend(centred[:, 1])
    spread = float(np.dot(x, x))
    return float(np.dot(x, y)) / spread if spread > 0 else 0.0


def place_text(cell: Cell) -> str:
    """Return the rung with its setting, as shown to a person."""
    values = (
        f"{name}={value:g}" if isinstance(value, float) else str(value)
        for name, value in cell.setting.items()
    )
    return " ".join((cell.rung, *values))


def field_name(field: str) -> str:
    """Return the field as words."""
    return field.replace("_", " ")


def edge_text(cell: Cell, field: str, best: float, values: Sequence[float], added: float) -> str:
    """Return the announcement that a grid is extended by ``added``, as the best of an arm is at its edge."""
    return (
        f"tuning {place_text(cell)}: best {field_name(field)} of {cell.arm} at the edge ({best:.3g} of "
        f"{values[0]:.3g}..{values[-1]:.3g}): grid of all arms gets {added:.3g}"
    )


def unsearched(cells: Sequence[Cell], arms: Collection[str]) -> list[Cell]:
    """Return the cells of ``arms`` at their largest rung, one per setting, if nothing is tuned there."""
    by_setting: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        name = cell.arm, str(sorted(cell.setting.items()))
        if cell.arm in arms and (name not in by_setting or cell.n_params > by_setting[name].n_params):
            by_setting[name] = cell
    return [cell for cell in by_setting.values() if not cell.tune_seeds]


def checked_values(cell: Cell, choice: Choice) -> tuple[float, ...]:
    """Return the carried value and its two neighbours, one mean (geometric) step of the tuning grid away."""
    if choice.check is not None:
        return choice.check.grid
    tried = cell.tune_grid[CHECKED]
    step = (tried[-1] / tried[0]) ** (1 / (len(tried) - 1))
    return choice.chosen / step, choice.chosen, choice.chosen * step


def check_trials(cell: Cell, chosen: Mapping[str, Choice], seeds: Sequence[int]) -> list[AnyTrial]:
    """Return the trials of the check: other tuned fields as chosen, on the ``seeds`` of the tuning."""
    kept = chosen[CHECKED].check
    seeds = seeds if kept is None else kept.seeds
    values: dict[str, Any] = {field: choice.chosen for field, choice in chosen.items()}
    rates = checked_values(cell, chosen[CHECKED])
    return [cell.trial(seed, **{**values, CHECKED: rate}) for rate in rates for seed in seeds]


def checked(
    cell: Cell, chosen: Mapping[str, Choice], seeds: Sequence[int], losses: Callable[[AnyTrial], float]
) -> CarriedCheck:
    """Evaluate the trials of the check of a carried learning rate: one step to each side of it.

    It is made where a mistake would cost most. That is the largest rung, of the reference arm first of all:
    were its rate wrong there, the arms would look better than they are. With ``check_carried: all`` every arm
    is checked. The check changes no choice; it says whether the carried one is kept inside, and if not, by
    how much the better side is better. Then the rate is censored there: nothing is called better than a
    censored reference, and no censored arm is called worse.
    """
    validation = [losses(trial) for trial in check_trials(cell, chosen, seeds)]
    rates = checked_values(cell, chosen[CHECKED])
    parts = [validation[index * len(seeds) : (index + 1) * len(seeds)] for index in range(len(rates))]
    means = [math.fsum(part) / len(part) for part in parts]
    best = min(range(len(rates)), key=lambda index: (means[index], index != 1))
    inside = SIDES[best] == "inside"
    gain = means[1] - means[best] if math.isfinite(means[1]) else None
    return CarriedCheck(
        grid=rates,
        losses=tuple(mean if math.isfinite(mean) else None for mean in means),
        seeds=tuple(seeds),
        vertex=vertex(rates, means, LOG) if inside else None,
        status=SIDES[best] if math.isfinite(means[best]) else "diverged",
        gain=gain,
    )


def checked_arms(sweep: "Sweep") -> list[str]:
    """The arms whose carried learning rate is checked."""
    asked = sweep.tune.check_carried if sweep.tune else False
    return list(sweep.arms) if asked == "all" else [sweep.reference] if asked else []
