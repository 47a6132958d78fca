"""What figures say: curves against the reference, losses against the law of the reference, widths."""

import re

import numpy as np
import pandas as pd
import pytest
from tests.analysis.planted import best_size, isoflops

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures import forest
from scalevec.analysis.figures.best_sizes import draw_envelope, draw_isoflop, draw_optimal, draw_surface
from scalevec.analysis.figures.curves import draw_curves
from scalevec.analysis.figures.drawing import WIDTHS
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.forest import draw_differences
from scalevec.analysis.figures.law_curves import MOST_EQUATIONS, draw_loss
from scalevec.analysis.figures.panels import layout, page
from scalevec.analysis.figures.style import PAPER
from scalevec.analysis.options import AnalysisOptions

BUDGETS = isoflops(n_budgets=3).assign(arm="baseline")


def drawn(draw, table, medium=PAPER, law="power", **given):
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


def test_a_panel_of_few_arms_holds_their_laws_in_their_colours(sweep):
    (figure,) = drawn(draw_loss, sweep(noise=1e-5))
    texts = figure.axes[0].texts
    expected = [True] * 2
    assert [bool(re.fullmatch(r"\$[\d.]+\\,C\^\{-0\.\d+\}\$", text.get_text())) for text in texts] == expected
    assert len({text.get_color() for text in texts}) == 2
    many = sweep({"baseline": 0.0} | {f"arm-{number}": -0.01 for number in range(MOST_EQUATIONS)})
    assert len(drawn(draw_loss, many)[0].axes[0].texts) == 0


def test_a_law_in_n_and_d_is_drawn_with_its_residuals_at_the_runs_own_sizes():
    sizes = [(n, n * ratio) for n in (1e6, 3e6, 1e7, 3e7) for ratio in (5, 20, 80)]
    rows = pd.DataFrame(sizes, columns=["n_params", "n_tokens"])
    rows["loss"] = 1.7 + 400 / rows["n_params"] ** 0.34 + 400 / rows["n_tokens"] ** 0.28
    gains = {"baseline": 1, "new": 0.99}
    arms = [rows.assign(arm=arm, loss=rows["loss"] * gain) for arm, gain in gains.items()]
    table = pd.concat(arms).assign(seed=0, rung=lambda table: table["n_params"].map("{:g}".format))
    table["trial_id"] = [f"t{number}" for number in range(len(table))]
    losses, residuals = drawn(draw_loss, table, law="chinchilla")[0].axes
    assert losses.get_xlabel() == ""
    assert residuals.get_xlabel() == "compute C (FLOPs)"
    drawn_points = [points.get_offsets() for points in residuals.collections]
    offsets = [points[:, 1] for points in drawn_points if len(points) > 1]
    expected = [pytest.approx(0, abs=1e-3), pytest.approx(-1, abs=1e-3)]
    assert [np.asarray(of_arm) for of_arm in offsets] == expected


@pytest.mark.parametrize(("width", "inches"), [("page", 6.75), ("text", 5.5), ("column", 3.25)])
def test_several_panels_are_as_wide_as_was_asked(sweep, width, inches):
    two = [sweep(noise=1e-3).assign(optimizer=name) for name in ("adamw", "muon")]
    for figure in drawn(draw_loss, pd.concat(two, ignore_index=True), WIDTHS[width]):
        assert figure.get_figwidth() == inches


def names_of_lines(figure) -> list[list[str]]:
    return [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]


def test_arms_on_several_panels_of_one_cell_have_their_own_names(sweep, monkeypatch):
    monkeypatch.setattr(forest, "MOST_LINES", 3)
    arms = [f"arm-{number}" for number in range(5)]
    table = sweep({"baseline": 0.0, **dict.fromkeys(arms, -0.1)}, rungs={"25k": 25_088})
    shown = [names for figure in drawn(draw_differences, table) for names in names_of_lines(figure)]
    assert [name for names in shown for name in names if name] == arms


def test_each_budget_has_its_parabola_and_a_ring_at_the_best_size():
    (figure,) = drawn(draw_isoflop, BUDGETS, law="chinchilla")
    (axes,) = figure.axes
    rings = [line.get_xdata()[0] for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert rings == pytest.approx([best_size(budget) for budget in (1e19, 1e20, 1e21)], rel=0.05)
    assert [text.get_text() for text in axes.texts] == ["10¹⁹", "10²⁰", "10²¹"]


def test_the_best_n_and_d_are_drawn_for_budgets_to_ten_times_the_largest():
    (figure,) = drawn(draw_optimal, BUDGETS, law="chinchilla")
    sizes, tokens = (axes.lines[-1].get_ydata() for axes in figure.axes)
    compute = figure.axes[0].lines[-1].get_xdata()
    assert compute[-1] == pytest.approx(1e22)
    assert sizes[-1] == pytest.approx(best_size(1e22), rel=1e-3)
    assert 6 * sizes * tokens == pytest.approx(compute)


def test_the_surface_of_a_law_shows_where_its_runs_lie():
    (figure,) = drawn(draw_surface, BUDGETS, law="chinchilla")
    points = np.asarray(figure.axes[0].collections[-1].get_offsets()).tolist()
    runs = BUDGETS[["n_params", "n_tokens"]].to_numpy().tolist()
    assert np.array(sorted(points)) == pytest.approx(np.array(sorted(runs)))


@pytest.mark.parametrize(
    ("draw", "why"), [(draw_optimal, "needs a law in N and D"), (draw_surface, "no surface over N and D")]
)
def test_a_law_in_one_variable_has_neither(draw, why):
    with pytest.raises(DataError, match=why):
        drawn(draw, BUDGETS, law="power")


def test_the_envelope_is_the_lowest_training_curve_at_each_compute(sweep):
    table = sweep({"baseline": 0.0}).assign(trial_id=[f"t{number}" for number in range(8)])
    tokens = np.arange(1, 401) * 1000.0
    runs = table[["trial_id", "arm", "rung", "seed"]].to_dict("records")
    curves = [pd.DataFrame({**run, "tokens": tokens, "loss": 9 - tokens / 1e5 + run["seed"]}) for run in runs]
    (figure,) = drawn(draw_envelope, table, curves=pd.concat(curves))
    *of_runs, envelope = figure.axes[0].lines
    assert len(of_runs) == 8
    assert envelope.get_ydata()[-1] == pytest.approx(5.0, abs=0.1)
    assert np.all(np.diff(envelope.get_ydata()) <= 0)
