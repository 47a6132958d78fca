"""The scaling table: the law fitted to each arm, its errors on held-out rungs, the compute multipliers."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import common_range, laws_to_show
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.fit import fit, rolling
from scalevec.analysis.fits.result import Fit
from scalevec.analysis.formatting import criterion, percent
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.content import Table

_OPTIMUM = ("interval_method", "n_points", "objective", "optimality", "starts_agreeing", "n_starts")


@dataclass(frozen=True)
class _FittedRow:
    setting: dict[str, str]
    fit: Fit
    multiplier: Multiplier | None
    """At the largest C."""
    next_rungs: list[dict[str, Any]]
    """The rolling hold-outs: each next rung predicted by the law of the smaller ones."""
    reason: str
    """Why there is no multiplier, or none that is extrapolated; empty for the reference."""

    @property
    def name(self) -> str:
        """The arm, and the setting where the table has several."""
        return notes.arm_at(self.setting, self.fit.arm)

    def texts(self, reference: str) -> tuple[str, ...]:
        """The cells of the row."""
        held = self.fit.hold_out.get("relative_error")
        errors = [step["relative_error"] for step in self.next_rungs if "relative_error" in step]
        multiplier = "1" if self.fit.arm == reference else notes.multiplier(self.multiplier)
        return (
            *self.setting.values(),
            self.fit.arm,
            *map(self._parameter, self.fit.parameters),
            str(self.fit.n_points),
            _percentages([] if held is None else [held]),
            _percentages(errors),
            multiplier,
        )

    def _parameter(self, name: str) -> str:
        """Six digits, which give the objective back; bounds need fewer."""
        text = f"{self.fit.parameters[name]:.6g}"
        if name not in self.fit.intervals:
            return text
        low, high = self.fit.intervals[name]
        return f"{text} [{low:.3g}, {high:.3g}]"

    def record(self) -> dict[str, Any]:
        """The same with every digit."""
        fitted = self.fit
        record: dict[str, Any] = {
            **self.setting,
            "arm": fitted.arm,
            "law": fitted.options.law,
            "formula": fitted.formula,
        }
        for name, value in fitted.parameters.items():
            record |= notes.bounds(name, value, fitted.intervals.get(name))
        errors = {f"error_of_the_law_of_{s['rungs']}_rungs": s.get("relative_error") for s in self.next_rungs}
        record |= {
            **{name: getattr(fitted, name) for name in _OPTIMUM},
            "hold_out_relative_error": fitted.hold_out.get("relative_error"),
            **errors,
        }
        return {
            **record,
            **notes.of_multiplier("multiplier_largest", self.multiplier),
            "n_convention": fitted.options.n_convention,
            "c_convention": fitted.options.c_convention,
        }


def build(trials: ComparedTrials) -> Table:
    """A row for each setting and arm. Raises :class:`DataError` where no arm can be fitted."""
    rows: list[_FittedRow] = []
    problems: list[str] = []
    for setting, part in trials.law_parts():
        steps = next_rungs(part)
        fits, unfitted = fits_of(part, part.rows)
        problems += unfitted
        for fitted in fits:
            at, reason = _multiplier(part, fitted.arm) if fitted.arm in part.others else (None, "")
            of_arm = [step for step in steps if step["arm"] == fitted.arm]
            rows.append(_FittedRow(setting, fitted, at, of_arm, reason))
    if not rows:
        raise DataError(f"table 'scaling' has no law to show: {'; '.join(dict.fromkeys(problems))}")
    table = _of_rows(trials, rows, problems)
    remarks = notes.convention_notes(trials)
    return dataclasses.replace(table, notes=(*table.notes, *remarks, *notes.mark_notes(table.rows)))


def laws_table(trials: ComparedTrials, fits: Sequence[Fit], problems: Sequence[str]) -> Table:
    """A row for each of ``fits`` with its law and hold-out, and why the others could not be fitted."""
    return _of_rows(trials, [_FittedRow({}, fitted, None, [], "") for fitted in fits], problems)


def _of_rows(trials: ComparedTrials, rows: Sequence[_FittedRow], problems: Sequence[str]) -> Table:
    """The table without the conventions of its source; columns that are blank everywhere are left out."""
    parameters = law_named(trials.options.law).parameters
    labels = (*(rows[0].setting if rows else ()), "arm")
    numbers = (*parameters, "points", "hold-out", "next rungs", "at the largest C")
    others = [row for row in rows if row.fit.arm != trials.reference] or rows
    blank = {
        "hold-out": not any("relative_error" in row.fit.hold_out for row in rows),
        "next rungs": not any("relative_error" in step for row in rows for step in row.next_rungs),
        "at the largest C": not any(row.multiplier for row in others),
    }
    columns = (*labels, *numbers)
    kept = [at for at, name in enumerate(columns) if not blank.get(name)]
    groups = (*("",) * len(labels), *(formula_of(trials.options),) * len(parameters), "", "", "")
    groups = (*groups, "multiplier")
    texts = [row.texts(trials.reference) for row in rows]
    return Table(
        title="Scaling laws",
        columns=tuple(columns[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in texts),
        numeric=tuple(at >= len(labels) for at in kept),
        notes=(*_notes(trials, rows, blank), *(f"Not fitted: {why}." for why in dict.fromkeys(problems))),
        groups=tuple(groups[at] for at in kept),
        breaks=notes.breaks([row.setting for row in rows]),
        records=tuple(row.record() for row in rows),
    )


def next_rungs(part: ComparedTrials) -> list[dict[str, Any]]:
    """The rolling hold-outs of all arms; none for a law of optima, whose rungs are not predicted."""
    if law_named(part.options.law).method != "points":
        return []
    return rolling(part.rows, dataclasses.replace(part.options, where=None))


def _multiplier(part: ComparedTrials, arm: str) -> tuple[Multiplier | None, str]:
    """The multiplier of ``arm`` at the largest C, or none and why."""
    of_arm = laws_to_show(part.pairs(arm), part.options, {"reference": part.reference, "arm": arm})
    if of_arm.laws is None:
        return None, of_arm.reason
    shown = of_arm.multiplier(common_range(part.pairs(arm).complete)[1])
    remark = of_arm.unchecked if shown.extrapolated else ""
    return shown, remark and f"beyond the range of {part.reference} {remark}"


def fits_of(trials: ComparedTrials, rows: pd.DataFrame) -> tuple[list[Fit], list[str]]:
    """The law of each arm of ``trials`` in their ``rows``, the reference first, and why others have none."""
    fits: list[Fit] = []
    problems: list[str] = []
    # The rows are chosen and checked: their rungs are text by now, which where need not compare with.
    options = dataclasses.replace(trials.options, where=None)
    for arms in [trials.arms] if law_named(options.law).per_arm else [[arm] for arm in trials.arms]:
        try:
            of_arms = fit(rows[rows["arm"].isin(arms)], options).values()
        except DataError as error:
            problems.append(str(error))
        else:
            fits += sorted(of_arms, key=lambda fitted: trials.arms.index(fitted.arm))
    return fits, problems


def _percentages(errors: list[float]) -> str:
    shown = ", ".join(f"{100 * error:+.2f}" for error in errors).replace("-", "−")
    return f"{shown} %" if shown else ""


def _notes(trials: ComparedTrials, rows: Sequence[_FittedRow], blank: Mapping[str, bool]) -> list[str]:
    if not rows:
        return []
    options = trials.options
    methods = sorted({row.fit.interval_method for row in rows})
    minimised = criterion(rows[0].fit.options.loss, options.delta, options.residual)
    sentences = [
        f"Law: {formula_of(options)} ({law_named(options.law).source}), {minimised}. Brackets: "
        f"{percent(options.level)} intervals ({', '.join(methods)}), which do not cover a law of the wrong "
        "form; none where the design carries none."
    ]
    if not blank["at the largest C"]:
        sentences.append(
            f"Multiplier: how many times the compute {trials.reference} needs for the arm's loss, at the "
            "largest C that both were run at; above one the arm saves."
        )
    if not blank["hold-out"]:
        sentences.append(
            "Hold-out: the law of the other rungs at the largest one, predicted over seen less one."
        )
    if not blank["next rungs"]:
        sentences.append(
            "Next rungs: the same error of the law of the k smallest rungs at the next, for each k."
        )
    sentences += notes.remark_notes((row.reason, row.name) for row in rows if row.reason)
    return sentences + notes.remark_notes((warning, row.name) for row in rows for warning in row.fit.warnings)
