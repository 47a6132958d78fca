"""From the numbers of a comparison to a verdict, one sentence, and what would change it.

A difference is claimed only where its interval (and Holm's p-value over the arms) carries it. Nothing that
flatters an arm follows from what was not measured: a diverged arm is never ``better``, a reference whose
learning rate was censored makes no arm ``better``, a censored arm is never ``worse``. A column
that is no loss is described, not judged: whether less of it is better is not known.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scalevec.analysis.comparison.differences import (
    LossDifference,
    PairedArm,
    equivalence_test,
    excludes_zero,
)
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import ARM_DIVERGED, MISSING, REFERENCE_DIVERGED, PairKind, Pairs, varying
from scalevec.analysis.formatting import count, is_loss, joined, p_value, percent, plural, span
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.paired import Estimate, seeds_needed

Verdict = Literal["better", "worse", "equivalent", "undecided", "invalid"]


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
    equivalence: dict[str, Any]
    absences: dict[PairKind, tuple[str, ...]]
    """The pairs that have no difference, by kind."""
    censored: tuple[str, ...]
    """The sides with a learning rate at the edge of its grid."""
    same_trials: bool
    sign_p_holm: float
    parts: tuple[str, ...]
    """What was left out, one value at a time: rungs, and settings that vary."""
    fragile: tuple[str, ...]
    """The values without which the interval, at the level that Holm leaves the arm, would include zero."""

    @property
    def arm_diverged(self) -> tuple[str, ...]:
        """The pairs of which the arm's side alone diverged."""
        return self.absences[ARM_DIVERGED]

    @property
    def alpha(self) -> float:
        """The error that the level leaves."""
        return 1 - self.options.level


def evidence_of(trials: ComparedTrials, paired: PairedArm, difference: LossDifference) -> Evidence:
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
        options=chosen,
        equivalence=equivalence_test(estimate, chosen),
        absences=pairs.absences,
        censored=tuple(name for name, side in sides.items() if _is_censored(pairs, side)),
        same_trials=pairs.same_trials,
        sign_p_holm=min(1.0, _sign_p(pairs) * n_arms),
        parts=tuple(map(_in_words, parts)),
        fragile=tuple(_fragile(pairs, parts, estimate, corrected)),
    )


def _is_censored(pairs: Pairs, side: str) -> bool:
    column = f"lr_status_{side}"
    return column in pairs.table and bool((pairs.table[column] == "censored").any())


def _sign_p(pairs: Pairs) -> float:
    """The one-sided sign test that the arm is worse, where diverging counts as the higher loss."""
    differences = pairs.differences
    worse = int(np.sum(differences > 0)) + len(pairs.of_kind(ARM_DIVERGED))
    better = int(np.sum(differences < 0)) + len(pairs.of_kind(REFERENCE_DIVERGED))
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


def _fragile(pairs: Pairs, parts: list[str], estimate: Estimate | None, level: float) -> list[str]:
    """The values without which the interval at ``level`` excludes zero no longer, or on the other side."""
    interval = estimate.interval(level) if estimate else None
    if interval is None or not excludes_zero(interval):
        return []
    complete, differences, cells, clusters = pairs.complete, pairs.differences, pairs.cells, pairs.clusters
    names = []
    for column, value in ((name, value) for name in parts for value in complete[name].unique()):
        keep = (complete[column] != value).to_numpy()
        rest = inference.overall(differences[keep], cells[keep], clusters[keep]).interval(level)
        if rest is None or not excludes_zero(rest) or rest[0] * interval[0] < 0:
            names.append(_part_name(column, value))
    return names


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
    reasons = []
    if evidence.arm_diverged and verdict in ("better", "equivalent"):
        reasons.append(f"it diverged where {evidence.reference} completed")
    if evidence.reference in evidence.censored and verdict in ("better", "equivalent"):
        reasons.append(f"the learning rate of {evidence.reference} is censored, so its loss is only a bound")
    if evidence.arm in evidence.censored and verdict in ("worse", "equivalent"):
        reasons.append(f"the learning rate of {evidence.arm} is censored, so its loss is only a bound")
    return reasons


def decide(evidence: Evidence) -> tuple[Verdict, list[str]]:
    """The verdict, and the reasons that stood against what the interval says."""
    if evidence.same_trials:
        return "equivalent", []
    if evidence.n_pairs == 0 and not evidence.arm_diverged:
        return "invalid", []
    if not is_loss(evidence.options.y):
        return "undecided", []
    verdict = raw_verdict(evidence)
    often_diverged = evidence.arm_diverged and evidence.sign_p_holm < evidence.alpha
    if often_diverged and evidence.arm not in evidence.censored:
        return "worse", []
    reasons = blocks(evidence, verdict)
    return ("undecided", reasons) if reasons else (verdict, [])


def sentence(evidence: Evidence, verdict: Verdict, reasons: list[str]) -> str:
    """The verdict in words and numbers."""
    arm, reference = evidence.arm, evidence.reference
    if evidence.same_trials:
        return f"{arm} and {reference} are the same trials: identical by construction."
    if verdict == "invalid":
        return f"No verdict on {arm}: no pair with {reference} has two finished trials."
    if not is_loss(evidence.options.y):
        return f"{arm} against {reference} has no verdict: {_size(evidence)}."
    opening = {
        "better": f"{arm} is better than {reference}",
        "worse": f"{arm} is worse than {reference}",
        "equivalent": f"{arm} and {reference} are equivalent within {evidence.options.margin}",
        "undecided": f"{arm} against {reference} is undecided",
    }[verdict]
    parts = [f"{opening}: {_size(evidence)}."]
    if reasons:
        parts.append(f"The interval alone says {raw_verdict(evidence)}, but {' and '.join(reasons)}.")
    elif evidence.arm_diverged:
        parts.append(f"It diverged in {plural(len(evidence.arm_diverged), 'pair')}.")
    return " ".join(parts)


def _cells(evidence: Evidence) -> str:
    """The cells of the mean; they are the rungs where each was run in one setting."""
    if evidence.n_cells == evidence.n_rungs:
        return f"{evidence.n_rungs} rungs"
    return f"{evidence.n_cells} cells of {plural(evidence.n_rungs, 'rung')}"


def _size(evidence: Evidence) -> str:
    """The mean difference with its interval, pairs and degrees of freedom."""
    estimate, y, interval = evidence.estimate, evidence.options.y, evidence.difference.interval
    if estimate is None:
        return "no pair has two completed trials"
    direction = "lower" if estimate.value < 0 else "higher"
    unit = " nats/token" if is_loss(y) else ""
    start = f"its {y} is {abs(estimate.value):.4f}{unit} {direction}"
    start += f" on average over {_cells(evidence)}" if evidence.n_cells > 1 else " at one rung"
    if interval is None:
        lack = "too few independent clusters" if estimate.between else _no_repeats(evidence)
        return f"{start}, with {lack}: no confidence interval, so no claim"
    basis = {
        "": "",
        "rungs": ", from the spread between rungs: one seed each",
        "clusters": ", from the spread between clusters",
        "seeds of clusters": ", from whole clusters: pairs that are not independent count as one",
    }[estimate.between]
    level, p = percent(evidence.options.level), p_value(evidence.difference.p_holm)
    return (
        f"{start} ({level} interval of the difference {span(interval)}; {evidence.n_pairs} pairs, "
        f"{plural(estimate.df, 'degree')} of freedom{basis}, Holm p {p})"
    )


def would_change(evidence: Evidence, verdict: Verdict, reasons: list[str]) -> str:
    """What evidence would change the verdict, written from the numbers."""
    if evidence.same_trials:
        return "Nothing: the two arms describe one training job."
    if verdict == "invalid":
        return "Completed trials of both arms at the same rung and seed."
    y = evidence.options.y
    if not is_loss(y):
        return f"A verdict needs a column of losses (a name that starts with loss); {y} is none."
    parts = [_when_blocked(evidence) if reasons else _when_free(evidence, verdict)]
    if missing := evidence.absences[MISSING]:
        parts.append(f"{plural(len(missing), 'pair')} without a result could move it.")
    return " ".join(parts)


def _when_blocked(evidence: Evidence) -> str:
    wanted = [f"a setting at which {evidence.arm} does not diverge"] if evidence.arm_diverged else []
    wanted += [f"a wider learning-rate grid for {name}" for name in evidence.censored]
    return f"What would settle it: {' and '.join(wanted)}."


def _when_free(evidence: Evidence, verdict: Verdict) -> str:
    if verdict in ("better", "worse"):
        if evidence.fragile:
            any_one = "any one of " if len(evidence.fragile) > 1 else ""
            return f"Fragile: leaving out {any_one}{', '.join(evidence.fragile)} makes it undecided."
        robust = evidence.parts and evidence.estimate is not None and evidence.estimate.df > 0
        if robust and not evidence.arm_diverged:
            part = joined(evidence.parts, "or")
            return f"It holds if any one {part} is left out; rungs beyond this range could still change it."
        return "More rungs and seeds; this one says nothing beyond what was run."
    if verdict == "equivalent":
        return f"A difference above {evidence.options.margin} at rungs outside this range."
    return " ".join(filter(None, [_when_undecided(evidence), _standing(evidence)]))


def _no_repeats(evidence: Evidence) -> str:
    """Why there is no noise between seeds: each cell has one, or the others repeat it."""
    return (
        "one seed per rung" if evidence.n_pairs <= evidence.n_cells else "seeds that are copies of each other"
    )


def _when_undecided(evidence: Evidence) -> str:
    estimate = evidence.estimate
    if estimate is None:
        return "Pairs of which both trials complete."
    if estimate.between in ("clusters", "seeds of clusters"):
        return "More independent clusters: the spread between them is the noise."
    if estimate.df == 0:
        return "A second seed: one seed carries no claim."
    p = estimate.p_value()
    if p is not None and p < evidence.alpha:
        return "A few more seeds: only the correction for several arms stands against a claim."
    if estimate.between:
        return "A second seed at every rung: the spread between rungs is all the noise figure there is."
    pair_sd = evidence.difference.pair_sd or 0.0
    seeds = seeds_needed(estimate, pair_sd, evidence.n_cells, evidence.options.level)
    noise = f"the observed noise (sd {pair_sd:.4f} per pair)"
    if seeds is None:
        return f"With {noise} a difference this small would need more than 100 seeds per rung."
    return f"With {noise} about {seeds} completed pairs at every rung would resolve a difference this large."


def _standing(evidence: Evidence) -> str:
    """What more seeds alone would not overcome, for an undecided arm that looks better."""
    if evidence.estimate is None or evidence.estimate.value >= 0:
        return ""
    reasons = blocks(evidence, "better")
    return f"More seeds alone will not make it better: {' and '.join(reasons)}." if reasons else ""
