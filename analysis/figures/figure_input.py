"""What figures are drawn from, on a page and in files: results, comparisons and what runs recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.compare import Comparison, require_common_cells
from scalevec.analysis.comparison.law_comparison import pairs_or_laws
from scalevec.analysis.comparison.trials import Cell, ComparedTrials, compared_losses
from scalevec.analysis.data.tidy import require_column
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.style import ArmStyle, arm_styles
from scalevec.analysis.formatting import shortened_in
from scalevec.analysis.options import AnalysisOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Choices = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Drawing:
    """A figure: its pages, and its caption for a reader who sees nothing else."""

    pages: "list[Figure]"
    caption: str


@dataclass(frozen=True, eq=False)
class FigureInput:
    """What every figure is drawn from."""

    trials: ComparedTrials
    choices: Choices
    """The entries of tuning.json."""
    curves: pd.DataFrame | None
    """trial_id, arm, rung, seed, tokens, loss."""
    statistics: pd.DataFrame | None
    """trial_id, arm, rung, seed, tokens, key (``sv/KIND/NAME``, ``theory/...``), value, low, high."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The short name of each arm or rung with a long one; everything here has the short one."""
    palette: Mapping[str, str] = field(default_factory=dict)
    """The colours of arms that are to have others than by their order."""

    @cached_property
    def _pairs_and_laws(self) -> tuple[list[Comparison], list[Comparison]]:
        return pairs_or_laws(self.trials) if self.trials.others else ([], [])

    @property
    def comparisons(self) -> list[Comparison]:
        """The arms against the reference by their pairs, compared once; none where it is alone."""
        return self._pairs_and_laws[0]

    @property
    def by_laws(self) -> list[Comparison]:
        """Those arms that have no pair with the reference, compared by their laws."""
        return self._pairs_and_laws[1]

    @property
    def reference_in_lines(self) -> str:
        """The reference as it stands at an axis: a name that was shortened, in two lines."""
        reference = self.trials.reference
        return reference.replace("...", "...\n") if reference in self.names.values() else reference

    @cached_property
    def styles(self) -> dict[str, ArmStyle]:
        """The style of each arm, the reference first."""
        styles = arm_styles(self.trials.arms, self.trials.reference)
        chosen = {self.names.get(arm, arm): colour for arm, colour in self.palette.items()}
        return {arm: replace(style, colour=chosen.get(arm, style.colour)) for arm, style in styles.items()}

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The cell of each trial by its id; empty for a table without ids."""
        rows = self.trials.rows
        if "trial_id" not in rows:
            return {}
        cells = {cell.key: cell for cell in self.trials.cells}
        return {
            trial: cells[key] for trial, key in zip(rows["trial_id"], self.trials.keys(rows), strict=True)
        }

    def entries(self, arms: Iterable[str]) -> list[tuple[str, ArmStyle]]:
        """Return the legend of those ``arms`` that are compared, in their order."""
        shown = set(arms)
        return [(arm, style) for arm, style in self.styles.items() if arm in shown]

    def of_trials(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the ``rows`` (with trial_id) of the trials that are compared."""
        rows = rows[rows["arm"].isin(self.trials.arms)]
        # A table without ids has no cells: its rows can be told apart by their arm alone.
        chosen: pd.DataFrame = rows[rows["trial_id"].isin(self.cells)] if self.cells else rows
        return chosen

    def setting_of(self, trial_id: str) -> str:
        """Return the settings of a trial that vary, as text."""
        return ", ".join(self.cells[trial_id].setting.values()) if trial_id in self.cells else ""

    @cached_property
    def places(self) -> dict[str, tuple[str, str]]:
        """The setting, with the budget where a rung has several, and the rung of each trial by its id."""
        budgets: dict[tuple[str, ...], set[int]] = {}
        for cell in self.trials.cells:
            budgets.setdefault((cell.rung, *cell.setting.values()), set()).add(cell.n_tokens)
        has_several = any(len(of_rung) > 1 for of_rung in budgets.values())
        ranks = {cell.key: number for number, cell in enumerate(self.trials.cells)}
        places = {}
        for trial, cell in sorted(self.cells.items(), key=lambda item: ranks[item[1].key]):
            ratio = [f"D/N {cell.n_tokens / cell.n_params:.3g}"] if has_several else []
            places[trial] = (", ".join([*cell.setting.values(), *ratio]), cell.rung)
        return places

    def compared(self) -> list[Comparison]:
        """Return the comparisons that have a completed pair; raise :class:`DataError` where none has."""
        if self.trials.others:  # before laws are fitted to arms of which no pair can be drawn
            require_common_cells(self.trials)
        compared = [comparison for comparison in self.comparisons if comparison.by_rung]
        if not compared:
            raise DataError("no arm has a completed pair with the reference")
        return compared

    def lines(self) -> dict[str, ComparedTrials]:
        """Return the parts on which a law in one variable can stand, by their settings: a panel each."""
        return {named_setting(setting): part for setting, part in self.trials.lines()}

    def training_curves(self) -> pd.DataFrame:
        """Return the curves of the compared arms; raise :class:`DataError` where there are none."""
        if self.curves is None or self.curves.empty:
            raise DataError("training curves are kept with a sweep, not in a table")
        curves = self.of_trials(self.curves[np.isfinite(self.curves["loss"])])
        if curves.empty:
            raise DataError("no compared run has a training curve")
        return curves


def figure_input(
    results: pd.DataFrame,
    reference: str,
    options: AnalysisOptions,
    choices: Choices = (),
    curves: pd.DataFrame | None = None,
    statistics: pd.DataFrame | None = None,
    *,
    palette: Mapping[str, str] | None = None,
    may_be_alone: bool = False,
) -> FigureInput:
    """Return what figures of ``results`` (tidy rows) are drawn from. Raises :class:`DataError`."""
    if curves is not None and not curves.empty:
        for column in ("trial_id", "arm", "rung", "tokens", "loss"):
            require_column(curves, column, "the training curves")
    trials = compared_losses(results, reference, options, may_be_alone=may_be_alone)
    if not (names := trials.long_names):
        return FigureInput(trials, choices, curves, statistics, {}, palette or {})
    options = replace(trials.options, where=shortened_in(options.where, names))
    table, reference, others = shortened_in([trials.rows, reference, trials.others], names)
    source = shortened_in(trials.source, names)
    shown = ComparedTrials(table, reference, others, options, source, trials.n_unplaced)
    choices, curves, statistics = shortened_in([choices, curves, statistics], names)
    return FigureInput(shown, choices, curves, statistics, names, palette or {})


def named_setting(setting: Mapping[str, str]) -> str:
    """Return the values of a setting as the title of a panel, ``adamw, D/N 16``."""
    shown = {"tokens_per_parameter": "D/N "}
    return ", ".join(f"{shown.get(name, '')}{value}" for name, value in setting.items())
