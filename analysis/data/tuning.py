"""What the record of tuning says: each bowl as a row, and a plain answer on the baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scalevec.analysis.formatting import joined


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
    return ", ".join(
        f"{key} {f'{value:g}' if isinstance(value, float) else value}" for key, value in differing
    )


def _field_text(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """The tuned field, where there are several or its parabola is not in its logarithm."""
    axis, field = str(choice.get("axis", "log")), _words(choice)
    if axis != "log":
        return f"{field} (parabola in {field if axis == 'linear' else axis.replace('x', field)})"
    return field if len({other["field"] for other in choices}) > 1 else ""


def tuning_rows(choices: Sequence[Mapping[str, Any]]) -> list[TuningRow]:
    """One row for each choice of tuning.json, in its order."""
    return [
        TuningRow(
            arm=str(choice["arm"]),
            rung=str(choice["rung"]),
            setting=", ".join(filter(None, [_field_text(choice, choices), setting_text(choice, choices)])),
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
    if np.isinf(losses[lowest]):
        return "diverged"
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
    of_reference = [choice for choice in choices if choice["arm"] == reference]
    tuned = [choice for choice in of_reference if choice["grid"]]
    if not tuned:
        return f"No: {reference} has no tuned rung, so the claim that it was under-tuned stands."
    censored = [str(choice["rung"]) for choice in tuned if choice["status"] == "censored"]
    if censored:
        return (
            f"No: at {joined(censored)} the best rate of {reference} lies at the edge of its grid "
            "(censored). It may be under-tuned there, so no arm whose pairs use that rate is called better."
        )
    if beyond := [
        choice for choice in of_reference if choice.get("check") and choice["check"]["status"] != "inside"
    ]:
        places = "; ".join(_beyond(choice, choices, reference) for choice in beyond)
        return (
            f"No: {places}. The optimum lies beyond what was tried (censored), so no arm whose pairs use "
            "that rate is called better."
        )
    grids = _grids_sentence(choices, tuned, reference)
    rest = (_carried_sentence(of_reference), _check_sentence(of_reference, choices))
    return " ".join(filter(None, ["Yes:", grids, *rest]))


def _grids_sentence(
    choices: Sequence[Mapping[str, Any]], tuned: Sequence[Mapping[str, Any]], reference: str
) -> str:
    field = joined(list(dict.fromkeys(_words(choice) for choice in tuned)))
    rungs = joined(list(dict.fromkeys(str(choice["rung"]) for choice in tuned)))
    start = f"at {rungs} the {field} of {reference} was tuned to an optimum inside its grid"
    if {choice["arm"] for choice in choices} == {reference}:
        return f"{start}, and its value is used for every arm (shared): none was tuned for itself."
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
        if all(other[name] == choice[name] for name in ("rung", "setting", "field"))
        if other[column] != choice[column]
    ]
    return list(dict.fromkeys(arms))


def _carried_sentence(of_reference: Sequence[Mapping[str, Any]]) -> str:
    carried = [choice for choice in of_reference if choice["status"] == "carried"]
    if not carried:
        return ""
    rungs, fields = (
        joined(list(dict.fromkeys(names)))
        for names in ((str(choice["rung"]) for choice in carried), map(_words, carried))
    )
    return (
        f"At {rungs} the {fields} was carried by one power law in N with a slope that the arms share; "
        "it was not tuned there."
    )


def _words(choice: Mapping[str, Any]) -> str:
    return str(choice["field"]).replace("_", " ")


def _check_sentence(of_reference: Sequence[Mapping[str, Any]], choices: Sequence[Mapping[str, Any]]) -> str:
    """Whether a carried learning rate was checked, and what a step to each side of it came to."""
    carried = [choice for choice in of_reference if not choice["grid"] and choice["field"] == "learning_rate"]
    if not carried:
        return ""
    checked = [choice for choice in carried if choice.get("check")]
    if not checked:
        return "Nor was it checked by a step to each side (tune: check_carried)."
    worse = (f"{_rung_and_setting(choice, choices)} ({_worse(choice['check'])})" for choice in checked)
    return f"A step to each side of it, on the tuning seeds, is worse at {joined(list(worse))}."


def _worse(check: Mapping[str, Any]) -> str:
    """How much worse each side is: ``0.0125: +0.0040, 0.05: diverged``."""
    below, centre, above = check["losses"]
    sides = ((check["grid"][0], below), (check["grid"][2], above))
    return ", ".join(
        f"{rate:.3g}: " + ("diverged" if loss is None else f"{loss - centre:+.4f}") for rate, loss in sides
    )


def _beyond(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]], reference: str) -> str:
    check = choice["check"]
    where = _rung_and_setting(choice, choices)
    start = f"at {where} the carried learning rate of {reference}, {choice['chosen']:.3g},"
    if check["status"] == "diverged":
        return f"{start} diverged, as did a step to each side of it"
    rate = check["grid"][0 if check["status"] == "below" else 2]
    if check["gain"] is None:
        return f"{start} diverged on the tuning seeds, where {rate:.3g} did not"
    return (
        f"{start} is not the best there: a step {check['status']} it, {rate:.3g}, is better by "
        f"{check['gain']:.4f} nats/token on the tuning seeds"
    )


def _rung_and_setting(choice: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]) -> str:
    """The rung, and the settings in which the choices differ."""
    return ", ".join(filter(None, [str(choice["rung"]), setting_text(choice, choices)]))
