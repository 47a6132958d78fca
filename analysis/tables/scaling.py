"""The scaling table: the law fitted to each arm, its hold-out error, and the compute multipliers."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from analysis.data import DataError
from analysis.fitting import Fit, fit
from analysis.multipliers import Multiplier, line_to_show_problem, multipliers
from analysis.tables import phrases
from analysis.tables.content import Table
from analysis.tables.question import Question
from analysis.words import percent

POINTS = {"geometric middle": "middle", "largest": "largest"}
"""The points of a multiplier that the table shows, and what their columns are called."""


@dataclass(frozen=True)
class _Row:
    setting: dict[str, str]
    arm: str
    fit: Fit
    multipliers: dict[str, Multiplier]
    reason: str
    """Why there is no multiplier; empty for the reference."""

    @property
    def name(self) -> str:
        """The arm, and the setting where the table has several."""
        setting = " ".join(f"{name} {value}" for name, value in self.setting.items())
        return f"{self.arm} at {setting}" if setting else self.arm


def build(question: Question) -> Table:
    """A row for each setting and arm. Raises :class:`DataError` where no arm can be fitted."""
    rows, problems = _rows(question)
    if not rows:
        raise DataError(f"table 'scaling' has no law to show: {'; '.join(problems)}")
    law = question.settings.functional_form
    settings = list(rows[0].setting)
    names = {"geometric middle": "at the middle C", "largest": "at the largest C"}
    columns = (*settings, "arm", *law.parameters, "points", "hold-out", *names.values())
    n_before = len(settings) + 1
    groups = ("",) * n_before + (f"{question.settings.formula}",) * len(law.parameters) + ("", "")
    texts = tuple(_texts(row, question.reference) for row in rows)
    return Table(
        title="Scaling laws",
        columns=columns,
        rows=texts,
        numeric=tuple(place >= n_before for place in range(len(columns))),
        notes=(
            *_notes(question, rows),
            *(f"Not fitted: {problem}." for problem in problems),
            *phrases.convention_notes(question),
            *phrases.mark_notes(text for row in texts for text in row),
        ),
        groups=(*groups, "multiplier", "multiplier"),
        breaks=phrases.breaks([row.setting for row in rows]),
        records=tuple(_record(row) for row in rows),
    )


def _rows(question: Question) -> tuple[list[_Row], list[str]]:
    in_one_variable = question.settings.functional_form.variables == ("x",)
    parts = question.lines() if in_one_variable else question.split(question.varying_settings)
    rows: list[_Row] = []
    problems: list[str] = []
    for setting, part in parts:
        for found in _fits(part, problems):
            at, reason = _multipliers(part, found.arm) if found.arm in part.others else ({}, "")
            rows.append(_Row(setting, found.arm, found, at, reason))
    return rows, list(dict.fromkeys(problems))


def _multipliers(part: Question, arm: str) -> tuple[dict[str, Multiplier], str]:
    """The multipliers of ``arm`` by the point of the range, or none and why."""
    if problem := line_to_show_problem(part.pairs(arm), part.settings.law):
        return {}, problem
    found = multipliers(part.pairs(arm), part.settings)
    return {one.at: one for one in found.compute}, found.reason


def _fits(part: Question, problems: list[str]) -> list[Fit]:
    """The law of each arm, the reference first; arms that cannot be fitted go into ``problems``."""
    settings = dataclasses.asdict(part.settings)
    found = []
    jointly = part.settings.functional_form.own
    groups = [part.arms] if jointly else [[arm] for arm in part.arms]
    for arms in groups:
        try:
            fits = fit(part.trials[part.trials["arm"].isin(arms)], **settings)
        except DataError as error:
            problems.append(str(error))
        else:
            found += sorted(fits, key=lambda one: part.arms.index(one.arm))
    return found


def _texts(row: _Row, reference: str) -> tuple[str, ...]:
    parameters = [_parameter(row.fit, name) for name in row.fit.parameters]
    shown = [phrases.multiplier(row.multipliers.get(at)) for at in POINTS]
    if row.arm == reference:
        shown = ["1"] * len(POINTS)
    return (*row.setting.values(), row.arm, *parameters, str(row.fit.n_points), _hold_out(row.fit), *shown)


def _parameter(found: Fit, name: str) -> str:
    """Six digits, which give the objective back; bounds need fewer."""
    text = f"{found.parameters[name]:.6g}"
    if name in found.intervals:
        low, high = found.intervals[name]
        text += f" [{low:.3g}, {high:.3g}]"
    return text


def _hold_out(found: Fit) -> str:
    error = found.hold_out.get("relative_error")
    return "" if error is None else f"{100 * error:+.2f} %".replace("-", "−")


def _notes(question: Question, rows: list[_Row]) -> list[str]:
    settings = question.settings
    held = next((row.fit.hold_out for row in rows if "relative_error" in row.fit.hold_out), None)
    methods = sorted({row.fit.interval_method for row in rows})
    said = [
        f"Law: {settings.formula} ({settings.functional_form.source}), {settings.loss} loss"
        + (f" with delta {settings.delta:g}" if settings.loss == "huber" else "")
        + f" on {settings.residual} residuals. Brackets: {percent(settings.level)} intervals "
        f"({', '.join(methods)}), which do not cover a law of the wrong form; none where the design carries "
        "none.",
        f"Multiplier: how many times the compute {question.reference} needs for the arm's loss, at the "
        "geometric middle and the largest C that both were run at; above one the arm saves.",
    ]
    if held is not None:
        said.append("Hold-out: the law of the other rungs at the largest one, predicted over seen less one.")
    said += _of_rows((f"no multiplier: {row.reason}", row) for row in rows if row.reason)
    said += _of_rows((warning, row) for row in rows for warning in row.fit.warnings)
    return said


def _of_rows(remarks: Iterable[tuple[str, _Row]]) -> list[str]:
    """Each remark once, with the rows that it is about."""
    rows: dict[str, dict[str, None]] = {}
    for remark, row in remarks:
        rows.setdefault(remark, {})[row.name] = None
    return [f"{', '.join(names)}: {remark}." for remark, names in rows.items()]


def _record(row: _Row) -> dict[str, Any]:
    found = row.fit
    record: dict[str, Any] = {**row.setting, "arm": row.arm, "law": found.law, "formula": found.formula}
    for name, value in found.parameters.items():
        record |= phrases.bounds(name, value, found.intervals.get(name))
    record |= {
        "interval_method": found.interval_method,
        "n_points": found.n_points,
        "objective": found.objective,
        "hold_out_relative_error": found.hold_out.get("relative_error"),
    }
    for at, name in POINTS.items():
        one = row.multipliers.get(at)
        record[f"multiplier_{name}_at_flops"] = one.at_flops if one else None
        record |= phrases.bounds(
            f"multiplier_{name}", one.estimate if one else None, one.interval if one else None
        )
        record[f"multiplier_{name}_extrapolated"] = one.extrapolated if one else None
    return {**record, "n_convention": found.n_convention, "c_convention": found.c_convention}
