"""An answer in words: what holds at the sizes that were run, one sentence with its figures, the caveats."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scalevec.analysis.comparison.differences import ONE_SIDED, Part
from scalevec.analysis.comparison.fairness import CHOSEN, Line, recorded
from scalevec.analysis.comparison.line_laws import SIDES
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.comparison.verdict import Evidence, Judgement, Verdict
from scalevec.analysis.data.pairs import PairKind, Pairs, differs
from scalevec.analysis.data.tidy import BoolArray, simulation_warnings, unit_warnings
from scalevec.analysis.formatting import (
    degrees,
    equal_optima_warning,
    few,
    is_loss,
    joined,
    p_value,
    percent,
    plural,
    signed,
    span,
    unit_of,
)
from scalevec.analysis.statistics.noise import copied_seeds
from scalevec.analysis.statistics.paired import Estimate, detectable
from scalevec.analysis.statistics.sample import rungs_share_seeds

_MOST_NAMED = 4
MEMBERS_REMEDY = "`scalevec run` writes it into members.json"
_ABSENT = {
    PairKind.ARM_DIVERGED: "it diverged and {} did not",
    PairKind.REFERENCE_DIVERGED: "{} diverged and it did not",
    PairKind.BOTH_DIVERGED: "both diverged",
    PairKind.FAILED: "failed or cancelled",
    PairKind.UNPAIRED: "a trial of one arm without its counterpart",
}
_BETWEEN = {
    "rungs": "from the spread between rungs: one seed each",
    "clusters": "from the spread between clusters",
    "seeds of clusters": "from whole clusters",
    "whole seeds": "from whole seeds",
}
_ROUNDING, _MACHINES = "rounding differs", "the difference holds that of the machines too"


def at_sizes(evidence: Evidence, decision: Judgement) -> Line:
    """Line 1: what holds at the sizes that were run."""
    if decision.verdict == "incomplete":
        return Line("withheld", "withheld until the plan is done")
    if evidence.pairs.same_trials:
        return Line("same_trials", "the same trials: identical by construction")
    if not evidence.sizes:
        return Line("none", _diverged(evidence) or "no pair has two results")
    line, one_run = _of_sizes(evidence, decision), [size for size in evidence.sizes if size.one_run]
    asides = [_diverged(evidence)]
    if one_run and len(one_run) < len(evidence.sizes):
        asides.append(f"one run at {_named(one_run)} ({signed(one_run[-1].mean)})")
    text = "; ".join(filter(None, [line.text, *asides]))
    return Line(
        "diverged" if decision.verdict == "worse" and line.code == "not_resolved" else line.code, text
    )


def _of_sizes(evidence: Evidence, decision: Judgement) -> Line:
    known = [size for size in evidence.judged if not size.one_run]
    every = [size for size in evidence.sizes if not size.one_run]
    lower, higher = (evidence.differing(every, sign) for sign in (-1, 1))
    mean = evidence.difference.mean or 0.0
    word, opposite = ("lower", higher) if mean < 0 else ("higher", lower)
    margin = evidence.options.margin
    if decision.verdict == "equivalent":
        beside = f"; {word} by {abs(mean):.4f}" if evidence.is_significant else ""
        inside = evidence.unbounded
        where = "every size" if len(inside) == len(evidence.sizes) > 1 else _named(inside)
        return Line("within_margin", f"within {margin:g} at {where}{beside}")
    # A setting, or the largest size alone, may say the opposite where Holm over the sizes does not.
    against = list(opposite) or evidence.differing(every[-1:], 1 if mean < 0 else -1, alone=True)
    other = "higher" if mean < 0 else "lower"
    settings = evidence.differing(evidence.settings, 1 if mean < 0 else -1)
    if evidence.is_significant and (against or settings):
        exception = f"at {_named(against, every)}" if against else f"with {_named(settings)}"
        return Line("crosses", f"{word} on average; {other} {exception}")
    if lower and higher:
        return Line("crosses", f"lower at {_named(lower, every)}; higher at {_named(higher, every)}")
    if evidence.is_significant and len(known) == 1:
        return Line(word, f"{word} at {known[0].name}")
    same = evidence.differing(known, -1 if mean < 0 else 1, alone=True)
    if evidence.is_significant and known and len(same) == len(known):
        where = _all(known) if len(known) == len(evidence.sizes) else _named(known)
        return Line(f"{word}_at_all", f"{word} at {where}")
    some = lower or higher
    if evidence.is_significant:
        beside = f"; by itself at {_named(some)}" if some else ""
        return Line(
            f"{word}_on_average", f"{word} on average over {plural(len(evidence.judged), 'size')}{beside}"
        )
    if some:
        word = "lower" if lower else "higher"
        return Line(f"{word}_at_some", f"{word} at {_named(some, every)}; not resolved on average")
    mean_p = evidence.equivalence.get("mean_p")
    if mean_p is not None and mean_p < ONE_SIDED and not evidence.paired.one_sided:
        return Line("within_margin_on_average", f"within {margin:g} on average only")
    if evidence.paired.one_sided:
        name = evidence.reference if mean < 0 else evidence.arm
        return Line("bounded", f"not judged: the loss of {name} is only a bound")
    seen = detectable(evidence.estimate, evidence.needed) if evidence.estimate else None
    return Line(
        "not_resolved", f"not resolved ({f'this design sees {seen:.2g}' if seen else 'no noise figure'})"
    )


def _named(parts: Sequence[Part], every: Sequence[Part] = ()) -> str:
    """The names of ``parts``, and which of them is the largest of ``every`` size."""
    names = [part.name for part in parts]
    shown = joined(names) if len(names) <= _MOST_NAMED else f"{len(names)} sizes, {names[0]} to {names[-1]}"
    is_largest = len(every) > 1 and bool(parts) and parts[-1] is every[-1]
    return f"{shown}, the largest" if is_largest else shown


def _all(parts: Sequence[Part]) -> str:
    return f"{'both' if len(parts) == 2 else f'all {len(parts)}'} sizes"


def _diverged(evidence: Evidence) -> str:
    """At which sizes one side alone diverged, in how many of the planned pairs."""
    table, told = evidence.pairs.table, []
    planned = table[table["kind"] != PairKind.UNPAIRED].groupby("rung").size().to_dict()
    for kind, name in ((PairKind.ARM_DIVERGED, ""), (PairKind.REFERENCE_DIVERGED, f"{evidence.reference} ")):
        counts = table[table["kind"] == kind].groupby("rung", sort=False).size()
        where = [f"{rung} ({number} of {planned[rung]})" for rung, number in counts.items()]
        told += [f"{name}diverged at {joined(where)}"] if where else []
    return "; ".join(told)


def opening(verdict: Verdict, arm: str, reference: str) -> str:
    """How a sentence on ``arm`` begins."""
    return {
        "better": f"{arm} is better than {reference}",
        "worse": f"{arm} is worse than {reference}",
        "equivalent": f"{arm} and {reference} are equivalent",
        "undecided": f"{arm} against {reference} is undecided",
        "incomplete": f"{arm} against {reference} is incomplete, interim",
        "invalid": f"{arm} against {reference} has no verdict",
    }[verdict]


def sentence(evidence: Evidence, decision: Judgement, line: Line) -> str:
    """The verdict with what holds at the sizes, the mean and its figures."""
    start = opening(decision.verdict, evidence.arm, evidence.reference)
    if decision.verdict == "incomplete":
        missing = f". Missing: {decision.reason.text}" if decision.reason else ""
        return f"{start}: {evidence.paired.progress}{_so_far(evidence)}{missing}."
    reason = f" ({decision.reason.text})" if decision.reason and decision.reason.code != "noise" else ""
    size = "" if evidence.estimate is None or evidence.pairs.same_trials else f". {_mean(evidence)}"
    return f"{start}{reason}: {line.text}{size}."


def _so_far(evidence: Evidence) -> str:
    """The estimate of the pairs that have a result, which is no claim."""
    estimate = evidence.estimate
    if estimate is None:
        return ""
    error = f"standard error {estimate.standard_error:.4f}" if estimate.has_noise else "no noise figure"
    return f". So far {_value(evidence)} ({error}); no claim before the plan is done"


def _value(evidence: Evidence) -> str:
    y = evidence.options.y
    unit = f" {name}" if (name := unit_of(y, evidence.options.unit)) else ""
    of_what = "" if is_loss(y) and y == "loss" else f"{y} "
    return f"{of_what}mean difference {signed(evidence.difference.mean or 0.0)}{unit}"


def _mean(evidence: Evidence) -> str:
    """The mean difference with its interval, pairs and degrees of freedom."""
    estimate, interval, value = evidence.estimate, evidence.difference.interval, _value(evidence)
    start = value[0].upper() + value[1:]
    if estimate is None or interval is None:
        return f"{start}, without a noise figure"
    facts = [
        f"{percent(evidence.options.level)} interval {span(interval)}",
        plural(int(evidence.paired.keep.sum()), "pair"),
        " ".join(filter(None, [degrees(estimate.df), _BETWEEN.get(estimate.between, "")])),
        f"Holm p {p_value(evidence.difference.p_holm)}",
        *_assumptions(evidence.pairs, estimate),
    ]
    return f"{start} ({'; '.join(facts)})"


def _assumptions(pairs: Pairs, estimate: Estimate) -> list[str]:
    """What the interval of a mean assumes of seeds and leaves out, as clauses of a sentence."""
    of_seeds = "stated to be independent" if pairs.seeds_differ else "taken to share what a seed does"
    return [
        *(["no seed in common: runs of a cell are paired in their order"] if pairs.in_order else []),
        *([f"rungs repeat seeds, {of_seeds}"] if rungs_share_seeds(pairs) else []),
        *(["the test split's own error is left out"] if estimate.split_error is None else []),
    ]


def of_laws(laws: Sequence[dict[str, Any]]) -> list[str]:
    """Where the optimum of a fitted law is not unique."""
    return [
        f"law of the {law['side']} in {law['x']}: {warning}"
        for law in laws
        for warning in equal_optima_warning(law["equal_parameters"])
    ]


def of_reference(trials: ComparedTrials) -> list[str]:
    """What stands against the reference's trials, or those of all arms; each names what it is about."""
    warnings = simulation_warnings(trials.rows) + unit_warnings(trials.rows)
    if trials.n_unplaced:
        left_out = f"{plural(trials.n_unplaced, 'trial')} without a result left out"
        warnings.append(f"{left_out}: no record says of which size and token budget; {MEMBERS_REMEDY}")
    rows = trials.of_arm(trials.reference, "completed")
    if {"lr_status", "loss_validation"} <= set(rows):
        were_chosen = rows["lr_status"].isin(CHOSEN).any()
        if were_chosen and rows["loss_validation"].isna().all():
            text = "learning rates were chosen on the text that is compared: the trials have one loss"
            warnings.append(text)
    return warnings + _chosen_on_compared(trials)


def _chosen_on_compared(trials: ComparedTrials) -> list[str]:
    """A warning where a seed was tuned and is compared, as it may be of imported runs."""
    rows, names = trials.source, ["arm", "rung", "seed"]
    if not {"stage", *names} <= set(rows):
        return []
    tuned, compared = (rows.loc[rows["stage"] == stage, names] for stage in ("tuning", "comparison"))
    both = compared.merge(tuned.drop_duplicates(), on=names)[names[:2]].drop_duplicates()
    where = few([f"{arm} at {rung}" for arm, rung in both.itertuples(index=False)])
    text = "were chosen on seeds that are compared: the lowest of several is too low"
    return [f"learning rates of {where} {text}"] if where else []


def of_pairs(evidence: Evidence) -> list[str]:
    """What did not complete, was not run alike, or is known from little, of the arm's pairs."""
    pairs = evidence.pairs
    warnings = [
        f"{_ABSENT[kind].format(evidence.reference)}: {few(names)}; no number enters the mean difference"
        for kind, names in evidence.absences.items()
        if names and kind in _ABSENT
    ]
    if pairs.one_sided:
        where = "; ".join(pairs.one_sided)
        warnings.append(f"not compared, since one of the arms was not run there: {where}")
    losses = {
        name: list(zip(pairs.cells, pairs.complete[f"loss_{side}"].to_numpy(float), strict=True))
        for name, side in ((evidence.reference, "reference"), (evidence.arm, "arm"))
    }
    return [*warnings, *_run_unlike(pairs), *filter(None, [copied_seeds(losses), evidence.equal])]


def _run_unlike(pairs: Pairs) -> list[str]:
    """The pairs whose sides were not run alike, by what differs."""
    on_gpu = [~recorded(pairs, "device", side).isin(["", "cpu"]).to_numpy(bool) for side in SIDES]
    kinds = (
        (differs(pairs, "micro_batch"), "used different micro-batch sizes", _ROUNDING),
        (differs(pairs, "world_size", 1), "used different numbers of processes (world_size)", _ROUNDING),
        (
            differs(pairs, "arithmetic", "eager"),
            "of a trial with compiled blocks and one without (arithmetic)",
            _ROUNDING,
        ),
        (
            _recorded_unlike(pairs, "device", lambda device: device == "cpu"),
            "of a CPU trial against a GPU trial",
            _MACHINES,
        ),
        (
            _recorded_unlike(pairs, "cpu_capability", str) & ~(on_gpu[0] & on_gpu[1]),
            "of trials of processors with different capabilities (cpu_capability)",
            _MACHINES,
        ),
        (
            _recorded_unlike(pairs, "torch_version", _minors),
            "of trials of two minor versions of torch",
            _MACHINES,
        ),
    )
    names = np.array(pairs.names_of(pairs.complete), object)
    return [
        f"{plural(int(where.sum()), 'pair')} {what}: {few(names[where].tolist())}; {why}"
        for where, what, why in kinds
        if where.any()
    ]


def _recorded_unlike(pairs: Pairs, column: str, matters: Callable[[str], object]) -> BoolArray:
    """In which complete pairs both sides are recorded and differ in what ``matters`` of it."""
    reference, arm = (recorded(pairs, column, side) for side in SIDES)
    unlike = reference.map(matters) != arm.map(matters)
    return np.asarray((reference != "") & (arm != "") & unlike, bool)


def _minors(versions: str) -> str:
    """``2.9`` of ``2.9.1+cpu``; of a trial whose attempts ran on several versions, each."""
    return ";".join(sorted({".".join(version.split(".")[:2]) for version in versions.split("; ")}))
