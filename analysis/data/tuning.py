"""What the record of tuning says: each bowl as a row, and a plain answer on the baseline."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalevec.analysis.formatting import joined

Choice = Mapping[str, Any]
"""An entry of tuning.json."""


def setting_text(choice: Choice, choices: Sequence[Choice]) -> str:
    """Those settings of ``choice`` in which ``choices`` differ, as text."""
    settings = [other["setting"] for other in choices]
    differing = ((k, v) for k, v in choice["setting"].items() if any(s.get(k) != v for s in settings))
    return ", ".join(
        f"{key} {f'{value:g}' if isinstance(value, float) else value}" for key, value in differing
    )


def tuning_rows(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """What each choice of tuning.json came to, as text."""
    several = len({choice["field"] for choice in choices}) > 1
    return [
        {name: choice[name] for name in ("arm", "rung", "status", "extensions")}
        | {
            "setting": ", ".join(
                filter(None, [_words(choice) if several else "", setting_text(choice, choices)])
            ),
            "grid": [
                (f"{value:g}", "diverged" if loss is None else f"{loss:.4f}")
                for value, loss in zip(choice["grid"], choice["losses"], strict=True)
            ],
            "vertex": "" if choice["vertex"] is None else f"{choice['vertex']:.4g}",
            "chosen": f"{choice['chosen']:.4g}",
            "seeds": ", ".join(map(str, choice["seeds"])) if choice["grid"] else "",
        }
        for choice in choices
    ]


def tuning_verdict(choices: Sequence[Choice], reference: str) -> str:
    """A plain answer to: was the reference's learning rate tuned as well as the arms'?"""
    if not choices:
        return "Not shown: this report was given no record of tuning."
    of_reference = [choice for choice in choices if choice["arm"] == reference]
    tuned = [choice for choice in of_reference if choice["grid"]]
    if not tuned:
        return f"No: {reference} has no tuned rung, so the claim that it was under-tuned stands."
    if edges := [choice for choice in of_reference if _is_at_an_edge(choice)]:
        return (
            f"No: at {_rungs(edges)} the best rate of {reference} lies at the edge of what was tried or "
            "beyond it (censored). It may be under-tuned there, so no arm whose pairs use that rate is "
            "called better."
        )
    field = joined(list(dict.fromkeys(map(_words, tuned))))
    start = f"Yes: at {_rungs(tuned)} the {field} of {reference} was tuned to an optimum inside its grid"
    carried = [choice for choice in of_reference if choice["status"] == "carried"]
    rest = f" At {_rungs(carried)} it was carried by one power law in N." if carried else ""
    if {choice["arm"] for choice in choices} == {reference}:
        return f"{start}, and its value is used for every arm (shared).{rest}"
    unequal = joined(_tuned_otherwise(choices, tuned))
    if unequal:
        return f"{start}, though on another grid or other seeds than {unequal}.{rest}"
    return f"{start}, and every arm was given the same grid and the same tuning seeds.{rest}"


def _is_at_an_edge(choice: Choice) -> bool:
    """Whether the optimum of a grid, or of the check of a carried value, is not inside."""
    check = choice.get("check")
    return choice["status"] == "censored" or bool(check and check["status"] != "inside")


def _tuned_otherwise(choices: Sequence[Choice], tuned: Sequence[Choice]) -> list[str]:
    """The arms whose grid or seeds differ from the reference's at the same rung, setting and field."""
    arms = [
        str(other["arm"])
        for choice in tuned
        for other in choices
        if all(other[name] == choice[name] for name in ("rung", "setting", "field"))
        if any(other[name] != choice[name] for name in ("grid", "seeds"))
    ]
    return list(dict.fromkeys(arms))


def _rungs(choices: Sequence[Choice]) -> str:
    return joined(list(dict.fromkeys(str(choice["rung"]) for choice in choices)))


def _words(choice: Choice) -> str:
    return str(choice["field"]).replace("_", " ")
