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
    corrected,
    corrected_differences,
)
from scalevec.analysis.comparison.fairness import Line, equal_losses
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind, Pairs
from scalevec.analysis.formatting import is_loss, joined, plural, shortened
from scalevec.analysis.statistics import paired as inference

Verdict = Literal["better", "worse", "equivalent", "undecided", "incomplete", "invalid"]


@dataclass(frozen=True)
class Judgement:
    """A verdict, the ``scope`` (sizes) that it speaks of, and the ``reason`` why it is no claim."""

    verdict: Verdict
    scope: Line
    reason: Line | None = None


@dataclass(frozen=True)
class Evidence:
    """What the verdict on an arm is written from: its pairs, and p-values by Holm over the source's arms."""

    paired: PairedArm
    difference: LossDifference
    equivalence_p: float | None
    """Of two one-sided tests against the margin at every size and in every setting."""
    divergence_p: float
    """That the arm alone diverges more often than the reference alone."""

    @property
    def alpha(self) -> float:
        """The error that the level leaves."""
        return 1 - self.paired.options.level

    @property
    def is_significant(self) -> bool:
        """Whether the mean differs from zero by Holm over the arms."""
        return self.difference.p_holm is not None and self.difference.p_holm < self.alpha

    @property
    def unbounded(self) -> list[Part]:
        """The sizes that an equivalence speaks of: neither side is a bound there, and a seed repeats."""
        return [size for size in self.paired.sizes if not size.bound and not size.one_run]

    @property
    def detectable(self) -> float | None:
        """The difference that the design of the mean sees, after Holm's correction; None without noise."""
        paired, difference = self.paired, self.difference
        p, p_holm = difference.p_value, difference.p_holm
        needed = inference.level_of_holm(paired.options.level, p, p_holm, paired.n_arms)
        return inference.detectable(paired.estimate, paired.over_looks(needed)) if paired.estimate else None

    @cached_property
    def equivalence(self) -> dict[str, Any]:
        """Two one-sided tests against the margin at every size, or a ``note`` that says why there is none.

        ``mean_p`` is of the mean alone, whose ``interval`` is shown.
        """
        options, estimate, look = self.paired.options, self.paired.estimate, self.paired.look
        if options.margin is None:
            return {"margin": None, "note": "no margin was given"}
        if not is_loss(options.y):
            return {"margin": None, "note": f"the margin is in nats/token, {options.y} is not"}
        note = "" if estimate and estimate.df else "no degree of freedom"
        if look is not None and not look.is_last:
            note = note or "tested at the last of the declared looks only"
        if self.paired.pairs.is_interim:
            note = INTERIM
        if note or estimate is None:
            none = dict.fromkeys(("p_value", "p_holm", "interval"))
            return {"margin": options.margin, **none, "note": note}
        return {
            "margin": options.margin,
            "p_value": self.paired.equivalence_p,
            "p_holm": self.equivalence_p,
            "mean_p": inference.equivalence_p(estimate, options.margin),
            "interval": estimate.interval(EQUIVALENCE_LEVEL),
            "level": EQUIVALENCE_LEVEL,
        }

    @cached_property
    def judgement(self) -> Judgement:
        """The verdict by the first rule that matches."""
        paired, pairs, y = self.paired, self.paired.pairs, self.paired.options.y
        scope, arm_diverged = scope_of(paired, paired.judged), pairs.absences[PairKind.ARM_DIVERGED]
        any_diverged = arm_diverged or pairs.absences[PairKind.REFERENCE_DIVERGED]
        if pairs.same_trials:
            return Judgement("equivalent", scope)
        if pairs.is_interim:
            return Judgement("incomplete", scope, Line("incomplete", _missing(paired)))
        if not (len(pairs.complete) or any_diverged):
            no_pair = Line("no_pair", f"no pair with {paired.reference} has a result")
            return Judgement("invalid", scope, no_pair)
        if not is_loss(y):
            return Judgement("undecided", scope, Line("no_loss", f"{y} is no loss"))
        if equal := equal_losses(paired.reference, paired.arm, pairs):
            return Judgement("undecided", scope, Line("equal", equal))
        if arm_diverged and self.divergence_p < self.alpha and not paired.bounds["arm"].any():
            rungs = pairs.of_kind(PairKind.ARM_DIVERGED)["rung"].astype(str)
            return Judgement("worse", Line("diverged", joined(list(dict.fromkeys(rungs)))))
        equivalence_p = self.equivalence.get("p_holm")
        if equivalence_p is not None and equivalence_p < ONE_SIDED and not any_diverged:
            return Judgement("equivalent", scope_of(paired, self.unbounded))
        if not self.is_significant or paired.estimate is None:
            return Judgement("undecided", scope, _lack(self))
        verdict: Verdict = "better" if paired.estimate.value < 0 else "worse"
        reason = _block(paired, verdict)
        if reason:
            return Judgement("undecided", scope, reason)
        judged = paired.judged
        while len(judged) > 1 and judged[-1].bound and judged[-1].mean * paired.estimate.value < 0:
            judged = judged[:-1]  # a bound that says the opposite
        return Judgement(verdict, scope_of(paired, judged))


def evidence_of_all(trials: ComparedTrials) -> list[Evidence]:
    """What the verdict on each arm is written from, corrected by Holm over the arms of the source."""
    family = [trials.paired(arm) for arm in trials.others]
    differences, n_arms = corrected_differences(family), family[0].n_arms
    inside = corrected([paired.equivalence_p for paired in family], n_arms)
    signs = corrected([_sign_p(paired.pairs) for paired in family], n_arms)
    return [
        Evidence(paired, difference, of_margin, of_signs or 1.0)
        for paired, difference, of_margin, of_signs in zip(family, differences, inside, signs, strict=True)
    ]


def _sign_p(pairs: Pairs) -> float:
    """The two-sided sign test that the arm alone diverges more often than the reference alone; else 1.

    Pairs that are not independent have one sign, that of most of them.
    """
    rows = pairs.of_kind(PairKind.ARM_DIVERGED, PairKind.REFERENCE_DIVERGED)
    if rows.empty:
        return 1.0
    signs = np.where(rows["kind"] == PairKind.ARM_DIVERGED, 1.0, -1.0)
    # Clusters are numbered for complete pairs: here of those that diverged, too.
    clusters = replace(pairs, table=rows.assign(kind=PairKind.COMPLETE.value)).clusters
    of_cluster = np.sign(np.bincount(clusters, signs))
    worse, better = int((of_cluster > 0).sum()), int((of_cluster < 0).sum())
    return inference.sign_p(worse, better) if worse > better else 1.0


def _missing(paired: PairedArm) -> str:
    """What is still to be run, and what a person must settle."""
    waiting, failed = (len(paired.pairs.absences[kind]) for kind in (PairKind.WAITING, PairKind.FAILED))
    parts = [f"{plural(waiting, 'pair')} without a result"] if waiting else []
    if failed:
        remedy = "run them again (scalevec retry), or drop them by a rule of exclude in the sweep file"
        parts.append(f"{plural(failed, 'pair')} that failed or were cancelled: {remedy}")
    if paired.pairs.next_look:
        parts.append(f"the next declared look is at {paired.pairs.next_look} seeds")
    return "; ".join(parts)


def _block(paired: PairedArm, verdict: Verdict) -> Line | None:
    """Why ``verdict`` must not be given although the mean says so."""
    better = verdict == "better"
    code, name = ("arm_diverged", paired.arm) if better else ("reference_diverged", paired.reference)
    if names := paired.pairs.absences[PairKind.ARM_DIVERGED if better else PairKind.REFERENCE_DIVERGED]:
        of_all = f"{len(names)} of {len(paired.pairs.planned)} pairs"
        return Line(code, f"{name} diverged where the other did not ({of_all})")
    sign, word = (1, "higher") if better else (-1, "lower")
    largest = [size for size in paired.sizes if not size.one_run][-1:]
    if paired.differing(largest, sign, alone=True):
        return Line("crosses", f"{word} at {largest[0].name}, the largest size")
    for parts in (paired.settings, paired.ends):
        if opposite := paired.differing(parts, sign, against=True):
            return Line("crosses", f"{word} with {opposite[0].name}")
    return None


def _lack(evidence: Evidence) -> Line:
    """What an arm without a significant mean lacks."""
    paired, estimate, p = evidence.paired, evidence.paired.estimate, evidence.difference.p_value
    if estimate is None:
        code = "arm_diverged" if paired.pairs.absences[PairKind.ARM_DIVERGED] else "reference_diverged"
        return Line(code, "no pair has two completed trials")
    if paired.one_sided:
        lower = estimate.value < 0
        code, name = ("reference_bounded", paired.reference) if lower else ("arm_bounded", paired.arm)
        return Line(code, f"the loss of {name} is only a bound: tune it there, or widen its grid")
    if not estimate.has_noise:
        few = "too few independent clusters" if estimate.between == "clusters" else "one seed at each size"
        what = "seeds that change nothing" if paired.pairs.seeds_repeat else few
        return Line("one_seed", f"{what}: no noise figure")
    inside = evidence.equivalence.get("p_holm")
    is_inside = inside is not None and inside < ONE_SIDED  # but a side diverged
    if is_inside and (blocked := _block(paired, "better") or _block(paired, "worse")):
        return blocked
    at_sizes = [paired.differing(paired.sizes, sign) for sign in (-1, 1)]
    low, high = (shortened([size.name for size in sizes]) for sizes in at_sizes)
    if paired.crossing or all(at_sizes):
        return Line("crosses", paired.crossing or f"lower at {low}; higher at {high}")
    if inference.limited_by_split(estimate, paired.options.level):
        error = f"{estimate.split_error:.4f}"
        text = f"the test split's own error ({error}) limits, which more seeds do not reduce"
        return Line("test_split", text)
    if p is not None and p < evidence.alpha:
        return Line("several_arms", "significant alone, not after the correction for several arms")
    if paired.look:
        text = "the last declared look has passed: more takes a new sweep with new seeds"
        return Line("looks_passed", text)
    seen = evidence.detectable
    return Line("noise", f"the noise between seeds: this design sees {seen:.2g}" if seen else "noise")


def scope_of(paired: PairedArm, sizes: Sequence[Part]) -> Line:
    """The ``sizes`` that a verdict speaks of."""
    names, judged = [size.name for size in paired.sizes], [size.name for size in sizes]
    if not judged:
        return Line("none", "no size")
    if len(judged) == 1:
        return Line("one_size", f"one size, {judged[0]}")
    both_sides = (paired.pairs.complete, paired.pairs.planned)
    reached, largest = (float((rows["size"] * rows["n_tokens"]).max()) for rows in both_sides)
    if judged[-1] != names[-1] or reached < 0.999 * largest:
        return Line("up_to", f"up to {judged[-1]}")
    if len(judged) < len(names):
        return Line("some_sizes", f"{len(judged)} of {len(names)} sizes, {judged[0]} to {judged[-1]}")
    return Line("all_sizes", f"{judged[0]} to {judged[-1]}")
