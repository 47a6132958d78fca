"""From the numbers of a comparison to a verdict: the first rule that matches gives it.

Sizes come first: no mean hides a size or a setting that says the opposite. Nothing that flatters an arm
follows from what was not measured: a side that diverged, or whose learning rate leaves only a bound, cannot
lose by it. While a planned pair has no result nothing is claimed: who looks daily would test daily. A column
that is no loss is described, not judged: whether less of it is better is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from scalevec.analysis.comparison.differences import (
    EQUIVALENCE_LEVEL,
    INTERIM,
    ONE_SIDED,
    LossDifference,
    PairedArm,
    Part,
    corrected_differences,
    inside_all,
)
from scalevec.analysis.comparison.fairness import Line, equal_losses
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind, Pairs
from scalevec.analysis.formatting import is_loss, joined, plural
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.paired import Estimate

Verdict = Literal["better", "worse", "equivalent", "undecided", "incomplete", "invalid"]


@dataclass(frozen=True)
class Evidence:
    """What a verdict is written from. Differences are arm minus reference, in nats/token if y is a loss.

    ``sizes`` and ``settings`` are the differences in each, the largest size last; p-values of ``difference``,
    ``equivalence`` and ``divergence_p`` are corrected by Holm over the source's arms.
    """

    reference: str
    paired: PairedArm
    options: AnalysisOptions
    difference: LossDifference
    sizes: tuple[Part, ...]
    settings: tuple[Part, ...]
    equivalence: dict[str, Any]
    divergence_p: float
    equal: str
    """What is said where all pairs have equal losses to the last digit; else empty."""
    needed: float
    """The level at which the arm's own interval would have to exclude zero, after Holm's correction."""

    @property
    def arm(self) -> str:
        """The arm that is judged."""
        return self.paired.arm

    @property
    def pairs(self) -> Pairs:
        """Its pairs with the reference."""
        return self.paired.pairs

    @property
    def estimate(self) -> Estimate | None:
        """The mean that decides."""
        return self.paired.estimate

    @cached_property
    def absences(self) -> dict[PairKind, tuple[str, ...]]:
        """The pairs that have no difference, by kind."""
        return self.pairs.absences

    @property
    def alpha(self) -> float:
        """The error that the level leaves."""
        return 1 - self.options.level

    @property
    def is_significant(self) -> bool:
        """Whether the mean differs from zero by Holm over the arms."""
        return self.difference.p_holm is not None and self.difference.p_holm < self.alpha

    def differing(self, parts: Sequence[Part], sign: int, *, alone: bool = False) -> list[Part]:
        """The ``parts`` that are lower (``sign`` -1) or higher (+1) by Holm over them, or each ``alone``.

        A bound that flatters the direction counts for nothing.
        """
        flattering = "reference" if sign < 0 else "arm"
        alpha = 1 - self.paired.level(self.options.level)
        return [
            part
            for part in parts
            for p in [part.p_value if alone else part.p_holm]
            if p is not None and p < alpha and part.mean * sign > 0 and flattering not in part.bound
        ]

    @cached_property
    def judged(self) -> list[Part]:
        """The sizes that the mean which decides is over."""
        keep = self.paired.keep
        kept = [bool(keep[of_size].any()) for _, of_size in self.paired.sizes]
        return [size for size, is_kept in zip(self.sizes, kept, strict=True) if is_kept]

    @property
    def unbounded(self) -> list[Part]:
        """The sizes that an equivalence speaks of: neither side is a bound there, and a seed repeats."""
        return [size for size in self.sizes if not size.bound and not size.one_run]


@dataclass(frozen=True)
class Judgement:
    """A verdict, the ``scope`` (sizes) that it speaks of, and the ``reason`` why it is no claim."""

    verdict: Verdict
    scope: Line
    reason: Line | None = None


def evidence_of_all(trials: ComparedTrials) -> list[Evidence]:
    """What the verdict on each arm is written from, corrected by Holm over the arms of the source."""
    options, family = trials.options, [trials.paired(arm) for arm in trials.others]
    n_others = trials.n_arms_left_out
    differences = corrected_differences(family, options.level, n_others)
    parts = [
        (paired.parts(paired.sizes, options), paired.parts(paired.settings, options)) for paired in family
    ]
    inside = [
        _equivalence_p(paired, [*sizes, *settings])
        for paired, (sizes, settings) in zip(family, parts, strict=True)
    ]
    inside_holm = _corrected(inside, n_others)
    signs = _corrected([_sign_p(paired.pairs) for paired in family], n_others)
    blocks = []
    for number, (paired, difference) in enumerate(zip(family, differences, strict=True)):
        p_values, n_arms = (difference.p_value, difference.p_holm), len(family) + n_others
        blocks.append(
            Evidence(
                reference=trials.reference,
                paired=paired,
                options=options,
                difference=difference,
                sizes=parts[number][0],
                settings=parts[number][1],
                equivalence=equivalence_test(paired, options, inside[number], inside_holm[number]),
                divergence_p=signs[number] or 1.0,
                equal=equal_losses(trials.reference, paired.arm, paired.pairs),
                needed=paired.level(inference.level_of_holm(options.level, *p_values, n_arms)),
            )
        )
    return blocks


def _corrected(p_values: Sequence[float | None], n_others: int) -> list[float | None]:
    return inference.holm([*p_values, *[None] * n_others])[: len(p_values)]


def _sign_p(pairs: Pairs) -> float:
    """The two-sided sign test that the arm is worse, where diverging counts as the higher loss; else 1.

    Pairs that are not independent have one sign, that of most of them.
    """
    rows = pairs.of_kind(PairKind.COMPLETE, PairKind.ARM_DIVERGED, PairKind.REFERENCE_DIVERGED)
    if not (rows["kind"] == PairKind.ARM_DIVERGED).any():
        return 1.0
    lower_or_higher = rows["loss_arm"] - rows["loss_reference"]
    of_diverged = {PairKind.ARM_DIVERGED: 1.0, PairKind.REFERENCE_DIVERGED: -1.0}
    signs = np.sign(rows["kind"].map(of_diverged).fillna(lower_or_higher))
    # Clusters are numbered for complete pairs: here of those that diverged, too.
    clusters = replace(pairs, table=rows.assign(kind=PairKind.COMPLETE.value)).clusters
    of_cluster = np.sign(np.bincount(clusters, signs))
    worse, better = int((of_cluster > 0).sum()), int((of_cluster < 0).sum())
    return inference.sign_p(worse, better) if worse > better else 1.0


def decide(evidence: Evidence) -> Judgement:
    """The verdict by the first rule that matches."""
    scope, pairs = scope_of(evidence, evidence.judged), evidence.pairs
    arm_diverged, reference_diverged = (
        evidence.absences[kind] for kind in (PairKind.ARM_DIVERGED, PairKind.REFERENCE_DIVERGED)
    )
    if pairs.same_trials:
        return Judgement("equivalent", scope)
    if pairs.is_interim:
        return Judgement("incomplete", scope, Line("incomplete", _missing(evidence)))
    if not (len(pairs.complete) or arm_diverged or reference_diverged):
        return Judgement("invalid", scope, Line("no_pair", f"no pair with {evidence.reference} has a result"))
    if not is_loss(evidence.options.y):
        return Judgement("undecided", scope, Line("no_loss", f"{evidence.options.y} is no loss"))
    if evidence.equal:
        return Judgement("undecided", scope, Line("equal", evidence.equal))
    if arm_diverged and evidence.divergence_p < evidence.alpha and not evidence.paired.bounds.arm.any():
        rungs = pairs.of_kind(PairKind.ARM_DIVERGED)["rung"].astype(str)
        return Judgement("worse", Line("diverged", joined(list(dict.fromkeys(rungs)))))
    equivalence_p = evidence.equivalence.get("p_holm")
    if equivalence_p is not None and equivalence_p < ONE_SIDED and not (arm_diverged or reference_diverged):
        return Judgement("equivalent", scope_of(evidence, evidence.unbounded))
    if not evidence.is_significant or evidence.estimate is None:
        return Judgement("undecided", scope, _lack(evidence))
    verdict: Verdict = "better" if evidence.estimate.value < 0 else "worse"
    reason = _block(evidence, verdict)
    return Judgement("undecided", scope, reason) if reason else Judgement(verdict, scope)


def _missing(evidence: Evidence) -> str:
    """What is still to be run, and what a person must settle."""
    waiting, failed = (len(evidence.absences[kind]) for kind in (PairKind.WAITING, PairKind.FAILED))
    parts = [f"{plural(waiting, 'pair')} without a result"] if waiting else []
    if failed:
        parts.append(
            f"{plural(failed, 'pair')} that failed or were cancelled: run them again (scalevec retry), or "
            "drop them by a rule of exclude in the sweep file"
        )
    if evidence.pairs.next_look:
        parts.append(f"the next declared look is at {evidence.pairs.next_look} seeds")
    return "; ".join(parts)


def _block(evidence: Evidence, verdict: Verdict) -> Line | None:
    """Why ``verdict`` must not be given although the mean says so."""
    better = verdict == "better"
    if names := evidence.absences[PairKind.ARM_DIVERGED if better else PairKind.REFERENCE_DIVERGED]:
        code, name = ("arm_diverged", evidence.arm) if better else ("reference_diverged", evidence.reference)
        of_all = f"{len(names)} of {evidence.pairs.n_planned} pairs"
        return Line(code, f"{name} diverged where the other did not ({of_all})")
    sign = 1 if better else -1
    word = "higher" if sign > 0 else "lower"
    known = [size for size in evidence.sizes if not size.one_run]
    if evidence.differing(known[-1:], sign, alone=True):
        return Line("crosses", f"{word} at {known[-1].name}, the largest size")
    if opposite := evidence.differing(evidence.settings, sign):
        return Line("crosses", f"{word} with {opposite[0].name}")
    return None


def _lack(evidence: Evidence) -> Line:
    """What an arm without a significant mean lacks."""
    paired, estimate, p = evidence.paired, evidence.estimate, evidence.difference.p_value
    if estimate is None:
        code = "arm_diverged" if evidence.absences[PairKind.ARM_DIVERGED] else "reference_diverged"
        return Line(code, "no pair has two completed trials")
    if paired.one_sided:
        side = "reference" if estimate.value < 0 else "arm"
        name = evidence.reference if side == "reference" else evidence.arm
        return Line(
            f"{side}_bounded", f"the loss of {name} is only a bound: tune it there, or widen its grid"
        )
    if not estimate.has_noise:
        what = "too few independent clusters" if estimate.between == "clusters" else "one seed at each size"
        return Line("one_seed", f"{what}: no noise figure")
    if inference.limited_by_split(estimate, evidence.options.level):
        error = f"{estimate.split_error:.4f}"
        return Line(
            "test_split", f"the test split's own error ({error}) limits, which more seeds do not reduce"
        )
    if p is not None and p < evidence.alpha:
        return Line("several_arms", "significant alone, not after the correction for several arms")
    if paired.look:
        return Line(
            "looks_passed", "the last declared look has passed: more takes a new sweep with new seeds"
        )
    seen = inference.detectable(estimate, evidence.needed)
    return Line("noise", f"the noise between seeds: this design sees {seen:.2g}" if seen else "noise")


def scope_of(evidence: Evidence, sizes: Sequence[Part]) -> Line:
    """The ``sizes`` that a verdict speaks of."""
    names, judged = [size.name for size in evidence.sizes], [size.name for size in sizes]
    planned = evidence.pairs.table[evidence.pairs.table["kind"] != PairKind.UNPAIRED]
    largest = 0.0 if planned.empty else float((planned["size"] * planned["n_tokens"]).max())
    complete = evidence.pairs.complete
    reached = 0.0 if complete.empty else float((complete["size"] * complete["n_tokens"]).max())
    if not judged:
        return Line("none", "no size")
    if len(judged) == 1:
        return Line("one_size", f"one size, {judged[0]}")
    if judged[-1] != names[-1] or reached < 0.999 * largest:
        return Line("up_to", f"up to {judged[-1]}")
    if len(judged) < len(names):
        return Line("some_sizes", f"{len(judged)} of {len(names)} sizes, {judged[0]} to {judged[-1]}")
    return Line("all_sizes", f"{judged[0]} to {judged[-1]}")


def equivalence_test(
    paired: PairedArm, options: AnalysisOptions, p: float | None, p_holm: float | None
) -> dict[str, Any]:
    """Two one-sided tests against the margin at every size, or a ``note`` that says why there is none.

    ``p`` is the largest over the sizes and settings, ``p_holm`` is corrected over the arms; ``mean_p``
    is of the mean alone, whose ``interval`` is shown.
    """
    margin, estimate, look = options.margin, paired.estimate, paired.look
    if margin is None:
        return {"margin": None, "note": "no margin was given"}
    if not is_loss(options.y):
        return {"margin": None, "note": f"the margin is in nats/token, {options.y} is not"}
    note = "" if estimate and estimate.df else "no degree of freedom"
    if look is not None and not look.is_last:
        note = note or "tested at the last of the declared looks only"
    if paired.pairs.is_interim:
        note = INTERIM
    if note or estimate is None:
        return {"margin": margin, "p_value": None, "p_holm": None, "interval": None, "note": note}
    return {
        "margin": margin,
        "p_value": p,
        "p_holm": p_holm,
        "mean_p": inference.equivalence_p(estimate, margin),
        "interval": estimate.interval(EQUIVALENCE_LEVEL),
        "level": EQUIVALENCE_LEVEL,
    }


def _equivalence_p(paired: PairedArm, parts: Sequence[Part]) -> float | None:
    """The p-value of equivalence that counts in the family of arms; None where none is due.

    ``parts`` are the arm's sizes and settings.
    """
    if paired.pairs.is_interim:
        return None
    return inside_all(parts) if paired.look is None or paired.look.is_last else None
