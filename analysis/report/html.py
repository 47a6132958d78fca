"""One self-contained HTML page: verdict, table, figures, tuning, fits, and how it was done."""

import base64
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd

from scalevec.analysis.comparison.compare import Comparison
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.data.tidy import checked, comparison_rows
from scalevec.analysis.data.tuning import tuning_rows, tuning_verdict
from scalevec.analysis.data.where import select
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.drawing import page_figures
from scalevec.analysis.figures.figure_input import FigureInput, figure_input
from scalevec.analysis.figures.files import write_atomically
from scalevec.analysis.fits.fit import fit, fit_arm
from scalevec.analysis.fits.result import Fit
from scalevec.analysis.formatting import (
    criterion,
    footnotes,
    limits,
    named_with_unit,
    percent,
    shortened_in,
    signed,
    span,
)
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    AnalysisOptions,
    OptionChanges,
    chosen_options,
)
from scalevec.analysis.report.by_laws_text import along_the_line
from scalevec.analysis.report.forecast_text import ahead_table
from scalevec.analysis.report.markup import with_whole_names
from scalevec.analysis.report.plan_state import plan_state, seeds_by_stage
from scalevec.analysis.report.predicted import predicted_table
from scalevec.analysis.report.run_times import costs, times_by_rung
from scalevec.analysis.report.trial_tables import pair_records, trials_table
from scalevec.analysis.tables.comparison import comparison_table
from scalevec.analysis.tables.content import Table
from scalevec.analysis.tables.render import render

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "page"
FIGURES_SHOWN = ("differences", "loss", "curves", "multipliers", "tuning")
"""The figures of a page; the last two stand in sections of their own."""


@dataclass(frozen=True, eq=False)
class ReportInput:
    """What a page is about, read and checked once: ``table`` holds all chosen trials, those of tuning too."""

    name: str
    table: pd.DataFrame
    figures: FigureInput
    remarks: Sequence[str]
    """Which rows were chosen, and which options differ from the sweep file's."""
    facts: Mapping[str, object]

    @property
    def reference(self) -> str:
        """The arm that the others are compared with."""
        return self.figures.trials.reference


def write_report(
    results: pd.DataFrame,
    path: Path | str,
    *,
    reference: str,
    choices: Sequence[Mapping[str, Any]] = (),
    curves: pd.DataFrame | None = None,
    name: str = "results",
    facts: Mapping[str, object] | None = None,
    declared: AnalysisOptions | None = None,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> None:
    """Write the report of ``results`` to ``path``: one HTML file that opens offline, whole or not at all.

    Args:
        results: Tidy rows, one per trial.
        path: The file; an older one is replaced.
        reference: The arm that the others are compared with; alone it has a page without a verdict.
        choices: The entries of a sweep's tuning.json.
        curves: Training curves: trial_id, arm, rung, seed, tokens, loss (nats/token).
        name: The title, for example the name of the sweep.
        facts: Provenance by name; text of several lines keeps them.
        declared: The options of the sweep file; those of the page that differ are named beside the verdict.
        options: How the arms are compared, as for :func:`compare`.
        **changes: Fields of :class:`AnalysisOptions` that replace those of ``options``.

    Raises:
        DataError: The results cannot be compared, or an option is not allowed.

    Example:
        >>> write_report(results, "report.html", reference="baseline", name="mine")  # doctest: +SKIP
    """
    chosen = chosen_options(options, changes)
    figures = figure_input(results, reference, chosen, choices, curves, may_be_alone=True)
    remarks = [*figures.trials.chosen_rows(), *_deviations(chosen, declared)]
    table = shortened_in(checked(select(results, chosen.where), cluster=chosen.cluster), figures.names)
    whole = {"names that are shortened": "\n".join(footnotes(figures.names))} if figures.names else {}
    page = render_report(ReportInput(name, table, figures, remarks, {**(facts or {}), **whole}))
    write_atomically(Path(path), page.encode())


def _deviations(options: AnalysisOptions, declared: AnalysisOptions | None) -> list[str]:
    """Return each option beside the chosen rows that is not the sweep file's, with both values."""
    if declared is None:
        return []
    shown, planned = dataclasses.asdict(options), dataclasses.asdict(declared)
    return [
        f"{name.replace('_', ' ')}: {value} (sweep file: {planned[name]})"
        for name, value in shown.items()
        if name != "where" and value != planned[name]
    ]


def render_report(data: ReportInput) -> str:
    """Return the page of :func:`write_report` as text."""
    comparisons, trials = data.figures.comparisons, data.figures.trials
    fits, unfitted = _fits(data)
    first = comparisons[0].warnings if comparisons else ()
    shared = [warning for warning in first if all(warning in other.warnings for other in comparisons)]
    page = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            data=data,
            comparisons=comparisons,
            by_laws=data.figures.by_laws,
            state=plan_state(comparisons, trials.interim(), data.figures.by_laws),
            warnings=shared,
            arm_warnings={c.arm: [w for w in c.warnings if w not in shared] for c in comparisons},
            fits=fits,
            unfitted=unfitted,
            fit_notes=_fit_notes(fits),
            fit_records=[_fit_record(fitted) for fitted in fits],
            facts={str(key): str(value) for key, value in data.facts.items()},
            **_tables(data, fits),
            **_conventions(data, fits),
        )
    )
    return with_whole_names(page, data.figures.names)


def _tables(data: ReportInput, fits: Sequence[Fit]) -> dict[str, Any]:
    """The tables and figures of the page."""
    comparisons, choices, trials = data.figures.comparisons, data.figures.choices, data.figures.trials
    by_rung = comparison_table(data.table, comparisons)
    return {
        "predicted": predicted_table(comparisons),
        "line": along_the_line(data.figures.by_laws),
        "table": dataclasses.replace(by_rung, records=_by_rung_records(comparisons)),
        "figures": page_figures(data.figures, FIGURES_SHOWN),
        "multipliers": _multiplier_table(comparisons),
        "tuning": tuning_rows(choices),
        "tuning_verdict": tuning_verdict(choices, data.reference),
        "ahead": ahead_table(fits),
        "trials": trials_table(data.table, trials),
        "pairs": pair_records(trials),
        "counts": _status_counts(data.table),
        "times": times_by_rung(data.table),
        "costs": costs(data.table),
        "seeds": seeds_by_stage(data.table),
        "epochs": _epochs_sentence(data.table),
    }


def _conventions(data: ReportInput, fits: Sequence[Fit]) -> dict[str, Any]:
    """The options of the page, and what its words and its law stand for."""
    options = data.figures.trials.options
    return {
        "options": options,
        "law": law_named(options.law),
        "formula": formula_of(options),
        "minimised": criterion(
            fits[0].options.loss if fits else options.loss, options.delta, options.residual
        ),
        "loss_name": named_with_unit(options.y, options.unit),
        "n_words": N_CONVENTIONS[options.n_convention],
        "c_words": C_CONVENTIONS[options.c_convention],
    }


def _by_rung_records(comparisons: Sequence[Comparison]) -> tuple[dict[str, Any], ...]:
    """The table by rung with every digit; the mean over all rungs has no size."""
    records: list[dict[str, Any]] = []
    for of_arm in comparisons:
        for cell in of_arm.by_rung:
            names = ("rung", "n_params", "n_tokens", "loss_reference", "loss_arm")
            setting = dict(cell.setting)
            shown = {"arm": of_arm.arm, **{name: getattr(cell, name) for name in names}, **setting}
            records.append({**shown, "difference": cell.mean, **_ends(cell.interval), "pairs": cell.n})
        mean = of_arm.loss_difference
        shown = {"arm": of_arm.arm, "rung": "all (mean)", "difference": mean.mean, **_ends(mean.interval)}
        records.append({**shown, "pairs": of_arm.pairs, "p": mean.p_value, "p_holm": mean.p_holm})
    return tuple(records)


def _ends(interval: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def _fit_notes(fits: Sequence[Fit]) -> list[str]:
    """What is to be said of the fits, each sentence once with the arms that it is of."""
    arms: dict[str, list[str]] = {}
    for fitted in fits:
        for note in (fitted.interval_note, *fitted.warnings):
            arms.setdefault(note, []).append(fitted.arm)
    return [f"{', '.join(of_note)}: {note}" for note, of_note in arms.items()]


def _fit_record(fitted: Fit) -> dict[str, Any]:
    """One fit with every digit and how good an optimum it is."""
    record: dict[str, Any] = {"arm": fitted.arm}
    for name, value in fitted.parameters.items():
        low, high = fitted.intervals.get(name, (None, None))
        record |= {name: value, f"{name}_low": low, f"{name}_high": high}
    names = ("objective", "optimality", "starts_agreeing", "n_starts", "n_points")
    return record | {name: getattr(fitted, name) for name in names}


def _fits(data: ReportInput) -> tuple[list[Fit], list[str]]:
    """Return the fits of the arms that can be fitted, and the reasons for the others."""
    fits, unfitted = [], []
    trials = data.figures.trials
    if law_named(trials.options.law).per_arm:
        # The rows are chosen and checked: their rungs are text by now, which where need not compare with.
        options = dataclasses.replace(trials.options, where=None)
        try:
            of_arms = fit(data.table[data.table["arm"].isin(trials.arms)], options).values()
        except DataError as error:
            return [], [str(error)]
        return sorted(of_arms, key=lambda fitted: trials.arms.index(fitted.arm)), []
    for arm in trials.arms:
        try:
            fits.append(fit_arm(data.table[data.table["arm"] == arm], trials.options))
        except DataError as error:
            unfitted.append(str(error))
    return fits, unfitted


def _multiplier_table(comparisons: Sequence[Comparison]) -> Table:
    """The compute multipliers at the middle and the largest C; where there are none, those of tokens."""
    columns = ("arm", "multiplier", "at", "C (FLOPs)", "estimate", "interval", "remark")
    rows = [
        (comparison.arm, kind, shown.at, f"{shown.at_flops:.2e}", *_multiplier_cells(shown))
        for comparison in comparisons
        for kind, multipliers in _kinds_shown(comparison)
        for shown in multipliers[:2]
    ]
    return Table("Multipliers", columns, tuple(rows), (False, False, False, True, True, True, False))


def _kinds_shown(comparison: Comparison) -> Sequence[tuple[str, Sequence[Multiplier]]]:
    kinds = [(kind, comparison.multipliers.get(kind, ())) for kind in ("compute", "tokens")]
    return [(kind, multipliers) for kind, multipliers in kinds if multipliers][:1]


def _multiplier_cells(multiplier: Multiplier) -> tuple[str, str, str]:
    estimate = "none" if multiplier.estimate is None else f"{multiplier.estimate:.3f}"
    interval = limits(multiplier.interval, ".3f") if multiplier.interval else "none"
    remarks = ["extrapolated beyond the reference's range"] * multiplier.extrapolated
    return estimate, interval, "; ".join(filter(None, [*remarks, multiplier.note]))


def _status_counts(table: pd.DataFrame) -> Table:
    """Count the comparison trials of each arm by status."""
    rows = comparison_rows(table)
    arms, statuses = list(dict.fromkeys(rows["arm"])), list(dict.fromkeys(rows["status"]))
    counts = pd.crosstab(rows["arm"], rows["status"]).loc[arms, statuses].astype(str)
    body = tuple((str(arm), *of_arm) for arm, of_arm in zip(arms, counts.to_numpy().tolist(), strict=True))
    return Table("Comparison trials by status", ("arm", *statuses), body, (False, *(True for _ in statuses)))


def _epochs_sentence(table: pd.DataFrame) -> str:
    if "epochs" not in table.columns or not (table["epochs"] > 1).any():
        return ""
    largest = table["epochs"].max()
    repeated = table[table["epochs"] > 1].sort_values("n_params", kind="stable")
    rungs = ", ".join(dict.fromkeys(repeated["rung"]))
    return f"Data were repeated at {rungs} (up to {largest:.2f} epochs): not the losses of fresh data."


def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from scalevec.analysis.report import markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = markup.Words()
    environment.filters.update(signed=signed, span=span, percent=percent, csv=_csv)
    environment.filters.update(
        powers=markup.powers,
        short=markup.short,
        digits=markup.digits,
        formula=markup.formula,
        parameter=markup.parameter,
        linked=words.linked,
        anchor=markup.anchor,
    )
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    environment.globals.update(term=words.term, words=words, script=script, script_hash=_hash(script))
    return environment


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    """The records as CSV with every digit."""
    return render(Table("", (), (), (), records=tuple(records)), "csv")


def _hash(text: str) -> str:
    """What a page's policy calls a script by, so that no other one runs."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
