"""What figures say: curves against the reference, losses against the law of the reference, widths."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis.figures.drawing import WIDTHS
from scalevec.analysis.figures.extrapolations import draw_hold_outs
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.law_curves import draw_loss
from scalevec.analysis.figures.style import PAPER
from scalevec.analysis.figures.training_curves import draw_curves
from scalevec.analysis.options import AnalysisOptions


def drawn(draw, table, medium=PAPER, **given):
    data = figure_input(table, "baseline", AnalysisOptions(bootstrap=0), **given)
    with medium.style():
        return draw(data, medium).pages


def test_a_training_curve_is_its_difference_to_the_reference_of_its_seed(sweep):
    table = sweep().assign(trial_id=[f"t{number}" for number in range(16)])
    tokens = np.arange(1, 101) * 1000.0
    of_seed = {"baseline": 5.0, "unified": 4.9}
    runs = table[["trial_id", "arm", "rung", "seed"]].to_dict("records")
    losses = [
        pd.DataFrame({**run, "tokens": tokens, "loss": of_seed[run["arm"]] + run["seed"]}) for run in runs
    ]
    (page,) = drawn(draw_curves, table, curves=pd.concat(losses))
    assert [axes.get_title(loc="left") for axes in page.axes] == ["25k", "55k", "83k", "150k"]
    for axes in page.axes:
        (curve,) = [line for line in axes.lines if len(line.get_xdata()) > 2]
        assert np.asarray(curve.get_ydata()) == pytest.approx(-0.1)


def test_below_the_losses_stand_residuals_to_the_law_of_the_reference_and_what_is_held_out(sweep):
    (page,) = drawn(draw_loss, sweep(noise=1e-5))
    losses, residuals = page.axes
    assert residuals.get_ylabel() == "residual to the\nlaw of baseline (%)"
    hollow = [[line for line in axes.lines if line.get_markerfacecolor() == "none"] for axes in page.axes]
    assert [len(of_panel) for of_panel in hollow] == [2, 2]
    of_reference = hollow[1][0].get_ydata()[0]
    assert of_reference == pytest.approx(0, abs=0.05)
    assert losses.get_yscale() == "log"


def one_rung(sweep, level: float = 0.0) -> pd.DataFrame:
    return sweep(rungs={"25k": 25_088}).assign(loss=lambda table: table["loss"] + level)


@pytest.mark.parametrize(("level", "has_own"), [(0.01, False), (1.5, True)])
def test_losses_of_one_size_share_an_axis_unless_settings_lie_far_apart(sweep, level, has_own):
    settings = [one_rung(sweep, of).assign(optimizer=name) for name, of in (("adamw", 0.0), ("sgd", level))]
    (page,) = drawn(draw_loss, pd.concat(settings, ignore_index=True))
    first, second = (axes.get_xlim() for axes in page.axes)
    assert (first != second) is has_own


def test_errors_at_the_only_rung_that_is_predicted_stand_arm_by_arm(sweep):
    three = {"25k": 25_088, "55k": 55_296, "83k": 82_944}
    (page,) = drawn(draw_hold_outs, sweep(rungs=three))
    (axes,) = page.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["baseline", "unified"]
    assert [len(line.get_xdata()) for line in axes.lines[1:]] == [1, 1]
    (page,) = drawn(draw_hold_outs, sweep())
    assert page.axes[0].get_xlabel() == "C of the predicted rung"


@pytest.mark.parametrize(("width", "inches"), [("page", 6.9), ("column", 3.3)])
def test_several_panels_are_as_wide_as_was_asked(sweep, width, inches):
    two = [sweep(noise=1e-3).assign(optimizer=name) for name in ("adamw", "muon")]
    for page in drawn(draw_loss, pd.concat(two, ignore_index=True), WIDTHS[width]):
        assert page.get_figwidth() == inches
