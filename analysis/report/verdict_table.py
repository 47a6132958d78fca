"""The verdicts of a comparison at a glance: one line per arm, and what would change them."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.plan import exploratory_sentence
from scalevec.analysis.data.short_names import footnotes, short_names, shortened_in
from scalevec.analysis.formatting import aligned, p_value, percent, signed, span, unit_of
from scalevec.analysis.report.predicted import predictions_summary

MOST_LINES = 14
"""A verdict is read without scrolling; the rest is behind ``--verbose``."""
_WIDTH = 80
_NONE = "-"


def verdict_table(comparisons: Sequence[Comparison]) -> str:
    """Return difference, interval, p and verdict per arm and what would change it, in ``MOST_LINES`` at most.

    Args:
        comparisons: what :func:`scalevec.analysis.compare` returned, at least one; their difference is arm
            minus reference, in nats/token for a loss.
    """
    first = comparisons[0]
    unit = f", {name}" if (name := unit_of(first.y, first.unit)) else ""
    head = f"{first.y}: arm minus {first.reference}{unit}; p by Holm over the arms"
    header = ("arm", "difference", f"{percent(first.level)} interval", "p", "at these sizes", "with scale")
    predicted = predictions_summary(comparisons)
    most_lines = MOST_LINES - 3 - len(predicted)
    shown, names = comparisons[:most_lines], _short_names(comparisons[:most_lines])
    while len(shown) > 1 and len(shown) + len(names) > most_lines:
        shown, names = shown[:-1], _short_names(shown[:-1])
    rows = shortened_in([header, *map(_row, shown)], names)
    lines = [shortened_in(head, names), *aligned(rows, n_left=len(header)), *shortened_in(predicted, names)]
    changes = list(_changes(shown, names))
    room = max(0, MOST_LINES - len(lines) - len(names) - 1)
    rest = "the rest of this, " if len(changes) > room or len(shown) < len(comparisons) else ""
    more = f"With --verbose: {rest}differences per rung, multipliers, laws."
    return "\n".join([*lines, *changes[:room], *footnotes(names), more])


def _short_names(comparisons: Sequence[Comparison]) -> Mapping[str, str]:
    return short_names([comparisons[0].reference, *(comparison.arm for comparison in comparisons)])


def _row(comparison: Comparison) -> tuple[str, ...]:
    difference = comparison.loss_difference
    p = difference.p_value if difference.p_holm is None else difference.p_holm
    return (
        comparison.arm,
        _NONE if difference.mean is None else signed(difference.mean),
        span(difference.interval) if difference.interval else _NONE,
        _NONE if p is None else p_value(p),
        comparison.interim or comparison.verdict,
        comparison.scaling,
    )


def _changes(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Iterator[str]:
    """What came after each verdict and what would change it, in lines of the table's width."""
    for comparison in comparisons:
        words = " ".join([*exploratory_sentence(comparison.plan), comparison.would_change])
        text = shortened_in(f"{comparison.arm}: {words}", names)
        yield from textwrap.wrap(text, _WIDTH, subsequent_indent="  ")
