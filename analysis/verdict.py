"""From the numbers of a comparison to a verdict, one sentence, and what would change it.

A difference is claimed only where its interval (and Holm's p-value over the arms) carries it. Nothing that
flatters an arm follows from what was not measured: a diverged arm is never ``better``, a reference whose
learning rate was censored makes no arm ``better``, a censored arm is never ``worse``. A column
that is no loss is described, not judged: whether less of it is better, nobody said.
"""

from dataclasses import dataclass

from analysis.inference import Estimate, seeds_needed
from analysis.words import is_loss, joined, p_value, percent, span

VERDICTS = ("better", "worse", "equivalent", "undecided", "invalid")


@dataclass(frozen=True)
class Evidence:
    """What a verdict is written from. Differences are arm minus reference, in nats a token if y is a loss."""

    reference: str
    arm: str
    estimate: Estimate | None
    p_holm: float | None
    pair_sd: float
    n_pairs: int
    n_cells: int
    n_rungs: int
    """Rungs of different names: fewer than cells where a rung was run in several settings or budgets."""
    level: float
    y: str = "loss"
    """The column that is compared."""
    margin: float | None = None
    equivalence_p: float | None = None
    arm_diverged: tuple[str, ...] = ()
    reference_diverged: tuple[str, ...] = ()
    both_diverged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    reference_censored: bool = False
    arm_censored: bool = False
    same_trials: bool = False
    sign_p_holm: float = 1.0
    parts: tuple[str, ...] = ()
    """What was left out, one value at a time: rungs, and settings that vary."""
    fragile: tuple[str, ...] = ()
    """The values without which the interval, at the level that Holm leaves the arm, would include zero."""

    @property
    def diverged(self) -> bool:
        """Whether a pair has no difference because a side diverged."""
        return bool(self.arm_diverged or self.reference_diverged or self.both_diverged)

    @property
    def censored(self) -> list[str]:
        """The sides with a learning rate at the edge of its grid."""
        sides = ((self.reference, self.reference_censored), (self.arm, self.arm_censored))
        return [name for name, is_censored in sides if is_censored]

    @property
    def alpha(self) -> float:
        """The error that the level leaves."""
        return 1 - self.level


def raw_verdict(evidence: Evidence) -> str:
    """What the interval alone says, before anything blocks it."""
    if evidence.same_trials:
        return "equivalent"
    if evidence.equivalence_p is not None and evidence.equivalence_p < evidence.alpha:
        return "equivalent"
    if evidence.estimate is None or evidence.p_holm is None or evidence.p_holm >= evidence.alpha:
        return "undecided"
    return "better" if evidence.estimate.value < 0 else "worse"


def blocks(evidence: Evidence, verdict: str) -> list[str]:
    """Why ``verdict`` must not be given although the interval says so."""
    found = []
    if evidence.arm_diverged and verdict in ("better", "equivalent"):
        found.append(f"it diverged where {evidence.reference} completed")
    if evidence.reference_censored and verdict in ("better", "equivalent"):
        found.append(f"the learning rate of {evidence.reference} is censored, so its loss is only a bound")
    if evidence.arm_censored and verdict in ("worse", "equivalent"):
        found.append(f"the learning rate of {evidence.arm} is censored, so its loss is only a bound")
    return found


def decide(evidence: Evidence) -> tuple[str, list[str]]:
    """The verdict, one of :data:`VERDICTS`, and the reasons that stood against what the interval says."""
    if evidence.same_trials:
        return "equivalent", []
    if evidence.n_pairs == 0 and not evidence.arm_diverged:
        return "invalid", []
    if not is_loss(evidence.y):
        return "undecided", []
    verdict = raw_verdict(evidence)
    often_diverged = evidence.arm_diverged and evidence.sign_p_holm < evidence.alpha
    if often_diverged and not evidence.arm_censored:
        return "worse", []
    reasons = blocks(evidence, verdict)
    return ("undecided", reasons) if reasons else (verdict, [])


def sentence(evidence: Evidence, verdict: str, reasons: list[str]) -> str:
    """The verdict in words and numbers."""
    arm, reference = evidence.arm, evidence.reference
    if evidence.same_trials:
        return f"{arm} and {reference} are the same trials: identical by construction."
    if verdict == "invalid":
        return f"No verdict on {arm}: no pair with {reference} has two finished trials."
    if not is_loss(evidence.y):
        return f"{arm} against {reference} has no verdict: {_size(evidence)}."
    opening = {
        "better": f"{arm} is better than {reference}: {_size(evidence)}.",
        "worse": f"{arm} is worse than {reference}: {_size(evidence)}.",
        "equivalent": f"{arm} and {reference} are equivalent within {evidence.margin}: {_size(evidence)}.",
        "undecided": f"{arm} against {reference} is undecided: {_size(evidence)}.",
    }[verdict]
    parts = [opening]
    if reasons:
        said = raw_verdict(evidence)
        parts.append(f"The interval alone says {said}, but {' and '.join(reasons)}.")
    if evidence.arm_diverged and not reasons:
        parts.append(f"It diverged in {len(evidence.arm_diverged)} {_plural(evidence.arm_diverged)}.")
    return " ".join(parts)


def _plural(pairs: tuple[str, ...]) -> str:
    return "pair" if len(pairs) == 1 else "pairs"


def _cells(evidence: Evidence) -> str:
    """The cells of the mean; they are the rungs where each was run in one setting."""
    if evidence.n_cells == evidence.n_rungs:
        return f"{evidence.n_rungs} rungs"
    return f"{evidence.n_cells} cells of {evidence.n_rungs} rung{'s' * (evidence.n_rungs > 1)}"


def _size(evidence: Evidence) -> str:
    """The mean difference with its interval, pairs and degrees of freedom."""
    if evidence.estimate is None:
        return "no pair has two completed trials"
    interval = evidence.estimate.interval(evidence.level)
    direction = "lower" if evidence.estimate.value < 0 else "higher"
    unit = " nats a token" if is_loss(evidence.y) else ""
    start = f"its {evidence.y} is {abs(evidence.estimate.value):.4f}{unit} {direction}"
    start += f" on average over {_cells(evidence)}" if evidence.n_cells > 1 else " at one rung"
    if interval is None:
        lack = "too few independent clusters" if evidence.estimate.between else "one seed a rung"
        return f"{start}, with {lack}, which carries no interval and no claim"
    freedom = "degree" if evidence.estimate.df == 1 else "degrees"
    basis = {
        "": "",
        "rungs": ", from the spread between rungs: one seed each",
        "clusters": ", from the spread between clusters",
        "seeds of clusters": ", from whole clusters: pairs that are not independent count as one",
    }[evidence.estimate.between]
    return (
        f"{start} ({percent(evidence.level)} interval of the difference {span(interval)}; {evidence.n_pairs} "
        f"pairs, {evidence.estimate.df} {freedom} of freedom{basis}, Holm p {p_value(evidence.p_holm)})"
    )


def would_change(evidence: Evidence, verdict: str, reasons: list[str]) -> str:
    """What evidence would change the verdict, written from the numbers."""
    if evidence.same_trials:
        return "Nothing: the two arms describe one training job."
    if verdict == "invalid":
        return "Completed trials of both arms at the same rung and seed."
    if not is_loss(evidence.y):
        return f"A verdict needs a column of losses (a name that starts with loss); {evidence.y} is none."
    parts = [_when_blocked(evidence)] if reasons else []
    if not reasons:
        parts.append(_when_free(evidence, verdict))
    if evidence.missing:
        parts.append(f"{len(evidence.missing)} {_plural(evidence.missing)} without a result could move it.")
    return " ".join(parts)


def _when_blocked(evidence: Evidence) -> str:
    wanted = []
    if evidence.arm_diverged:
        wanted.append(f"a setting at which {evidence.arm} does not diverge")
    wanted += [f"a wider learning-rate grid for {name}" for name in evidence.censored]
    return f"What would settle it: {' and '.join(wanted)}."


def _when_free(evidence: Evidence, verdict: str) -> str:
    if verdict in ("better", "worse"):
        if evidence.fragile:
            which = "one of them" if len(evidence.fragile) > 1 else "it"
            return f"It rests on {joined(evidence.fragile)}: it is undecided if {which} is left out."
        robust = evidence.parts and evidence.estimate is not None and evidence.estimate.df > 0
        if robust and not evidence.arm_diverged:
            part = joined(evidence.parts, "or")
            return f"It holds if any one {part} is left out; rungs beyond this range could still change it."
        return "More rungs and seeds; this one says nothing beyond what was run."
    if verdict == "equivalent":
        return f"A difference above {evidence.margin} at rungs outside this range."
    return " ".join(filter(None, [_when_undecided(evidence), _standing(evidence)]))


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
    seeds = seeds_needed(estimate, evidence.pair_sd, evidence.n_cells, evidence.level)
    noise = f"the noise seen (sd {evidence.pair_sd:.4f} a pair)"
    if seeds is None:
        return f"With {noise} a difference this small would need more than 100 seeds a rung."
    return f"With {noise} about {seeds} completed pairs at every rung would resolve a difference this large."


def _standing(evidence: Evidence) -> str:
    """What more seeds alone would not overcome, for an undecided arm that looks better."""
    if evidence.estimate is None or evidence.estimate.value >= 0:
        return ""
    reasons = blocks(evidence, "better")
    return f"More seeds alone will not make it better: {' and '.join(reasons)}." if reasons else ""
