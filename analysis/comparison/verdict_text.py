"""A verdict in words: one sentence with its figures, and what would change it."""

from scalevec.analysis.comparison.verdict import Evidence, Verdict, blocks, raw_verdict
from scalevec.analysis.data.pairs import FAILED, WAITING
from scalevec.analysis.formatting import degrees, is_loss, joined, p_value, percent, plural, span, unit_of
from scalevec.analysis.statistics.paired import Estimate, limited_by_split, seeds_needed
from scalevec.analysis.statistics.sample import WHOLE_SEEDS

NEW_PAIRS = (
    "in a new sweep (another name, new seeds) or with looks declared before it; what is added to this one is "
    "exploratory"
)


def sentence(evidence: Evidence, verdict: Verdict, reasons: list[str]) -> str:
    """The verdict in words and numbers."""
    arm, reference = evidence.arm, evidence.reference
    if evidence.same_trials:
        return f"{arm} and {reference} are the same trials: identical by construction."
    if verdict == "invalid":
        return f"No verdict on {arm}: no pair with {reference} has two finished trials."
    if not is_loss(evidence.options.y):
        return f"{arm} against {reference} has no verdict: {_size(evidence)}."
    if verdict == "incomplete":
        return f"{arm} against {reference} is incomplete, interim: {evidence.progress}{_so_far(evidence)}."
    if evidence.equal:
        return f"{arm} against {reference} has no verdict: {evidence.equal}."
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


def _so_far(evidence: Evidence) -> str:
    """The estimate of the pairs that have a result, which is no claim."""
    estimate = evidence.estimate
    if estimate is None:
        return ""
    error = f"standard error {estimate.standard_error:.4f}" if estimate.has_noise else "no noise figure"
    due = "at this look" if evidence.look else "before every planned pair has a result"
    return f". So far {_start(evidence)} ({error}); no claim {due}"


def _cells(evidence: Evidence) -> str:
    """The cells of the mean; they are the rungs where each was run in one setting."""
    if evidence.n_cells == evidence.n_rungs:
        return f"{evidence.n_rungs} rungs"
    return f"{evidence.n_cells} cells of {plural(evidence.n_rungs, 'rung')}"


def _start(evidence: Evidence) -> str:
    """The mean difference and what it is over."""
    y, value = evidence.options.y, evidence.difference.mean or 0.0
    direction = "lower" if value < 0 else "higher"
    unit = f" {name}" if (name := unit_of(y, evidence.options.unit)) else ""
    over = f" on average over {_cells(evidence)}" if evidence.n_cells > 1 else " at one rung"
    return f"its {y} is {abs(value):.4f}{unit} {direction}{over}"


def _size(evidence: Evidence) -> str:
    """The mean difference with its interval, pairs and degrees of freedom."""
    estimate, interval = evidence.estimate, evidence.difference.interval
    if estimate is None:
        return "no pair has two completed trials"
    start = _start(evidence)
    if interval is None:
        lack = "too few independent clusters" if estimate.between else _no_repeats(evidence)
        return f"{start}, with {lack}: no confidence interval, so no claim"
    basis = {
        "": "",
        "rungs": ", from the spread between rungs: one seed each",
        "clusters": ", from the spread between clusters",
        "seeds of clusters": ", from whole clusters: pairs that are not independent count as one",
        "whole seeds": ", from whole seeds, which the rungs share",
    }[estimate.between]
    level, p = percent(evidence.options.level), p_value(evidence.difference.p_holm)
    return (
        f"{start} ({level} interval of the difference {span(interval)}; {evidence.n_pairs} pairs, "
        f"{degrees(estimate.df)}{basis}, Holm p {p}{''.join(f'; {clause}' for clause in evidence.clauses)})"
    )


def would_change(evidence: Evidence, verdict: Verdict, reasons: list[str]) -> str:
    """What evidence would change the verdict, written from the numbers."""
    if evidence.same_trials:
        return "Nothing: the two arms describe one training job."
    if verdict == "invalid":
        return "Completed trials of both arms at the same rung and seed."
    y = evidence.options.y
    if verdict == "incomplete":
        return _when_incomplete(evidence)
    if not is_loss(y):
        return f"A verdict needs a column of losses (a name that starts with loss); {y} is none."
    if evidence.equal:
        return "Arms that differ in something that the script reads."
    return _when_blocked(evidence) if reasons else _when_free(evidence, verdict)


def _when_incomplete(evidence: Evidence) -> str:
    """What is still to be run, and what a person must settle."""
    waiting, failed = (len(evidence.absences[kind]) for kind in (WAITING, FAILED))
    parts = [f"the results of {plural(waiting, 'pair')}"] if waiting else []
    if failed:
        parts.append(
            f"{plural(failed, 'pair')} that failed or were cancelled: run them again (scalevec retry), or "
            "drop them by a rule of exclude in the sweep file"
        )
    missing = f"What is missing: {'; '.join(parts)}." if parts else ""
    look = (
        f"Go on to {evidence.next_look} seeds: that is the next declared look." if evidence.next_look else ""
    )
    return " ".join(filter(None, [missing, look]))


def _when_blocked(evidence: Evidence) -> str:
    wanted = ["a second rung"] if evidence.n_sizes == 1 else []
    wanted += [f"a setting at which {evidence.arm} does not diverge"] if evidence.arm_diverged else []
    wanted += [f"a wider learning-rate grid for {name}" for name in evidence.censored]
    if not wanted:
        wanted = [
            "a column stream, more seeds, or repeated_seeds: independent where a seed means other random "
            "numbers at each rung"
        ]
    where_from = f", {NEW_PAIRS}" if evidence.n_sizes == 1 else ""
    return f"What would settle it: {' and '.join(wanted)}{where_from}."


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
    if estimate.between == "clusters":
        return f"More independent clusters, whose spread is the noise, {NEW_PAIRS}."
    if limited_by_split(estimate, evidence.options.level):
        return (
            f"A larger test split: its own error ({estimate.split_error:.4f}) is what limits, and more seeds "
            "do not reduce it."
        )
    if estimate.df == 0:
        return f"One seed carries no claim; a second seed would, {NEW_PAIRS}."
    p = evidence.difference.p_value
    if p is not None and p < evidence.alpha:
        return (
            "The interval excludes zero, but not after the correction for several arms: a few more seeds "
            f"would be needed, {NEW_PAIRS}."
        )
    if evidence.look and evidence.look.ends == "futility":
        return "A new sweep with seeds of its own: a claim at this one's last look was unlikely."
    if evidence.look:
        return "A new sweep with seeds of its own: the last declared look has passed."
    if estimate.between in ("seeds of clusters", WHOLE_SEEDS):
        return f"What the pairs of one seed share is the noise: more seeds at every rung, {NEW_PAIRS}."
    if estimate.between:
        noise = "The spread between rungs is all the noise figure there is"
        return f"{noise}: a second seed at every rung, {NEW_PAIRS}."
    return _seeds_that_would_do(evidence, estimate)


def _seeds_that_would_do(evidence: Evidence, estimate: Estimate) -> str:
    sample = evidence.sample
    seeds = seeds_needed(estimate, sample, evidence.needed) if sample is not None else None
    noise = f"the noise of each rung (sd {evidence.difference.pair_sd or 0.0:.4f} per pair over all)"
    if sample is None or seeds is None:
        return f"With {noise} a difference this small would need more than 100 seeds per rung."
    # What is there did not do, whatever the noise that a rung shows by chance.
    seeds = max(seeds, int(sample.counts.max()) + 1)
    return (
        f"With {noise} about {seeds} pairs at every rung would resolve a difference this large, {NEW_PAIRS}."
    )


def _standing(evidence: Evidence) -> str:
    """What more seeds alone would not overcome, for an undecided arm that looks better."""
    if evidence.estimate is None or evidence.estimate.value >= 0:
        return ""
    reasons = blocks(evidence, "better")
    return f"More seeds alone cannot make the verdict better: {' and '.join(reasons)}." if reasons else ""
