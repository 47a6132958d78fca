"""Every example of the gallery: nothing overlaps, all of it can be read, and two renderers draw it alike."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from pathlib import Path

import gallery
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from scalevec.analysis.figures.drawing import WIDTHS
from scalevec.analysis.figures.figure_input import figure_input
from scalevec.analysis.figures.panels import MOST_INCHES, layout, page
from scalevec.analysis.registry import FIGURES
from support import CHECKOUT

FOLDER = CHECKOUT / "docs" / "figures"
DRAWINGS = sorted((FOLDER / "gallery").glob("*.svg"))
"""None where the small sweeps have not been run yet."""
KEPT = sorted(
    [*(FOLDER / "quickstart").glob("*.svg"), *(CHECKOUT / "benchmarks" / "reference").rglob("figures/*.svg")]
)
EXAMPLES = sorted({path.stem.rstrip("0123456789").rstrip("-") for path in DRAWINGS})
SMALLEST = 7.0
"""Points, of a letter that can be read in print."""
TOUCHING = 0.5
"""Points by which boxes may overlap that only touch."""


class Page:
    """A drawn page: the boxes [x0, y0, x1, y1] in points of its texts, axes and legends.

    Labels of points and lines stand in their panel; all other texts may not.
    """

    def __init__(self, figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
        self.figure, self.texts, self.labels = figure, [], []
        draw = Text.draw

        def noted(text: Text, renderer, *rest) -> None:
            # As it is drawn: ticks beyond the ends of an axis have texts too, and others move later.
            if text.get_text().strip() and text.get_visible():
                is_label = text.axes is not None and text in text.axes.texts
                of_kind = self.labels if is_label else self.texts
                of_kind.append((text.get_text(), self._box(text, renderer), text.get_fontsize()))
            draw(text, renderer, *rest)

        monkeypatch.setattr(Text, "draw", noted)
        figure.draw_without_rendering()
        monkeypatch.setattr(Text, "draw", draw)
        self.panels = [self._box(axes) for axes in figure.axes if axes.axison]
        self.legends = [self._box(owner) for owner in figure.legends]

    def _box(self, artist, renderer=None) -> tuple[float, float, float, float]:
        x0, y0, x1, y1 = 72 / self.figure.dpi * artist.get_window_extent(renderer).extents
        return x0, y0, x1, y1


def overlap(box, other) -> bool:
    across = min(box[2], other[2]) - max(box[0], other[0])
    return across > TOUCHING and min(box[3], other[3]) - max(box[1], other[1]) > TOUCHING


@cache
def pages(name: str) -> list[Page]:
    """The pages of an example, drawn once and laid out."""
    with pytest.MonkeyPatch.context() as patch:
        example = next(example for example in gallery.EXAMPLES if example.name == name)
        given = dict(gallery.source(example.sweep))
        # Where things stand does not depend on how many replicates the intervals have.
        options = replace(given.pop("options"), bootstrap=0)
        data = figure_input(given.pop("results"), given.pop("reference"), options, **given)
        medium = WIDTHS[example.width]
        with medium.style():
            drawing = FIGURES[example.figure].load()(data)
            return [Page(page(drawing, grid, medium), patch) for grid in layout(drawing, medium)]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_legible(name):
    for drawn in pages(name):
        assert faults(drawn) == []
        assert min(min(x1 - x0, y1 - y0) for x0, y0, x1, y1 in drawn.panels) > 0.5 * 72


def faults(page: Page) -> list[str]:
    """What cannot be read on a page, because it is small, covered or cut off."""
    every = page.texts + page.labels
    pairs = combinations(every, 2)
    unreadable = [f"{a!r} on {b!r}" for (a, box, _), (b, other, _) in pairs if overlap(box, other)]
    # Lines and points are drawn within their panels alone.
    covers = [(text, box) for text, box, _ in page.texts] + [("the legend", box) for box in page.legends]
    pairs_with_panels = product(covers, page.panels)
    unreadable += [f"{text!r} on a panel" for (text, box), panel in pairs_with_panels if overlap(box, panel)]
    unreadable += [f"{text!r} cut off" for text, box, _ in every if not within(box, page.figure)]
    return unreadable + [f"{text!r} in {size} points" for text, _, size in every if size < SMALLEST]


def test_what_cannot_be_read_is_found(monkeypatch):
    figure = Figure()
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8), xticks=[], yticks=[])
    axes.text(0.5, 0.5, "of a line")
    figure.text(0.5, 0.3, "in the panel")
    figure.text(0.02, 0.95, "below")
    figure.text(0.03, 0.95, "above", fontsize=5)
    figure.text(0.95, 0.02, "far to the right")
    assert faults(Page(figure, monkeypatch)) == [
        "'below' on 'above'",
        "'in the panel' on a panel",
        "'far to the right' cut off",
        "'above' in 5.0 points",
    ]


def within(box, figure: Figure) -> bool:
    width, height = 72 * figure.get_size_inches()
    return min(box[:2]) > -TOUCHING and box[2] < width + TOUCHING and box[3] < height + TOUCHING


def test_the_gallery_has_an_example_of_every_figure_most_of_them_in_one_column():
    assert {example.figure for example in gallery.EXAMPLES} == set(FIGURES)
    widths = [example.width for example in gallery.EXAMPLES]
    assert widths.count("column") > widths.count("page") > 0


def test_every_drawing_is_as_wide_as_a_column_or_a_page_of_a_paper_and_not_higher():
    assert {round(inches(path)[0], 2) for path in [*DRAWINGS, *KEPT]} <= {3.25, 6.75}
    assert [path.name for path in [*DRAWINGS, *KEPT] if inches(path)[1] > MOST_INCHES] == []


@cache
def inches(path: Path) -> tuple[float, float]:
    root = ElementTree.parse(path).getroot()
    width, height = (float(root.attrib[side].removesuffix("pt")) / 72 for side in ("width", "height"))
    return width, height


def test_no_drawing_needs_a_renderer_that_knows_style_sheets_variables():
    drawn = [*DRAWINGS, *KEPT, *(CHECKOUT / "docs" / "figures").rglob("*.svg")]
    assert [path.name for path in drawn if "var(" in path.read_text(encoding="utf-8")] == []
