"""Which arms are compared by their pairs, and which, having none, by their laws."""

from typing import Literal

import pandas as pd

from scalevec.analysis.comparison.by_laws.law_comparison import LawComparison, compare_by_laws
from scalevec.analysis.comparison.compare import Comparison, compare, compared
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.errors import DataError
from scalevec.analysis.options import AnalysisOptions

Basis = Literal["pairs", "laws"]


def compare_arms(
    results: pd.DataFrame,
    *,
    reference: str,
    options: AnalysisOptions,
    by: Basis | None = None,
    tokens_per_parameter: float | None = None,
) -> tuple[list[Comparison], list[LawComparison]]:
    """Compare each arm by its pairs with the reference; those that have none by their laws.

    Args:
        results: Tidy rows, one per trial, as for ``compare``.
        reference: The arm that the others are compared with.
        options: How to compare.
        by: ``pairs`` or ``laws`` for all arms; None for pairs where there are any.
        tokens_per_parameter: Of the line along which laws are compared.

    Returns:
        The comparisons of both kinds; Holm's correction is over each kind alone.

    Raises:
        DataError: What neither way can be compared, and why.
    """
    return pairs_or_laws(compared_trials(results, reference, options), by, tokens_per_parameter)


def pairs_or_laws(
    trials: ComparedTrials, by: Basis | None = None, tokens_per_parameter: float | None = None
) -> tuple[list[Comparison], list[LawComparison]]:
    """The same of ``trials``. Raises :class:`DataError`."""
    unpaired = [arm for arm in trials.others if not trials.pairs(arm).n_planned]
    chosen = list(trials.others) if by == "laws" else [] if by == "pairs" else unpaired
    if not chosen:
        return compared(trials), []
    results = trials.source
    try:
        laws = compare_by_laws(
            results[results["arm"].isin([trials.reference, *chosen])],
            reference=trials.reference,
            options=trials.options,
            tokens_per_parameter=tokens_per_parameter,
        )
    except DataError as error:
        if by:
            raise
        try:
            return compared(trials), []
        except DataError as unpaired_error:
            raise DataError(f"{unpaired_error}; by their laws: {error}") from error
    if len(chosen) == len(trials.others):
        return [], laws
    paired = results[~results["arm"].isin(chosen)]
    return list(compare(paired, trials.reference, trials.options).values()), laws
