"""The scaling table: the law fitted to each arm, its errors on held-out rungs, the compute multipliers."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import laws_to_show, points_along
from scalevec.analysis.comparison.scale import extrapolation_remark, noted
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.fit import fit, rolling
from scalevec.analysis.fits.result import Fit
from scalevec.analysis.formatting import criterion, percent
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.tables import phrases
from scalevec.analysis.tables.content import Table

POINTS = {"geometric middle": "middle", "largest": "largest"}
"""The points of a multiplier that the table shows, and their names in a record."""


@dataclass(frozen=True)
class _Row:
    setting: dict[str, str]
    arm: str
    fit: Fit
    multipliers: dict[str, Multiplier]
    steps: list[dict[str, Any]]
    """The rolling hold-outs: each next rung predicted by the law of the smaller ones."""
    reason: str
    """Why there is no multiplier, or none that is extrapolated; empty for the reference."""

    @property
    def name(self) -> str:
        """The arm, and the setting where the table has several."""
        return phrases.arm_at(self.setting, self.arm)


def build(trials: ComparedTrials) -> Table:
    """A row for each setting and arm. Raises :class:`DataError` where no arm can be fitted."""
    rows, problems = _rows(trials)
    if not rows:
        raise DataError(f"table 'scaling' has no law to show: {'; '.join(problems)}")
    law = law_named(trials.options.law)
    labels = (*rows[0].setting, "arm")
    numbers = (*law.parameters, "points", "hold-out", "next rungs", "at the middle C", "at the largest C")
    groups = ("",) * len(labels) + (formula_of(trials.options),) * len(law.parameters) + ("", "", "")
    texts = tuple(_texts(row, trials.reference) for row in rows)
    return Table(
        title="Scaling laws",
        columns=(*labels, *numbers),
        rows=texts,
        numeric=(False,) * len(labels) + (True,) * len(numbers),
        notes=(
            *_notes(trials, rows),
            *(f"Not fitted: {problem}." for problem in problems),
            *phrases.convention_notes(trials),
            *phrases.mark_notes(text for row in texts for text in row),
        ),
        groups=(*groups, "multiplier", "multiplier"),
        breaks=phrases.breaks([row.setting for row in rows]),
        records=tuple(_record(row) for row in rows),
    )


def _rows(trials: ComparedTrials) -> tuple[list[_Row], list[str]]:
    rows: list[_Row] = []
    problems: list[str] = []
    for setting, part in trials.law_parts():
        steps = _next_rungs(part)
        for fitted in _fits(part, problems):
            at, reason = _multipliers(part, fitted.arm) if fitted.arm in part.others else ({}, "")
            of_arm = [record for record in steps if record["arm"] == fitted.arm]
            rows.append(_Row(setting, fitted.arm, fitted, at, of_arm, reason))
    return rows, list(dict.fromkeys(problems))


def rolling_of_parts(trials: ComparedTrials) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The rolling hold-outs of every part through which the law can go, each with its setting."""
    return [(setting, record) for setting, part in trials.law_parts() for record in _next_rungs(part)]


def _next_rungs(part: ComparedTrials) -> list[dict[str, Any]]:
    """The rolling hold-outs of all arms; none for a law of optima, whose rungs are not predicted."""
    if law_named(part.options.law).method != "points":
        return []
    return rolling(part.rows, dataclasses.replace(part.options, where=None))


def _multipliers(part: ComparedTrials, arm: str) -> tuple[dict[str, Multiplier], str]:
    """The multipliers of ``arm`` by the point of the range, or none and why."""
    of_arm = laws_to_show(part.pairs(arm), part.options, {"reference": part.reference, "arm": arm})
    laws, held = of_arm.laws, of_arm.held
    if laws is None:
        return {}, of_arm.reason
    points = points_along(part.pairs(arm).complete)
    shown = [laws.multiplier(name, compute, compute) for name, compute, _ in points]
    remark = extrapolation_remark(shown, held)
    reason = remark and f"beyond the range of {part.reference} {remark}"
    return {multiplier.at: multiplier for multiplier in noted(shown, held)}, reason


def _fits(part: ComparedTrials, problems: list[str]) -> list[Fit]:
    """The law of each arm, the reference first; arms that cannot be fitted go into ``problems``."""
    fits: list[Fit] = []
    options = dataclasses.replace(part.options, where=None)
    for arms in [part.arms] if law_named(options.law).per_arm else [[arm] for arm in part.arms]:
        try:
            of_arms = fit(part.rows[part.rows["arm"].isin(arms)], options).values()
        except DataError as error:
            problems.append(str(error))
        else:
            fits += sorted(of_arms, key=lambda fitted: part.arms.index(fitted.arm))
    return fits


def _texts(row: _Row, reference: str) -> tuple[str, ...]:
    parameters = [_parameter(row.fit, name) for name in row.fit.parameters]
    shown = (phrases.multiplier(row.multipliers.get(at)) if row.arm != reference else "1" for at in POINTS)
    return (*row.setting.values(), row.arm, *parameters, str(row.fit.n_points), *_errors(row), *shown)


def _parameter(fitted: Fit, name: str) -> str:
    """Six digits, which give the objective back; bounds need fewer."""
    text = f"{fitted.parameters[name]:.6g}"
    if name in fitted.intervals:
        low, high = fitted.intervals[name]
        text += f" [{low:.3g}, {high:.3g}]"
    return text


def _errors(row: _Row) -> tuple[str, str]:
    """The error of the hold-out, and those on the next rungs from the smallest that is predicted."""
    held = row.fit.hold_out.get("relative_error")
    steps = [step["relative_error"] for step in row.steps if "relative_error" in step]
    return _percentages([] if held is None else [held]), _percentages(steps)


def _percentages(errors: list[float]) -> str:
    shown = ", ".join(f"{100 * error:+.2f}" for error in errors).replace("-", "−")
    return f"{shown} %" if shown else ""


def _notes(trials: ComparedTrials, rows: list[_Row]) -> list[str]:
    options = trials.options
    methods = sorted({row.fit.interval_method for row in rows})
    minimised = criterion(rows[0].fit.options.loss, options.delta, options.residual)
    notes = [
        f"Law: {formula_of(options)} ({law_named(options.law).source}), {minimised}. Brackets: "
        f"{percent(options.level)} intervals ({', '.join(methods)}), which do not cover a law of the wrong "
        "form; none where the design carries none.",
        f"Multiplier: how many times the compute {trials.reference} needs for the arm's loss, at the "
        "geometric middle and the largest C that both were run at; above one the arm saves.",
    ]
    if any("relative_error" in row.fit.hold_out for row in rows):
        notes.append("Hold-out: the law of the other rungs at the largest one, predicted over seen less one.")
    if any("relative_error" in step for row in rows for step in row.steps):
        notes.append("Next rungs: the same error of the law of the k smallest rungs at the next, for each k.")
    notes += phrases.remark_notes((row.reason, row.name) for row in rows if row.reason)
    notes += phrases.remark_notes((warning, row.name) for row in rows for warning in row.fit.warnings)
    return notes


def _record(row: _Row) -> dict[str, Any]:
    fitted = row.fit
    record: dict[str, Any] = {
        **row.setting,
        "arm": row.arm,
        "law": fitted.options.law,
        "formula": fitted.formula,
    }
    for name, value in fitted.parameters.items():
        record |= phrases.bounds(name, value, fitted.intervals.get(name))
    record |= {
        "interval_method": fitted.interval_method,
        "n_points": fitted.n_points,
        "objective": fitted.objective,
        "hold_out_relative_error": fitted.hold_out.get("relative_error"),
        **{f"error_of_the_law_of_{step['rungs']}_rungs": step.get("relative_error") for step in row.steps},
    }
    for at, point in POINTS.items():
        name, shown = f"multiplier_{point}", row.multipliers.get(at)
        record[f"{name}_at_flops"] = shown.at_flops if shown else None
        record |= phrases.bounds(name, shown.estimate if shown else None, shown.interval if shown else None)
        record[f"{name}_extrapolated"] = shown.extrapolated if shown else None
    return {
        **record,
        "n_convention": fitted.options.n_convention,
        "c_convention": fitted.options.c_convention,
    }
