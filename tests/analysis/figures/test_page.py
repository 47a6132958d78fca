import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest

from scalevec.analysis import AnalysisOptions
from scalevec.analysis.errors import DataError
from scalevec.analysis.figures import drawing, forest
from scalevec.analysis.figures.drawing import page_figures
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.forest import draw_differences
from scalevec.analysis.figures.law_curves import draw_loss, draw_multipliers, draw_predictions
from scalevec.analysis.figures.panels import Drawing, layout, page
from scalevec.analysis.figures.style import DARK, LOOKS, PAPER, arm_styles, nth_style, round_ticks
from scalevec.analysis.figures.tuning_bowls import bowl, draw_tuning

ARMS = ["baseline", "none", "unified"]


def drawn_pages(draw, table, **given):
    """The pages of a figure, its caption and what it was drawn from."""
    options = AnalysisOptions(bootstrap=20, law="power", **given.pop("options", {}))
    data = figure_input(table, "baseline", options, **given)
    with PAPER.style():
        drawing = draw(data)
        return [page(drawing, grid, PAPER) for grid in layout(drawing, PAPER)], drawing.caption, data


def figures(table, *names, options=None, **recorded):
    """The SVG elements of figures by name, as on a page."""
    options = options or AnalysisOptions(margin=0.005, bootstrap=20, law="power")
    data = figure_input(table, "baseline", options, **recorded)
    return {name: "".join(figure.svgs) for name, figure in page_figures(data, names).items()}


@pytest.fixture(scope="module", params=["loss", "differences", "tuning", "curves"])
def svg(request, sweep, choice, curves):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03}, seeds=(0,))
    table["trial_id"] = table["arm"] + table["rung"] + "0"
    recorded = {"choices": [choice(arm) for arm in ARMS], "curves": curves}
    return figures(table, request.param, **recorded)[request.param]


def test_a_figure_is_well_formed_names_every_arm_and_points_at_nothing_outside_itself(svg):
    nodes = list(ElementTree.fromstring(svg).iter())
    words = " ".join("".join(node.itertext()) for node in nodes).split()
    assert {"none", "unified"} <= set(words)
    ids = {node.get("id") for node in nodes} - {None}
    links = {value for node in nodes for name, value in node.attrib.items() if name.endswith("href")}
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert "<metadata" not in svg
    assert "<?xml" not in svg


def test_two_figures_share_no_id(sweep, choice):
    svgs = figures(sweep(), "differences", "tuning", choices=[choice("baseline")])
    ids = [{node.get("id") for node in ElementTree.fromstring(svg).iter()} - {None} for svg in svgs.values()]
    assert ids[0].isdisjoint(ids[1])


def test_an_arm_may_have_any_name(sweep):
    names = ["<script>alert(1)</script>", "$\\frac{1}{2}$", "_hidden", "a & b", "naïve ü"]
    svg = figures(sweep({"baseline": 0.0} | dict.fromkeys(names, -0.03), seeds=(0,)), "loss")["loss"]
    texts = {"".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter()}
    assert set(names) <= texts
    assert "<script" not in svg


def test_arms_that_follow_each_other_share_neither_colour_nor_marker_nor_dash():
    styles = [nth_style(number) for number in range(20)]
    for earlier, later in pairwise(styles):
        assert earlier.colour != later.colour
        assert earlier.marker != later.marker
        assert earlier.dash != later.dash


def test_an_arm_looks_the_same_whatever_stands_beside_it_in_whatever_order_and_under_another_name(sweep):
    alone = arm_styles(["baseline", "unified"], "baseline")["unified"]
    beside = arm_styles(["none", "no-decay", "baseline", "unified-light", "unified"], "baseline")["unified"]
    *_, data = drawn_pages(draw_loss, sweep(), rename={"unified": "Unified (ours)"}, order=["unified"])
    looks = [alone, beside, data.styles["Unified (ours)"]]
    assert len({(look.colour, look.marker, look.dash) for look in looks}) == 1


def test_six_arms_of_one_figure_share_no_colour_and_no_marker_whatever_their_names():
    for number in range(20):
        styles = arm_styles(["baseline", *(f"arm {number}.{other}" for other in range(6))], "baseline")
        assert len({style.colour for style in styles.values()}) == 7
        assert len({style.marker for style in styles.values()}) == 7


def test_arms_of_one_figure_share_no_colour_and_marker_while_there_are_any():
    names = [f"arm-{number}" for number in range(LOOKS)]
    styles = arm_styles(["baseline", *names, "one-more"], "baseline", {"arm-3": "#123456"})
    looks = {(style.colour, style.marker) for arm, style in styles.items() if arm != "one-more"}
    assert len(looks) == LOOKS + 1


def test_arms_of_kept_sweeps_that_are_drawn_together_have_colours_of_their_own():
    arms = ["none", "no-decay", "unified", "unified-attention", "unified-dp", "unified-light"]
    styles = arm_styles(["baseline", *arms], "baseline")
    assert all(styles[arm].colour != styles[other].colour for arm, other in combinations(arms, 2))


def test_diverged_and_censored_tuning_is_drawn(sweep, choice):
    losses = [3.9, 3.8, None]
    choices = [choice("baseline", losses=losses, status="censored"), choice("unified", losses=[None] * 3)]
    assert figures(sweep(), "tuning", choices=choices)["tuning"].startswith("<svg")


def test_without_a_tuned_rung_there_is_no_tuning_figure(sweep, choice):
    actual = figures(sweep(), "tuning", choices=[choice("baseline", grid=[], losses=[], status="carried")])
    assert actual == {}


def test_fields_that_are_tuned_together_have_panels_and_axes_of_their_own(sweep, choice):
    """A decay of zero has no logarithm, and a beta counts by what it lacks of one."""
    decay = {"field": "weight_decay", "axis": "linear", "grid": [0.0, 0.1, 0.2], "chosen": 0.125}
    beta = {"field": "beta2", "axis": "log(1-x)", "grid": [0.9, 0.95, 0.975], "chosen": 0.95}
    choices = [choice("baseline"), choice("baseline", **decay), choice("baseline", **beta)]
    pages, *_ = drawn_pages(draw_tuning, sweep(), choices=choices)
    scales = {axis.get_xlabel(): axis.get_xscale() for page in pages for axis in page.axes}
    assert (scales["learning rate"], scales["weight decay"], "beta2" in scales) == ("log", "linear", True)


def test_budgets_that_share_all_their_tuning_have_one_panel_that_names_none_of_them(sweep, choice):
    choices = [choice("baseline", setting={"tokens_per_parameter": number}) for number in (8, 16, 32)]
    [page], *_ = drawn_pages(draw_tuning, sweep(), choices=choices)
    assert [axis.get_title(loc="left") or axis.get_title() for axis in page.axes] == [choices[0]["rung"]]


@pytest.mark.parametrize("axis", ["log", "linear", "log(1-x)"])
def test_the_parabola_is_drawn_on_the_axis_on_which_it_was_fitted(axis):
    values = np.array([0.01, 0.5, 0.8])
    position = {"log": np.log(values), "linear": values, "log(1-x)": -np.log1p(-values)}[axis]
    parabola = bowl(values, 3 + 2 * (position - 0.4) ** 2, axis)
    assert parabola.deriv().roots() == pytest.approx([0.4])


def test_trials_of_one_size_are_refused_with_the_figure_that_shows_them(sweep):
    table = sweep()
    with pytest.raises(DataError, match="one size: the figure differences shows them"):
        drawn_pages(draw_loss, table[table["rung"] == "25k"])


def test_markers_of_multipliers_stand_where_runs_are_and_nowhere_else(sweep):
    (figure,), _, data = drawn_pages(draw_multipliers, sweep(random_seed=1))
    _, runs = figure.axes[0].collections
    compute = np.asarray(runs.get_offsets())[:, 0]
    assert set(compute) == set(data.trials.pairs("unified").complete["compute_arm"])


def extrapolated_points(table, **options) -> tuple[int, str]:
    """Points that the figure draws where the reference was not run, and its caption."""
    (figure,), caption, _ = drawn_pages(draw_multipliers, table, options=options)
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() == 0.5]
    return sum(int(np.isfinite(line.get_ydata()).sum()) for line in thin), caption


def test_multipliers_of_laws_that_the_runs_refute_are_not_drawn(sweep):
    table = sweep(random_seed=1)
    missed = table["loss"] - 0.3 * ((table["arm"] == "unified") & (table["rung"] == "150k"))
    with pytest.raises(DataError, match="unified: the law power misses"):
        extrapolated_points(table.assign(loss=missed))
    unasked, remark = extrapolated_points(table, hold_out="none")
    assert "unified: no hold-out checks the laws (none was asked for)." in remark
    assert unasked > 0


def test_panels_of_all_arms_have_the_same_cells_also_where_one_was_not_run(sweep):
    table = sweep({"baseline": 0.0} | {f"a{i}": 0.01 for i in range(3)})
    table = table[(table["arm"] != "a1") | (table["rung"] != "150k")]
    (figure,), _, data = drawn_pages(draw_differences, table)
    rows = ["25k", "55k", "83k", "150k", "mean of all"]
    first, second = figure.axes[:2]
    assert [label.get_text() for label in first.get_yticklabels()] == rows
    assert [places(axis, "d") for axis in (first, second)] == [{4}, {4}]
    assert places(second, data.styles["a1"].marker) == {0, 1, 2}


def places(axis, marker: str) -> set[float]:
    """Where lines with that marker stand along the vertical axis."""
    return {y for line in axis.lines if line.get_marker() == marker for y in line.get_ydata()}


def test_a_figure_is_one_on_white_but_on_a_dark_screen_and_asks_no_page_for_its_colours(sweep):
    svg = figures(sweep(), "loss")["loss"]
    assert "var(" not in svg
    ink, dark = next(iter(DARK.items()))
    rule = f'[style*="stroke: {ink}"]{{stroke:{dark}!important}}'
    assert rule in svg.partition("@media screen and (prefers-color-scheme: dark) {")[2]
    assert re.search(rf'<path [^>]*style="[^"]*stroke: {ink}', svg.partition("</style>")[2])


def test_what_has_no_room_on_a_page_is_left_to_files_and_said(sweep, monkeypatch):
    panels = {(f"row {row}", f"column {column}"): lambda _: None for row in range(20) for column in range(3)}
    monkeypatch.setattr(forest, "draw_differences", lambda _: Drawing(panels, ("x", "y"), "Losses.", {}))
    monkeypatch.setattr(drawing, "MOST_PAGES", 1)
    data = figure_input(sweep(), "baseline", AnalysisOptions(bootstrap=0))
    shown = page_figures(data, ["differences"])["differences"]
    assert len(shown.svgs) == 1
    assert shown.caption == "Losses. Here: 1 of 7 pages; scalevec figures writes all of them."


def test_a_prediction_without_a_band_says_why(sweep):
    two_rungs = {"25k": 25_088, "55k": 55_296}
    _, caption, _ = drawn_pages(draw_predictions, sweep(rungs=two_rungs))
    assert "baseline, unified: no interval: 2 distinct points" in caption
    assert "bands" not in caption
    _, caption, _ = drawn_pages(draw_predictions, sweep(seeds=(0, 1, 2)))
    assert "no interval" not in caption
    assert "bands: 95 % of the law" in caption


def test_a_panel_without_points_has_no_ticks_along_compute():
    _, axis = plt.subplots()
    axis.plot([np.nan], [1])
    axis.set(xscale="log", yscale="log")
    round_ticks([axis])
    assert len(axis.get_xticks()) == 0
