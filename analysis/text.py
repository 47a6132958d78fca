"""Fits and comparisons as lines of text, each with the conventions that its numbers depend on."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison import Comparison
from analysis.data import C_CONVENTIONS, N_CONVENTIONS
from analysis.fitting import Fit
from analysis.multipliers import Multiplier
from analysis.words import p_value, percent, signed, span


def fit_text(fit: Fit) -> str:
    """One fit: parameters with intervals, optimality, hold-out, prediction, conventions, warnings."""
    lines = [f"{fit.arm}: {fit.formula}"]
    for name, value in fit.parameters.items():
        interval = fit.intervals.get(name)
        shown = f" ({interval[0]:.6g} to {interval[1]:.6g}, {percent(fit.level)})" if interval else ""
        lines.append(f"  {name} {value:.6g}{shown}")
    lines.append(f"  interval: {fit.interval_note}")
    delta = f" with delta {fit.delta:g}" if fit.loss == "huber" else ""
    lines.append(
        f"  {fit.n_points} points, {fit.n_clusters} independent runs; {fit.loss}{delta} on {fit.residual} "
        f"residuals; objective {fit.objective:.10g} (sum), optimality {fit.optimality:.1e}, "
        f"{fit.starts_agreeing} of {fit.n_starts} starts agree, condition {fit.condition:.1e}"
    )
    if fit.excluded:
        lines.append("  left out: " + ", ".join(f"{count} {why}" for why, count in fit.excluded.items()))
    for optimum in fit.optima:
        found = f"N* {optimum.n_star:.4g}" if optimum.n_star else f"censored: {optimum.censored}"
        lines.append(f"  C {optimum.budget:.4g}: {found}")
    lines += [f"  {line}" for line in (*_hold_out(fit), *_prediction(fit), *_joint(fit.joint))]
    return "\n".join([*lines, f"  {fit.conventions}", *(f"  warning: {warning}" for warning in fit.warnings)])


def _hold_out(fit: Fit) -> list[str]:
    held = fit.hold_out
    if not held:
        return []
    if "reason" in held:
        return [f"hold-out ({held['by']}): {held['reason']}"]
    return [
        f"hold-out ({held['by']}: {held['rung'][:80]}): predicted {held['predicted']:.6g}, seen "
        f"{held['observed']:.6g}, error {100 * held['relative_error']:+.4f} % (worst of {held['n_points']}: "
        f"{100 * held['largest_absolute_error']:.4f} %)"
    ]


def _prediction(fit: Fit) -> list[str]:
    if not fit.prediction:
        return []
    at = ", ".join(f"{name} {value:.4g}" for name, value in fit.prediction["at"].items())
    interval = fit.prediction["interval"]
    shown = f" ({interval[0]:.6g} to {interval[1]:.6g})" if interval else " (no interval)"
    return [f"prediction at twice the largest C ({at}): {fit.prediction['value']:.6g}{shown}"]


def _joint(joint: dict[str, object]) -> list[str]:
    if not joint:
        return []
    if "reason" in joint:
        return [f"joint against separate fits: {joint['reason']}"]
    return [
        f"joint against separate fits: F {joint['statistic']:.3g} with {joint['df']} degrees of freedom, "
        f"p {p_value(joint['p_value'])}"  # type: ignore[arg-type]
    ]


def comparison_text(comparisons: Sequence[Comparison]) -> str:
    """Each arm against the reference: the sentence, multipliers, trend, what would change it, warnings."""
    parts = []
    for one in comparisons:
        lines = [one.sentence, f"  {one.would_change}"]
        for kind, found in (
            ("compute", one.compute_multipliers),
            ("tokens", one.token_multipliers),
            ("time", one.time_multipliers),
        ):
            lines += [f"  {kind} multiplier, {_multiplier(m)}" for m in found]
        if one.trend["per_decade"] is not None:
            interval = one.trend["interval"]
            shown = f" ({span(interval)})" if interval else " (no interval)"
            lines.append(f"  trend per decade of C: {signed(one.trend['per_decade'])}{shown}")
        lines += [f"  {line}" for line in (*_change(one.trend), *_equivalence(one), *_held_difference(one))]
        lines += [f"  {line}" for line in _joint(one.joint)]
        lines.append(
            f"  compared: {one.y}; law {one.law}; N: {N_CONVENTIONS[one.n_convention]}; "
            f"C: {C_CONVENTIONS[one.c_convention]}"
        )
        parts.append("\n".join([*lines, *(f"  warning: {warning}" for warning in one.warnings)]))
    return "\n".join(parts)


def _change(trend: Mapping[str, Any]) -> list[str]:
    found = trend["multiplier_per_decade"]
    if found is None:
        return []
    interval = found["interval"]
    shown = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else f" [{found['note']}]"
    return [f"the compute multiplier changes by a factor of {found['estimate']:.3f} per decade of C{shown}"]


def _equivalence(one: Comparison) -> list[str]:
    found = one.equivalence
    if found["margin"] is None:
        return []
    if found["interval"] is None:
        return [f"equivalence within {found['margin']:g}: {found['note']}"]
    return [
        f"equivalence within {found['margin']:g}: p {p_value(found['p_value'])}, "
        f"{percent(found['level'])} interval {span(found['interval'])}"
    ]


def _held_difference(one: Comparison) -> list[str]:
    held = one.hold_out
    if not held:
        return []
    if "reason" in held:
        return [f"hold-out ({held['by']}): {held['reason']}"]
    return [
        f"hold-out ({held['by']}: {held['rung'][:80]}): difference predicted {signed(held['predicted'])}, "
        f"seen {signed(held['observed'])}"
    ]


def _multiplier(multiplier: Multiplier) -> str:
    estimate = "none" if multiplier.estimate is None else f"{multiplier.estimate:.3f}"
    interval = ""
    if multiplier.interval:
        interval = f" ({multiplier.interval[0]:.3f} to {multiplier.interval[1]:.3f})"
    remarks = [*(["extrapolated"] if multiplier.extrapolated else []), *filter(None, [multiplier.note])]
    remark = f" [{'; '.join(remarks)}]" if remarks else ""
    return f"{multiplier.at} (C {multiplier.at_flops:.3g}): {estimate}{interval}{remark}"
