"""Predictions as lines of text and as a table of a page, each with its distance from the data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from scalevec.analysis.fits.result import Fit, held_out_lines
from scalevec.analysis.formatting import aligned, limits, named_with_unit, percent
from scalevec.analysis.tables.content import Table


def predictions_text(
    fit: Fit, points: Sequence[Mapping[str, Any]], budgets: pd.DataFrame | None = None
) -> str:
    """One arm: its law, hold-out, ``points`` (records of a fit) and budgets, conventions, warnings."""
    return "\n  ".join([f"{fit.arm}: {fit.formula}", *_lines(fit, points, budgets)])


def _lines(fit: Fit, points: Sequence[Mapping[str, Any]], budgets: pd.DataFrame | None) -> Iterator[str]:
    yield from held_out_lines(fit.hold_out)
    notes = [str(point["note"]) for point in points]
    if points:
        yield from aligned([_columns(fit), *map(_cells, points)], 1)
    if budgets is not None and len(budgets):
        y = named_with_unit(fit.options.y, fit.options.unit)
        columns = ("C", "by", "N*", "D*", "tokens per parameter", y, "beyond the data")
        yield from aligned([columns, *(_budget_cells(row) for row in budgets.to_dict("records"))], 2)
        yield f"in parentheses: {percent(fit.options.level)} intervals"
        notes += [str(note) for note in budgets["note"]]
    yield from (f"note: {note}" for note in dict.fromkeys(filter(None, notes)) if note not in fit.warnings)
    yield f"interval: {fit.interval_note}"
    yield fit.conventions
    yield from (f"warning: {warning}" for warning in fit.warnings)


def _columns(fit: Fit) -> tuple[str, ...]:
    level = percent(fit.options.level)
    y = "N*" if fit.optima else named_with_unit(fit.options.y, fit.options.unit)
    return ("at", y, f"{level} of the law", f"{level} of one run", "beyond the data")


def _cells(point: Mapping[str, Any]) -> tuple[str, ...]:
    at = ", ".join(f"{name} {value:.4g}" for name, value in point["at"].items())
    value = "withheld" if point["value"] is None else f"{point['value']:.5g}"
    spans = (_span(point["low"], point["high"]), _span(point["run_low"], point["run_high"]))
    return (f"{point['name']} ({at})" if point["name"] else at, value, *spans, beyond(point))


def _span(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else limits((low, high), ".5g")


def _budget_cells(best: Mapping[Any, Any]) -> tuple[str, ...]:
    shown = (_estimate(best, name) for name in ("N", "D", "tokens_per_parameter", "value"))
    return (f"{best['flops']:.4g}", str(best["by"]), *shown, beyond(best))


def _estimate(best: Mapping[Any, Any], name: str) -> str:
    value, low, high = best[name], best[f"{name}_low"], best[f"{name}_high"]
    if value != value:
        return ""
    return f"{value:.4g}" if low != low else f"{value:.4g} ({limits((low, high), '.4g')})"


def beyond(point: Mapping[Any, Any]) -> str:
    """The variable in which a point lies furthest from the data, ``+1.00 decades of C``."""
    distance, name = point["decades"], point["beyond"]
    return f"{distance:+.2f} decades of {name}".replace("-", "−") if distance else "inside"


def ahead_table(fits: Sequence[Fit]) -> Table | None:
    """The laws at the largest compute and beyond; None where no law has a larger compute."""
    shown = [(fit, points) for fit in fits if (points := fit.ahead())]
    if not shown:
        return None
    columns = ("arm", *_columns(shown[0][0]), "hold-out")
    rows = tuple((fit.arm, *_cells(point), _error(fit)) for fit, points in shown for point in points)
    reasons: dict[str, dict[str, None]] = {}
    for fit, points in shown:
        for point in points:
            if point["note"]:
                reasons.setdefault(str(point["note"]), {})[fit.arm] = None
    notes = [f"{', '.join(arms)}: {reason}." for reason, arms in reasons.items()]
    note = (
        "At the tokens per parameter of the largest run. The interval of the law has the runs' noise and the "
        "law's own error, by its rolling hold-outs and by the other laws that fit; that of one run adds a "
        "run's noise."
    )
    return Table("Predictions", columns, rows, (False, False, True, True, True, True, True), (note, *notes))


def _error(fit: Fit) -> str:
    error = fit.hold_out.get("relative_error")
    return "none" if error is None else f"{100 * error:+.2f} %".replace("-", "−")
