"""Arms that have no trial in common with the reference, compared by their laws along a line of sizes.

The line has one number of tokens per parameter, by default the median at which the runs of all arms end, and
goes over the sizes and tokens that both were run at. The verdict is that of the mean difference over the
line.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.compare import Comparison, compared, with_predictions
from scalevec.analysis.comparison.differences import LossDifference, RungDifference, corrected
from scalevec.analysis.comparison.fairness import ALIKE, Line
from scalevec.analysis.comparison.laws_of_runs import LawsOnLine, laws_of
from scalevec.analysis.comparison.scale import ScaleLine
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.comparison.verdict import Verdict
from scalevec.analysis.comparison.words import opening
from scalevec.analysis.data.tidy import variable_of
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.arm_data import BESIDE, ArmData, data_of_arms
from scalevec.analysis.fits.fit import fit_warnings
from scalevec.analysis.fits.predicted_points import ONE_LINE
from scalevec.analysis.formatting import count, degrees, is_loss, joined, p_value, percent, signed, span
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options
from scalevec.analysis.statistics.paired import Estimate, equivalence_p, level_of_holm

Basis = Literal["pairs", "laws"]
ALIKE_ON_C = 1.2
"""By such a factor tokens per parameter may differ at one compute, where they matter little."""


def _require_line(arms: Sequence[ArmData]) -> None:
    """Refuse a law without a line of sizes, and ``arms`` (first the reference) that lie on several."""
    options, law = arms[0].options, law_named(arms[0].options.law)
    if law.method != "points" or not set(law.variables) <= {"N", "D", "C", "x"}:
        allowed = "allowed are laws in N, D or C"
        raise DataError(f"law {law.name} ({joined(law.variables)}) has no line to compare arms on; {allowed}")
    if not is_loss(options.y):
        raise DataError(f"y is {options.y!r}; laws of losses are compared: its name starts with loss")
    texts = [set(data.rows["corpus"].dropna()) for data in arms if "corpus" in data.rows]
    if any(of_arm != texts[0] for of_arm in texts):
        raise DataError(
            "the arms differ in corpus, and losses of different texts are not compared; where all were "
            "measured on one text: --map corpus=\"'that text'\""
        )
    reads_compute = "C" in law.variables or ("x" in law.variables and options.x == "C")
    if reads_compute and options.c_convention != "6nd":
        raise DataError(f"c_convention is {options.c_convention!r}; on a line C is 6ND: allowed is '6nd'")
    for data in arms if law.variables == ("x",) and options.x == "C" else ():
        ratio = data.rows["n_tokens"] / data.rows["n_params"]
        if ratio.max() > ONE_LINE * ratio.min():
            raise DataError(
                f"arm {data.arm!r} has {ratio.min():.3g} to {ratio.max():.3g} tokens per parameter, which "
                "lie on no line in C: take a law in N and D (--law chinchilla), or one line with --where"
            )
    for data in arms[1:] if len(law.variables) == 1 else ():
        n, d = variable_of(data.rows, "N", options), data.rows["n_tokens"].to_numpy(float)
        factor = float(np.exp(np.median(arms[0].off_line(n, d, between=(0.5, 0.5)))))
        if abs(np.log(factor)) > np.log(ALIKE_ON_C if data.along == "C" else ALIKE):
            raise DataError(
                f"arm {data.arm!r} has {factor:.3g} times the {BESIDE.get(data.along, BESIDE['C'])} of "
                f"{arms[0].arm!r} at equal {data.along}, taken for the change: take "
                f"a law in N and D (--law chinchilla), or leave the arm out: --where \"arm != '{data.arm}'\""
            )


def _by_laws(
    results: pd.DataFrame, reference: str, options: AnalysisOptions, ratio: float | None, n_others: int
) -> list[Comparison]:
    """Every other arm against ``reference`` by the laws fitted to each; p-values by Holm, over others too.

    Raises :class:`DataError` for points that leave a parameter free, or a law that has no line here.
    """
    arms = data_of_arms(results, options)
    _require_line(sorted(arms, key=lambda data: data.arm != reference))
    laws, ends = laws_of(arms), []
    for data in arms if ratio is None else ():
        of_rows = data.rows["n_tokens"] / variable_of(data.rows, "N", data.options)
        ends.append(of_rows.groupby(data.rows[data.options.cluster]).max())
    chosen = ratio or float(pd.concat(ends).median())
    family = [LawsOnLine(laws[reference], law, chosen) for name, law in laws.items() if name != reference]
    p_values = [sides.difference(sides.compute)[0].p_value() for sides in family]
    n_arms = len(family) + n_others
    both = zip(p_values, corrected(p_values, n_arms), strict=True)
    return [_compared(sides, of_arm, n_arms) for sides, of_arm in zip(family, both, strict=True)]


def _compared(laws: LawsOnLine, p_values: tuple[float | None, float | None], n_arms: int) -> Comparison:
    """The comparison of two sides; ``p_values`` are that of the mean difference, and by Holm."""
    options, (mean, note), (reference, arm) = laws.options, laws.difference(laws.compute), laws.names
    interval = mean.interval(level_of_holm(options.level, *p_values, n_arms))
    at = laws.along_the_line()
    where = f"{at[0].rung} to {count(at[-1].n_params)}"
    against = [
        f"at {point.rung} the difference is {signed(point.mean)} ({span(point.interval)})"
        for point in at
        if point.interval and mean.value * point.mean < 0 and _excludes_zero(point)
    ]
    verdict = "undecided" if against else law_verdict(mean, p_values[1], options, n_arms)
    reason = Line("crosses", f"The laws cross: {against[0]}: no mean decides.") if against else None
    error = mean.standard_error if mean.has_noise else None
    of_mean = LossDifference(mean.value, interval, *p_values, mean.df, error)
    n_runs = [f"{side.data.arm} {side.data.clusters.nunique()}" for side in laws.arms]
    return Comparison(
        reference=reference,
        arm=arm,
        verdict=verdict,
        scope=Line("line", where),
        reason=reason,
        at_sizes=_at_sizes(at, verdict, reason, "" if interval else note, where),
        with_scale=ScaleLine("none", "says nothing: no pairs"),
        fair=Line("unknown", f"not known: by the law {options.law} of each, which no pairs check"),
        claim_status=Line("no_plan", "no plan"),
        sentence=_sentence(laws, verdict, of_mean, note, where) + (f" {reason.text}" if reason else ""),
        loss_difference=of_mean,
        by_rung=at,
        compute_multipliers=(laws.multiplier("largest", float(laws.compute[-1])),),
        warnings=tuple(
            f"{side.data.arm}: {warning}"
            for side in laws.arms
            for warning in fit_warnings(side.data, side.law, side.number)
        ),
        facts=(f"independent runs by {options.cluster}: {', '.join(n_runs)}",),
        options=options,
        laws=tuple(laws.described(laws.names, ", ".join(laws.law.variables))),
        basis="laws",
    )


def _at_sizes(
    at: Sequence[RungDifference], verdict: Verdict, crossing: Line | None, note: str, where: str
) -> Line:
    """What holds along the line, as line 1 of a comparison by pairs says it of sizes."""
    word = {"better": "lower", "worse": "higher"}.get(verdict)
    if crossing:
        return Line("crosses", f"the laws cross on the line, {where}")
    if verdict == "equivalent":
        return Line("within_margin_on_average", f"within margin on average, {where}")
    if word is None:
        return Line("not_resolved", f"not resolved{f' ({note})' if note else ''}, {where}")
    if all(map(_excludes_zero, at)):
        return Line(f"{word}_at_all", f"{word} along the whole line, {where}")
    return Line(f"{word}_on_average", f"{word} on average along the line, {where}")


def _excludes_zero(point: RungDifference) -> bool:
    return point.interval is not None and not point.interval[0] <= 0 <= point.interval[1]


def law_verdict(mean: Estimate, p_holm: float | None, options: AnalysisOptions, n_arms: int) -> Verdict:
    """What the mean difference over the line says, by its p-value after Holm's correction."""
    alpha = 1 - options.level
    if p_holm is not None and p_holm < alpha:
        return "better" if mean.value < 0 else "worse"
    within = options.margin and equivalence_p(mean, options.margin)
    return "equivalent" if within and within * n_arms < alpha else "undecided"


def _sentence(laws: LawsOnLine, verdict: Verdict, of_mean: LossDifference, note: str, where: str) -> str:
    margin = f" within {laws.options.margin}" if verdict == "equivalent" else ""
    noise = note
    if of_mean.interval:
        level, df = percent(laws.options.level), degrees(of_mean.df)
        noise = f"{level} interval {span(of_mean.interval)}, {df}, Holm p {p_value(of_mean.p_holm)}"
    return (
        f"{opening(verdict, laws.names[1], laws.names[0])}{margin}, by their laws: "
        f"mean difference {signed(of_mean.mean or 0.0)} ({noise}) at {laws.ratio:.3g} tokens per parameter "
        f"from {where}, which no pairs check."
    )


def compare_arms(
    results: pd.DataFrame,
    *,
    reference: str,
    options: AnalysisOptions | None = None,
    by: Basis | None = None,
    tokens_per_parameter: float | None = None,
    **changes: Unpack[OptionChanges],
) -> tuple[list[Comparison], list[Comparison]]:
    """Compare each arm by its pairs with the reference; those that have none by their laws.

    Args:
        results: Tidy rows, one per trial, as for ``compare``.
        reference: The arm that the others are compared with.
        options: How to compare. A law in which arms share exponents (``chinchilla-shared``) is fitted to all.
        by: ``pairs`` or ``laws`` for all arms; None for pairs where there are any.
        tokens_per_parameter: Of the line along which laws are compared; by default the median at which runs
            end.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        The comparisons by pairs, then those by laws; Holm's correction is over all of them.

    Raises:
        DataError: What neither way can be compared, and why.
    """
    trials = compared_trials(results, reference, chosen_options(options, changes))
    return pairs_or_laws(trials, by, tokens_per_parameter)


def pairs_or_laws(
    trials: ComparedTrials, by: Basis | None = None, ratio: float | None = None
) -> tuple[list[Comparison], list[Comparison]]:
    """The same of ``trials``. Raises :class:`DataError`."""
    unpaired = [arm for arm in trials.others if trials.pairs(arm).planned.empty]
    chosen = list(trials.others) if by == "laws" else [] if by == "pairs" else unpaired
    if not chosen:
        return with_predictions(trials, compared(trials)), []
    results, reference, options = trials.source, trials.reference, trials.options
    rows = results[results["arm"].isin([reference, *chosen])]
    n_others = len(trials.others) - len(chosen) + trials.n_arms_left_out
    try:
        laws = _by_laws(rows, reference, options, ratio, n_others)
    except DataError as error:
        if by:
            raise
        try:
            return with_predictions(trials, compared(trials)), []
        except DataError as unpaired_error:
            raise DataError(f"{unpaired_error}; by their laws: {error}") from error
    pairs = []
    if len(chosen) < len(trials.others):
        of_pairs = compared_trials(results[~results["arm"].isin(chosen)], reference, options)
        pairs = compared(replace(of_pairs, n_arms_left_out=of_pairs.n_arms_left_out + len(chosen)))
    every = with_predictions(trials, [*pairs, *laws])
    return every[: len(pairs)], every[len(pairs) :]
