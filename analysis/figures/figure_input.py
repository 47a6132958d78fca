"""What figures are drawn from, on a page and in files: results, comparisons and what runs recorded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.colors import is_color_like

from scalevec.analysis.comparison.compare import Comparison, require_common_cells
from scalevec.analysis.comparison.law_comparison import pairs_or_laws
from scalevec.analysis.comparison.trials import ComparedTrials, compared_losses
from scalevec.analysis.data.tidy import require_column
from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.figures.style import ArmStyle, arm_styles
from scalevec.analysis.formatting import shortened_in
from scalevec.analysis.options import AnalysisOptions

Choices = Sequence[Mapping[str, Any]]
_OF_CURVES = ("trial_id", "arm", "rung", "seed", "tokens", "loss")
_OF_STATISTICS = ("trial_id", "arm", "rung", "seed", "tokens", "key", "value", "low", "high")


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
    styles: Mapping[str, ArmStyle]
    """The style of each arm, the reference first."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The short name of each arm or rung with a long one; everything here has the short one."""

    @cached_property
    def comparisons(self) -> tuple[list[Comparison], list[Comparison]]:
        """The arms against the reference by their pairs, those without by laws; none where it is alone."""
        return pairs_or_laws(self.trials) if self.trials.others else ([], [])

    def legend(self, arms: Iterable[str]) -> dict[str, ArmStyle]:
        """Return the styles of those ``arms`` that are compared, in their order."""
        shown = set(arms)
        return {arm: style for arm, style in self.styles.items() if arm in shown}

    @cached_property
    def places(self) -> pd.DataFrame:
        """The setting, rung, n_params and n_tokens of each compared trial by its id, in the order of cells.

        The setting has the tokens per parameter too where a rung has several budgets. Raises
        :class:`DataError` for a table without ids.
        """
        rows = self.trials.rows
        require_column(rows, "trial_id", "what runs recorded")
        cells = {cell.key: (number, cell) for number, cell in enumerate(self.trials.cells)}
        of_trials = [cells[key] for key in self.trials.keys(rows)]
        has_several = len({(cell.rung, *cell.setting.values()) for _, cell in of_trials}) < len(cells)
        records = []
        for number, cell in of_trials:
            ratio = [f"D/N {cell.n_tokens / cell.n_params:.3g}"] if has_several else []
            setting = ", ".join(filter(None, [named_setting(cell.setting), *ratio]))
            records.append((number, setting, cell.rung, cell.n_params, cell.n_tokens))
        columns = ["order", "setting", "rung", "n_params", "n_tokens"]
        places = pd.DataFrame(records, pd.Index(rows["trial_id"], name="trial_id"), columns)
        places = places[~places.index.duplicated()]  # arms may share a trial
        return places.sort_values("order", kind="stable")

    def placed(self, recorded: pd.DataFrame | None, what: str) -> pd.DataFrame:
        """Return the rows recorded by compared trials with their :attr:`places`, in the order of cells.

        Raises :class:`DataError` where there are none of ``what``.
        """
        if recorded is None or recorded.empty:
            raise DataError(f"{what} are kept with a sweep, not in a table")
        rows = recorded.drop(columns="rung").join(self.places, on="trial_id", how="inner")
        if rows.empty:
            raise DataError(f"no compared run has {what}")
        return rows.sort_values(["order", "tokens"], kind="stable")

    def compared(self) -> list[Comparison]:
        """Return the comparisons that have a completed pair; raise :class:`DataError` where none has."""
        if self.trials.others:  # before laws are fitted to arms of which no pair can be drawn
            require_common_cells(self.trials)
        compared = [comparison for comparison in self.comparisons[0] if comparison.by_rung]
        if not compared:
            raise DataError("no arm has a completed pair with the reference")
        return compared


def figure_input(
    results: pd.DataFrame,
    reference: str,
    options: AnalysisOptions,
    choices: Choices = (),
    curves: pd.DataFrame | None = None,
    statistics: pd.DataFrame | None = None,
    *,
    palette: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
) -> FigureInput:
    """Return what figures of ``results`` (tidy rows) are drawn from. Raises :class:`DataError`."""
    recorded = (("the training curves", curves, _OF_CURVES), ("the statistics", statistics, _OF_STATISTICS))
    for what, rows, columns in recorded:
        if rows is not None and not rows.empty:
            for column in columns:
                require_column(rows, column, what)
    trials = compared_losses(results, reference, options, may_be_alone=True)
    for what, arms in (("renamed", rename or {}), ("ordered", order), ("coloured", palette or {})):
        for arm in arms:
            require_choice(f"arm to be {what}", arm, trials.arms)
    for arm, colour in (palette or {}).items():
        if not is_color_like(colour):
            raise DataError(f"colour of {arm} is {colour!r}; a name or #RRGGBB, as #D55E00")
    others = [arm for arm in order if arm in trials.others]
    others += [arm for arm in trials.others if arm not in others]
    trials = replace(trials, others=tuple(others))
    styles = arm_styles(trials.arms, reference, palette)
    data = FigureInput(trials, choices, curves, statistics, styles)
    if rename:
        data = _with_names(data, rename, whole=True)
    names = data.trials.long_names
    return replace(_with_names(data, names), names=names) if names else data


def _with_names(data: FigureInput, names: Mapping[str, str], *, whole: bool = False) -> FigureInput:
    """``data`` with other names of arms and rungs, in texts too unless only the ``whole`` is replaced."""
    trials = data.trials
    fields = ("rows", "reference", "others", "source", "checkpoints")
    changed = {name: shortened_in(getattr(trials, name), names, whole=whole) for name in fields}
    options = replace(trials.options, where=shortened_in(trials.options.where, names, whole=whole))
    recorded = [data.choices, data.curves, data.statistics]
    choices, curves, statistics = shortened_in(recorded, names, whole=whole)
    shown = replace(trials, options=options, **changed)
    arms = shortened_in([*data.styles], names, whole=whole)
    styles = dict(zip(arms, data.styles.values(), strict=True))
    return replace(data, trials=shown, choices=choices, curves=curves, statistics=statistics, styles=styles)


def named_setting(setting: Mapping[str, str]) -> str:
    """Return a setting as the title of a panel, ``adamw, D/N 16, weight decay 0.1``.

    Names stand where values do not speak for themselves.
    """
    shown = {"optimizer": "", "schedule": "", "tokens_per_parameter": "D/N "}
    return ", ".join(f"{shown.get(name, f'{name} ')}{value}" for name, value in setting.items())
