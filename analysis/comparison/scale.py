"""Line 2 of an answer: what becomes of a difference with scale.

A lower loss at some sizes is not better scaling. Asked is how the compute multiplier changes per decade of C,
or, where a law misses the runs, how the difference itself does, which needs no law. It grows or shrinks where
Holm's correction over the arms leaves the change significant; else it is constant where its 90 % interval
lies within 5 or 10 % per decade (two one-sided tests at 5 %).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.differences import EQUIVALENCE_LEVEL, INTERIM, PairedArm, Part, corrected
from scalevec.analysis.comparison.fairness import Line
from scalevec.analysis.comparison.line_laws import FEWEST_RUNGS
from scalevec.analysis.comparison.verdict import Evidence
from scalevec.analysis.formatting import is_loss, limits, percent, signed, span, unit_of
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.paired import Estimate

Measure = Literal["multiplier", "nats", ""]
NARROWEST = (0.05, 0.10)
"""Changes per decade within which a difference counts as constant, the smallest that holds first."""


@dataclass(frozen=True)
class ScaleLine(Line):
    """Line 2 with its ``measure``: constant nats above a floor are a growing multiplier."""

    measure: Measure = ""


@dataclass(frozen=True)
class Change:
    """A change per decade of C with its p-value; above zero the gain or deficit grows."""

    measure: Measure
    value: float
    shown: str
    p_value: float
    share: tuple[float, float]
    """The 90 % interval of the change as a share: 0.1 is a gain that grows by 10 % per decade."""


def trend_per_decade(paired: PairedArm) -> dict[str, Any]:
    """How the difference changes with each decade of the reference's compute, nats/token per decade.

    It is the change within settings: one that was run at small sizes alone makes no slope.
    """
    decades = np.log10(paired.pairs.complete["compute_reference"].to_numpy(float))[paired.keep]
    sample, settings = paired.sample.kept(paired.keep), paired.joint_settings[paired.keep].to_numpy()
    if settings.any():
        at = pd.DataFrame({"cell": sample.cells, "at": decades, "setting": settings})
        middle = at.drop_duplicates("cell").groupby("setting")["at"].mean()
        decades = decades - at["setting"].map(middle).to_numpy(float)
    slope = inference.slope(sample, decades) if len(decades) else None
    if slope is None:
        return {"per_decade": None, "interval": None, "p_value": None, "df": 0, "note": "one value of C"}
    shown: dict[str, Any] = {"per_decade": slope.value, "interval": None, "p_value": None, "df": slope.df}
    if paired.pairs.is_interim:
        return {**shown, "note": INTERIM}
    return {
        **shown,
        "interval": slope.interval(paired.level),
        "p_value": slope.p_value(),
        "interval_90": slope.interval(EQUIVALENCE_LEVEL),
        "note": "noise from the spread between rungs: one seed each" if slope.between == "rungs" else "",
    }


@dataclass(frozen=True)
class KeptSigns:
    """At how many of the ``steps`` from a size to the next a difference ``kept`` its sign; of all arms too.

    How often a small difference predicts the next size's is measured so by Magnusson et al. (2504.11393).
    """

    kept: int
    steps: int
    kept_of_all: int
    steps_of_all: int


def kept_signs(sizes_of_arms: Sequence[Sequence[Part]]) -> list[KeptSigns]:
    """The same of each arm, by its differences at the sizes in their order."""
    signs = [np.sign([size.mean for size in sizes]) for sizes in sizes_of_arms]
    of_arms = [(int(np.sum(each[1:] == each[:-1])), max(len(each) - 1, 0)) for each in signs]
    of_all = (sum(kept for kept, _ in of_arms), sum(steps for _, steps in of_arms))
    return [KeptSigns(*of_arm, *of_all) for of_arm in of_arms]


def _change(evidence: Evidence, trend: Mapping[str, Any]) -> Change | None:
    """The change of an arm's multiplier, or of its difference where there is none; None without a figure."""
    mean, options, n_sizes = evidence.difference.mean, evidence.paired.options, len(evidence.paired.judged)
    if not mean or n_sizes < 2:
        return None
    factor, per_decade = trend["multiplier_per_decade"], f"per decade of C, {percent(options.level)} interval"
    if factor and factor["log_error"] and n_sizes >= FEWEST_RUNGS:
        log = Estimate(float(np.log(factor["estimate"])), factor["log_error"], factor["df"])
        low, high = np.exp(log.interval(options.level) or (0.0, 0.0))
        form = ".3f" if max(abs(np.log((low, high)))) > 1e-3 else ".7f"
        shown = f"x{factor['estimate']:{form}} {per_decade} {limits((float(low), float(high)), form)}"
        shown += "" if factor.get("checked", True) else ", by laws that no hold-out checks"
        # A gain that grows has a rising multiplier; a loss that grows has a falling one.
        sign = 1.0 if mean < 0 else -1.0
        share = sorted(np.exp(sign * end) - 1 for end in log.interval(EQUIVALENCE_LEVEL) or (0.0, 0.0))
        return Change("multiplier", sign * log.value, shown, log.p_value() or 0.0, (share[0], share[1]))
    if trend["p_value"] is None:
        return None
    unit = f" {name}" if (name := unit_of(options.y, options.unit)) else ""
    shown = f"{signed(trend['per_decade'], trend['interval'])}{unit} {per_decade} {span(trend['interval'])}"
    share = sorted(end / mean for end in trend["interval_90"])
    return Change("nats", trend["per_decade"] / mean, shown, trend["p_value"], (share[0], share[1]))


def with_scale(family: Sequence[Evidence], of_laws: Sequence[Mapping[str, Any]]) -> list[ScaleLine]:
    """Line 2 of each arm by its ``trend`` and why its laws are ``withheld``.

    p-values of the changes are corrected by Holm over the arms.
    """
    changes = [_change(evidence, fields["trend"]) for evidence, fields in zip(family, of_laws, strict=True)]
    alone = [change.p_value if change else None for change in changes]
    p_values = corrected(alone, family[0].paired.n_arms)
    return [
        _line(evidence, change, p, fields["withheld"])
        for evidence, change, p, fields in zip(family, changes, p_values, of_laws, strict=True)
    ]


def _line(evidence: Evidence, change: Change | None, p_holm: float | None, withheld: str) -> ScaleLine:
    paired, y = evidence.paired, evidence.paired.options.y
    if evidence.judgement.verdict == "incomplete":
        return ScaleLine("withheld", "withheld until the plan is done")
    if not is_loss(y):
        return ScaleLine("none", f"says nothing: {y} is no loss")
    every = [size for size in paired.sizes if not size.one_run]
    lower, higher = (paired.differing(every, sign) for sign in (-1, 1))
    if not (lower or higher or evidence.is_significant) or paired.pairs.same_trials:
        # A change is a difference too, but says of no size on which side of zero it is.
        is_seen = p_holm is not None and p_holm < evidence.alpha
        beside = f"; but it changes: {change.shown}" if change and is_seen else ""
        why = paired.crossing or "no difference resolved at any size"
        return ScaleLine("none", f"says nothing: {why}{beside}")
    if len(every or paired.sizes) < 2:
        return ScaleLine("one_size", "one size: says nothing of scale")
    if lower and higher:
        words = {part.name: "lower" if part.mean < 0 else "higher" for part in lower + higher}
        turns = [(words[part.name], part) for part in every if part.name in words]
        turns = [turns[0], *(after for before, after in pairwise(turns) if after[0] != before[0])]
        told = ", ".join(f"{word} at {part.name}" for word, part in turns[:4])
        if len(turns) > 2:
            return ScaleLine("not_resolved", f"changes sign without order: {told}", "nats")
        last = next(part for part in reversed(every) if part.name in words)
        told = f"{turns[0][0]} at {turns[0][1].name}, {turns[1][0]} at {last.name}"
        return ScaleLine("reverses", f"reverses: {told}", "nats")
    aside = f"; multiplier withheld: {withheld}" if withheld else ""
    if change is None or p_holm is None:
        return ScaleLine("withheld" if withheld else "not_resolved", f"not resolved{aside}")
    gain = "gain" if (evidence.difference.mean or 0.0) < 0 else "deficit"
    # Constant nats are no constant multiplier: the words say which of them it is.
    if change.measure == "nats":
        gain = f"{gain} in {unit_of(y, paired.options.unit) or y}"
    if p_holm < evidence.alpha:
        code = "grows" if change.value > 0 else "shrinks"
        return ScaleLine(code, f"{gain} {code}: {change.shown}{aside}", change.measure)
    for most in NARROWEST:
        if -most <= change.share[0] and change.share[1] <= most:
            text = f"{gain} constant within {percent(most)} per decade of C ({change.shown}){aside}"
            return ScaleLine("constant", text, change.measure)
    by_holm = " by Holm over the arms" if change.p_value < evidence.alpha else ""
    return ScaleLine("not_resolved", f"not resolved{by_holm}: {change.shown}{aside}", change.measure)
