"""From the numbers of a comparison to a verdict.

While a planned pair has no result nothing is claimed: who looks daily would test daily. One rung alone
carries no claim either. A difference is claimed only where its interval (and Holm's p-value over the arms)
carries it. Nothing that flatters an arm follows from what was not measured: a diverged arm is never
``better``, a reference whose learning rate was censored makes no arm ``better``, a censored arm is never
``worse``. A column that is no loss is described, not judged: whether less of it is better is not known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from scalevec.analysis.comparison.carried import cells_with_carried
from scalevec.analysis.comparison.differences import (
    LossDifference,
    OverSeeds,
    PairedArm,
    equivalence_test,
    excludes_zero,
)
from scalevec.analysis.comparison.environment import equal_losses
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import ARM_DIVERGED, COMPLETE, REFERENCE_DIVERGED, PairKind, Pairs, varying
from scalevec.analysis.data.tidy import BoolArray
from scalevec.analysis.formatting import count, degrees, is_loss, p_value, span
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.looks import Look
from scalevec.analysis.statistics.paired import Estimate
from scalevec.analysis.statistics.sample import PairedSample

Verdict = Literal["better", "worse", "equivalent", "undecided", "incomplete", "invalid"]


CLAIMS: tuple[Verdict, ...] = ("better", "worse", "equivalent")
ONE_RUNG = "one rung alone carries no claim"


@dataclass(frozen=True)
class Evidence:
    """What a verdict is written from. Differences are arm minus reference, in nats/token if y is a loss."""

    reference: str
    arm: str
    estimate: Estimate | None
    difference: LossDifference
    options: AnalysisOptions
    n_pairs: int
    n_cells: int
    n_rungs: int
    """Rungs of different names: fewer than cells where a rung was run in several settings or budgets."""
    n_sizes: int
    """Sizes of training: rungs, each with its budgets of tokens. One alone carries no claim."""
    progress: str
    """How far the plan is, as text."""
    is_interim: bool
    """Whether some planned pair has no result, or a declared look is still to come."""
    look: Look | None
    next_look: int | None
    """The seeds of the next declared look, where none so far decides."""
    equivalence: dict[str, Any]
    absences: dict[PairKind, tuple[str, ...]]
    """The pairs that have no difference, by kind."""
    censored: tuple[str, ...]
    """The sides with a learning rate at the edge of its grid."""
    same_trials: bool
    equal: str
    """What is said where all pairs have equal losses to the last digit; else empty."""
    sign_p_holm: float
    parts: tuple[str, ...]
    """What was left out, one value at a time: rungs, and settings that vary."""
    fragile: tuple[str, ...]
    """The values without which the interval, at the level that Holm leaves the arm, would include zero."""
    clauses: tuple[str, ...] = ()
    """What the interval assumes and leaves out."""
    needed: float = 0.95
    """The level at which the arm's own interval would have to exclude zero, after Holm's correction."""
    sample: PairedSample | None = None
    over_seeds: OverSeeds | None = None
    """What a claim needs where rungs repeat seeds without recorded streams."""

    @property
    def arm_diverged(self) -> tuple[str, ...]:
        """The pairs of which the arm's side alone diverged."""
        return self.absences[ARM_DIVERGED]

    @property
    def alpha(self) -> float:
        """The error that the level leaves."""
        return 1 - self.options.level


def evidence_of(
    trials: ComparedTrials,
    paired: PairedArm,
    difference: LossDifference,
    over_seeds: OverSeeds | None = None,
) -> Evidence:
    """Gather what the verdict on one arm is written from."""
    pairs, estimate, chosen = paired.pairs, paired.estimate, trials.options
    n_arms = len(trials.others)
    sides = {trials.reference: "reference", paired.arm: "arm"}
    corrected = inference.level_of_holm(chosen.level, difference.p_value, difference.p_holm, n_arms)
    parts = _parts(pairs)
    return Evidence(
        reference=trials.reference,
        arm=paired.arm,
        estimate=estimate,
        difference=difference,
        n_pairs=len(pairs.complete),
        n_cells=len(np.unique(pairs.cells)),
        n_rungs=pairs.complete["rung"].nunique(),
        n_sizes=len(pairs.complete[["rung", "n_tokens"]].drop_duplicates()),
        progress=paired.progress,
        is_interim=pairs.is_interim,
        look=paired.look,
        next_look=pairs.next_look,
        options=chosen,
        equivalence=equivalence_test(paired, chosen),
        absences=pairs.absences,
        censored=tuple(name for name, side in sides.items() if is_censored(pairs, side)),
        same_trials=pairs.same_trials,
        equal=equal_losses(trials.reference, paired.arm, pairs),
        sign_p_holm=min(1.0, _sign_p(pairs) * n_arms),
        parts=tuple(map(_in_words, parts)),
        fragile=tuple(_fragile(paired, parts, paired.level(corrected))),
        clauses=tuple(paired.independence.clauses(estimate)) if estimate else (),
        needed=paired.level(corrected),
        sample=paired.sample,
        over_seeds=over_seeds,
    )


def is_censored(pairs: Pairs, side: str) -> bool:
    """Whether some learning rate of the ``side`` (reference or arm) was found at the edge of its grid."""
    column = f"lr_status_{side}"
    return column in pairs.table and bool((pairs.table[column] == "censored").any())


def _sign_p(pairs: Pairs) -> float:
    """The two-sided sign test that the arm is worse, where diverging counts as the higher loss; else 1.

    Pairs that are not independent have one sign, that of most of them. One size carries no claim, whatever
    its signs.
    """
    rows = pairs.of_kind(COMPLETE, ARM_DIVERGED, REFERENCE_DIVERGED)
    if len(rows[["rung", "n_tokens"]].drop_duplicates()) < 2:
        return 1.0
    lower_or_higher = rows["loss_arm"] - rows["loss_reference"]
    signs = np.sign(rows["kind"].map({ARM_DIVERGED: 1.0, REFERENCE_DIVERGED: -1.0}).fillna(lower_or_higher))
    clusters = replace(pairs, table=rows.assign(kind=COMPLETE)).clusters  # of those that diverged, too
    of_cluster = np.sign(np.bincount(clusters, signs))
    worse, better = int((of_cluster > 0).sum()), int((of_cluster < 0).sum())
    return inference.sign_p(worse, better) if worse > better else 1.0


def _parts(pairs: Pairs) -> list[str]:
    """The columns of which one value at a time is left out: rungs and settings, else budgets of tokens."""
    return varying(pairs.complete, ["rung", *pairs.settings]) or varying(pairs.complete, ["n_tokens"])


def _in_words(column: str) -> str:
    return "budget" if column == "n_tokens" else column.replace("_", " ")


def _part_name(column: str, value: object) -> str:
    """A rung by its name, a budget in short tokens, any other setting with its column."""
    if column == "n_tokens":
        return f"{count(float(str(value)))} tokens"
    return str(value) if column == "rung" else f"{_in_words(column)} {value}"


def _fragile(paired: PairedArm, parts: list[str], level: float) -> list[str]:
    """The values without which the interval at ``level`` excludes zero no longer, or on the other side."""
    pairs, estimate = paired.pairs, paired.estimate
    interval = estimate.interval(level) if estimate and not pairs.is_interim else None
    if interval is None or not excludes_zero(interval):
        return []
    names = []
    for name, keep in _parts_left_out(pairs, parts):
        rest = inference.overall(paired.sample.kept(keep)).interval(level)
        if rest is None or not excludes_zero(rest) or rest[0] * interval[0] < 0:
            names.append(name)
    return names


def _parts_left_out(pairs: Pairs, parts: list[str]) -> Iterator[tuple[str, BoolArray]]:
    """What is left out, in words, and which complete pairs are kept."""
    complete = pairs.complete
    for column, value in ((name, value) for name in parts for value in complete[name].unique()):
        yield _part_name(column, value), (complete[column] != value).to_numpy()
    with_carried = cells_with_carried(pairs)
    if with_carried.any() and not with_carried.all():
        rungs = ", ".join(dict.fromkeys(complete.loc[with_carried, "rung"].astype(str)))
        yield f"the cells with carried learning rates ({rungs})", ~with_carried


def raw_verdict(evidence: Evidence) -> Verdict:
    """What the interval alone says, before anything blocks it."""
    if evidence.same_trials:
        return "equivalent"
    equivalence_p = evidence.equivalence.get("p_value")
    if equivalence_p is not None and equivalence_p < evidence.alpha:
        return "equivalent"
    if (
        evidence.estimate is None
        or evidence.difference.p_holm is None
        or evidence.difference.p_holm >= evidence.alpha
    ):
        return "undecided"
    return "better" if evidence.estimate.value < 0 else "worse"


def blocks(evidence: Evidence, verdict: Verdict) -> list[str]:
    """Why ``verdict`` must not be given although the interval says so."""
    reasons = [ONE_RUNG] if verdict in CLAIMS and evidence.n_sizes == 1 else []
    if evidence.arm_diverged and verdict in ("better", "equivalent"):
        reasons.append(f"it diverged where {evidence.reference} completed")
    if evidence.reference in evidence.censored and verdict in ("better", "equivalent"):
        reasons.append(f"the learning rate of {evidence.reference} is censored, so its loss is only a bound")
    if evidence.arm in evidence.censored and verdict in ("worse", "equivalent"):
        reasons.append(f"the learning rate of {evidence.arm} is censored, so its loss is only a bound")
    return reasons


def _not_over_seeds(evidence: Evidence, verdict: Verdict) -> list[str]:
    """Why a claim is withheld that holds only if rungs of one seed are independent, which nothing says."""
    check = evidence.over_seeds
    if check is None or verdict not in CLAIMS:
        return []
    p = check.equivalence_p if verdict == "equivalent" else check.p_holm
    if p is not None and p < evidence.alpha:
        return []
    repeated = "rungs repeat seeds and no stream is recorded"
    if check.interval is None:
        return [f"{repeated}, and whole seeds carry no interval"]
    corrected = "p" if verdict == "equivalent" else "Holm p"
    shown = f"{span(check.interval)}, {degrees(check.df)}, {corrected} {p_value(p)}"
    return [f"{repeated}, and over whole seeds it does not hold ({shown})"]


def decide(evidence: Evidence) -> tuple[Verdict, list[str]]:
    """The verdict, and the reasons that stood against what the interval says."""
    if evidence.same_trials:
        return "equivalent", []
    if evidence.is_interim:
        return "incomplete", []
    if evidence.n_pairs == 0 and not evidence.arm_diverged:
        return "invalid", []
    if not is_loss(evidence.options.y) or evidence.equal:
        return "undecided", []
    verdict = raw_verdict(evidence)
    often_diverged = evidence.arm_diverged and evidence.sign_p_holm < evidence.alpha
    if often_diverged and evidence.arm not in evidence.censored:
        return "worse", []
    reasons = [*blocks(evidence, verdict), *_not_over_seeds(evidence, verdict)]
    return ("undecided", reasons) if reasons else (verdict, [])
