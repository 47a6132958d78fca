"""Each arm against the reference with its verdict, one row per rung: what the report shows."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.compare import Comparison, compared
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.tidy import checked, comparison_rows, simulation_warnings
from scalevec.analysis.formatting import loss_words, percent, signed, span
from scalevec.analysis.tables.content import Table
from scalevec.analysis.tables.phrases import absence_note, conventions


def build(trials: ComparedTrials) -> Table:
    """The table of a source, from what ``scalevec compare`` says of it."""
    return comparison_table(trials.rows, compared(trials))


def comparison_table(results: pd.DataFrame, comparisons: Iterable[Comparison]) -> Table:
    """Each arm against the reference by rung and over all: losses, difference (interval), pairs, rates."""
    trials, comparisons = comparison_rows(checked(results)), list(comparisons)
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
    vectors_known = "n_params_scale_vectors" in trials.dropna(axis="columns", how="all")
    notes = (*_notes(comparisons, vectors_known), *simulation_warnings(trials))
    ends = np.cumsum([len(comparison.by_rung) + 1 for comparison in comparisons])
    totals = frozenset((ends - 1).tolist())
    return Table("Comparison with the reference", columns, tuple(rows), numeric, notes, totals=totals)


def _arm_rows(comparison: Comparison, trials: pd.DataFrame) -> list[tuple[str, ...]]:
    of_arm = trials[trials["arm"] == comparison.arm]
    rows = []
    for cell in comparison.by_rung:
        of_cell = of_arm[(of_arm["rung"] == cell.rung) & (of_arm["n_tokens"] == cell.n_tokens)]
        for name, value in cell.setting.items():
            of_cell = of_cell[of_cell[name].astype(str) == value]  # as differences.by_rung writes it
        rates = _unique(of_cell, "learning_rate", "{:.3g}"), _unique(of_cell, "lr_status", "{}")
        rows.append(
            (
                comparison.arm,
                " ".join([cell.rung, *cell.setting.values()]),
                f"{cell.n_params:,}",
                f"{cell.n_tokens:,}",
                _unique(of_cell, "epochs", "{:.2f}"),
                f"{cell.loss_reference:.4f}",
                f"{cell.loss_arm:.4f}",
                _difference(cell.mean, cell.interval),
                str(cell.n),
                ", ".join(filter(None, rates)),
                "",
            )
        )
    overall = comparison.loss_difference
    mean = "none" if overall.mean is None else _difference(overall.mean, overall.interval)
    verdict = comparison.interim or f"{comparison.verdict} ({comparison.scope.text})"
    total = (comparison.arm, "mean that decides", *[""] * 5, mean, str(overall.n_pairs), "")
    return [*rows, (*total, verdict)]


def _difference(mean: float, interval: tuple[float, float] | None) -> str:
    return f"{signed(mean)} ({'no interval' if interval is None else span(interval)})"


def _unique(rows: pd.DataFrame, column: str, form: str) -> str:
    """The values of a column, each once; empty where there are none."""
    if column not in rows.columns:
        return ""
    return ", ".join(dict.fromkeys(form.format(value) for value in rows[column].dropna()))


def _notes(comparisons: Sequence[Comparison], vectors_known: bool) -> list[str]:
    if not comparisons:
        return []
    first, options = comparisons[0], comparisons[0].options
    return [
        f"Difference: arm minus {first.reference}, {' in '.join(loss_words(options.y, options.unit))}, "
        "paired; negative is better.",
        f"Intervals: {percent(options.level)}, t with the noise of each rung; by rung they are descriptive. "
        "The mean that decides gives each rung the same weight; a rung of one run is left out.",
        conventions(options.n_convention, options.c_convention, vectors_known=vectors_known),
        *filter(None, map(_absence, comparisons)),
    ]


def _absence(comparison: Comparison) -> str:
    kinds = (comparison.arm_diverged, comparison.reference_diverged, comparison.both_diverged)
    return absence_note(
        comparison.arm, comparison.reference, (*kinds, comparison.missing, (), comparison.unpaired)
    )
