"""The figures of a paper, by name, as files; a new one is a function that draws and a line in a registry."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.comparison import Comparison, compare
from analysis.data import DataError, completed_rows, require_choice, require_column
from analysis.figures.curves import draw_curves, draw_theory, draw_vectors
from analysis.figures.differences import LatticePoint, draw_forest, draw_lattice
from analysis.figures.laws import draw_loss, draw_multipliers
from analysis.figures.output import FORMATS, file_bytes, require_formats
from analysis.figures.style import PAPER, ArmStyle, Medium, arm_styles
from analysis.figures.tuning import draw_tuning
from analysis.files import write_atomically
from analysis.settings import settings_from
from analysis.tables import strategies
from analysis.tables.question import Cell, Question, question

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PANELS = 12
MOST_SETTINGS = 4
"""Columns of a figure that shows settings side by side; what is more goes onto a further page."""
__all__ = ["FIGURES", "FORMATS", "Written", "write_figures"]


@dataclass(frozen=True, eq=False)
class Subject:
    """What figures are drawn from; see :func:`write_figures`."""

    question: Question
    choices: Sequence[Mapping[str, Any]]
    curves: pd.DataFrame | None
    statistics: pd.DataFrame | None

    @cached_property
    def styles(self) -> dict[str, ArmStyle]:
        """The style of each arm."""
        return arm_styles(self.question.arms, self.question.reference)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every arm against the reference. Raises :class:`DataError` where no pair is complete."""
        asked = self.question
        found = compare(asked.trials, reference=asked.reference, margin=asked.margin, **vars(asked.settings))
        if not any(comparison.by_rung for comparison in found):
            raise DataError("no arm has a completed pair with the reference")
        return found

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The cell of each trial by its id; empty for a table without ids."""
        trials = self.question.trials
        if "trial_id" not in trials:
            return {}
        cells = {cell.key: cell for cell in self.question.cells()}
        return {
            name: cells[key] for name, key in zip(trials["trial_id"], self.question.keys(trials), strict=True)
        }

    def setting_of(self, trial_id: str) -> str:
        """The settings of a trial that vary, as text."""
        return ", ".join(self.cells[trial_id].setting.values()) if trial_id in self.cells else ""

    def recorded(self, prefix: str, absent: str) -> list[pd.DataFrame]:
        """The statistics under ``prefix`` of the largest rung and budget, with their setting, by page.

        Raises :class:`DataError` where there are none (``absent`` says so).
        """
        if self.statistics is None or self.statistics.empty:
            raise DataError("what runs recorded along the way is kept with a sweep, not in a table")
        found: pd.DataFrame = self.statistics[self.statistics["arm"].isin(self.question.arms)]
        found = found[found["key"].str.startswith(prefix)]
        if found.empty:
            raise DataError(absent)
        sizes = found["rung"].map(self.question.trials.groupby("rung")["n_params"].max())
        found = found[sizes == sizes.max()]
        found = found.assign(setting=found["trial_id"].map(self.setting_of))
        budgets = found["trial_id"].map(lambda name: self.cells[name].n_tokens if name in self.cells else 0)
        found = found.loc[budgets == budgets.groupby(found["setting"]).transform("max")]
        return [found[found["setting"].isin(page)] for page in _pages(found["setting"], MOST_SETTINGS)]


def _pages(names: Iterable[str], most: int) -> list[list[str]]:
    """The distinct ``names`` in their order, as many on each page, at most ``most``."""
    distinct = list(dict.fromkeys(names))
    n_pages = max(1, math.ceil(len(distinct) / most))
    return [list(page) for page in np.array_split(np.array(distinct, object), n_pages)]


def _loss(subject: Subject, medium: Medium) -> "list[Figure]":
    asked = subject.question
    rows, _ = completed_rows(asked.trials)
    if rows.empty:
        raise DataError("no trial is completed")
    lines = asked.lines()
    parts = {_name(setting): completed_rows(part.trials)[0] for setting, part in lines}
    parts = {name: own for name, own in parts.items() if len(own)}
    if sum(map(len, parts.values())) < len(rows):
        return [draw_loss(medium, {"": rows}, asked.settings, subject.styles, ())]
    fitted = asked.arms if asked.settings.functional_form.variables == ("x",) else ()
    return [
        draw_loss(medium, {name: parts[name] for name in page}, asked.settings, subject.styles, fitted)
        for page in _pages(parts, MOST_PANELS)
    ]


def _name(setting: Mapping[str, str]) -> str:
    """Settings as the title of a panel; a number says what it is."""
    shown = {"tokens_per_parameter": "D/N "}
    return ", ".join(f"{shown.get(name, '')}{value}" for name, value in setting.items())


def _differences(subject: Subject, medium: Medium) -> "list[Figure]":
    return [draw_forest(medium, subject.comparisons, subject.styles)]


def _ablation(subject: Subject, medium: Medium) -> "list[Figure]":
    asked = subject.question
    if not strategies.is_known(asked):
        raise DataError(f"the source lacks {', '.join(strategies.FIELDS)}")
    fields = {arm: strategies.fields_of(asked, arm) for arm in asked.arms}
    found = {one.arm: one.loss_difference for one in subject.comparisons}
    order = sorted(found, key=lambda arm: (strategies.n_choices(fields[arm]), arm))
    points = [LatticePoint(asked.reference, strategies.dots(fields[asked.reference]), 0.0, None)]
    for arm in order:
        mean = found[arm].mean
        if mean is not None:
            points.append(LatticePoint(arm, strategies.dots(fields[arm]), mean, found[arm].interval))
    return [draw_lattice(medium, points, strategies.DOTS, asked.reference)]


def _multipliers(subject: Subject, medium: Medium) -> "list[Figure]":
    asked = subject.question
    parts = {_name(setting): {arm: part.pairs(arm) for arm in part.others} for setting, part in asked.lines()}
    return [
        draw_multipliers(medium, {name: parts[name] for name in page}, asked.settings, subject.styles)
        for page in _pages(parts, MOST_PANELS)
    ]


def _tuning(subject: Subject, medium: Medium) -> "list[Figure]":
    if not subject.choices:
        raise DataError("nothing was tuned, or the source is a table, which keeps no record of tuning")
    known = [choice for choice in subject.choices if choice["arm"] in subject.styles]
    return [draw_tuning(medium, known, subject.styles)]


def _curves(subject: Subject, medium: Medium) -> "list[Figure]":
    curves = subject.curves
    if curves is None or curves.empty:
        raise DataError("training curves are kept with a sweep, not in a table")
    for column in ("trial_id", "arm", "rung", "tokens", "loss"):
        require_column(curves, column, "the training curves")
    kept = curves[curves["arm"].isin(subject.question.arms) & np.isfinite(curves["loss"])]
    if kept.empty:
        raise DataError("no compared run has a training curve")
    settings = kept["trial_id"].map(subject.setting_of)
    kept = kept.assign(rung=kept["rung"].where(settings == "", kept["rung"] + ", " + settings))
    order = [", ".join([cell.rung, *cell.setting.values()]) for cell in subject.question.cells()]
    names = [name for name in dict.fromkeys(order) if name in set(kept["rung"])]
    return [draw_curves(medium, kept, page, subject.styles) for page in _pages(names, MOST_PANELS)]


def _vectors(statistic: str) -> "Callable[[Subject, Medium], list[Figure]]":
    def draw(subject: Subject, medium: Medium) -> "list[Figure]":
        found = subject.recorded("sv/", "no run recorded statistics of its scale vectors")
        return [draw_vectors(medium, page, statistic, subject.question.arms) for page in found]

    return draw


def _theory(subject: Subject, medium: Medium) -> "list[Figure]":
    absent = "no run measured anything of the theory; ask for it with measure: in the sweep file"
    return [draw_theory(medium, page, subject.styles) for page in subject.recorded("theory/", absent)]


FIGURES: "dict[str, Callable[[Subject, Medium], list[Figure]]]" = {
    "loss": _loss,
    "differences": _differences,
    "ablation": _ablation,
    "multipliers": _multipliers,
    "tuning": _tuning,
    "curves": _curves,
    "vectors-mean": _vectors("mean"),
    "vectors-deviation": _vectors("deviation"),
    "vectors-near-zero": _vectors("near_zero"),
    "theory": _theory,
}


@dataclass(frozen=True)
class Written:
    """The files that were written, and the figures that could not be drawn with the reason for each."""

    paths: tuple[Path, ...]
    left_out: dict[str, str]


def write_figures(
    results: pd.DataFrame,
    folder: Path | str,
    *,
    reference: str,
    formats: Sequence[str] = FORMATS,
    only: Sequence[str] = (),
    margin: float | None = None,
    where: str | None = None,
    choices: Sequence[Mapping[str, Any]] = (),
    curves: pd.DataFrame | None = None,
    statistics: pd.DataFrame | None = None,
    **fit_settings: Any,
) -> Written:
    """Write the figures of ``results`` (tidy rows) to ``folder``, each as NAME.FORMAT at a paper's width.

    A figure of many panels is several pages, NAME-1.FORMAT and so on.

    ``only`` names some of :data:`FIGURES`, and then all of them must be possible; else every figure is drawn
    that the source has the data for. ``choices`` are those of tuning.json; ``curves`` has trial_id, arm,
    rung, seed, tokens, loss; ``statistics`` has trial_id, arm, rung, seed, tokens, key (``sv/KIND/NAME``,
    ``theory/...``), value, low, high. ``fit_settings`` are fields of :class:`analysis.FitSettings`; ``x`` is
    the horizontal axis of the figure ``loss``. Nothing is written unless all can be drawn. Raises
    :class:`analysis.DataError`.
    """
    require_formats(tuple(formats))
    for name in only:
        require_choice("figure", name, FIGURES)
    asked = question(
        results, reference=reference, settings=settings_from(fit_settings), margin=margin, where=where
    )
    drawn, left_out = _drawn(
        Subject(asked, choices, curves, statistics), only or list(FIGURES), tuple(formats)
    )
    if left_out and (only or not drawn):
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in left_out.items())
        raise DataError(f"figures that cannot be drawn from this source: {reasons}")
    paths = []
    for (name, form), content in drawn.items():
        paths.append(Path(folder, f"{name}.{form}"))
        write_atomically(paths[-1], content)
    return Written(tuple(paths), left_out)


def _drawn(
    subject: Subject, names: Sequence[str], formats: tuple[str, ...]
) -> tuple[dict[tuple[str, str], bytes], dict[str, str]]:
    """The content of each file, and why a figure could not be drawn."""
    drawn: dict[tuple[str, str], bytes] = {}
    left_out = {}
    with PAPER.style():
        for name in names:
            try:
                pages = FIGURES[name](subject, PAPER)
            except DataError as error:
                left_out[name] = str(error)
                continue
            for page, figure in zip(_page_names(name, len(pages)), pages, strict=True):
                drawn |= {(page, form): file_bytes(figure, form, page) for form in dict.fromkeys(formats)}
    return drawn, left_out


def _page_names(name: str, n_pages: int) -> list[str]:
    """The figure's own name where it is one page, else with numbers."""
    return [name] if n_pages == 1 else [f"{name}-{place}" for place in range(1, n_pages + 1)]
