"""Fits and comparisons as lines of text, each with the conventions that its numbers depend on."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.comparison import Comparison
from analysis.data import C_CONVENTIONS, N_CONVENTIONS
from analysis.fitting import Fit
from analysis.laws import law_named
from analysis.multipliers import Multiplier
from analysis.words import chosen_rows, count, p_value, percent, signed, span


def fit_text(fit: Fit) -> str:
    """One fit: parameters with intervals, optimality, hold-out, prediction, conventions, warnings."""
    lines = [f"{fit.arm}: {fit.formula}"]
    for name, value in fit.parameters.items():
        interval = fit.intervals.get(name)
        shown = f" ({interval[0]:.6g} to {interval[1]:.6g}, {percent(fit.level)})" if interval else ""
        unit = "" if fit.units[name] == "none" else f" {fit.units[name]}"
        lines.append(f"  {name} {value:.6g}{shown}{unit}")
    lines.append(f"  interval: {fit.interval_note}")
    lines.append(
        f"  {fit.n_points} points, {fit.n_clusters} independent runs; {_criterion(fit)}; objective "
        f"{fit.objective:.10g} (sum), optimality {fit.optimality:.1e}, "
        f"{fit.starts_agreeing} of {fit.n_starts} starts agree, condition {fit.condition:.1e}"
    )
    lines += [f"  {line}" for line in chosen_rows(fit.where, fit.excluded.get("where", 0))]
    others = {why: count for why, count in fit.excluded.items() if why != "where"}
    if others:
        lines.append("  left out: " + ", ".join(f"{count} {why}" for why, count in others.items()))
    for optimum in fit.optima:
        found = f"N* {optimum.n_star:.4g}" if optimum.n_star else f"censored: {optimum.censored}"
        lines.append(f"  C {optimum.budget:.4g}: {found}")
    lines += [f"  {line}" for line in (*_hold_out(fit), *_prediction(fit), *_joint(fit.joint))]
    return "\n".join([*lines, f"  {fit.conventions}", *(f"  warning: {warning}" for warning in fit.warnings)])


def _criterion(what: Fit | Comparison) -> str:
    """What a fit minimises."""
    delta = f" with delta {what.delta:g}" if what.loss == "huber" else ""
    return f"{what.loss}{delta} on {what.residual} residuals"


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
        lines = [one.sentence, f"  {one.would_change}", *_by_rung(one)]
        for kind, found in (
            ("compute", one.compute_multipliers),
            ("tokens", one.token_multipliers),
            ("time", one.time_multipliers),
        ):
            lines += [f"  {kind} multiplier, {_multiplier(m)}" for m in found]
        if one.trend["per_decade"] is not None:
            interval = one.trend["interval"]
            shown = f" ({span(interval)})" if interval else " (no interval)"
            note = f" [{one.trend['note']}]" if one.trend["note"] else ""
            lines.append(f"  trend per decade of C: {signed(one.trend['per_decade'])}{shown}{note}")
        lines += [f"  {line}" for line in (*_change(one.trend), *_equivalence(one), *_held_difference(one))]
        lines += [f"  {line}" for line in _joint(one.joint)]
        lines += [f"  {line}" for line in (*map(_law, one.laws), *_settings(one))]
        parts.append("\n".join([*lines, *(f"  warning: {warning}" for warning in one.warnings)]))
    return "\n".join(parts)


def _by_rung(one: Comparison) -> list[str]:
    """The difference in each cell, which is descriptive: no claim is made of one rung."""
    lines = []
    for cell in one.by_rung:
        interval = f" ({span(cell.interval)})" if cell.interval else ""
        name = ", ".join([cell.rung, *cell.setting.values()])
        size = f"N {count(cell.n_params)}, {count(cell.n_tokens)} tokens"
        pairs = "pair" if cell.n == 1 else "pairs"
        lines.append(f"  by rung, {name} ({size}): {signed(cell.mean)}{interval}, {cell.n} {pairs}")
    return lines


def _law(law: Mapping[str, Any]) -> str:
    """One fitted law with what it says of itself."""
    found = ", ".join(f"{name} {value:.6g}" for name, value in law["parameters"].items())
    return (
        f"law of the {law['side']} in {law['x']}: {found}; objective {law['objective']:.10g} (sum), "
        f"optimality {law['optimality']:.1e}, {law['starts_agreeing']} of {law['n_starts']} starts agree"
    )


def _settings(one: Comparison) -> list[str]:
    """What was asked, and by which conventions."""
    x = f" in {one.x}" if "x" in law_named(one.law).variables else ""
    return [
        *chosen_rows(one.where, one.excluded.get("where", 0)),
        f"compared: {one.y}; law {one.law}{x}; {_criterion(one)}; {one.n_bootstrap} redraws, "
        f"seed {one.seed}; independent by {one.cluster}; N: {N_CONVENTIONS[one.n_convention]}; "
        f"C: {C_CONVENTIONS[one.c_convention]}",
    ]


def _change(trend: Mapping[str, Any]) -> list[str]:
    found = trend["multiplier_per_decade"]
    if found is None:
        return []
    interval = found["interval"]
    shown = f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    shown += f" [{found['note']}]" if found["note"] else ""
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
