"""Comparisons and predictions as lines of text, each with the conventions that its numbers depend on."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.fits.result import Fit, held_out_lines, no_hold_out
from scalevec.analysis.formatting import (
    aligned,
    chosen_rows,
    count,
    criterion,
    footnotes,
    limits,
    named_with_unit,
    p_value,
    percent,
    plural,
    short_names,
    shortened_in,
    signed,
    span,
    unit_of,
)
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS

MOST_CELLS = 13
"""Cells that are listed one by one; with the line for the others they are at most 14."""
_WIDTH, _LABEL = 100, 12
_NONE = "-"


def verdict_table(comparisons: Sequence[Comparison]) -> str:
    """Return the four lines of each arm, and difference, interval, p, verdict and scope as one table.

    Args:
        comparisons: what :func:`scalevec.analysis.compare` returned, at least one; their difference is arm
            minus reference, in nats/token for a loss.
    """
    first = comparisons[0]
    names = short_names([first.reference, *(comparison.arm for comparison in comparisons)])
    unit = f", {name}" if (name := unit_of(first.options.y, first.options.unit)) else ""
    head = f"{first.options.y}: arm minus {first.reference}{unit}; p by Holm over the arms"
    header = ("arm", "difference", f"{percent(first.options.level)} interval", "p", "verdict", "scope")
    rows = shortened_in([header, *map(_verdict_row, comparisons)], names)
    answers = [line for comparison in comparisons for line in _answer(comparison, names)]
    table = [*shortened_in([head], names), *aligned(rows, n_left=len(header))]
    more = "With --verbose: each size, multipliers, laws, what the figures rest on."
    predicted = shortened_in(predictions_summary(comparisons), names)
    return "\n".join([*answers, "", *table, *predicted, *footnotes(names), more])


def _answer(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """The four lines of one arm, below its name."""
    yield from shortened_in([comparison.arm], names)
    for label, line in comparison.lines.items():
        text = shortened_in(line.text, names)
        lead = f"  {label + ':':{_LABEL}}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))


def _verdict_row(comparison: Comparison) -> tuple[str, ...]:
    difference = comparison.loss_difference
    p = difference.p_value if difference.p_holm is None else difference.p_holm
    return (
        comparison.arm,
        _NONE if difference.mean is None else signed(difference.mean),
        span(difference.interval) if difference.interval else _NONE,
        _NONE if p is None else p_value(p),
        comparison.interim or comparison.verdict,
        comparison.scope.text,
    )


def predictions_summary(comparisons: Sequence[Comparison]) -> list[str]:
    """How many predictions that stand came out how, as one line; none without any."""
    outcomes = Counter(
        prediction.outcome
        for comparison in comparisons
        for prediction in comparison.predictions
        if prediction.stands
    )
    if not outcomes:
        return []
    shown = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    return [f"{plural(outcomes.total(), 'prediction')}: {shown}."]


def comparison_text(comparisons: Iterable[Comparison]) -> str:
    """Each arm against the reference: the four lines, the sentence, sizes, multipliers, laws, warnings."""
    return "\n".join("\n  ".join([c.sentence, *_comparison_lines(c)]) for c in comparisons)


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield from (f"{label}: {line.text}" for label, line in comparison.lines.items())
    yield from _by_size(comparison)
    yield from (prediction.sentence for prediction in comparison.predictions)
    yield from _by_rung(comparison)
    for kind, multipliers in comparison.multipliers.items():
        yield from (f"{kind} multiplier, {multiplier_text(multiplier)}" for multiplier in multipliers)
    yield from _trend(comparison.trend)
    yield from _equivalence(comparison.equivalence)
    held = comparison.hold_out
    if "predicted" in held:
        yield (
            f"hold-out ({held['by']}: {held['rung'][:80]}): difference predicted "
            f"{signed(held['predicted'])}{_span(held['interval'])}, seen {signed(held['observed'])}"
        )
    yield from (*no_hold_out(held), *map(law_text, comparison.laws))
    yield from ([f"multipliers withheld: {comparison.withheld}"] if comparison.withheld else [])
    yield from (*comparison.facts, *_settings(comparison))
    yield from (f"warning: {warning}" for warning in comparison.warnings)


def _by_size(comparison: Comparison) -> Iterator[str]:
    """The difference at each size and in each setting, with its own interval and p."""
    parts = [("size", size) for size in comparison.sizes]
    parts += [("setting", setting) for setting in comparison.settings]
    for kind, part in parts[:MOST_CELLS]:
        interval = "one run" if part.one_run else span(part.interval) if part.interval else "no interval"
        known = part.p_value is not None
        p = f", p {p_value(part.p_value)}, Holm {p_value(part.p_holm)}" if known else ""
        bound = f", only a bound: {' and '.join(part.bound)}" if part.bound else ""
        facts = f"({interval}{p}{bound}), {plural(part.n_pairs, 'pair')}"
        yield f"{kind} {part.name}: {signed(part.mean)} {facts}"
    if (more := len(parts) - MOST_CELLS) > 0:
        yield f"{more} more sizes and settings, in --json"


def _by_rung(comparison: Comparison) -> Iterator[str]:
    """The difference in each cell where a size has several, which is descriptive."""
    if len(comparison.by_rung) <= len(comparison.sizes):
        return
    for cell in comparison.by_rung[:MOST_CELLS]:
        name = ", ".join([cell.rung, *cell.setting.values()])
        size = f"N {count(cell.n_params)}, {count(cell.n_tokens)} tokens"
        pairs = f", {plural(cell.n, 'pair')}" if cell.n else ""
        yield f"by rung, {name} ({size}): {signed(cell.mean)}{_span(cell.interval)}{pairs}"
    if (more := len(comparison.by_rung) - MOST_CELLS) > 0:
        yield f"by rung: {more} more cells, in --json"


def law_text(law: Mapping[str, Any]) -> str:
    """One fitted law with what it says of itself."""
    parameters = ", ".join(f"{name} {value:.6g}" for name, value in law["parameters"].items())
    return (
        f"law of the {law['side']} in {law['x']}: {parameters}; objective {law['objective']:.10g} (sum), "
        f"optimality {law['optimality']:.1e}, {law['starts_agreeing']} of {law['n_starts']} starts agree"
    )


def _settings(comparison: Comparison) -> Iterator[str]:
    """What was compared, and by which conventions."""
    options = comparison.options
    x = f" in {options.x}" if "x" in law_named(options.law).variables else ""
    yield from chosen_rows(options.where, comparison.excluded.get("where", 0))
    minimised = criterion(options.loss, options.delta, options.residual)
    yield (
        f"compared: {options.y}; law {options.law}{x}; {minimised}; "
        f"{options.bootstrap} bootstrap replicates, seed {options.seed}; independent by "
        f"{options.cluster}; N: {N_CONVENTIONS[options.n_convention]}; "
        f"C: {C_CONVENTIONS[options.c_convention]}"
    )


def _trend(trend: Mapping[str, Any]) -> Iterator[str]:
    if trend["per_decade"] is not None:
        shown = f" ({span(trend['interval'])})" if trend["interval"] else " (no interval)"
        yield f"trend per decade of C: {signed(trend['per_decade'])}{shown}{_remark(trend['note'])}"
    if change := trend["multiplier_per_decade"]:
        shown = f" ({limits(change['interval'], '.3f')})" if change["interval"] else ""
        factor = f"{change['estimate']:.3f} per decade of C{shown}{_remark(change['note'])}"
        yield f"the compute multiplier changes by a factor of {factor}"


def _equivalence(test: Mapping[str, Any]) -> Iterator[str]:
    if test["margin"] is not None:
        shown = test["note"]
        if test["interval"] is not None:
            shown = (
                f"p {p_value(test['p_value'])}, {percent(test['level'])} interval {span(test['interval'])}"
            )
        yield f"equivalence within {test['margin']:g}: {shown}"


def _remark(*notes: str) -> str:
    shown = "; ".join(filter(None, notes))
    return f" [{shown}]" if shown else ""


def multiplier_text(multiplier: Multiplier) -> str:
    """One multiplier with its interval and what is to be said of it."""
    estimate = "none" if multiplier.estimate is None else f"{multiplier.estimate:.3f}"
    interval = f" ({limits(multiplier.interval, '.3f')})" if multiplier.interval else ""
    remark = _remark("extrapolated" * multiplier.extrapolated, multiplier.note)
    return f"{multiplier.at} (C {multiplier.at_flops:.3g}): {estimate}{interval}{remark}"


def _span(interval: tuple[float, float] | None) -> str:
    return f" ({span(interval)})" if interval else ""


def predictions_text(
    fit: Fit, points: Sequence[Mapping[str, Any]], budgets: pd.DataFrame | None = None
) -> str:
    """One arm: its law, hold-out, ``points`` (records of a fit) and budgets, conventions, warnings."""
    return "\n  ".join([f"{fit.arm}: {fit.formula}", *_prediction_lines(fit, points, budgets)])


def _prediction_lines(
    fit: Fit, points: Sequence[Mapping[str, Any]], budgets: pd.DataFrame | None
) -> Iterator[str]:
    yield from held_out_lines(fit.hold_out)
    notes = [str(point["note"]) for point in points]
    if points:
        yield from aligned([point_columns(fit), *map(point_cells, points)], 1)
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


def point_columns(fit: Fit) -> tuple[str, ...]:
    """What is said of a prediction."""
    level, y = (
        percent(fit.options.level),
        "N*" if fit.optima else named_with_unit(fit.options.y, fit.options.unit),
    )
    return ("at", y, f"{level} of the law", f"{level} of one run", "beyond the data")


def point_cells(point: Mapping[str, Any]) -> tuple[str, ...]:
    """One prediction in those columns."""
    at = ", ".join(f"{name} {value:.4g}" for name, value in point["at"].items())
    value = "withheld" if point["value"] is None else f"{point['value']:.5g}"
    spans = (_ends(point["low"], point["high"]), _ends(point["run_low"], point["run_high"]))
    return (f"{point['name']} ({at})" if point["name"] else at, value, *spans, _beyond(point))


def _ends(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else limits((low, high), ".5g")


def _budget_cells(best: Mapping[Any, Any]) -> tuple[str, ...]:
    shown = (_estimate(best, name) for name in ("N", "D", "tokens_per_parameter", "value"))
    return (f"{best['flops']:.4g}", str(best["by"]), *shown, _beyond(best))


def _estimate(best: Mapping[Any, Any], name: str) -> str:
    value, low, high = best[name], best[f"{name}_low"], best[f"{name}_high"]
    if value != value:
        return ""
    return f"{value:.4g}" if low != low else f"{value:.4g} ({limits((low, high), '.4g')})"


def _beyond(point: Mapping[Any, Any]) -> str:
    """The variable in which a point lies furthest from the data, ``+1.00 decades of C``."""
    distance, name = point["decades"], point["beyond"]
    return f"{distance:+.2f} decades of {name}".replace("-", "−") if distance else "inside"
