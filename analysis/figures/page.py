"""The figures of a report, as SVG text for the page."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparison import Comparison
from analysis.data import DataError
from analysis.figures.curves import draw_curves
from analysis.figures.differences import draw_differences
from analysis.figures.laws import draw_loss
from analysis.figures.output import page_svg
from analysis.figures.style import PAGE, ArmStyle
from analysis.figures.tuning import draw_tuning
from analysis.settings import FitSettings

Styles = Mapping[str, ArmStyle]


def loss_figure(rows: pd.DataFrame, settings: FitSettings, styles: Styles, fitted: Sequence[str]) -> str:
    """Loss of completed trials against compute, with law and band for each arm of ``fitted``."""
    with PAGE.style():
        figure = draw_loss(PAGE, {"": rows}, settings, styles, fitted)
        return page_svg(figure, "loss", "Test loss against compute for each arm, with fitted laws")


def difference_figure(comparisons: Sequence[Comparison], styles: Styles) -> str:
    """Difference to the reference in each cell and over all, with intervals; small dots are the pairs."""
    with PAGE.style():
        figure = draw_differences(PAGE, comparisons, styles)
        return page_svg(figure, "difference", "Difference of the loss of each arm to the reference, by rung")


def tuning_figure(choices: Sequence[Mapping[str, Any]], styles: Styles) -> str | None:
    """Learning-rate bowls, a panel for each tuned rung; None without a tuned rung."""
    with PAGE.style():
        try:
            figure = draw_tuning(PAGE, choices, styles)
        except DataError:
            return None
        return page_svg(figure, "tuning", "Validation loss against learning rate for each tuned rung and arm")


def curves_figure(curves: pd.DataFrame, rungs: Sequence[str], styles: Styles) -> str:
    """Smoothed training loss against tokens, a panel a rung, one thin line a seed."""
    with PAGE.style():
        figure = draw_curves(PAGE, curves, rungs, styles)
        return page_svg(figure, "curves", "Training loss against tokens for each rung and arm")
