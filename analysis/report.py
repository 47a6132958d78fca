"""One self-contained HTML page: verdict, table, figures, tuning, fits, and how it was done."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.comparison import Comparison, compare
from analysis.data import (
    C_CONVENTIONS,
    N_CONVENTIONS,
    DataError,
    checked,
    comparison_rows,
    completed_rows,
    require_column,
)
from analysis.figures import page as figures
from analysis.figures.style import ArmStyle, arm_styles
from analysis.files import write_atomically
from analysis.fitting import Fit, fit_arm
from analysis.laws import law_named
from analysis.multipliers import Multiplier
from analysis.settings import FitSettings, settings_from
from analysis.subjects import comparison_arms
from analysis.tables.comparison import absences, comparison_table
from analysis.tables.content import Table
from analysis.tuning import tuning_rows, tuning_verdict
from analysis.words import joined, percent, signed, span

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")
SIGNIFICANT_DIGITS = 6
"""Parameters with fewer digits do not give the objective back (a fit to 3 digits is 4 times worse)."""


@dataclass(frozen=True)
class Figure:
    """An SVG of ours and its caption."""

    svg: str
    caption: str


@dataclass(frozen=True)
class _Subject:
    """What a page is about, read and checked once."""

    table: pd.DataFrame
    reference: str
    settings: FitSettings
    comparisons: list[Comparison]
    styles: dict[str, ArmStyle]
    choices: Sequence[Mapping[str, Any]]
    curves: pd.DataFrame | None


def write_report(
    path: Path | str,
    results: pd.DataFrame,
    *,
    name: str,
    reference: str,
    margin: float | None = None,
    choices: Sequence[Mapping[str, Any]] = (),
    curves: pd.DataFrame | None = None,
    facts: Mapping[str, object] | None = None,
    **fit_settings: Any,
) -> None:
    """Write the report of ``results`` (tidy rows) to ``path``, in one piece or not at all.

    ``choices`` are those of tuning.json; ``curves`` has trial_id, arm, rung, seed, tokens, loss; ``facts``
    are shown as provenance; ``fit_settings`` are fields of :class:`analysis.FitSettings` (the page is about
    the column loss). Raises :class:`DataError` for a table that cannot be compared.
    """
    settings = settings_from(fit_settings)
    if settings.y != "loss":
        raise DataError(f"y is {settings.y!r}; a report is about the column 'loss'")
    page = render_report(
        results,
        name=name,
        reference=reference,
        margin=margin,
        choices=choices,
        curves=curves,
        facts=facts,
        settings=settings,
    )
    write_atomically(Path(path), page.encode())


def render_report(
    results: pd.DataFrame,
    *,
    name: str,
    reference: str,
    margin: float | None,
    choices: Sequence[Mapping[str, Any]],
    curves: pd.DataFrame | None,
    facts: Mapping[str, object] | None,
    settings: FitSettings,
) -> str:
    """The page of :func:`write_report` as text."""
    table = checked(results)
    comparisons = compare(results, reference=reference, margin=margin, **dataclasses.asdict(settings))
    styles = arm_styles(comparison_arms(table), reference)
    subject = _Subject(table, reference, settings, comparisons, styles, choices, _usable(curves, styles))
    return _environment().get_template("report.html.jinja").render(_context(subject, name, facts or {}))


def _usable(curves: pd.DataFrame | None, styles: Mapping[str, ArmStyle]) -> pd.DataFrame | None:
    """The curves of the compared arms; None where there are none."""
    if curves is None or curves.empty:
        return None
    for column in ("trial_id", "arm", "rung", "tokens", "loss"):
        require_column(curves, column, "the training curves")
    kept = curves[curves["arm"].isin(list(styles)) & np.isfinite(curves["loss"])]
    return None if kept.empty else kept


def _context(subject: _Subject, name: str, facts: Mapping[str, object]) -> dict[str, Any]:
    fits, unfitted = _fits(subject)
    return {
        "name": name,
        "reference": subject.reference,
        "comparisons": subject.comparisons,
        "warnings": _shared_warnings(subject.comparisons),
        "own_warnings": _own_warnings(subject.comparisons),
        "table": comparison_table(subject.table, subject.comparisons),
        "figures": _figures(subject, [fit.arm for fit in fits]),
        "multipliers": _multiplier_table(subject.comparisons),
        "tuning": tuning_rows(subject.choices),
        "tuning_verdict": tuning_verdict(subject.choices, subject.reference),
        "tuning_figure": _tuning_figure(subject),
        "fits": fits,
        "unfitted": unfitted,
        "law": law_named(subject.settings.law),
        "settings": subject.settings,
        "n_words": N_CONVENTIONS[subject.settings.n_convention],
        "c_words": C_CONVENTIONS[subject.settings.c_convention],
        "counts": _status_counts(subject.table),
        "epochs": _epochs_sentence(subject.table),
        "facts": {str(key): str(value) for key, value in facts.items()},
    }


def _fits(subject: _Subject) -> tuple[list[Fit], list[str]]:
    """The fits of the arms that can be fitted, and the reasons for the others."""
    fits, unfitted = [], []
    for arm in subject.styles:
        try:
            fits.append(fit_arm(subject.table[subject.table["arm"] == arm], subject.settings))
        except DataError as error:
            unfitted.append(str(error))
    return fits, unfitted


def _shared_warnings(comparisons: Sequence[Comparison]) -> list[str]:
    """Warnings that every comparison has, said once."""
    return [w for w in comparisons[0].warnings if all(w in other.warnings for other in comparisons)]


def _own_warnings(comparisons: Sequence[Comparison]) -> dict[str, list[str]]:
    shared = _shared_warnings(comparisons)
    return {c.arm: [w for w in c.warnings if w not in shared] for c in comparisons}


def _figures(subject: _Subject, fitted: Sequence[str]) -> list[Figure]:
    rows, _ = completed_rows(subject.table)
    found = []
    if any(comparison.by_rung for comparison in subject.comparisons):
        svg = figures.difference_figure(subject.comparisons, subject.styles)
        found.append(Figure(svg, _difference_caption(subject)))
    if len(rows):
        svg = figures.loss_figure(rows, subject.settings, subject.styles, _in_compute(subject, fitted))
        found.append(Figure(svg, _loss_caption(subject, rows)))
    if subject.curves is not None:
        rungs = [rung for rung in _rungs(subject.table) if rung in set(subject.curves["rung"])]
        svg = figures.curves_figure(subject.curves, rungs, subject.styles)
        caption = "Training loss (running mean over a fiftieth of the run), one line a seed."
        found.append(Figure(svg, caption))
    return found


def _in_compute(subject: _Subject, fitted: Sequence[str]) -> Sequence[str]:
    return fitted if law_named(subject.settings.law).variables == ("x",) else ()


def _rungs(table: pd.DataFrame) -> list[str]:
    """Names of the rungs, smallest first."""
    return list(dict.fromkeys(table.sort_values("n_params", kind="stable")["rung"]))


def _difference_caption(subject: _Subject) -> str:
    first = subject.comparisons[0]
    degrees = sorted({c.loss_difference.df for c in subject.comparisons})
    freedom = " or ".join(str(df) for df in degrees)
    return (
        f"Difference of the test loss to {subject.reference}, paired by seed; below zero is better. "
        f"Small dots: single pairs. Bars: {percent(first.level)} t intervals with the noise pooled within "
        f"rungs ({freedom} degrees of freedom); those by rung are descriptive. No bar: no interval. "
        + " ".join(absences(subject.comparisons))
    )


def _loss_caption(subject: _Subject, rows: pd.DataFrame) -> str:
    settings = subject.settings
    seeds = rows["seed"].nunique()
    return (
        f"Test loss of {len(rows)} trials ({seeds} {'seed' if seeds == 1 else 'seeds'}). Lines: "
        f"{settings.formula} for each arm; bands: {percent(settings.level)} "
        "t interval of the law from seed noise, given the form of the law. "
        f"C: {C_CONVENTIONS[settings.c_convention]}; N: {N_CONVENTIONS[settings.n_convention]}."
    )


def _multiplier_table(comparisons: Sequence[Comparison]) -> Table:
    columns = ("arm", "multiplier", "at", "C, FLOPs", "estimate", "interval", "remark")
    rows = [
        (comparison.arm, kind, m.at, f"{m.at_flops:.2e}", *_multiplier_cells(m))
        for comparison in comparisons
        for kind, found in (
            ("compute", comparison.compute_multipliers),
            ("tokens", comparison.token_multipliers),
            ("time", comparison.time_multipliers),
        )
        for m in found
    ]
    return Table("Multipliers", columns, tuple(rows), (False, False, False, True, True, True, False))


def _multiplier_cells(multiplier: Multiplier) -> tuple[str, str, str]:
    estimate = "none" if multiplier.estimate is None else f"{multiplier.estimate:.3f}"
    interval = "none"
    if multiplier.interval:
        interval = f"{multiplier.interval[0]:.3f} to {multiplier.interval[1]:.3f}"
    remarks = ["extrapolated beyond the reference's range"] if multiplier.extrapolated else []
    return estimate, interval, "; ".join([*remarks, *([multiplier.note] if multiplier.note else [])])


def _tuning_figure(subject: _Subject) -> Figure | None:
    known = [choice for choice in subject.choices if choice["arm"] in subject.styles]
    svg = figures.tuning_figure(known, subject.styles)
    if svg is None:
        return None
    seeds = sorted({seed for choice in known for seed in choice["seeds"]})
    caption = (
        f"Mean validation loss (tuning seeds: {joined([str(seed) for seed in seeds])}; no comparison trial "
        "uses them). Curve: the parabola through the lowest point and its neighbours, in the log of the "
        "rate. Ring: chosen; open diamond: censored at the edge; cross at the top: diverged."
    )
    return Figure(svg, caption)


def _status_counts(table: pd.DataFrame) -> Table:
    """Comparison trials of each arm by status."""
    rows = comparison_rows(table)
    statuses = list(dict.fromkeys(rows["status"]))
    counts = pd.crosstab(rows["arm"], rows["status"])
    body = tuple(
        (str(arm), *(str(counts.loc[arm, status]) for status in statuses))
        for arm in dict.fromkeys(rows["arm"])
    )
    numeric = (False, *(True for _ in statuses))
    return Table("Comparison trials by status", ("arm", *statuses), body, numeric)


def _epochs_sentence(table: pd.DataFrame) -> str:
    if "epochs" not in table.columns or not (table["epochs"] > 1).any():
        return ""
    largest = table["epochs"].max()
    rungs = ", ".join(_rungs(table[table["epochs"] > 1]))
    return f"Data were repeated at {rungs} (up to {largest:.2f} epochs): not the losses of fresh data."


def _digits(value: float) -> str:
    """A parameter with the digits that give the objective back."""
    return f"{value:.{SIGNIFICANT_DIGITS}g}"


def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(digits=_digits, signed=signed, span=span, percent=percent)
    return environment
