"""Comparisons and predictions in sentences, for the terminal and the page."""

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
    criterion,
    fitted,
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

MOST_ARMS = 2
"""Of so many arms the lines are given unasked."""
MOST_SIZES = 13
"""Sizes that are listed one by one; with the line for the others they are at most 14."""
WIDTH, _LABEL = 100, 12
"""Characters of a line, where no terminal is narrower."""
_NONE = "-"


def verdict_table(
    comparisons: Sequence[Comparison], width: int = WIDTH, arms: Sequence[str] | None = None
) -> str:
    """Return the lines of arms, and difference, interval, p, verdict and scope of all as one table.

    Args:
        comparisons: What was compared in one way, at least one arm; the difference is arm minus reference,
            in nats/token for a loss.
        width: Characters after which the lines of an arm are broken.
        arms: Those whose lines are given; None: all, or of more than :data:`MOST_ARMS` none. Of so many the
            table comes first.
    """
    first, are_many = comparisons[0], len(comparisons) > MOST_ARMS
    names = short_names([first.reference, *(comparison.arm for comparison in comparisons)])
    shown = [each for each in comparisons if each.arm in arms] if arms else [] if are_many else comparisons
    lines = [line for comparison in shown for line in _answer(comparison, names, width)]
    rows, head = verdict_rows(comparisons), heading(first)
    if are_many and len({row[-1] for row in rows[1:]}) == 1:
        head, rows = f"{head}; {rows[1][-1]}", [row[:-1] for row in rows]
    rows = shortened_in(rows, names)
    table = [shortened_in(head, names), *aligned(rows, range(len(rows[0])))]
    of_an_arm = "With --arm ARM: its lines. " if are_many and not arms else ""
    more = f"{of_an_arm}With --verbose: each size, multipliers, laws, what the figures rest on."
    after = [*_outcomes(comparisons), *footnotes(names), more]
    parts = [[*table, *after], lines] if are_many else [lines, [*table, *after]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def heading(first: Comparison) -> str:
    """What a table of verdicts shows, where ``first`` is one of them."""
    options = first.options
    unit = f", {name}" if (name := unit_of(options.y, options.unit)) else ""
    how = f", by the law {options.law} of each, without pairs" if first.basis == "laws" else ""
    return f"{options.y}: arm minus {first.reference}{unit}{how}; p by Holm over the arms"


def _answer(comparison: Comparison, names: Mapping[str, str], width: int) -> Iterator[str]:
    """The lines of one arm, below its name."""
    yield shortened_in(comparison.arm, names)
    for label, line in comparison.lines.items():
        lead, text = f"  {label + ':':{_LABEL}}", shortened_in(line.text, names)
        yield from textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=" " * len(lead))


def verdict_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """The verdicts at a glance: headings, and a row for each arm."""
    level = percent(comparisons[0].options.level)
    headings = ("arm", "difference", f"{level} interval", "p", "verdict", "scope")
    return [headings, *map(_verdict_row, comparisons)]


def _verdict_row(comparison: Comparison) -> tuple[str, ...]:
    difference = comparison.loss_difference
    p = difference.p_value if difference.p_holm is None else difference.p_holm
    # A bound is not tested, and a p of one beside its interval would read as a test.
    p = None if comparison.at_sizes.code == "bounded" else p
    return (
        comparison.arm,
        _NONE if difference.mean is None else signed(difference.mean, difference.interval),
        span(difference.interval) if difference.interval else _NONE,
        _NONE if p is None else p_value(p),
        comparison.interim or comparison.verdict,
        comparison.scope.text,
    )


def _outcomes(comparisons: Sequence[Comparison]) -> list[str]:
    """How many predictions that stand came out how, as one line; none without any."""
    outcomes = Counter(p.outcome for comparison in comparisons for p in comparison.predictions if p.stands)
    shown = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    return [f"{plural(outcomes.total(), 'prediction')}: {shown}."] if outcomes else []


def comparison_text(comparisons: Iterable[Comparison]) -> str:
    """Each arm against the reference: the sentence, its lines, the numbers behind them, warnings."""
    texts = []
    for comparison in comparisons:
        lines = [f"{label}: {line.text}" for label, line in comparison.lines.items()]
        warnings = [f"warning: {warning}" for warning in comparison.warnings]
        texts.append("\n  ".join([comparison.sentence, *lines, *details(comparison), *warnings]))
    return "\n".join(texts)


def details(comparison: Comparison) -> list[str]:
    """The numbers behind an answer, a line each: sizes, multipliers, laws, conventions."""
    shown = [f"compute multiplier, {multiplier_text(each)}" for each in comparison.compute_multipliers]
    return [*_evidence(comparison), *shown, *map(law_text, comparison.laws), _settings(comparison)]


def _evidence(comparison: Comparison) -> Iterator[str]:
    """Sizes, points of laws, predictions, trend, equivalence and hold-out, a line each."""
    yield from _by_size(comparison)
    if not comparison.sizes:
        for cell in comparison.by_rung:
            at = f"at N {cell.n_params:.4g}, D {cell.n_tokens:.4g}"
            yield f"{at}: {signed(cell.mean, cell.interval)}{_span(cell.interval)}"
    yield from (prediction.sentence for prediction in comparison.predictions)
    trend, test, held = comparison.trend, comparison.equivalence, comparison.hold_out
    if trend["per_decade"] is not None:
        per_decade = signed(trend["per_decade"], trend["interval"])
        yield f"trend per decade of C: {per_decade}{_span(trend['interval'])}"
    if comparison.signs and comparison.signs.steps:
        signs = comparison.signs
        others = f"; of all arms {signs.kept_of_all} of {signs.steps_of_all}"
        several = others if signs.steps_of_all > signs.steps else ""
        yield f"sign kept at {signs.kept} of {plural(signs.steps, 'step')} to the next size{several}"
    if test.get("margin") is not None:
        within = f"equivalence within {test['margin']:g}"
        if test["interval"] is None:
            yield f"{within}: {test['note']}"
        else:
            interval = f"{percent(test['level'])} interval {span(test['interval'])}"
            yield f"{within}: p {p_value(test['p_value'])}, {interval}"
    if "predicted" in held:
        seen = f"{signed(held['predicted'])}{_span(held['interval'])}, seen {signed(held['observed'])}"
        yield f"hold-out ({held['by']}: {held['rung'][:80]}): difference predicted {seen}"
    yield from no_hold_out(held)
    yield from ([f"multipliers withheld: {comparison.withheld}"] if comparison.withheld else [])
    yield from comparison.facts
    yield from chosen_rows(comparison.options.where, comparison.excluded.get("where", 0))


def _by_size(comparison: Comparison) -> Iterator[str]:
    """The difference at each size and in each setting, with its own interval and p."""
    parts = [("size", size) for size in comparison.sizes]
    parts += [("setting", setting) for setting in comparison.settings]
    for kind, part in parts[:MOST_SIZES]:
        interval = "one run" if part.one_run else span(part.interval) if part.interval else "no interval"
        known = part.p_value is not None
        p = f", p {p_value(part.p_value)}, Holm {p_value(part.p_holm)}" if known else ""
        bound = f", only a bound: {' and '.join(part.bound)}" if part.bound else ""
        facts = f"({interval}{p}{bound}), {plural(part.n_pairs, 'pair')}"
        yield f"{kind} {part.name}: {signed(part.mean, part.interval)} {facts}"
    if (more := len(parts) - MOST_SIZES) > 0:
        yield f"{more} more sizes and settings, in --json"


def law_text(law: Mapping[str, Any]) -> str:
    """One fitted law with what it says of itself."""
    parameters = ", ".join(f"{name} {value:.6g}" for name, value in law["parameters"].items())
    return (
        f"law of the {law['side']} in {law['x']}: {parameters}; objective {law['objective']:.10g} (sum), "
        f"optimality {law['optimality']:.1e}, {law['starts_agreeing']} of {law['n_starts']} starts agree"
    )


def _settings(comparison: Comparison) -> str:
    """What was compared, and by which conventions."""
    options = comparison.options
    x = f" in {options.x}" if "x" in law_named(options.law).variables else ""
    return (
        f"compared: {options.y}; law {options.law}{x}; "
        f"{criterion(options.loss, options.delta, options.residual)}; "
        f"{options.bootstrap} bootstrap replicates, seed {options.seed}; independent by {options.cluster}; "
        f"N: {N_CONVENTIONS[options.n_convention]}; C: {C_CONVENTIONS[options.c_convention]}"
    )


def multiplier_text(multiplier: Multiplier) -> str:
    """One multiplier with its interval and what is to be said of it."""
    estimate = "none" if multiplier.estimate is None else f"{multiplier.estimate:.3f}"
    interval = f" ({limits(multiplier.interval, '.3f')})" if multiplier.interval else ""
    remarks = "; ".join(filter(None, ["extrapolated" * multiplier.extrapolated, multiplier.note]))
    at = f"{multiplier.at} (C {multiplier.at_flops:.3g})"
    return f"{at}: {estimate}{interval}{f' [{remarks}]' if remarks else ''}"


def _span(interval: tuple[float, float] | None) -> str:
    return f" ({span(interval)})" if interval else ""


def predictions_text(
    fits: Sequence[Fit],
    points: Sequence[Sequence[Mapping[str, Any]]],
    budgets: Sequence[pd.DataFrame | None],
    width: int | None = None,
) -> str:
    """Each arm with its law, hold-out, ``points`` (records of the fit) and budgets; then what holds of all.

    A ``width`` in characters shortens the tables by whole columns.
    """
    blocks = []
    for fit, of_fit, best in zip(fits, points, budgets, strict=True):
        tables = [_point_table(fit, of_fit, width)] if of_fit else []
        tables += [_budget_table(fit, best)] if best is not None and len(best) else []
        notes = dict.fromkeys([p["note"] for p in of_fit] + ([] if best is None else best["note"].tolist()))
        if fit.refuted:  # by the line of the hold-out, or by what has no line
            why = fit.refuted.partition(": predicted")[0]
            told = [f"{why}: no interval, and nothing beyond the data"]
        else:
            told = [*dict.fromkeys(filter(None, [*notes, fit.interval_line]))]
        lines = [*held_out_lines(fit.hold_out), *(line for table in tables for line in table), *told]
        blocks.append((f"{fit.arm}: {fit.formula}", lines, [f"warning: {each}" for each in fit.warnings]))
    shared = [each for each in blocks[0][2] if all(each in warnings for _, _, warnings in blocks)]
    lines = []
    for head, of_arm, warnings in blocks:
        lines += ["\n  ".join([head, *of_arm, *(each for each in warnings if each not in shared)])]
    units = [f"{named_with_unit(fit.options.y, fit.options.unit)}; {fit.conventions}" for fit in fits]
    return "\n".join([*lines, *dict.fromkeys(units), *shared])


def _point_table(fit: Fit, points: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    level = percent(fit.options.level)
    value = "N*" if fit.optima else _value_of(fit)
    columns: dict[str, list[str]] = {"at": [point["name"].removeprefix("at ") for point in points]}
    columns |= {name: [f"{point['at'][name]:.4g}" for point in points] for name in points[0]["at"]}
    columns[value] = ["withheld" if p["value"] is None else f"{p['value']:.5g}" for p in points]
    columns[f"{level} of the law"] = [_ends(point["low"], point["high"]) for point in points]
    columns[f"{level} of one run"] = [_ends(point["run_low"], point["run_high"]) for point in points]
    columns["beyond the data"] = [_beyond(point) for point in points]
    told = {name: cells for name, cells in columns.items() if set(cells) - {"", "none"}}
    spare = [f"{level} of one run", *points[0]["at"]] if any(columns["at"]) else []
    return fitted(told, [*told][:1], spare, None if width is None else width - 2)  # the indent


def _budget_table(fit: Fit, best: pd.DataFrame) -> list[str]:
    """A line for each quantity, with a column for each budget."""
    headings = ("C", "N*", "D*", "tokens per parameter", _value_of(fit), "beyond the data")
    rows = list(zip(headings, *map(_budget_cells, best.to_dict("records")), strict=True))
    return [*aligned(rows, range(len(rows[0]))), f"in parentheses: {percent(fit.options.level)} intervals"]


def _value_of(fit: Fit) -> str:
    """What a law gives, without its unit."""
    return named_with_unit(fit.options.y, fit.options.unit).partition(" (")[0]


def _ends(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else limits((low, high), ".5g")


def _budget_cells(best: Mapping[Any, Any]) -> tuple[str, ...]:
    shown = []
    for name in ("N", "D", "tokens_per_parameter", "value"):
        value, low, high = best[name], best[f"{name}_low"], best[f"{name}_high"]
        interval = "" if low != low else f" ({limits((low, high), '.4g')})"
        shown.append("" if value != value else f"{value:.4g}{interval}")
    return (f"{best['flops']:.4g}", *shown, _beyond(best))


def _beyond(point: Mapping[Any, Any]) -> str:
    """The variable in which a point lies furthest from the data, ``+1.00 decades of C``."""
    distance, name = point["decades"], point["beyond"]
    return f"{distance:+.2f} decades of {name}".replace("-", "−") if distance else "inside"
