"""The scaling table: the law fitted to each arm, its error on the held-out rung, the compute multipliers."""

from collections.abc import Mapping
from typing import Any, TypeVar

from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import common_range, laws_to_show
from scalevec.analysis.comparison.trials import ComparedTrials, Key
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.fit import fit_of
from scalevec.analysis.fits.result import Fit
from scalevec.analysis.formatting import criterion, percent
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.render import Table

_OPTIMUM = ("interval_method", "n_points", "objective", "starts_agreeing", "n_starts")
_Point = TypeVar("_Point")


def build(trials: ComparedTrials) -> Table:
    """A row for each setting and arm. Raises :class:`DataError` where no arm can be fitted."""
    fits: list[Fit] = []
    rows: list[dict[str, str]] = []
    records: list[dict[str, Any]] = []
    remarks: list[tuple[str, str]] = []
    problems: list[str] = []
    settings = []
    for setting, part in trials.law_parts:
        laws, reasons = part.laws
        problems += reasons
        for fitted in map(fit_of, laws.values()):
            arm, largest, remark = fitted.arm, None, ""
            if arm in part.others:
                at = {"largest": common_range(part.pairs(arm).complete)[1]}
                multipliers, remark = multipliers_at(part, arm, at)
                largest = multipliers.get("largest")
            fits.append(fitted)
            settings.append(setting)
            rows.append({**setting, "arm": arm, **_texts(fitted, largest)})
            records.append({**setting, "arm": arm, **_record(fitted, largest)})
            remarks += [(text, notes.arm_at(setting, arm)) for text in (remark, *fitted.warnings) if text]
    if not fits and len(trials.rows[["n_params", "n_tokens"]].drop_duplicates()) == 1:
        raise DataError("no law can be fitted at one size")
    if not fits:
        raise DataError(f"table 'scaling' has no law to show: {'; '.join(dict.fromkeys(problems))}")
    labels = (*settings[0], "arm")
    columns = [name for name in rows[0] if name in labels or any(row[name] for row in rows)]
    texts = tuple(tuple(row[name] for name in columns) for row in rows)
    return Table(
        title="Scaling laws",
        columns=tuple(columns),
        rows=texts,
        numeric=tuple(name not in labels for name in columns),
        notes=(
            _law_note(trials, fits),
            *[notes.multiplier_note(trials, "at that C")] * ("at the largest C" in columns),
            *notes.remark_notes(remarks),
            *(f"Not fitted, or without a hold-out: {why}." for why in dict.fromkeys(problems)),
            *notes.convention_notes(trials),
            *notes.mark_notes(texts),
        ),
        breaks=notes.breaks(settings),
        records=tuple(records),
    )


def _texts(fitted: Fit, largest: Multiplier | None) -> dict[str, str]:
    """The cells beside setting and arm, by the names of their columns."""
    shown = {}
    for name, value in fitted.parameters.items():
        interval = fitted.intervals.get(name)
        shown[name] = f"{value:.4g}" + (f" [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else "")
    error = fitted.hold_out.get("relative_error")
    return {
        **shown,
        "points": str(fitted.n_points),
        "hold-out": "" if error is None else f"{100 * error:+.2f} %".replace("-", "−"),
        "at the largest C": notes.multiplier(largest),
    }


def _record(fitted: Fit, largest: Multiplier | None) -> dict[str, Any]:
    """The same with every digit."""
    record: dict[str, Any] = {"law": fitted.options.law, "formula": fitted.formula}
    for name, value in fitted.parameters.items():
        record |= notes.bounds(name, value, fitted.intervals.get(name))
    record |= {name: getattr(fitted, name) for name in _OPTIMUM}
    record["verified"] = fitted.fitted.law.optimal
    record["hold_out_relative_error"] = fitted.hold_out.get("relative_error")
    record |= notes.of_multiplier("multiplier", largest)
    return record | {name: getattr(fitted.options, name) for name in ("n_convention", "c_convention")}


def _law_note(trials: ComparedTrials, fits: list[Fit]) -> str:
    options, law = trials.options, law_named(trials.options.law)
    minimised = criterion(fits[0].options.loss, options.delta, options.residual)
    methods = ", ".join(sorted({fitted.interval_method for fitted in fits}))
    return (
        f"Law: {formula_of(options)} ({law.source}), {minimised}. Brackets: {percent(options.level)} "
        f"intervals ({methods}), which do not cover a law of the wrong form. Hold-out: the law of the other "
        "rungs at the largest one, predicted over seen less one."
    )


def multipliers_at(
    part: ComparedTrials, arm: str, points: Mapping[_Point, float]
) -> tuple[dict[_Point, Multiplier], str]:
    """The multiplier of ``arm`` at each of ``points`` (their C, FLOPs); or why there is none."""
    of_arm = laws_to_show(part.paired(arm))
    if of_arm.laws is None:
        return {}, f"no multiplier: {of_arm.reason}"
    shown = {point: of_arm.multiplier(compute, "chosen") for point, compute in points.items()}
    remark = of_arm.unchecked if any(each.extrapolated for each in shown.values()) else ""
    return shown, remark


def multipliers_of_cells(
    trials: ComparedTrials,
) -> tuple[dict[str, dict[Key, Multiplier]], list[tuple[str, str]]]:
    """The multiplier of each arm in each of its cells, and remarks with the arm that each is about."""
    multipliers: dict[str, dict[Key, Multiplier]] = {arm: {} for arm in trials.arms}
    remarks = []
    for setting, part in trials.lines():
        for arm in part.others:
            of_cells, remark = multipliers_at(part, arm, part.compute(arm))
            multipliers[arm] |= of_cells
            if remark:
                remarks.append((remark.rstrip("."), notes.arm_at(setting, arm)))
    return multipliers, remarks
