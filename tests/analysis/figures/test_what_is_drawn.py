"""What figures say: curves against the reference, losses against the law of the reference, widths."""

import numpy as np
import pandas as pd
import pytest

from scalevec.analysis.figures.curves import draw_curves
from scalevec.analysis.figures.drawing import WIDTHS
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.forest import draw_differences
from scalevec.analysis.figures.law_curves import draw_loss
from scalevec.analysis.figures.panels import layout, page
from scalevec.analysis.figures.style import PAPER
from scalevec.analysis.options import AnalysisOptions


def drawn(draw, table, medium=PAPER, law="auto", **given):
    data = figure_input(table, "baseline", AnalysisOptions(bootstrap=0, law=law), **given)
    with medium.style():
        drawing = draw(data)
        return [page(drawing, grid, medium) for grid in layout(drawing, medium)]


def test_a_training_curve_is_its_difference_to_the_reference_of_its_seed(sweep):
    table = sweep().assign(trial_id=[f"t{number}" for number in range(16)])
    tokens = np.arange(1, 101) * 1000.0
    of_seed = {"baseline": 5.0, "unified": 4.9}
    runs = table[["trial_id", "arm", "rung", "seed"]].to_dict("records")
    losses = [
        pd.DataFrame({**run, "tokens": tokens, "loss": of_seed[run["arm"]] + run["seed"]}) for run in runs
    ]
    (figure,) = drawn(draw_curves, table, curves=pd.concat(losses))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["25k", "55k", "83k", "150k"]
    for axes in figure.axes:
        (curve,) = [line for line in axes.lines if len(line.get_xdata()) > 20]
        assert np.asarray(curve.get_ydata()) == pytest.approx(-0.1)


def test_below_the_losses_stand_residuals_to_the_law_of_the_reference_and_what_is_held_out(sweep):
    (figure,) = drawn(draw_loss, sweep(noise=1e-5))
    losses, residuals = figure.axes
    assert residuals.get_ylabel() == "residual (%)"
    hollow = [[line for line in axes.lines if line.get_markerfacecolor() == "none"] for axes in figure.axes]
    assert [len(of_panel) for of_panel in hollow] == [2, 2]
    of_reference = hollow[1][0].get_ydata()[0]
    assert of_reference == pytest.approx(0, abs=0.05)
    assert losses.get_yscale() == "log"


def test_arms_of_one_cell_stand_in_one_panel(sweep):
    (figure,) = drawn(draw_differences, sweep({"baseline": 0.0, "a": 0.1, "b": 0.2}, rungs={"25k": 25_088}))
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "25k"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_a_law_in_n_and_d_is_drawn_with_its_residuals_at_the_runs_own_sizes():
    sizes = [(n, n * ratio) for n in (1e6, 3e6, 1e7, 3e7) for ratio in (5, 20, 80)]
    rows = pd.DataFrame(sizes, columns=["n_params", "n_tokens"])
    rows["loss"] = 1.7 + 400 / rows["n_params"] ** 0.34 + 400 / rows["n_tokens"] ** 0.28
    arms = [
        rows.assign(arm=arm, loss=rows["loss"] * factor) for arm, factor in (("baseline", 1), ("new", 0.99))
    ]
    table = pd.concat(arms).assign(seed=0, rung=lambda table: table["n_params"].map("{:g}".format))
    table["trial_id"] = [f"t{number}" for number in range(len(table))]
    losses, residuals = drawn(draw_loss, table, law="chinchilla")[0].axes
    assert losses.get_xlabel() == ""
    assert residuals.get_xlabel() == "compute C (FLOPs)"
    offsets = [
        points.get_offsets()[:, 1] for points in residuals.collections if len(points.get_offsets()) > 1
    ]
    assert [np.asarray(of_arm) for of_arm in offsets] == [
        pytest.approx(0, abs=1e-3),
        pytest.approx(-1, abs=1e-3),
    ]


@pytest.mark.parametrize(("width", "inches"), [("page", 6.75), ("text", 5.5), ("column", 3.25)])
def test_several_panels_are_as_wide_as_was_asked(sweep, width, inches):
    two = [sweep(noise=1e-3).assign(optimizer=name) for name in ("adamw", "muon")]
    for figure in drawn(draw_loss, pd.concat(two, ignore_index=True), WIDTHS[width]):
        assert figure.get_figwidth() == inches


def names_of_lines(figure) -> list[list[str]]:
    return [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]


def test_a_line_keeps_its_name_where_another_arm_was_not_run_there(sweep):
    table = sweep({"baseline": 0.0, "first": -0.1, "last": -0.2})
    table = table[~((table["arm"] == "last") & (table["rung"] == "55k"))]
    (figure,) = drawn(draw_differences, table)
    assert names_of_lines(figure)[0] == ["25k", "55k", "83k", "150k", "mean of all"]


def test_arms_on_several_panels_of_one_cell_have_their_own_names(sweep):
    arms = [f"arm-{number}" for number in range(40)]
    table = sweep({"baseline": 0.0, **dict.fromkeys(arms, -0.1)}, rungs={"25k": 25_088})
    shown = [names for figure in drawn(draw_differences, table) for names in names_of_lines(figure)]
    assert [name for names in shown for name in names if name] == arms
