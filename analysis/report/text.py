"""Comparisons as lines of text, each with the conventions that its numbers depend on."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.fits.result import no_hold_out
from scalevec.analysis.formatting import (
    chosen_rows,
    count,
    criterion,
    limits,
    p_value,
    percent,
    plural,
    signed,
    span,
)
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS

MOST_CELLS = 13
"""Cells that are listed one by one; with the line for the others they are at most 14."""


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
        yield from (f"hold-out, {warning}" for warning in held["warnings"])
    yield from (*no_hold_out(held), *map(law_text, comparison.laws))
    yield from ([f"multipliers withheld: {comparison.withheld}"] if comparison.withheld else [])
    yield from (*comparison.facts, *_settings(comparison))
    yield from _environments(comparison)
    yield from (f"warning: {warning}" for warning in comparison.warnings)


def _span(interval: tuple[float, float] | None) -> str:
    return f" ({span(interval)})" if interval else ""


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
        interval = f" ({span(cell.interval)})" if cell.interval else ""
        name = ", ".join([cell.rung, *cell.setting.values()])
        size = f"N {count(cell.n_params)}, {count(cell.n_tokens)} tokens"
        yield f"by rung, {name} ({size}): {signed(cell.mean)}{interval}, {plural(cell.n, 'pair')}"
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


def _environments(comparison: Comparison) -> Iterator[str]:
    """In what the sides of pairs differ of where and by what code they ran."""
    if comparison.environments:
        counts = (f"{name} ({len(pairs)})" for name, pairs in comparison.environments.items())
        yield f"sides of a pair differ in (pairs): {', '.join(counts)}"


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
        shown = test["note"] if test["interval"] is None else _equivalence_test(test)
        yield f"equivalence within {test['margin']:g}: {shown}"


def _equivalence_test(test: Mapping[str, Any]) -> str:
    return f"p {p_value(test['p_value'])}, {percent(test['level'])} interval {span(test['interval'])}"


def _remark(*notes: str) -> str:
    shown = "; ".join(filter(None, notes))
    return f" [{shown}]" if shown else ""


def multiplier_text(multiplier: Multiplier) -> str:
    """One multiplier with its interval and what is to be said of it."""
    estimate = "none" if multiplier.estimate is None else f"{multiplier.estimate:.3f}"
    interval = f" ({limits(multiplier.interval, '.3f')})" if multiplier.interval else ""
    remark = _remark("extrapolated" * multiplier.extrapolated, multiplier.note)
    return f"{multiplier.at} (C {multiplier.at_flops:.3g}): {estimate}{interval}{remark}"
