"""An answer in words: what holds at the sizes that were run, one sentence with its figures, the caveats."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.differences import ONE_SIDED, PairedArm, Part
from scalevec.analysis.comparison.fairness import CHOSEN, SIDES, Line, equal_losses, recorded, sizes_apart
from scalevec.analysis.comparison.plan import DECLARED, VERDICTS
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.comparison.verdict import Evidence, Verdict
from scalevec.analysis.data.doubts import simulation_warnings, unit_warnings
from scalevec.analysis.data.pairs import PairKind, Pairs, differs
from scalevec.analysis.data.runs import ONE_RUN, differing, plain_columns, rates_of
from scalevec.analysis.data.tidy import SWEEP_COLUMNS, BoolArray
from scalevec.analysis.formatting import (
    degrees,
    few,
    joined,
    p_value,
    percent,
    plural,
    shortened,
    signed,
    span,
    unit_of,
)
from scalevec.analysis.options import EACH_ROW
from scalevec.analysis.statistics.noise import are_copies
from scalevec.analysis.statistics.sample import rungs_share_seeds

_MOST_NAMED = 4
VISIBLE = 0.1
"""The share of the variance between seeds from which on rounding is said."""
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
_OF_THE_LOSS = re.compile(
    r"tokenizer(_name)?|vocab(ulary)?(_size)?|(eval|val|valid|validation|test)_(set|data|dataset)"
)
"""Columns that say of what a loss is."""
_OF_MACHINES = re.compile(r"host|node|machine|gpu|user|date|time|job|name|path|dir", re.IGNORECASE)
_ROUNDING, _MACHINES = "rounding differs", "the difference holds that of the machines too"


def at_sizes(evidence: Evidence) -> Line:
    """Line 1: what holds at the sizes that were run."""
    paired, verdict = evidence.paired, evidence.judgement.verdict
    if verdict == "incomplete":
        return Line("withheld", "withheld until the plan is done")
    if paired.pairs.same_trials:
        return Line("same_trials", "the same trials: identical by construction")
    diverged = _diverged(paired)
    if not paired.sizes:
        return Line("none", diverged or "no pair has two results")
    line, one_run = _of_sizes(evidence), [size for size in paired.sizes if size.one_run]
    asides = [diverged] if diverged else []
    if one_run and len(one_run) < len(paired.sizes):
        asides.append(f"one run at {_named(one_run)} ({signed(one_run[-1].mean)})")
    mean, alpha = evidence.difference.mean or 0.0, evidence.alpha
    against = [size for size in paired.sizes if size.bound and size.mean * mean < 0]
    if told := [size for size in against if size.p_value is not None and size.p_value < alpha]:
        asides.append(f"{'lower' if mean > 0 else 'higher'} at {_named(told)}, only a bound")
    code = "diverged" if verdict == "worse" and line.code == "not_resolved" else line.code
    return Line(code, "; ".join([line.text, *asides]))


def _of_sizes(evidence: Evidence) -> Line:
    """What the sizes with a noise figure say, those that the mean is over (``known``) and ``every``."""
    paired, mean, is_significant = evidence.paired, evidence.difference.mean or 0.0, evidence.is_significant
    known, every = ([size for size in of if not size.one_run] for of in (paired.judged, paired.sizes))
    lower, higher = (paired.differing(every, sign) for sign in (-1, 1))
    sign, word, other = (-1, "lower", "higher") if mean < 0 else (1, "higher", "lower")
    margin = paired.options.margin
    if evidence.judgement.verdict == "equivalent":
        beside, inside = f"; {word} by {abs(mean):.4f}" if is_significant else "", evidence.unbounded
        where = "every size" if len(inside) == len(paired.sizes) > 1 else _named(inside)
        return Line("within_margin", f"within {margin:g} at {where}{beside}")
    if is_significant:
        # A setting, or the largest size alone, may say the opposite where Holm over the sizes does not.
        against = paired.differing(every, -sign, against=True)
        against = against or paired.differing(every[-1:], -sign, alone=True)
        settings = paired.differing(paired.settings, -sign, against=True)
        settings = settings or paired.differing(paired.ends, -sign, against=True)
        if against or settings:
            exception = f"at {_named(against, every)}" if against else f"with {_named(settings)}"
            return Line("crosses", f"{word} on average; {other} {exception}")
    if paired.crossing:
        return Line("crosses", paired.crossing)
    if lower and higher:
        return Line("crosses", f"lower at {_named(lower, every)}; higher at {_named(higher, every)}")
    some = lower or higher
    if is_significant:
        if len(known) == 1:
            return Line(word, f"{word} at {known[0].name}")
        if known and len(paired.differing(known, sign, alone=True)) == len(known):
            all_sizes = f"{'both' if len(known) == 2 else f'all {len(known)}'} sizes"
            where = all_sizes if len(known) == len(paired.sizes) else _named(known)
            return Line(f"{word}_at_all", f"{word} at {where}")
        beside, number = f"; by itself at {_named(some)}" if some else "", plural(len(paired.judged), "size")
        return Line(f"{word}_on_average", f"{word} on average over {number}{beside}")
    if some:
        word = "lower" if lower else "higher"
        return Line(f"{word}_at_some", f"{word} at {_named(some, every)}; not resolved on average")
    mean_p = evidence.equivalence.get("mean_p")
    if mean_p is not None and mean_p < ONE_SIDED and not paired.one_sided:
        return Line("within_margin_on_average", f"within {margin:g} on average only")
    if paired.one_sided:
        name = paired.reference if mean < 0 else paired.arm
        return Line("bounded", f"not judged: the loss of {name} is only a bound")
    seen = f"this design sees {evidence.detectable:.2g}" if evidence.detectable else "no noise figure"
    return Line("not_resolved", f"not resolved ({seen})")


def _named(parts: Sequence[Part], every: Sequence[Part] = ()) -> str:
    """The names of ``parts``, and which of them is the largest of ``every`` size."""
    names = [part.name for part in parts]
    shown = joined(names) if len(names) <= _MOST_NAMED else f"{len(names)} sizes, {names[0]} to {names[-1]}"
    is_largest = len(every) > 1 and bool(parts) and parts[-1] is every[-1]
    return f"{shown}, the largest" if is_largest else shown


def _diverged(paired: PairedArm) -> str:
    """At which sizes one side alone diverged, in how many of the planned pairs."""
    table, told = paired.pairs.table, []
    planned = paired.pairs.planned.groupby("rung").size().to_dict()
    for kind, name in ((PairKind.ARM_DIVERGED, ""), (PairKind.REFERENCE_DIVERGED, f"{paired.reference} ")):
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


def sentence(evidence: Evidence, line: Line, plan: Mapping[str, Any]) -> str:
    """The verdict with what holds at the sizes, the mean and its figures; the estimate of later pairs."""
    paired, reason = evidence.paired, evidence.judgement.reason
    start, estimate = opening(evidence.judgement.verdict, paired.arm, paired.reference), paired.estimate
    later, after = "", plan["exploratory"]
    if after:
        of_all = f"over all {after['pairs']} pairs the difference is {signed(after['mean'])}"
        later = f" Exploratory, after the plan: {of_all} ({_noise(after['standard_error'])})."
    if evidence.judgement.verdict == "incomplete":
        so_far, missing = "", f". Missing: {reason.text}" if reason else ""
        if estimate:
            noise = _noise(evidence.difference.standard_error)
            so_far = f". So far {_value(evidence)} ({noise}); no claim before the plan is done"
        return f"{start}: {paired.progress}{so_far}{missing}.{later}"
    why = f" ({reason.text})" if reason and reason.code != "noise" else ""
    size = "" if estimate is None or paired.pairs.same_trials else f". {_mean(evidence)}"
    return f"{start}{why}: {line.text}{size}.{later}"


def _noise(standard_error: float | None) -> str:
    return "no noise figure" if standard_error is None else f"standard error {standard_error:.4f}"


def _value(evidence: Evidence) -> str:
    y, unit = evidence.paired.options.y, unit_of(evidence.paired.options.y, evidence.paired.options.unit)
    value = f"mean difference {signed(evidence.difference.mean or 0.0, evidence.difference.interval)}"
    return " ".join(filter(None, ["" if y == "loss" else y, value, unit]))


def _mean(evidence: Evidence) -> str:
    """The mean difference with its interval, pairs, degrees of freedom, and what the interval assumes."""
    difference, pairs, value = evidence.difference, evidence.paired.pairs, _value(evidence)
    start, estimate = value[0].upper() + value[1:], evidence.paired.estimate
    if estimate is None or difference.interval is None:
        return f"{start}, without a noise figure"
    of_seeds = "stated to be independent" if pairs.seeds_differ else "taken to share what a seed does"
    facts = [
        f"{percent(evidence.paired.options.level)} interval {span(difference.interval)}",
        plural(difference.n_pairs, "pair"),
        " ".join(filter(None, [degrees(estimate.df), _BETWEEN.get(estimate.between, "")])),
        f"Holm p {p_value(difference.p_holm)}",
        f"rungs repeat seeds, {of_seeds}" if rungs_share_seeds(pairs) else "",
        "the test split's own error is left out" if estimate.split_error is None else "",
    ]
    return f"{start} ({'; '.join(filter(None, facts))})"


def claim_status(trials: ComparedTrials, plan: Mapping[str, Any]) -> Line:
    """Line 4: whether the question was asked before the results, by what the table brings along.

    ``plan`` is that of the comparison and how far it is.
    """
    declared, where = trials.source.attrs.get(DECLARED), trials.options.where
    asked = {
        "reference": trials.reference,
        "arms": sorted(trials.arms),
        "where": where,
        "margin": trials.options.margin,
        "law": trials.asked_law,
    }
    changed = [
        f"{name} {_shown(value)} (declared {_shown(declared[name])})"
        for name, value in asked.items()
        if declared and name in declared and _shown(declared[name]) != _shown(value)
    ]
    rows = f"; rows where {where}" if where else ""
    if plan["looks"] and plan["next_look"] is None and not changed:
        number, of_all = plan["looks"].index(plan["look"]) + 1, len(plan["looks"])
        verb = "ended" if number == of_all else "decided"
        return Line("decided_at_look", f"{verb} at look {number} of {of_all} ({plan['look']} seeds)")
    if plan["with_result"] < plan["pairs"] or plan["next_look"] is not None:
        return Line("interim", f"interim: {plan['with_result']} of {plan['pairs']} pairs{rows}")
    if changed:
        return Line("chosen_after", f"chosen after the results: {'; '.join(changed)}")
    if declared is None and VERDICTS not in trials.source.attrs and not plan["looks"]:
        return Line("no_plan", f"no plan{rows}")
    if where and not declared:
        return Line("chosen_after", f"chosen after the results{rows}")
    return Line("planned", "planned")


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def of_reference(trials: ComparedTrials) -> list[str]:
    """What stands against the reference's trials, or those of all arms; each names what it is about."""
    warnings = simulation_warnings(trials.rows) + unit_warnings(trials.rows)
    if trials.n_unplaced:
        text = "no record says of which size and token budget; `scalevec run` writes it into members.json"
        warnings.append(f"{plural(trials.n_unplaced, 'trial')} without a result left out: {text}")
    guessed = trials.checkpoints[trials.options.cluster].astype(str).str.endswith(ONE_RUN)
    if number := int(guessed.sum()):
        what = f"{plural(number, 'row')} at fewer tokens are taken for checkpoints of runs, whose last counts"
        warnings.append(f"{what}; where each row is a run: --cluster {EACH_ROW}")
    letters = [re.sub(r"[\s_-]+", "-", unicodedata.normalize("NFKC", arm).casefold()) for arm in trials.arms]
    if alike := [arm for arm, name in zip(trials.arms, letters, strict=True) if letters.count(name) > 1]:
        warnings.append(f"arms {joined(alike)} differ in how they are written alone: one? Give it one name")
    warnings += _of_parted_seeds(trials)
    completed = trials.rows[trials.rows["status"] == "completed"]
    for column in filter(_OF_THE_LOSS.fullmatch, map(str, completed)):
        of_arms = {arm: set(rows.astype(str)) for arm, rows in completed.groupby("arm")[column]}
        of_reference = of_arms.get(trials.reference, set())
        if unlike := [arm for arm in trials.others if not of_reference & of_arms.get(arm, of_reference)]:
            text = "losses per token of two tokenizers, or of two texts, are not comparable"
            warnings.append(f"{joined(unlike)} and {trials.reference} differ in {column}: {text}")
    rows = trials.of_arm(trials.reference, "completed")
    known = {"lr_status", "loss_validation"} <= set(rows)
    if known and rows["lr_status"].isin(CHOSEN).any() and rows["loss_validation"].isna().all():
        text = "learning rates were chosen on the text that is compared: the trials have one loss"
        warnings.append(text)
    # A seed may be tuned and compared where runs are imported.
    source, names = trials.source, ["arm", "rung", "seed"]
    if {"stage", *names} <= set(source):
        tuned, compared = (source.loc[source["stage"] == stage, names] for stage in ("tuning", "comparison"))
        both = compared.merge(tuned.drop_duplicates(), on=names)[names[:2]].drop_duplicates()
        if where := few([f"{arm} at {rung}" for arm, rung in both.itertuples(index=False)]):
            text = "were chosen on seeds that are compared: the lowest of several is too low"
            warnings.append(f"learning rates of {where} {text}")
    elif known and "lr_status" not in source and (rates := rates_of(source)):
        tried = source.groupby(["arm", "n_params"])[rates[0]].nunique().groupby("arm").max()
        if tried.nunique() > 1:
            numbers = joined([f"{arm} {number}" for arm, number in tried.items()])
            text = "tried on the seeds that are compared: the lowest of more is lower by chance"
            warnings.append(f"arms have other numbers of learning rates ({numbers}), {text}")
    return warnings


def _of_parted_seeds(trials: ComparedTrials) -> list[str]:
    """The columns, no settings, of which each value has seeds of its own, so that a mean is over them."""
    rows = trials.of_arm(trials.reference, "completed")
    seeds, of_seed = pd.factorize(rows["seed"])[0], rows[~rows["seed"].duplicated()]
    parted = [
        name
        for name in plain_columns(rows)
        if name not in SWEEP_COLUMNS and not _OF_MACHINES.search(str(name))
        # Of thousands of columns few are the same whenever a seed is.
        if (of_seed[name].to_numpy()[seeds] == rows[name].to_numpy()).all()
        if of_seed[name].value_counts().gt(1).all() and of_seed[name].notna().any()
    ]
    cells = pd.factorize(pd.Series(trials.keys(rows), dtype=object))[0].astype(float)
    return [
        f"{name} has seeds of its own for each of {shortened(rows[name].unique().tolist())}: the mean is "
        f"over all; --settings {name} compares within each"
        for name in differing(rows[parted], cells)
    ]


def of_pairs(paired: PairedArm) -> list[str]:
    """What did not complete, was not run alike, or is known from little, of the arm's pairs."""
    pairs, reference, arm = paired.pairs, paired.reference, paired.arm
    warnings = [
        f"{_ABSENT[kind].format(reference)}: {few(names)}; no number enters the mean difference"
        for kind, names in pairs.absences.items()
        if names and kind in _ABSENT
    ]
    if pairs.at_random:
        warnings.append("no two seeds in common: runs of a cell are paired at random")
    warnings += sizes_apart(reference, pairs)
    if pairs.one_sided:
        where = "; ".join(pairs.one_sided)
        warnings.append(f"not compared, since one of the arms was not run there: {where}")
    losses = {name: pairs.complete[f"loss_{side}"].to_numpy(float) for side, name in paired.names.items()}
    copied = [name for name, of_arm in losses.items() if len(of_arm) and are_copies(of_arm, pairs.cells)]
    given = {name: len({*zip(of_arm, pairs.cells, strict=True)}) for name, of_arm in losses.items()}
    twice = [f"{len(losses[name]) - n} of {name}" for name, n in given.items() if n < len(losses[name])]
    n_rungs = pairs.complete["rung"].nunique()
    if n_rungs > 1 and not (pairs.names_seeds or pairs.records_streams or pairs.seeds_differ):
        warnings.append(
            "seeds have one number, or none: what a seed that all runs share does is in no interval"
        )
    told = [
        f"losses that equal another of their cell to the last digit, {joined(twice)}: copies of one run? "
        "Where not all of a size are equal, each counts as a seed"
    ] * bool(twice and not copied and not paired.sample.rounding)
    told += [
        f"{', '.join(copied)}: the seed has no effect: repeated seeds are copies, which carry no noise "
        "and count as one seed"
    ] * bool(copied)
    return [
        *warnings,
        *_run_unlike(pairs),
        *told,
        *filter(None, [_of_rounding(paired), equal_losses(reference, arm, pairs)]),
    ]


def _of_rounding(paired: PairedArm) -> str:
    """That losses are rounded, where that makes an interval longer; else empty."""
    rounding, noise = paired.sample.rounding, paired.pair_sd or 0.0
    if rounding <= VISIBLE * noise**2:
        return ""
    return (
        f"losses have {plural(round(-np.log10(6 * rounding) / 2), 'decimal')}, and their rounding counts as "
        "noise beside that of seeds: give all digits"
    )


def _run_unlike(pairs: Pairs) -> list[str]:
    """The pairs whose sides were not run alike, by what differs."""
    device, processor, versions = (
        _recorded_unlike(pairs, column, matters)
        for column, matters in (("device", "cpu".__eq__), ("cpu_capability", str), ("torch_version", _minors))
    )
    on_gpu = [~recorded(pairs, "device", side).isin(["", "cpu"]).to_numpy(bool) for side in SIDES]
    processor = processor & ~(on_gpu[0] & on_gpu[1])
    compiled = differs(pairs, "arithmetic", "eager")
    kinds = (
        (differs(pairs, "micro_batch"), "used different micro-batch sizes", _ROUNDING),
        (differs(pairs, "world_size", 1), "used different numbers of processes (world_size)", _ROUNDING),
        (compiled, "of a trial with compiled blocks and one without (arithmetic)", _ROUNDING),
        (device, "of a CPU trial against a GPU trial", _MACHINES),
        (processor, "of trials of processors with different capabilities (cpu_capability)", _MACHINES),
        (versions, "of trials of two minor versions of torch", _MACHINES),
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
