"""Comparisons by laws as lines of text, and along their line as a table."""

from collections.abc import Sequence

from scalevec.analysis.comparison.law_comparison import LawComparison
from scalevec.analysis.formatting import (
    aligned,
    count,
    footnotes,
    limits,
    p_value,
    percent,
    short_names,
    shortened_in,
    signed,
    span,
)
from scalevec.analysis.report.text import law_text, multiplier_text
from scalevec.analysis.tables.content import Table


def laws_table(comparisons: Sequence[LawComparison]) -> str:
    """The comparisons by laws at a glance, one line per arm."""
    first = comparisons[0]
    header = (
        "arm",
        "mean difference",
        f"{percent(first.options.level)} interval",
        "p",
        "compute multiplier",
        f"{percent(first.options.level)} interval",
        "verdict",
    )
    options = first.options
    head = (
        f"{options.y}: arm minus {first.reference}, by the law {options.law} of each, without pairs, along "
        f"{first.tokens_per_parameter:.3g} tokens per parameter; p by Holm over the arms; the "
        "multiplier is in the middle of the line"
    )
    notes = dict.fromkeys(c.loss_difference["note"] for c in comparisons if c.loss_difference["note"])
    notes |= dict.fromkeys(c.sentence for c in comparisons if "The laws cross" in c.sentence)
    names = short_names([first.reference, *(comparison.arm for comparison in comparisons)])
    rows = shortened_in([header, *map(_row, comparisons)], names)
    return "\n".join([*shortened_in([head, *aligned(rows, n_left=1), *notes], names), *footnotes(names)])


def _row(comparison: LawComparison) -> tuple[str, ...]:
    of_mean, multiplier = comparison.loss_difference, comparison.compute_multipliers[0]
    return (
        comparison.arm,
        signed(of_mean["mean"]),
        span(of_mean["interval"]) if of_mean["interval"] else "-",
        "-" if of_mean["p_holm"] is None else p_value(of_mean["p_holm"]),
        "-" if multiplier.estimate is None else f"{multiplier.estimate:.3f}",
        limits(multiplier.interval, ".3f") if multiplier.interval else "-",
        comparison.verdict,
    )


def laws_comparison_text(comparisons: Sequence[LawComparison]) -> str:
    """Each arm against the reference by their laws: points of the line, multipliers, caveats."""
    return "\n".join("\n  ".join([comparison.sentence, *_lines(comparison)]) for comparison in comparisons)


def _lines(comparison: LawComparison) -> list[str]:
    lines = [
        f"at N {point.at['N']:.4g}, D {point.at['D']:.4g}: {signed(point.estimate)}"
        f"{f' ({span(point.interval)})' if point.interval else ''}"
        for point in comparison.at
    ]
    for kind, multipliers in (
        ("compute", comparison.compute_multipliers),
        ("token", comparison.token_multipliers),
    ):
        lines += [f"{kind} multiplier, {multiplier_text(multiplier)}" for multiplier in multipliers]
    lines += [law_text(law) for law in comparison.laws]
    runs = ", ".join(f"{arm} {number}" for arm, number in comparison.runs.items())
    options = comparison.options
    lines.append(f"independent runs by {options.cluster}: {runs}; {options.bootstrap} replicates")
    return [*lines, *(f"warning: {warning}" for warning in comparison.warnings)]


def along_the_line(comparisons: Sequence[LawComparison]) -> Table:
    """The difference of the laws at each point of the line, a row per arm and point."""
    columns = ("arm", "N", "tokens", "difference of the laws", "interval")
    points = [(comparison, point) for comparison in comparisons for point in comparison.at]
    rows = tuple(
        (
            comparison.arm,
            count(point.at["N"]),
            count(point.at["D"]),
            signed(point.estimate),
            span(point.interval) if point.interval else "none",
        )
        for comparison, point in points
    )
    records = tuple(
        {
            "arm": comparison.arm,
            "n_params": point.at["N"],
            "n_tokens": point.at["D"],
            "difference": point.estimate,
            "low": point.interval and point.interval[0],
            "high": point.interval and point.interval[1],
        }
        for comparison, point in points
    )
    notes = ("The intervals of single points are descriptive: no verdict follows from one of them.",)
    return Table("Along the line", columns, rows, (False, True, True, True, True), notes, records=records)
