"""One self-contained HTML page: verdict, table, figures, tuning, fits, and how it was done."""

import base64
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd

from scalevec.analysis.data.tidy import checked
from scalevec.analysis.data.tuning import tuning_rows, tuning_verdict
from scalevec.analysis.data.where import select
from scalevec.analysis.figures.drawing import page_figures
from scalevec.analysis.figures.figure_input import FigureInput, figure_input
from scalevec.analysis.figures.output import write_atomically
from scalevec.analysis.formatting import footnotes, named_with_unit, percent, shortened_in, signed, span
from scalevec.analysis.laws import formula_of, law_named
from scalevec.analysis.options import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    AnalysisOptions,
    OptionChanges,
    chosen_options,
)
from scalevec.analysis.report import sections
from scalevec.analysis.report.markup import with_whole_names
from scalevec.analysis.tables import comparison
from scalevec.analysis.tables.content import Table
from scalevec.analysis.tables.render import render
from scalevec.analysis.tables.scaling import fits_of, laws_table

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parent / "page"
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
    comparisons, by_laws = data.figures.comparisons, data.figures.by_laws
    trials, choices, table = data.figures.trials, data.figures.choices, data.table
    options = trials.options
    fits, unfitted = fits_of(trials, table)
    first = comparisons[0].warnings if comparisons else ()
    shared = [warning for warning in first if all(warning in other.warnings for other in comparisons)]
    page = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            data=data,
            comparisons=comparisons,
            by_laws=by_laws,
            state=sections.plan_state(comparisons, trials.interim(), by_laws),
            warnings=shared,
            arm_warnings={
                c.arm: [w for w in c.warnings if w not in shared] for c in [*comparisons, *by_laws]
            },
            facts={str(key): str(value) for key, value in data.facts.items()},
            figures=page_figures(data.figures, FIGURES_SHOWN),
            predicted=sections.predicted_table(comparisons),
            table=comparison.build(trials, comparisons) if comparisons else None,
            line=sections.along_the_line(by_laws),
            tuning=tuning_rows(choices),
            tuning_verdict=tuning_verdict(choices, data.reference),
            laws=laws_table(trials, fits, unfitted),
            ahead=sections.ahead_table(fits),
            trials=sections.trials_table(table, trials),
            pairs=sections.pair_records(trials),
            costs=sections.costs(table),
            told=[
                sections.comparison_trials(table),
                *sections.seeds_by_stage(table),
                *filter(None, [sections.repeated_data(table)]),
            ],
            options=options,
            law=law_named(options.law),
            formula=formula_of(options),
            loss_name=named_with_unit(options.y, options.unit),
            n_words=N_CONVENTIONS[options.n_convention],
            c_words=C_CONVENTIONS[options.c_convention],
        )
    )
    return with_whole_names(page, data.figures.names)


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
    named = ("powers", "short", "formula", "anchor")
    environment.filters.update({name: getattr(markup, name) for name in named})
    environment.filters.update(signed=signed, span=span, percent=percent, csv=_csv, linked=words.linked)
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    # What a page's policy calls a script by, so that no other one runs.
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment.globals.update(term=words.term, words=words, script=script, script_hash=script_hash)
    return environment


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    """The records as CSV with every digit."""
    return render(Table("", (), (), (), records=tuple(records)), "csv")
