"""Each arm against the reference with its verdict, a row a rung: what the report shows."""

import dataclasses
from collections.abc import Sequence

import pandas as pd

from analysis.comparison import Comparison, compare
from analysis.data import checked, comparison_rows, simulation_warnings
from analysis.differences import RungDifference
from analysis.tables.content import Table
from analysis.tables.question import Question
from analysis.words import percent, signed, span


def build(question: Question) -> Table:
    """The table of a source, from what ``scalevec compare`` says of it."""
    found = compare(
        question.trials,
        reference=question.reference,
        margin=question.margin,
        **dataclasses.asdict(question.settings),
    )
    return comparison_table(question.trials, found)


def comparison_table(results: pd.DataFrame, comparisons: Sequence[Comparison]) -> Table:
    """Each arm against the reference by rung and over all: losses, difference (interval), pairs, rates."""
    trials = comparison_rows(checked(results))
    columns = (
        "arm",
        "rung",
        "N",
        "tokens",
        "epochs",
        "reference loss",
        "arm loss",
        "difference (interval)",
        "pairs",
        "learning rate",
        "verdict",
    )
    rows = [row for comparison in comparisons for row in _arm_rows(comparison, trials)]
    numeric = tuple(name not in ("arm", "rung", "learning rate", "verdict") for name in columns)
    notes = (*_notes(comparisons), *simulation_warnings(trials))
    return Table("Comparison with the reference", columns, tuple(rows), numeric, notes)


def _arm_rows(comparison: Comparison, trials: pd.DataFrame) -> list[tuple[str, ...]]:
    own = trials[trials["arm"] == comparison.arm]
    rows = []
    for cell in comparison.by_rung:
        here = own[(own["rung"] == cell.rung) & (own["n_tokens"] == cell.n_tokens)]
        name = " ".join([cell.rung, *cell.setting.values()])
        rows.append(
            (
                comparison.arm,
                name,
                f"{cell.n_params:,}",
                f"{cell.n_tokens:,}",
                _unique(here, "epochs", "{:.2f}"),
                f"{cell.loss_reference:.4f}",
                f"{cell.loss_arm:.4f}",
                _difference(cell),
                str(cell.n),
                ", ".join(
                    filter(None, [_unique(here, "learning_rate", "{:.3g}"), _unique(here, "lr_status", "{}")])
                ),
                "",
            )
        )
    return [*rows, _overall_row(comparison)]


def _overall_row(comparison: Comparison) -> tuple[str, ...]:
    overall = comparison.loss_difference
    mean = "none" if overall.mean is None else format_difference(overall.mean, overall.interval)
    blank = ("",) * 5
    return (comparison.arm, "all (mean)", *blank, mean, str(comparison.pairs), "", comparison.verdict)


def _difference(cell: RungDifference) -> str:
    return format_difference(cell.mean, cell.interval)


def format_difference(mean: float, interval: tuple[float, float] | None) -> str:
    """A difference with its interval, or ``no interval``."""
    carried = "no interval" if interval is None else span(interval)
    return f"{signed(mean)} ({carried})"


def _unique(rows: pd.DataFrame, column: str, form: str) -> str:
    """The values of a column, each once; empty where there are none."""
    if column not in rows.columns:
        return ""
    return ", ".join(dict.fromkeys(form.format(value) for value in rows[column].dropna()))


def _notes(comparisons: Sequence[Comparison]) -> list[str]:
    if not comparisons:
        return []
    first = comparisons[0]
    return [
        f"Difference: arm minus {first.reference}, test loss in nats a token, paired; negative is better.",
        f"Intervals: {percent(first.level)}, t with noise pooled within rungs; by rung they are descriptive. "
        "The mean gives each rung the same weight and speaks of these rungs.",
        f"N: {first.n_convention}; C: {first.c_convention}.",
        *absences(comparisons),
    ]


def absences(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence for each arm with pairs that have no difference, so that no diverged trial goes unseen."""
    found = []
    for comparison in comparisons:
        kinds = {
            "diverged": comparison.arm_diverged,
            f"{comparison.reference} diverged": comparison.reference_diverged,
            "both diverged": comparison.both_diverged,
            "no result": comparison.missing,
        }
        said = [f"{kind} at {'; '.join(names)}" for kind, names in kinds.items() if names]
        if said:
            found.append(f"Without a difference, {comparison.arm}: {' and '.join(said)}.")
    return found
