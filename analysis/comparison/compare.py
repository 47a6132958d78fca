"""Compare arms with a reference: paired differences, multipliers, trend, equivalence, and a verdict."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import pandas as pd

from scalevec.analysis.comparison import carried, cautions, environment
from scalevec.analysis.comparison.arm_laws import fitted_laws, held_out_difference
from scalevec.analysis.comparison.differences import (
    LossDifference,
    OverSeeds,
    PairedArm,
    RungDifference,
    checks_over_seeds,
    corrected_differences,
    rung_differences,
    trend_per_decade,
)
from scalevec.analysis.comparison.growth import (
    UNTOLD,
    Scaling,
    answers,
    growth_of,
    hold_out_problem,
    without_extrapolated,
)
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.multipliers import multipliers
from scalevec.analysis.comparison.plan import (
    DROPPED,
    VERDICTS,
    dropped_trials,
    earlier_verdict,
    history_of,
    plan_of,
    plan_sentences,
)
from scalevec.analysis.comparison.predictions import Prediction, of_arm, predictions_of
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.comparison.verdict import CLAIMS, Evidence, Verdict, decide, evidence_of
from scalevec.analysis.comparison.verdict_text import sentence, would_change
from scalevec.analysis.data.pairs import (
    ARM_DIVERGED,
    BOTH_DIVERGED,
    REFERENCE_DIVERGED,
    UNPAIRED,
    WITHOUT_RESULT,
    Pairs,
)
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import is_loss, joined, shortened
from scalevec.analysis.options import (
    AnalysisOptions,
    CConvention,
    Loss,
    NConvention,
    OptionChanges,
    RepeatedSeeds,
    Residual,
    Unit,
    Variable,
    chosen_options,
)

_CRITERION = ("law", "x", "y", "loss", "delta", "residual", "n_convention", "c_convention")
_STATED = (*_CRITERION, "unit", "where", "level", "seed", "cluster", "repeated_seeds")
"""The options that a comparison repeats under their own names."""


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference; the fields are those of ``scalevec compare --json``.

    Differences are arm minus reference in nats/token (or the unit of ``y``); multipliers are ratios, above
    one where the arm saves.

    Attributes:
        reference: The arm that is compared with.
        arm: The arm that is judged.
        pairs: Complete pairs: both sides completed, equal but for the arm.
        loss_difference: The mean difference over all pairs with its interval and p-values.
        by_rung: The difference of each rung and setting, descriptive.
        compute_multipliers: How many times the arm's compute (FLOPs) the reference needs for the same loss.
        token_multipliers: The same in training tokens.
        time_multipliers: The same in seconds of training.
        trend: Change of the difference (nats/token) and of the multiplier per decade of compute.
        equivalence: Two one-sided tests against the margin (nats/token), or why there are none.
        hold_out: The difference at the largest rung, predicted by laws of the other rungs, and as observed;
            ``fails`` where it lies outside of the prediction's ``interval``; ``warnings`` are of those laws.
        verdict: ``better``, ``worse``, ``equivalent``, ``undecided``, ``invalid``, or ``incomplete`` while a
            planned pair has no result.
        scaling: Whether the gain ``grows``, ``holds`` or ``shrinks`` with scale, or ``cannot be told``.
        sentence: The verdict with its figures, for people.
        scaling_sentence: The same of ``scaling``.
        would_change: What would change the verdict.
        warnings: Caveats, one sentence each.
        arm_diverged: Pairs of which the arm's side alone diverged, by name.
        reference_diverged: Pairs of which the reference's side alone diverged.
        both_diverged: Pairs of which both sides diverged.
        missing: Planned pairs without a result: not run yet, failed or cancelled.
        unpaired: Trials of one arm whose counterpart the table does not hold, by the name of the pair.
        environments: The pairs whose sides differ in a recorded column of where and by what code they ran.
        interim: How far the plan is, as ``interim: 3 of 8 pairs``; empty once a verdict is due.
        plan: Planned pairs, those with a result, the declared looks (numbers of seeds), the look reached and
            the next one, what was dropped, and the mean with its standard error over all pairs
            (``exploratory``) where some came after the verdict.
        predictions: What was predicted of the arm before its results, beside what was seen.
        over_seeds: The mean difference with whole seeds as what varies, which a claim needs too where rungs
            repeat seeds without recorded streams; None where they do not, or are stated to be independent.
        level: Level of the intervals.
        law: The law that gives multipliers; ``x`` is its variable (N, D or C) and ``y`` what is judged.
        loss: The loss of the fit; ``delta`` is Huber's and ``residual`` the scale it acts on.
        n_bootstrap: Bootstrap replicates; ``seed`` is theirs and ``cluster`` the column of dependent rows;
            ``repeated_seeds`` is what a seed that rungs repeat was taken to mean.
        n_convention: What N counts; ``c_convention`` what C counts; ``unit`` is that of losses.
        laws: The fitted law of each side in each variable that was needed, with its optimality and starts.
        where: The expression by which rows were chosen; None for all.
        excluded: Number of rows of these arms that ``where`` leaves out.
        basis: ``pairs``; that of :class:`LawComparison` is ``laws``.
    """

    reference: str
    arm: str
    pairs: int
    loss_difference: LossDifference
    by_rung: tuple[RungDifference, ...]
    compute_multipliers: tuple[Multiplier, ...]
    token_multipliers: tuple[Multiplier, ...]
    time_multipliers: tuple[Multiplier, ...]
    trend: dict[str, Any]
    equivalence: dict[str, Any]
    hold_out: dict[str, Any]
    verdict: Verdict
    scaling: Scaling
    sentence: str
    scaling_sentence: str
    would_change: str
    warnings: tuple[str, ...]
    arm_diverged: tuple[str, ...]
    reference_diverged: tuple[str, ...]
    both_diverged: tuple[str, ...]
    missing: tuple[str, ...]
    unpaired: tuple[str, ...]
    environments: dict[str, list[str]]
    interim: str
    plan: dict[str, Any]
    predictions: tuple[Prediction, ...]
    over_seeds: OverSeeds | None
    level: float
    law: str
    x: Variable
    y: str
    loss: Loss
    delta: float
    residual: Residual
    n_bootstrap: int
    seed: int
    cluster: str
    repeated_seeds: RepeatedSeeds
    n_convention: NConvention
    c_convention: CConvention
    unit: Unit
    laws: tuple[dict[str, Any], ...]
    where: str | None
    excluded: dict[str, int]
    basis: Literal["pairs"] = "pairs"

    @property
    def multipliers(self) -> dict[str, tuple[Multiplier, ...]]:
        """The multipliers by what is saved: compute, tokens, time."""
        return {
            "compute": self.compute_multipliers,
            "tokens": self.token_multipliers,
            "time": self.time_multipliers,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def compare(
    results: pd.DataFrame,
    *,
    reference: str,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> list[Comparison]:
    """Compare every other arm with ``reference`` on paired comparison trials.

    Args:
        results: Tidy rows, one per trial: ``n_params``, ``n_tokens`` (counts) and ``loss`` (nats/token);
            ``arm``, ``rung``, ``seed``, ``cluster``, ``status`` and ``flops`` are used where present.
        reference: The arm that the others are compared with.
        options: How to compare; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One :class:`Comparison` per other arm, in the order of the table, with p-values corrected by Holm over
        the arms. A column ``y`` is judged (by the margin too) only if its name starts with loss.

    Raises:
        DataError: A value, a column or a design that cannot be compared; the message says which.
    """
    return compared(compared_trials(results, reference, chosen_options(options, changes)))


def compared(trials: ComparedTrials) -> list[Comparison]:
    """Compare every other arm of ``trials`` with the reference. Raises :class:`DataError`."""
    if trials.options.interval != "auto":
        raise DataError(
            f"interval is {trials.options.interval!r}; a comparison chooses its own: allowed is 'auto'"
        )
    notes = cautions.of_reference(trials)
    family = judged(trials)
    predicted = predictions_of(trials)
    comparisons = [_comparison(trials, paired, evidence, notes, predicted) for paired, evidence in family]
    growths = [
        growth_of(
            comparison.trend["multiplier_per_decade"], evidence.n_rungs, untold(evidence, comparison.hold_out)
        )
        for comparison, (_, evidence) in zip(comparisons, family, strict=True)
    ]
    levels = [paired.level(trials.options.level) for paired, _ in family]
    held = [comparison.hold_out for comparison in comparisons]
    return [
        dataclasses.replace(comparison, scaling=answer, scaling_sentence=sentence)
        for comparison, (answer, sentence) in zip(comparisons, answers(growths, levels, held), strict=True)
    ]


def untold(evidence: Evidence, hold_out: Mapping[str, Any]) -> list[str]:
    """What stands against telling how the gain changes with scale."""
    y = evidence.options.y
    checks = (
        (evidence.is_interim, f"{evidence.progress}, and no claim before the plan is done"),
        (not is_loss(y), f"{y} is no loss"),
        (evidence.same_trials, "the two arms are the same trials"),
        (bool(evidence.equal), "the losses are equal in all pairs"),
        (bool(evidence.arm_diverged), f"{evidence.arm} diverged where {evidence.reference} completed"),
        (bool(evidence.censored), f"a learning rate of {joined(evidence.censored)} is censored"),
    )
    return [*(reason for holds, reason in checks if holds), *filter(None, [hold_out_problem(hold_out)])]


def judged(trials: ComparedTrials) -> list[tuple[PairedArm, Evidence]]:
    """What each verdict is written from: the pairs of every other arm, corrected by Holm, without any law."""
    family = [trials.paired(arm) for arm in trials.others]
    require_common_cells(trials)
    differences = corrected_differences(family, trials.options.level)
    checks = checks_over_seeds(family, trials.options)
    return [
        (paired, evidence_of(trials, paired, difference, check))
        for paired, difference, check in zip(family, differences, checks, strict=True)
    ]


def require_common_cells(trials: ComparedTrials) -> None:
    """Raise :class:`DataError` where no arm has anything in common with the reference."""
    all_pairs, reference = [trials.pairs(arm) for arm in trials.others], trials.reference
    if any(pairs.table[["status_reference", "status_arm"]].notna().all(axis=1).any() for pairs in all_pairs):
        return
    key = ", ".join([*all_pairs[0].cell_columns, "seed"])
    rungs, rungs_of_others = (
        dict.fromkeys(
            str(rung)
            for pairs in some
            for rung in pairs.table.loc[pairs.table[f"status_{side}"].notna(), "rung"]
        )
        for side, some in (("reference", all_pairs[:1]), ("arm", all_pairs))
    )
    raise DataError(
        f"no arm has a trial in common with {reference!r}: a pair agrees in {key}; rungs of {reference!r}: "
        f"{shortened(list(rungs))}; of the others: {shortened(list(rungs_of_others))}"
    )


def _comparison(
    trials: ComparedTrials,
    paired: PairedArm,
    evidence: Evidence,
    notes: list[str],
    predicted: Sequence[Prediction],
) -> Comparison:
    """Everything but the answer on scale, which takes all arms together."""
    pairs = paired.pairs
    options = trials.options.with_loss(seeds_repeat=pairs.seeds_repeat)
    chosen = dataclasses.replace(options, level=paired.level(options.level))
    of_laws, caveats = _from_laws(paired, evidence, chosen)
    left_out = trials.left_out([trials.reference, paired.arm])
    return Comparison(
        reference=evidence.reference,
        arm=evidence.arm,
        pairs=evidence.n_pairs,
        loss_difference=evidence.difference,
        by_rung=tuple(rung_differences(paired, chosen.level)),
        equivalence=evidence.equivalence,
        scaling=UNTOLD,
        scaling_sentence="",
        warnings=(*notes, *_warnings(trials, paired, evidence), *caveats),
        environments=environment.differing(pairs),
        predictions=of_arm(predicted, evidence.arm, trials.others),
        over_seeds=evidence.over_seeds,
        n_bootstrap=chosen.bootstrap,
        excluded={"where": left_out} if left_out else {},
        **of_laws,
        **_judgement(trials, paired, evidence),
        **_absences(pairs, evidence),
        **{name: getattr(options, name) for name in _STATED},
    )


def _from_laws(
    paired: PairedArm, evidence: Evidence, chosen: AnalysisOptions
) -> tuple[dict[str, Any], list[str]]:
    """The fields that rest on laws fitted to the pairs, and what is to be said against those laws."""
    pairs = paired.pairs
    of_arm, hold_out = multipliers(pairs, chosen), held_out_difference(pairs, chosen)
    laws = [*of_arm.laws, *fitted_laws(pairs, chosen, known=[law["x"] for law in of_arm.laws])]
    caveats = [*filter(None, [hold_out_problem(hold_out), of_arm.reason])]
    if not of_arm.reason and not pairs.related and is_loss(chosen.y):
        caveats += cautions.of_misfit(evidence, pairs, chosen.law)
    fields = {
        f"{name}_multipliers": _noted(without_extrapolated(of_kind, hold_out), evidence)
        for name, of_kind in (("compute", of_arm.compute), ("token", of_arm.token), ("time", of_arm.time))
    }
    trend = {**trend_per_decade(paired, chosen.level), "multiplier_per_decade": of_arm.per_decade}
    return (
        {**fields, "trend": trend, "hold_out": hold_out, "laws": tuple(laws)},
        [*caveats, *cautions.unverified(laws), *cautions.not_unique(laws)],
    )


def _judgement(trials: ComparedTrials, paired: PairedArm, evidence: Evidence) -> dict[str, Any]:
    """The verdict, in words too, with the plan that it was given on."""
    dropped = dropped_trials(history_of(trials.source, DROPPED), [trials.reference, paired.arm])
    plan = plan_of(paired, dropped)
    verdict, reasons = decide(evidence)
    basis = carried.sentence(paired.pairs) if verdict in CLAIMS else []
    return {
        "verdict": verdict,
        "sentence": " ".join([sentence(evidence, verdict, reasons), *basis, *plan_sentences(plan)]),
        "would_change": would_change(evidence, verdict, reasons),
        "interim": f"interim: {paired.progress}" if paired.pairs.is_interim else "",
        "plan": plan,
    }


def _absences(pairs: Pairs, evidence: Evidence) -> dict[str, Any]:
    """The names of the pairs that have no difference."""
    return {
        "arm_diverged": evidence.absences[ARM_DIVERGED],
        "reference_diverged": evidence.absences[REFERENCE_DIVERGED],
        "both_diverged": evidence.absences[BOTH_DIVERGED],
        "missing": tuple(pairs.names(*WITHOUT_RESULT)),
        "unpaired": evidence.absences[UNPAIRED],
    }


def _warnings(trials: ComparedTrials, paired: PairedArm, evidence: Evidence) -> list[str]:
    """Caveats of one arm's pairs: what did not complete, an earlier verdict, what pairs share."""
    warnings = cautions.of_pairs(evidence, paired.pairs)
    if trials.options.where is None:
        verdicts = history_of(trials.source, VERDICTS)
        warnings += filter(None, [earlier_verdict(paired, verdicts, trials.reference)])
    if paired.estimate and not paired.pairs.is_interim:
        warnings += paired.independence.warnings(paired.estimate, paired.sample)
    return warnings


def _noted(of_arm: Sequence[Multiplier], evidence: Evidence) -> tuple[Multiplier, ...]:
    """Multipliers that say what the trials they rest on leave out."""
    diverged = any(evidence.absences[kind] for kind in (ARM_DIVERGED, REFERENCE_DIVERGED, BOTH_DIVERGED))
    remarks = ["complete pairs only"] if diverged else []
    remarks += [f"a learning rate of {name} is censored" for name in evidence.censored]
    return tuple(
        dataclasses.replace(multiplier, note="; ".join(filter(None, [multiplier.note, *remarks])))
        for multiplier in of_arm
    )
