"""Points on a page bear the names of their trials."""

import re

import pytest

from scalevec.analysis.figures.drawing import page_figures
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.output import file_bytes, page_svg
from scalevec.analysis.figures.points import name_points
from scalevec.analysis.figures.style import PAGE
from scalevec.analysis.options import AnalysisOptions


@pytest.fixture
def line():
    with PAGE.style():
        figure, axes = PAGE.figure()
        (drawn,) = axes[0, 0].plot([1.0, 2.0, 3.0], [1.0, float("nan"), 3.0], "o")
        yield figure, drawn


def test_each_drawn_point_has_its_name_and_one_that_is_not_drawn_leaves_its_own_out(line):
    figure, drawn = line
    name_points(drawn, ["first", "not drawn", "third, <b>"])
    assert re.findall("<title>(.*?)</title>", page_svg(figure, "f", "d", {})) == ["first", "third, &lt;b&gt;"]


def test_a_file_for_a_paper_has_no_names(line):
    figure, drawn = line
    plain = file_bytes(figure, "svg", "f", {})
    name_points(drawn, ["first", "second", "third"])
    assert file_bytes(figure, "svg", "f", {}) == plain


def test_the_loss_of_each_trial_and_the_difference_of_each_pair_are_named(sweep):
    table = sweep().assign(trial_id=[f"{number:064d}" for number in range(16)])
    data = figure_input(table, "baseline", AnalysisOptions(bootstrap=0))
    drawn = page_figures(data, ["loss", "differences"])
    losses, pairs = (re.findall("<title>(.*?)</title>", drawn[name].svgs[0]) for name in drawn)
    assert len(losses) == 16
    assert "baseline, 25k, 401k tokens, seed 0: 3.9009 (trial 000000000000)" in losses
    assert len(pairs) == 8
    assert pairs[0].startswith("unified, 25k, 401k tokens, seed 0: ")
