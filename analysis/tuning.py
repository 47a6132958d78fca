"""What the record of tuning says: each bowl as a row, and a plain answer on the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.words import joined


@dataclass(frozen=True)
class TuningRow:
    """What one arm's tuning at one rung came to, as text."""

    arm: str
    rung: str
    setting: str
    grid: tuple[tuple[str, str], ...]
    vertex: str
    chosen: str
    status: str
    extensions: int
    seeds: str
    depth: str
    """How much higher the loss is at the neighbours of the lowest grid point."""


def setting_text(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """Those settings of ``choice`` in which ``choices`` differ, as text."""
    settings = [other["setting"] for other in choices]
    differing = ((k, v) for k, v in choice["setting"].items() if any(s.get(k) != v for s in settings))
    return ", ".join(f"{key} {value}" for key, value in differing)


def tuning_rows(choices: Sequence[Mapping[str, Any]]) -> list[TuningRow]:
    """One row for each choice of tuning.json, in its order."""
    return [
        TuningRow(
            arm=str(choice["arm"]),
            rung=str(choice["rung"]),
            setting=setting_text(choice, choices),
            grid=tuple(
                (f"{rate:g}", "diverged" if loss is None else f"{loss:.4f}")
                for rate, loss in zip(choice["grid"], choice["losses"], strict=True)
            ),
            vertex="" if choice["vertex"] is None else f"{choice['vertex']:.4g}",
            chosen=f"{choice['chosen']:.4g}",
            status=str(choice["status"]),
            extensions=int(choice["extensions"]),
            seeds=", ".join(map(str, choice["seeds"])) if choice["grid"] else "",
            depth=_depth(choice),
        )
        for choice in choices
    ]


def _depth(choice: Mapping[str, Any]) -> str:
    """Loss of the neighbours above the lowest grid point: ``+0.012 / +0.020``, lower rate first."""
    losses = [float("inf") if loss is None else float(loss) for loss in choice["losses"]]
    if not losses:
        return ""
    lowest = int(np.argmin(losses))
    sides = [losses[i] - losses[lowest] if 0 <= i < len(losses) else None for i in (lowest - 1, lowest + 1)]
    words = ("edge" if s is None else "diverged" if np.isinf(s) else f"+{s:.4f}" for s in sides)
    return " / ".join(words)


def tuning_verdict(choices: Sequence[Mapping[str, Any]], reference: str) -> str:
    """A plain answer to: was the reference's learning rate tuned as well as the arms'?"""
    if not choices:
        return (
            "Not shown: this report was given no record of tuning. Whether the baseline was under-tuned "
            "cannot be answered from it."
        )
    own = [choice for choice in choices if choice["arm"] == reference]
    tuned = [choice for choice in own if choice["grid"]]
    if not tuned:
        return f"No: {reference} has no tuned rung, so the claim that it was under-tuned stands."
    censored = [str(choice["rung"]) for choice in tuned if choice["status"] == "censored"]
    if censored:
        return (
            f"No: at {joined(censored)} the best rate of {reference} lies at the edge of its grid "
            "(censored). It may be under-tuned there, so no arm whose pairs use that rate is called better."
        )
    return " ".join(["Yes:", _grids_sentence(choices, tuned, reference), _carried_sentence(own)]).strip()


def _grids_sentence(
    choices: Sequence[Mapping[str, Any]], tuned: Sequence[Mapping[str, Any]], reference: str
) -> str:
    field = str(tuned[0]["field"]).replace("_", " ")
    rungs = joined(list(dict.fromkeys(str(choice["rung"]) for choice in tuned)))
    start = f"at {rungs} the {field} of {reference} was tuned to an optimum inside its grid"
    for column, what in (("grid", "on another grid"), ("seeds", "on other seeds")):
        unequal = _unequal(choices, tuned, column)
        if unequal:
            return f"{start}, though {what} than {joined(unequal)}."
    return f"{start}, and every arm was given the same grid and the same tuning seeds."


def _unequal(
    choices: Sequence[Mapping[str, Any]], tuned: Sequence[Mapping[str, Any]], column: str
) -> list[str]:
    """The arms whose ``column`` differs from the reference's at the same rung and setting."""
    arms = [
        str(other["arm"])
        for choice in tuned
        for other in choices
        if (other["rung"], other["setting"]) == (choice["rung"], choice["setting"])
        if other[column] != choice[column]
    ]
    return list(dict.fromkeys(arms))


def _carried_sentence(own: Sequence[Mapping[str, Any]]) -> str:
    carried = [str(choice["rung"]) for choice in own if choice["status"] == "carried"]
    if not carried:
        return ""
    return (
        f"At {joined(carried)} the rate was carried by one power law in N with a slope that the arms share; "
        "it was not tuned there."
    )
