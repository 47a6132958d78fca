"""Compare arms with a reference: four lines for each arm, the numbers behind them, and a verdict."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import pandas as pd

from scalevec.analysis.comparison import cautions
from scalevec.analysis.comparison.differences import (
    LossDifference,
    Part,
    RungDifference,
    rung_differences,
    trend_per_decade,
)
from scalevec.analysis.comparison.fairness import (
    SCHEMA_VERSION,
    Line,
    effort_of,
    fair,
    unlike_environments,
)
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import multipliers
from scalevec.analysis.comparison.plan import (
    DROPPED,
    VERDICTS,
    claim_status,
    dropped_trials,
    earlier_verdict,
    exploratory_sentence,
    history_of,
    plan_of,
)
from scalevec.analysis.comparison.predictions import Prediction, of_arm, predictions_of
from scalevec.analysis.comparison.scale import ScaleLine, changes_of, with_scale
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.comparison.verdict import Evidence, Judgement, Verdict, decide, evidence_of_all
from scalevec.analysis.comparison.words import at_sizes, sentence
from scalevec.analysis.data.pairs import WITHOUT_RESULT, PairKind
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import shortened
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options

FLAT = (
    *("law", "x", "y", "loss", "delta", "residual", "n_convention", "c_convention", "unit"),
    *("where", "level", "seed", "cluster", "repeated_seeds"),
)
"""The options that stand among the fields of a comparison in JSON."""


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference; the fields are those of ``scalevec compare --json``.

    Differences are arm minus reference in nats/token (or the unit of ``y``); multipliers are ratios, above
    one where the arm saves.

    Attributes:
        reference: The arm that is compared with.
        arm: The arm that is judged.
        verdict: ``better``, ``worse``, ``equivalent``, ``undecided``, ``incomplete`` or ``invalid``.
        scope: The sizes that the verdict speaks of.
        reason: Why it is no claim; None for a claim.
        at_sizes: Line 1, what holds at the sizes that were run. Each line has a ``code`` beside its ``text``.
        with_scale: Line 2, what becomes of a difference with scale, and by which ``measure``.
        fair: Line 3, whether both sides had their learning rates chosen alike, and with what effort.
        claim_status: Line 4, whether the question was asked before the results.
        sentence: The verdict with its figures, for people.
        pairs: Complete pairs: both sides completed, equal but for the arm.
        loss_difference: The mean difference that decides with its interval and p-values.
        sizes: The difference at each size with its own interval and p, by size.
        settings: The same in each setting (optimizer, schedule) that varies.
        by_rung: The difference of each rung and setting, descriptive.
        compute_multipliers: How many times the arm's compute (FLOPs) the reference needs for the same loss.
        token_multipliers: The same in training tokens.
        withheld: Why there is no multiplier: what refutes a law; empty where nothing does.
        trend: Change of the difference (nats/token) and of the multiplier per decade of compute.
        equivalence: Two one-sided tests at every size against the margin, or why there are none.
        hold_out: The difference at the largest rung, predicted by laws of the other rungs, and as observed;
            ``fails`` where it lies outside of the prediction's ``interval``, ``laws_fail`` are the sides
            whose own loss does; ``warnings`` are of those laws.
        warnings: Caveats, one sentence each, which names the arm that it is about.
        facts: What the figures rest on, a sentence each: no caveat.
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
        options: How it was compared: level, law, loss and conventions, with ``loss: auto`` decided.
        laws: The fitted law of each side in each variable that was needed, with its optimality and starts.
        excluded: Number of rows of these arms that ``where`` of the options leaves out.
        basis: ``pairs``; that of :class:`LawComparison` is ``laws``.
        schema_version: That of these fields.
    """

    reference: str
    arm: str
    verdict: Verdict
    scope: Line
    reason: Line | None
    at_sizes: Line
    with_scale: ScaleLine
    fair: Line
    claim_status: Line
    sentence: str
    pairs: int
    loss_difference: LossDifference
    sizes: tuple[Part, ...]
    settings: tuple[Part, ...]
    by_rung: tuple[RungDifference, ...]
    compute_multipliers: tuple[Multiplier, ...]
    token_multipliers: tuple[Multiplier, ...]
    withheld: str
    trend: dict[str, Any]
    equivalence: dict[str, Any]
    hold_out: dict[str, Any]
    warnings: tuple[str, ...]
    facts: tuple[str, ...]
    arm_diverged: tuple[str, ...]
    reference_diverged: tuple[str, ...]
    both_diverged: tuple[str, ...]
    missing: tuple[str, ...]
    unpaired: tuple[str, ...]
    environments: dict[str, list[str]]
    interim: str
    plan: dict[str, Any]
    predictions: tuple[Prediction, ...]
    options: AnalysisOptions
    laws: tuple[dict[str, Any], ...]
    excluded: dict[str, int]
    basis: Literal["pairs"] = "pairs"
    schema_version: int = SCHEMA_VERSION

    @property
    def multipliers(self) -> dict[str, tuple[Multiplier, ...]]:
        """The multipliers by what is saved: compute, tokens."""
        return {"compute": self.compute_multipliers, "tokens": self.token_multipliers}

    @property
    def lines(self) -> dict[str, Line]:
        """The four lines of the answer, by what each is about."""
        return {
            "at sizes": self.at_sizes,
            "with scale": self.with_scale,
            "fair": self.fair,
            "claim": self.claim_status,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the options under their own names."""
        return flat_fields(self, FLAT)


def flat_fields(comparison: Any, stated: Sequence[str]) -> dict[str, Any]:
    """The fields of a ``comparison``, in the place of its options those that are ``stated``."""
    fields = dataclasses.asdict(comparison)
    options = fields.pop("options")
    return fields | {name: options[name] for name in stated} | {"n_bootstrap": options["bootstrap"]}


class Comparisons(dict[str, Comparison]):
    """The comparisons by arm, in the order of the table."""

    @property
    def only(self) -> Comparison:
        """The comparison of the only arm. Raises :class:`ValueError` where there are several."""
        [comparison] = self.values()
        return comparison

    def to_frame(self) -> pd.DataFrame:
        """A row for each arm: its difference with interval (in the unit of y), verdict and the four lines."""
        return pd.DataFrame([_row(comparison) for comparison in self.values()])

    def summary(self) -> str:
        """The sentence of each arm, a line each."""
        return "\n".join(comparison.sentence for comparison in self.values())

    def __repr__(self) -> str:
        """The same as :meth:`summary`."""
        return self.summary()

    def _repr_html_(self) -> str:
        return str(self.to_frame().to_html(index=False, float_format="{:.4f}".format))


def _row(comparison: Comparison) -> dict[str, Any]:
    difference = comparison.loss_difference
    low, high = difference.interval or (None, None)
    lines = {name.replace(" ", "_"): line.text for name, line in comparison.lines.items()}
    shown = {"arm": comparison.arm, "verdict": comparison.verdict, "scope": comparison.scope.text}
    return {
        **shown,
        "difference": difference.mean,
        "low": low,
        "high": high,
        "p_holm": difference.p_holm,
        "pairs": comparison.pairs,
        **lines,
    }


def compare(
    results: pd.DataFrame,
    reference: str,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> Comparisons:
    """Compare every other arm with ``reference`` on paired comparison trials.

    Args:
        results: Tidy rows, one per trial: ``n_params``, ``n_tokens`` (counts) and ``loss`` (nats/token);
            ``arm``, ``rung``, ``seed``, ``cluster``, ``status`` and ``flops`` are used where present.
        reference: The arm that the others are compared with.
        options: How to compare; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        The :class:`Comparison` of each other arm by its name, in the order of the table, with p-values
        corrected by Holm over the arms. A column ``y`` is judged (by the margin too) only if its name starts
        with loss.

    Raises:
        DataError: A value, a column or a design that cannot be compared; the message says which.
    """
    trials = compared_trials(results, reference, chosen_options(options, changes))
    return Comparisons({comparison.arm: comparison for comparison in compared(trials)})


def compared(trials: ComparedTrials) -> list[Comparison]:
    """Compare every other arm of ``trials`` with the reference. Raises :class:`DataError`."""
    if trials.options.interval != "auto":
        raise DataError(
            f"interval is {trials.options.interval!r}; a comparison chooses its own: allowed is 'auto'"
        )
    require_common_cells(trials)
    family = [(evidence, decide(evidence)) for evidence in evidence_of_all(trials)]
    of_laws = [_from_laws(evidence) for evidence, _ in family]
    changes = [
        changes_of(evidence, fields["trend"], fields["withheld"])
        for (evidence, _), fields in zip(family, of_laws, strict=True)
    ]
    withheld = [fields["withheld"] for fields in of_laws]
    lines = with_scale(family, changes, withheld, trials.n_arms_left_out)
    notes, predicted = cautions.of_reference(trials), predictions_of(trials)
    return [
        _comparison(trials, evidence, decision, fields | {"with_scale": line}, notes, predicted)
        for (evidence, decision), fields, line in zip(family, of_laws, lines, strict=True)
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
    evidence: Evidence,
    decision: Judgement,
    of_laws: Mapping[str, Any],
    notes: Sequence[str],
    predicted: Sequence[Prediction],
) -> Comparison:
    """All of one arm."""
    paired, pairs, names = evidence.paired, evidence.pairs, (evidence.reference, evidence.arm)
    options = trials.options.with_loss(seeds_repeat=pairs.seeds_repeat)
    plan = plan_of(paired, dropped_trials(history_of(trials.source, DROPPED), names))
    left_out, line = trials.left_out(names), at_sizes(evidence, decision)
    return Comparison(
        reference=evidence.reference,
        arm=evidence.arm,
        verdict=decision.verdict,
        scope=decision.scope,
        reason=decision.reason,
        at_sizes=line,
        fair=fair(pairs, *names, effort_of(trials.source, names)),
        claim_status=claim_status(trials.source.attrs, plan, _question(trials)),
        sentence=" ".join([sentence(evidence, decision, line), *exploratory_sentence(plan)]),
        pairs=len(pairs.complete),
        loss_difference=evidence.difference,
        sizes=evidence.sizes,
        settings=evidence.settings,
        by_rung=tuple(rung_differences(paired, paired.level(options.level))),
        equivalence=evidence.equivalence,
        warnings=(*notes, *_warnings(trials, evidence), *of_laws["caveats"]),
        facts=(*trials.chosen, *_facts(evidence, plan)),
        arm_diverged=evidence.absences[PairKind.ARM_DIVERGED],
        reference_diverged=evidence.absences[PairKind.REFERENCE_DIVERGED],
        both_diverged=evidence.absences[PairKind.BOTH_DIVERGED],
        missing=tuple(pairs.names(*WITHOUT_RESULT)),
        unpaired=evidence.absences[PairKind.UNPAIRED],
        environments=unlike_environments(pairs),
        interim=f"interim: {paired.progress}" if pairs.is_interim else "",
        plan=plan,
        predictions=of_arm(predicted, evidence.arm, trials.others),
        options=options,
        excluded={"where": left_out} if left_out else {},
        **{name: value for name, value in of_laws.items() if name != "caveats"},
    )


def _question(trials: ComparedTrials) -> dict[str, Any]:
    """What is asked, by the names of :data:`plan.ASKED`."""
    options = trials.options
    return {
        "reference": trials.reference,
        "arms": sorted(trials.arms),
        "where": options.where,
        "margin": options.margin,
        "law": trials.asked_law,
    }


def _from_laws(evidence: Evidence) -> dict[str, Any]:
    """The fields that rest on laws fitted to the pairs, and ``caveats``: what is to be said of those laws."""
    pairs, paired = evidence.pairs, evidence.paired
    options = evidence.options.with_loss(seeds_repeat=pairs.seeds_repeat)
    chosen = dataclasses.replace(options, level=paired.level(options.level))
    names = {"reference": evidence.reference, "arm": evidence.arm}
    fields = multipliers(pairs, chosen, names, _against_laws(evidence))
    trend = {**trend_per_decade(paired, chosen.level), "multiplier_per_decade": fields.pop("per_decade")}
    laws = fields["laws"]
    return {**fields, "trend": trend, "caveats": [*cautions.unverified(laws), *cautions.not_unique(laws)]}


def _against_laws(evidence: Evidence) -> str:
    """What stands against any law of these pairs, whatever its form."""
    bound = dict.fromkeys(side for size in evidence.sizes for side in size.bound)
    if bound:
        names = {"reference": evidence.reference, "arm": evidence.arm}
        return f"a loss of {' and '.join(names[side] for side in bound)} is only a bound"
    if evidence.absences[PairKind.ARM_DIVERGED] or evidence.absences[PairKind.REFERENCE_DIVERGED]:
        return "a side of some pairs diverged"
    return ""


def _warnings(trials: ComparedTrials, evidence: Evidence) -> list[str]:
    """Caveats of one arm's pairs: what did not complete, an earlier verdict."""
    warnings = cautions.of_pairs(evidence)
    if trials.options.where is None:
        verdicts = history_of(trials.source, VERDICTS)
        earlier = earlier_verdict(evidence.paired, verdicts, trials.reference)
        warnings += [f"{evidence.arm}: {earlier}"] if earlier else []
    return warnings


def _facts(evidence: Evidence, plan: Mapping[str, Any]) -> list[str]:
    """What was dropped, and what the mean's standard error is of."""
    dropped = [f"dropped by the sweep file: {'; '.join(plan['dropped'])}"] if plan["dropped"] else []
    estimate, split = evidence.estimate, evidence.paired.sample.split
    if estimate is None or split is None or not estimate.has_noise or estimate.split_error is None:
        return dropped
    return [
        *dropped,
        f"standard error {estimate.standard_error:.4f}: {estimate.seeds_error:.4f} from seeds, "
        f"{estimate.split_error:.4f} from the test split ({len(split.tokens)} blocks)",
    ]
