"""Points on a page bear the names of their trials."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from scalevec.analysis.figures.drawing import page_figures
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.files import file_bytes, page_svg
from scalevec.analysis.figures.style import PAGE, ArmStyle, draw_points
from scalevec.analysis.options import AnalysisOptions


def drawn(names) -> Figure:
    figure = Figure()
    points = np.array([1.0, 2.0, 3.0]), np.array([1.0, np.nan, 3.0])
    draw_points(figure.subplots(), *points, ArmStyle(), names)
    return figure


@pytest.fixture(autouse=True)
def style():
    with PAGE.style():
        yield


def test_each_drawn_point_has_its_name_and_one_that_is_not_drawn_leaves_its_own_out():
    svg = page_svg(drawn(["first 3.9009", "not drawn", "third, <b>"]), "f", "d", {})
    assert re.findall("<title>(.*?)</title>", svg) == ["first 3.9009", "third, &lt;b&gt;"]


@pytest.mark.parametrize("form", ["svg", "pdf", "png"])
def test_a_file_for_a_paper_has_no_names(form):
    content = file_bytes(drawn(["first", "second", "third"]), form, "f")
    assert b"first" not in content
    assert b"<a " not in content


def test_the_loss_of_each_trial_and_the_difference_of_each_pair_are_named(sweep):
    table = sweep().assign(trial_id=[f"{number:064d}" for number in range(16)])
    data = figure_input(table, "baseline", AnalysisOptions(bootstrap=0, law="power"))
    figures = page_figures(data, ["loss", "differences"])
    losses, pairs = (re.findall("<title>(.*?)</title>", figures[name].svgs[0]) for name in figures)
    assert len(losses) == 16
    assert "baseline, 25k, 401k tokens, seed 0: 3.9009 (trial 000000000000)" in losses
    assert len(pairs) == 8
    assert pairs[0].startswith("unified, 25k, 401k tokens, seed 0: ")
