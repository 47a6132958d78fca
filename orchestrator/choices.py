"""The choice of a tuned field: what is frozen in tuning.json, and the arithmetic behind it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from model.identity import digest, semantic_fields
from orchestrator.errors import Refused
from sweeps import Cell
from sweeps.fields import place_of

ROUNDING = 4
"""Choices are rounded to powers of 2^(1/4)."""
TUNING_VERSION = 1


@dataclass(frozen=True)
class Choice:
    """The frozen value of one tuned field for one arm at one rung, with what it was chosen from.

    ``key`` identifies the arm's trial without the tuned fields and the seed. ``losses`` are mean
    validation losses (nats a token) over ``seeds`` along ``grid``, None where a seed diverged; where
    several fields are tuned, along the line through the best point. ``vertex`` is the unrounded
    optimum. ``status`` is tuned, censored (the optimum is at the edge: a bound) or carried.
    """

    key: str
    arm: str
    rung: str
    n_params: int
    setting: dict[str, Any]
    field: str
    grid: tuple[float, ...]
    losses: tuple[float | None, ...]
    seeds: tuple[int, ...]
    vertex: float | None
    chosen: float
    status: str
    extensions: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Choice":
        """The choice as :func:`to_json` wrote it."""
        sequences = {name: tuple(values[name]) for name in ("grid", "losses", "seeds")}
        return cls(**{**values, **sequences})


def to_json(choices: Sequence[Choice]) -> dict[str, Any]:
    """The content of tuning.json."""
    return {"version": TUNING_VERSION, "choices": [asdict(choice) for choice in choices]}


def from_json(content: Mapping[str, Any] | None) -> list[Choice]:
    """The choices in tuning.json (None: not written yet). Raises ``Refused`` for another version."""
    if content is None:
        return []
    if content.get("version") != TUNING_VERSION:
        raise Refused(
            f"tuning.json has version {content.get('version')!r}; this scalevec reads {TUNING_VERSION}"
        )
    return [Choice.from_dict(values) for values in content["choices"]]


def choice_key(cell: Cell) -> str:
    """What a choice belongs to: the trial of ``cell`` with the tuned fields and the seed left open."""
    semantic = semantic_fields(cell.template)
    for path in ("seed", *map(place_of, cell.tune_grid)):
        *groups, name = path.split(".")
        part = semantic
        for group in groups:
            part = part[group]
        part[name] = None
    return digest({**semantic, "tuned": sorted(cell.tune_grid)})


def vertex(values: Sequence[float], losses: Sequence[float]) -> float | None:
    """Where a parabola through three (log value, loss) points is least; the middle loss is the smallest.

    None where a neighbour diverged (no parabola) or all three are equal (no minimum).
    """
    if not all(math.isfinite(loss) for loss in losses):
        return None
    low, middle, high = (math.log(value) for value in values)
    falling = (losses[1] - losses[0]) / (middle - low)
    rising = (losses[2] - losses[1]) / (high - middle)
    curvature = (rising - falling) / (high - low)
    if curvature <= 0:
        return None
    return math.exp((low + middle) / 2 - falling / (2 * curvature))


def rounded(value: float) -> float:
    """``value`` to the nearest power of 2^(1/4)."""
    return float(2.0 ** (round(ROUNDING * math.log2(value)) / ROUNDING))


def carry(cell: Cell, field: str, sources: Sequence[Choice]) -> Choice:
    """The choice for an untuned rung: a power law in N, its slope shared by the arms, a level for each.

    One tuned rung alone carries its value unchanged. A censored source makes the carried one censored.
    """
    own = [choice for choice in sources if choice.arm == cell.arm]
    if not own:
        raise Refused(f"tune: arm {cell.arm} has no tuned rung to carry {field} from to {cell.rung}")
    slope = shared_slope(sources)
    levels = [math.log(choice.chosen) - slope * math.log(choice.n_params) for choice in own]
    value = math.exp(math.fsum(levels) / len(levels) + slope * math.log(cell.n_params))
    censored = any(choice.status == "censored" for choice in own)
    return Choice(
        key=choice_key(cell),
        arm=cell.arm,
        rung=cell.rung,
        n_params=cell.n_params,
        setting=dict(cell.setting),
        field=field,
        grid=(),
        losses=(),
        seeds=(),
        vertex=None,
        chosen=rounded(value),
        status="censored" if censored else "carried",
        extensions=0,
    )


def shared_slope(choices: Sequence[Choice]) -> float:
    """Slope of log(choice) in log(N) over all arms, each with a level of its own; 0 with one rung."""
    x, y = [], []
    for arm in {choice.arm for choice in choices}:
        own = [choice for choice in choices if choice.arm == arm]
        logs = np.log([[choice.n_params, choice.chosen] for choice in own])
        centred = logs - logs.mean(axis=0)
        x.extend(centred[:, 0])
        y.extend(centred[:, 1])
    spread = float(np.dot(x, x))
    return float(np.dot(x, y)) / spread if spread > 0 else 0.0
