"""Line 2 of an answer: what becomes of a difference with scale, and what forbids a law to say it.

A lower loss at some sizes is not better scaling. Asked is how the compute multiplier changes per decade of C,
or, where a law misses the runs, how the difference itself does, which needs no law. It grows or shrinks where
Holm's correction over the arms leaves the change significant; else it is constant where its 90 % interval
lies within 5 or 10 % per decade (two one-sided tests at 5 %).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scalevec.analysis.comparison.differences import EQUIVALENCE_LEVEL
from scalevec.analysis.comparison.fairness import Line
from scalevec.analysis.comparison.line_laws import FEWEST_RUNGS, ArmLaws, Multiplier, Parameters
from scalevec.analysis.comparison.verdict import Evidence, Judgement
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import is_loss, limits, percent, signed, span, unit_of
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.noise import t_quantile
from scalevec.analysis.statistics.paired import holm
from scalevec.analysis.statistics.rung_noise import (
    Component,
    Error,
    RungNoise,
    longer,
    satterthwaite,
    with_split,
)
from scalevec.analysis.statistics.sample import sample_of

Measure = Literal["multiplier", "nats", ""]
NARROWEST = (0.05, 0.10)
"""Changes per decade within which a difference counts as constant, the smallest that holds first."""


@dataclass(frozen=True)
class ScaleLine(Line):
    """Line 2 with its ``measure``: constant nats above a floor are a growing multiplier."""

    measure: Measure = ""


@dataclass(frozen=True)
class Change:
    """A change per decade of C: its estimate, intervals (95 %, 90 %) and p, as a share of the difference."""

    measure: Measure
    value: float
    shown: str
    p_value: float
    share: tuple[float, float]
    """The 90 % interval of the change as a share: 0.1 is a gain that grows by 10 % per decade."""


def changes_of(evidence: Evidence, trend: Mapping[str, Any], withheld: str) -> Change | None:
    """The change of an arm's multiplier, or of its difference where laws are ``withheld``; None for none."""
    mean, level = evidence.difference.mean, evidence.options.level
    if mean is None or len(evidence.judged) < 2:
        return None
    # A gain that grows has a rising multiplier; a loss that grows has a falling one.
    sign = 1.0 if mean < 0 else -1.0
    factor = trend["multiplier_per_decade"]
    if factor and factor["log_error"] and not withheld and len(evidence.judged) >= FEWEST_RUNGS:
        from scipy.special import stdtr

        log, error, df = float(np.log(factor["estimate"])), factor["log_error"], factor["df"]
        ends = np.exp([log + sided * t_quantile(level, df) * error for sided in (-1, 1)])
        half = t_quantile(EQUIVALENCE_LEVEL, df) * error
        share = sorted(np.exp(sign * (log + sided * half)) - 1 for sided in (-1, 1))
        interval = limits((float(ends[0]), float(ends[1])), ".3f")
        shown = f"x{factor['estimate']:.3f} per decade of C, {percent(level)} interval {interval}"
        p = float(2 * stdtr(df, -abs(log) / error))
        return Change("multiplier", sign * log, shown, p, (share[0], share[1]))
    if trend["p_value"] is None or not mean:
        return None
    unit = f" {name}" if (name := unit_of(evidence.options.y, evidence.options.unit)) else ""
    slope = trend["per_decade"]
    shown = f"{signed(slope)}{unit} per decade of C, {percent(level)} interval {span(trend['interval'])}"
    share = sorted(end / mean for end in trend["interval_90"])
    return Change("nats", slope / mean, shown, trend["p_value"], (share[0], share[1]))


def with_scale(
    family: Sequence[tuple[Evidence, Judgement]],
    changes: Sequence[Change | None],
    withheld: Sequence[str],
    n_others: int = 0,
) -> list[ScaleLine]:
    """Line 2 of each arm; p-values of the changes are corrected by Holm over the arms and ``n_others``."""
    known = [change.p_value if change else None for change in changes]
    corrected = holm([*known, *[None] * n_others])
    return [
        _line(evidence, decision, change, p, why)
        for (evidence, decision), change, p, why in zip(family, changes, corrected, withheld, strict=False)
    ]


def _line(
    evidence: Evidence, decision: Judgement, change: Change | None, p_holm: float | None, withheld: str
) -> ScaleLine:
    if decision.verdict == "incomplete":
        return ScaleLine("withheld", "withheld until the plan is done")
    every = [size for size in evidence.sizes if not size.one_run]
    lower, higher = (evidence.differing(every, sign) for sign in (-1, 1))
    shows = bool(lower or higher or evidence.is_significant)
    if not is_loss(evidence.options.y):
        return ScaleLine("none", f"says nothing: {evidence.options.y} is no loss")
    if not shows or evidence.pairs.same_trials:
        return ScaleLine("none", "says nothing: no difference at any size")
    if len(every) < 2:
        return ScaleLine("one_size", "one size: says nothing of scale")
    if lower and higher:
        order = ["lower", "higher"] if lower[0].flops < higher[0].flops else ["higher", "lower"]
        first, last = ({"lower": lower, "higher": higher}[word] for word in order)
        where = f"{order[0]} at {first[0].name}, {order[1]} at {last[-1].name}"
        return ScaleLine("reverses", f"reverses: {where}", "nats")
    aside = f"; multiplier withheld: {withheld}" if withheld else ""
    if change is None or p_holm is None:
        return ScaleLine("withheld" if withheld else "not_resolved", f"not resolved{aside}")
    gain = "gain" if (evidence.difference.mean or 0.0) < 0 else "deficit"
    if p_holm < evidence.alpha:
        code = "grows" if change.value > 0 else "shrinks"
        return ScaleLine(code, f"{gain} {code}: {change.shown}{aside}", change.measure)
    within = [most for most in NARROWEST if -most <= change.share[0] and change.share[1] <= most]
    if within:
        text = f"{gain} constant within {percent(within[0])} per decade of C ({change.shown}){aside}"
        return ScaleLine("constant", text, change.measure)
    return ScaleLine("not_resolved", f"not resolved: {change.shown}{aside}", change.measure)


EXPECTED = {"difference": (-1.0, 1.0), "reference": (1.0, 0.0), "arm": (0.0, 1.0)}
"""What is predicted of a held rung, as weights of the losses of reference and arm."""


def prediction_intervals(
    pairs: Pairs, held: BoolArray, options: AnalysisOptions, level: float
) -> dict[str, tuple[float, tuple[float, float]]]:
    """What is expected at the ``held`` complete pairs by the other rungs' laws, with its interval, by name.

    They hold the noise of the laws through the other rungs and that of the held pairs' own mean, each with
    the noise of its rungs, and the test split's error of what is left between them. Empty where either has no
    noise figure, or a planned pair no result. The names are those of :data:`EXPECTED`, the unit is the
    table's; ``level`` is that of each law, the difference's is that of the options.
    """
    if pairs.is_interim:
        return {}
    rest = np.array(pairs.table["kind"] == "complete")
    rest[np.flatnonzero(rest)[held]] = False
    try:
        laws = ArmLaws(pairs.cut(rest), options)
    except DataError:
        return {}
    sample, complete = sample_of(pairs), pairs.complete
    losses = complete[["loss_reference", "loss_arm"]].to_numpy(float).T
    # In log loss, as that of the laws: pooled over rungs it is in proportion to the loss.
    of_held = RungNoise(np.log(losses), sample.cells, sample.clusters, sample.rungs)
    if laws.draws is None or not of_held.df:
        return {}
    at = [complete.loc[held, f"compute_{side}"].to_numpy(float)[None] for side in ("reference", "arm")]
    weights, expected = held / held.sum(), {}
    for name, (reference_sign, arm_sign) in EXPECTED.items():
        signs = np.array([reference_sign, arm_sign])

        def combined(of_laws: Parameters, signs: FloatArray = signs) -> FloatArray:
            drawn = [laws.law.predict(side, {"x": x}) for side, x in zip(of_laws, at, strict=True)]
            return np.asarray((signs[1] * drawn[1] + signs[0] * drawn[0]).mean(axis=1))

        of_rest = longer(laws.errors_of_seeds(combined, combined(laws.draws)))
        errors = [_sum_of(of_rest, each) for each in of_held.errors(signs[:, None] * losses * weights)]
        split: list[Component] = []
        if sample.split is not None and laws.left_out is not None:
            observed = np.einsum("s,bsp,p->b", signs, sample.split.without_each(), weights)
            split = [Component(*sample.split.jackknife(combined(laws.left_out) - observed))]
        half = with_split(errors, split)[0].half(options.level if name == "difference" else level)
        value = float(combined(laws.best)[0])
        expected[name] = (value, (value - half, value + half))
    return expected


def _sum_of(*errors: Error) -> Error:
    return satterthwaite([Component(error.standard_error**2, error.df) for error in errors])


def hold_out_problem(held: Mapping[str, Any]) -> str:
    """Why the hold-out forbids to extrapolate; empty where it does not."""
    if not held.get("fails"):
        return ""
    return (
        f"the hold-out fails: at {held['rung'][:80]} the difference is {signed(held['observed'])}, where the "
        f"laws of the other rungs predict {signed(held['predicted'])} ({span(held['interval'])})"
    )


def unchecked(held: Mapping[str, Any]) -> str:
    """Why no hold-out could have withheld anything, as a clause; empty where one could."""
    if held.get("interval"):
        return ""
    if reason := held.get("reason"):
        return f"no hold-out checks the laws ({reason})"
    return "no hold-out checks the laws (it has no prediction interval)"


def extrapolation_remark(multipliers: Sequence[Multiplier], held: Mapping[str, Any]) -> str:
    """What is to be said of those ``multipliers`` that are extrapolated; empty where none is."""
    return unchecked(held) if any(multiplier.extrapolated for multiplier in multipliers) else ""


def noted(multipliers: Sequence[Multiplier], held: Mapping[str, Any]) -> list[Multiplier]:
    """The multipliers, of which an extrapolated one says where no hold-out checks its laws."""
    return [
        dataclasses.replace(each, note="; ".join(filter(None, [each.note, unchecked(held)])))
        if each.extrapolated
        else each
        for each in multipliers
    ]
