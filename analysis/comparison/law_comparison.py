"""Arms that have no trial in common with the reference, compared by their laws along a line of sizes.

The line has one number of tokens per parameter, by default the median at which the runs of all arms end, and
goes over the sizes and tokens that both were run at. The verdict is that of the mean difference over the
line; multipliers are how many times the compute (the tokens, at one size) the reference's law needs for the
arm's loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.compare import Comparison, compare, compared, flat_fields
from scalevec.analysis.comparison.fairness import SCHEMA_VERSION, Line
from scalevec.analysis.comparison.line_laws import Multiplier, described
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.comparison.unpaired_laws import ArmOnLine, LawDifference, arms_on_line
from scalevec.analysis.comparison.verdict import Verdict
from scalevec.analysis.comparison.words import opening
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count, degrees, p_value, percent, signed, span
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options
from scalevec.analysis.statistics.paired import Estimate, equivalence_p, holm, level_of_holm


@dataclass(frozen=True)
class LawComparison:
    """One arm against the reference by their laws; the fields are those of ``scalevec compare --json``.

    Attributes:
        basis: ``laws``; that of a comparison of pairs is ``pairs``.
        at_sizes: What holds along the line: a ``code`` and its ``text``.
        tokens_per_parameter: That of the line.
        loss_difference: The mean difference of the laws over the line with its interval, degrees of freedom
            and p-values; ``note`` says why there is none.
        at: The difference at points of the line.
        compute_multipliers: How many times the arm's compute the reference needs for its loss, on the line.
        token_multipliers: The same in tokens at one size, for laws in N and D.
        laws: The fitted laws; ``runs`` of each arm are what varies.
        options: How it was compared: level, law and conventions.
    """

    reference: str
    arm: str
    verdict: Verdict
    at_sizes: Line
    sentence: str
    tokens_per_parameter: float
    loss_difference: dict[str, Any]
    at: tuple[LawDifference, ...]
    compute_multipliers: tuple[Multiplier, ...]
    token_multipliers: tuple[Multiplier, ...]
    laws: tuple[dict[str, Any], ...]
    runs: dict[str, int]
    warnings: tuple[str, ...]
    options: AnalysisOptions
    basis: Literal["laws"] = "laws"
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the options under their own names."""
        return flat_fields(self, ("law", "y", "level", "seed", "cluster"))


def compare_by_laws(
    results: pd.DataFrame,
    *,
    reference: str,
    options: AnalysisOptions | None = None,
    tokens_per_parameter: float | None = None,
    **changes: Unpack[OptionChanges],
) -> list[LawComparison]:
    """Compare every other arm with ``reference`` by the laws fitted to each, without pairs.

    Args:
        results: Tidy rows as for :func:`fit`; the cluster column says which rows are one run.
        reference: The arm that the others are compared with.
        options: How to fit; a law in which arms share exponents (``chinchilla-shared``) is fitted to all.
        tokens_per_parameter: That of the line; by default the median at which runs end.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One :class:`LawComparison` per other arm, p-values by Holm over them.

    Raises:
        DataError: Bad values, points that leave a parameter free, or a law that has no line here.
    """
    family = arms_on_line(results, reference, chosen_options(options, changes), tokens_per_parameter)
    estimates = [sides.difference(sides.compute) for sides in family]
    p_values = [estimate.p_value() for estimate, _ in estimates]
    return [
        _compared(sides, *estimate, both, len(family))
        for sides, estimate, both in zip(
            family, estimates, zip(p_values, holm(p_values), strict=True), strict=True
        )
    ]


def _compared(
    sides: ArmOnLine, mean: Estimate, note: str, p_values: tuple[float | None, float | None], n_arms: int
) -> LawComparison:
    """The comparison of two sides; ``p_values`` are that of the mean difference, and by Holm."""
    options, reference, arm = sides.options, sides.reference.data.arm, sides.arm.data.arm
    interval = mean.interval(level_of_holm(options.level, *p_values, n_arms))
    at = sides.along_the_line()
    crossing = _crossing(at, mean.value)
    verdict: Verdict = "undecided" if crossing else law_verdict(mean, p_values[1], options, n_arms)
    law = sides.law.points.law
    of_mean = {"mean": mean.value, "interval": interval, "df": mean.df, "note": note}
    return LawComparison(
        reference=reference,
        arm=arm,
        verdict=verdict,
        at_sizes=_along(at, verdict, bool(crossing)),
        sentence=_sentence(sides, verdict, of_mean, p_values[1]) + crossing,
        tokens_per_parameter=sides.ratio,
        loss_difference={**of_mean, "p_value": p_values[0], "p_holm": p_values[1]},
        at=at,
        laws=tuple(described(s.data.arm, ", ".join(law.variables), s.law, s.number) for s in sides.both),
        runs={surface.data.arm: len(surface.runs) for surface in sides.both},
        warnings=sides.warnings(),
        options=options,
        compute_multipliers=sides.multipliers(),
        token_multipliers=sides.multipliers(of_tokens=True),
    )


def _along(at: Sequence[LawDifference], verdict: Verdict, crosses: bool) -> Line:
    """What holds along the line, as line 1 of a comparison by pairs says it of sizes."""
    where = f"N {count(at[0].at['N'])} to {count(at[-1].at['N'])}"
    if crosses:
        return Line("crosses", f"the laws cross on the line, {where}")
    word = {"better": "lower", "worse": "higher"}.get(verdict)
    if word is None:
        code = "within_margin_on_average" if verdict == "equivalent" else "not_resolved"
        return Line(code, f"{code.replace('_', ' ')}, {where}")
    if all(point.interval and point.interval[0] * point.interval[1] > 0 for point in at):
        return Line(f"{word}_at_all", f"{word} along the whole line, {where}")
    return Line(f"{word}_on_average", f"{word} on average along the line, {where}")


def _crossing(at: Sequence[LawDifference], mean: float) -> str:
    """A sentence where the laws differ against their mean at a point, beyond its noise; empty where not."""
    against = [
        point for point in at if point.interval and mean * point.estimate < 0 < np.prod(point.interval)
    ]
    if not against:
        return ""
    shown = f"{signed(against[0].estimate)} ({span(against[0].interval or (0.0, 0.0))})"
    return f" The laws cross: at N {count(against[0].at['N'])} the difference is {shown}: no mean decides."


def law_verdict(mean: Estimate, p_holm: float | None, options: AnalysisOptions, n_arms: int) -> Verdict:
    """What the mean difference over the line says, by its p-value after Holm's correction."""
    alpha = 1 - options.level
    if p_holm is not None and p_holm < alpha:
        return "better" if mean.value < 0 else "worse"
    within = options.margin and equivalence_p(mean, options.margin)
    return "equivalent" if within and within * n_arms < alpha else "undecided"


def _sentence(sides: ArmOnLine, verdict: Verdict, mean: Mapping[str, Any], p_holm: float | None) -> str:
    reference, arm = sides.reference.data.arm, sides.arm.data.arm
    margin = f" within {sides.options.margin}" if verdict == "equivalent" else ""
    level = percent(sides.options.level)
    noise = mean["note"] or (
        f"{level} interval {span(mean['interval'])}, {degrees(mean['df'])}, Holm p {p_value(p_holm)}"
    )
    sizes = sides.places(sides.compute)["N"]
    return (
        f"{opening(verdict, arm, reference)}{margin}, by their laws: "
        f"mean difference {signed(mean['mean'])} ({noise}) at {sides.ratio:.3g} tokens per parameter "
        f"from N {count(sizes[0])} to {count(sizes[-1])}, which no pairs check."
    )


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
