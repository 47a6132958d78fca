import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest

from analysis import FitSettings, compare
from analysis.data import checked
from analysis.figures import page as figures
from analysis.figures.style import INK, arm_styles
from analysis.figures.tuning import bowl

ARMS = ["baseline", "none", "unified"]
STYLES = arm_styles(ARMS, "baseline")


def comparisons(sweep, **options):
    table = sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03}, **options)
    return compare(table, reference="baseline", margin=0.005, bootstrap=50)


def curves() -> pd.DataFrame:
    tokens = np.arange(1, 400) * 1024
    parts = [
        pd.DataFrame(
            {"trial_id": f"{arm}{rung}", "arm": arm, "rung": rung, "seed": 0, "tokens": tokens, "loss": 5.0}
        )
        for arm in ARMS
        for rung in ("25k", "55k")
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(params=["loss", "difference", "tuning", "curves"])
def drawn(request, sweep, choice):
    table = checked(sweep({"baseline": 0.0, "none": 0.04, "unified": -0.03}))
    return {
        "loss": lambda: figures.loss_figure(table, FitSettings(), STYLES, ARMS),
        "difference": lambda: figures.difference_figure(comparisons(sweep), STYLES),
        "tuning": lambda: figures.tuning_figure([choice(arm) for arm in ARMS], STYLES),
        "curves": lambda: figures.curves_figure(curves(), ["25k", "55k"], STYLES),
    }[request.param]


def test_a_figure_is_the_same_bytes_every_time(drawn):
    assert drawn() == drawn()


def test_a_figure_names_every_arm_and_is_well_formed(drawn):
    svg = drawn()
    texts = {
        "".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if "text" in node.tag
    }
    assert texts >= {"none", "unified"}


def test_a_figure_points_at_nothing_outside_itself(drawn):
    svg = drawn()
    ids = {node.get("id") for node in ElementTree.fromstring(svg).iter()} - {None}
    links = {
        value
        for node in ElementTree.fromstring(svg).iter()
        for name, value in node.attrib.items()
        if name.endswith("href")
    }
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert "<metadata" not in svg
    assert "<?xml" not in svg


def test_two_figures_share_no_id(sweep, choice):
    found = [
        figures.difference_figure(comparisons(sweep), STYLES),
        figures.tuning_figure([choice(arm) for arm in ARMS], STYLES),
    ]
    ids = [{node.get("id") for node in ElementTree.fromstring(svg).iter()} - {None} for svg in found]
    assert ids[0].isdisjoint(ids[1])


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "$\\frac{1}{2}$", "_hidden", "a & b", "naïve ü"]
)
def test_an_arm_may_have_any_name(sweep, name: str):
    table = sweep({"baseline": 0.0, name: -0.03})
    found = compare(table, reference="baseline", bootstrap=50)
    svg = figures.difference_figure(found, arm_styles(["baseline", name], "baseline"))
    texts = {"".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter()}
    assert name in texts
    assert "<script" not in svg


def test_arms_differ_in_colour_and_marker_and_the_reference_is_ink():
    arms = [f"arm{i}" for i in range(6)]
    styles = arm_styles(["reference", *arms], "reference")
    assert styles["reference"].colour == INK
    assert len({style.colour for style in styles.values()}) == 7
    assert len({style.marker for style in styles.values()}) == 7


def test_more_arms_than_colours_still_differ():
    styles = arm_styles([f"arm{i}" for i in range(20)], "arm0")
    assert len({(style.colour, style.marker) for style in styles.values()}) == 20


def test_a_design_without_an_interval_draws_no_bar(sweep):
    found = comparisons(sweep, seeds=(0,))
    assert all(row.interval is None for comparison in found for row in comparison.by_rung)
    assert figures.difference_figure(found, STYLES).startswith("<svg")


def test_the_bowl_is_the_parabola_through_the_lowest_point_and_its_neighbours():
    rates = np.array([1e-3, 2e-3, 4e-3, 8e-3])
    parabola = bowl(rates, 3.0 + 0.1 * (np.log(rates) - np.log(3e-3)) ** 2)
    assert parabola(np.log(3e-3)) == pytest.approx(3.0)
    assert bowl(rates[:2], rates[:2]) is None


def test_diverged_and_censored_tuning_is_drawn(choice):
    choices = [
        choice("baseline", losses=[3.9, 3.8, None], status="censored"),
        choice("none", losses=[None] * 3),
    ]
    assert figures.tuning_figure(choices, STYLES).startswith("<svg")


def test_without_a_tuned_rung_there_is_no_tuning_figure(choice):
    assert figures.tuning_figure([choice("baseline", grid=[], losses=[], status="carried")], STYLES) is None


def test_fields_that_are_tuned_together_have_panels_and_axes_of_their_own(choice):
    """A decay of zero has no logarithm, and a beta counts by what it lacks of one."""
    fields = {
        "weight_decay": {"axis": "linear", "grid": [0.0, 0.1, 0.2], "chosen": 0.125},
        "beta2": {"axis": "log(1-x)", "grid": [0.9, 0.95, 0.975], "chosen": 0.95},
    }
    choices = [choice("baseline"), *(choice("baseline", field=name, **how) for name, how in fields.items())]
    drawn = figures.tuning_figure(choices, STYLES)
    assert drawn is not None
    for name in ("learning rate", "weight decay", "beta2"):
        assert f"25k, {name}" in drawn


@pytest.mark.parametrize("axis", ["linear", "log(1-x)"])
def test_the_parabola_is_drawn_on_the_axis_on_which_it_was_fitted(axis):
    values = np.array([0.0, 0.5, 0.8])
    place = {"linear": values, "log(1-x)": -np.log1p(-values)}[axis]
    parabola = bowl(values, 3 + 2 * (place - 0.4) ** 2, axis)
    assert parabola is not None
    assert parabola.deriv().roots() == pytest.approx([0.4])
