"""Fits as lines of text, each with the conventions that its numbers depend on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalevec.analysis.fits.isoflop import Optimum
from scalevec.analysis.formatting import aligned, chosen_rows, criterion, limits, percent

if TYPE_CHECKING:
    from scalevec.analysis.fits.result import Fit


def fit_text(fit: "Fit") -> str:
    """One fit: parameters with intervals, optimality, hold-out, prediction, conventions, warnings."""
    return "\n  ".join([f"{fit.arm}: {fit.formula}", *_fit_lines(fit)])


def _fit_lines(fit: "Fit") -> Iterator[str]:
    for name, value in fit.parameters.items():
        interval = fit.intervals.get(name)
        shown = f" ({limits(interval, '.6g')}, {percent(fit.level)})" if interval else ""
        unit = "" if fit.units[name] == "none" else f" {fit.units[name]}"
        low, high = fit.bounds.get(name, (None, None))
        sides = (("at least", low), ("at most", high))
        bounds = [f"{side} {end:g}" for side, end in sides if end is not None]
        given = ["fixed"] if name in fit.fixed else bounds
        remark = f" [{'; '.join(given)}]" if given else ""
        yield f"{name} {value:.6g}{shown}{unit}{remark}"
    if fit.columns:
        yield f"columns: {', '.join(fit.columns)}; parameters: {', '.join(fit.parameters)}"
    yield f"interval: {fit.interval_note}"
    minimised = criterion(fit.loss, fit.delta, fit.residual)
    yield (
        f"{fit.n_points} points, {fit.n_clusters} independent runs; {minimised}; objective "
        f"{fit.objective:.10g} (sum), optimality {fit.optimality:.1e}, "
        f"{fit.starts_agreeing} of {fit.n_starts} starts agree, condition {fit.condition:.1e}"
    )
    yield from chosen_rows(fit.where, fit.excluded.get("where", 0))
    others = [f"{count} {why}" for why, count in fit.excluded.items() if why != "where"]
    if others:
        yield f"left out: {', '.join(others)}"
    for optimum in fit.optima:
        yield f"C {optimum.budget:.4g}: {_optimum(optimum)}"
    yield from held_out_lines(fit.hold_out)
    if fit.refuted:
        yield f"{fit.refuted}: nothing is predicted beyond the data"
    yield fit.conventions + (f"; weights: {fit.weights}, of mean one" if fit.weights else "")
    yield from (f"warning: {warning}" for warning in fit.warnings)


def _optimum(optimum: Optimum) -> str:
    if not optimum.n_star:
        return f"censored: {optimum.censored}"
    ratio = f"{optimum.tokens_per_parameter:.3g} tokens per parameter"
    return f"N* {optimum.n_star:.4g}, D* {optimum.d_star:.4g} ({ratio})"


def held_out_lines(held: Mapping[str, Any]) -> list[str]:
    """The hold-out of a fit with its error, or why there is none; nothing where none was asked for."""
    if "predicted" not in held:
        return no_hold_out(held)
    interval = held["interval"]
    shown = f" ({limits(interval, '.6g')})" if interval else ""
    return [
        f"hold-out ({held['by']}: {held['rung'][:80]}): predicted {held['predicted']:.6g}{shown}, seen "
        f"{held['observed']:.6g}, error {100 * held['relative_error']:+.4f} % (worst of "
        f"{held['n_points']}: {100 * held['largest_absolute_error']:.4f} %)"
    ]


def no_hold_out(held: Mapping[str, Any]) -> list[str]:
    """Why nothing was held out, where something was asked for."""
    return [f"hold-out ({held['by']}): {held['reason']}"] if "reason" in held else []


def laws_text(fits: Sequence["Fit"]) -> str:
    """The laws of each arm, best first by their errors on the next rungs, then by the hold-out."""
    header = ("arm", "law", "fitted", "next rungs, mean |error|", "steps", "hold-out", "objective", "optimum")
    rows = [header, *map(_row, sorted(fits, key=_rank))]
    ends = "next rungs: each predicted by the law of the smaller ones, where all laws could be fitted"
    warnings = [f"{fit.arm}, {fit.law}: {warning}" for fit in fits for warning in fit.warnings]
    return "\n".join([*aligned(rows, n_left=2), ends, fits[0].conventions, *dict.fromkeys(warnings)])


def _rank(fitted: "Fit") -> tuple[str, float, float]:
    held = abs(fitted.hold_out.get("relative_error", np.inf))
    return fitted.arm, fitted.rolling.get("mean_absolute_error", np.inf), held


def _row(fitted: "Fit") -> tuple[str, ...]:
    errors = (fitted.rolling.get("mean_absolute_error"), fitted.hold_out.get("relative_error"))
    rolled, held = (
        "-" if error is None else f"{100 * error:{form}} %"
        for error, form in zip(errors, (".4f", "+.4f"), strict=True)
    )
    return (
        fitted.arm,
        fitted.law,
        str(len(fitted.parameters) - len(fitted.fixed)),
        rolled,
        str(fitted.rolling["steps"]),
        held,
        f"{fitted.objective:.6g}",
        "verified" if fitted.optimality < 1e-9 else "not verified",
    )
