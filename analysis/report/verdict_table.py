"""The answer of a comparison at a glance: four lines for each arm and one table."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.formatting import (
    aligned,
    footnotes,
    p_value,
    percent,
    short_names,
    shortened_in,
    signed,
    span,
    unit_of,
)
from scalevec.analysis.report.predicted import predictions_summary

_WIDTH = 100
_NONE = "-"
_LABEL = 12


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
    rows = shortened_in([header, *map(_row, comparisons)], names)
    answers = [line for comparison in comparisons for line in _lines(comparison, names)]
    table = [*shortened_in([head], names), *aligned(rows, n_left=len(header))]
    more = "With --verbose: each size, multipliers, laws, what the figures rest on."
    predicted = shortened_in(predictions_summary(comparisons), names)
    return "\n".join([*answers, "", *table, *predicted, *footnotes(names), more])


def _lines(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """The four lines of one arm, below its name."""
    yield from shortened_in([comparison.arm], names)
    for label, line in comparison.lines.items():
        text = shortened_in(line.text, names)
        lead = f"  {label + ':':{_LABEL}}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead))


def _row(comparison: Comparison) -> tuple[str, ...]:
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
