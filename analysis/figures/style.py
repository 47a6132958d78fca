"""One look for all figures: the reference in ink, each arm with a colour, a marker and a dash of its own.

The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color), which the colour-blind can tell
apart; marker and dash say the same again, so that a figure stays legible in grey.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.formatting import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_CHARACTERS = 80
"""Of a title over a figure of two columns; a narrow figure is half as wide."""
MOST_COLUMNS = 6
LEGEND_HANDLE, LEGEND_LETTER, LEGEND_LINE = 5.0, 0.62, 1.5
"""Of a legend, in em: an entry without its text, a letter of the text, and a line."""
ROWS_WITH_ROOM = 2
"""Rows of a legend below the panels for which every figure has room."""
SHEETS = Path(__file__).parent
INK, FAINT = "#111112", "#222223"
"""Stand-ins that a page replaces by its own colours, and a paper by black and grey."""
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("s", "^", "D", "v", "P", "X")
Dash = Literal["solid"] | tuple[float, tuple[float, ...]]
SOLID: Dash = "solid"
DASHES: tuple[Dash, ...] = (
    (0, (5, 1.6)),
    (0, (1.4, 1.2)),
    (0, (5, 1.4, 1.2, 1.4)),
    (0, (8, 2)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)),
    (0, (2.6, 1.2)),
)


@dataclass(frozen=True)
class Medium:
    """Where figures stand: style sheets, widths in inches of a column and of the page, ink and grey.

    ``squeeze`` is the height of a figure over that on the page of a report, in a column and across the page.
    """

    sheets: tuple[str, ...]
    widths: tuple[float, float]
    squeeze: tuple[float, float]
    ink: str
    faint: str

    def style(self) -> AbstractContextManager[None]:
        """Return the context in which figures are drawn and written."""
        from matplotlib import style

        return style.context([SHEETS / name for name in self.sheets])

    def figure(
        self, rows: int = 1, columns: int = 1, *, height: float = 4.1, wide: bool = False, **options: Any
    ) -> tuple["Figure", Any]:
        """Return a figure with its axes [rows, columns]; ``height``: inches on the page of a report."""
        from matplotlib.figure import Figure

        size = (self.widths[wide], height * self.squeeze[wide])
        figure = Figure(figsize=size, layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


PAGE = Medium(("scalevec.mplstyle",), (7.6, 7.6), (1.0, 1.0), INK, FAINT)
"""The report: a browser's page, light or dark."""
PAPER = Medium(("scalevec.mplstyle", "paper.mplstyle"), (3.3, 6.9), (0.6, 0.72), "#000000", "#555555")
"""A two-column paper."""


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn in all figures; ``colour`` may be the stand-in :data:`INK`."""

    colour: str
    marker: str
    dash: Dash = SOLID

    def on(self, medium: Medium) -> str:
        """Return the colour on ``medium``."""
        return medium.ink if self.colour == INK else self.colour


def arm_styles(arms: Sequence[str], reference: str) -> dict[str, ArmStyle]:
    """Return the style of each arm: the reference ink, round and solid, the others by their order."""
    others = [arm for arm in arms if arm != reference]
    styles = {arm: nth_style(number) for number, arm in enumerate(others)}
    return {reference: ArmStyle(INK, "o"), **styles}


def nth_style(number: int) -> ArmStyle:
    """Return the style of an arm by its number beside the reference, from 0."""
    # From six arms on a colour comes again, with another marker and dash.
    shift = number // len(OKABE_ITO)
    return ArmStyle(
        OKABE_ITO[number % len(OKABE_ITO)],
        MARKERS[(number + shift) % len(MARKERS)],
        DASHES[(number + 2 * shift) % len(DASHES)],
    )


def label_of(name: str) -> str:
    """Return a legend's text for ``name``: matplotlib skips names with a leading underscore."""
    return f" {name}" if name.startswith("_") else name


def title(text: str, columns: int) -> str:
    """Return ``text`` on as many lines as it needs over one of ``columns`` panels.

    ``adamw(learning_rate=0.016)`` becomes ``adamw, learning rate 0.016``.
    """
    for written, shown in (("_", " "), (" (", "("), ("(", ", "), (")", ""), ("=", " "), (",", ", ")):
        text = text.replace(written, shown)
    return textwrap.fill(" ".join(text.split()), TITLE_CHARACTERS // max(columns, 2), break_long_words=False)


def panels(n_panels: int, columns: int = 0) -> tuple[int, int]:
    """Return rows and columns of small multiples, with two to four ``columns`` if they are given.

    Without them two or three panels per row, and no panel alone in its row where that can be.
    """
    if columns not in (2, 3, 4) or n_panels <= columns:
        columns = 2 if n_panels in (2, 4) else min(3, n_panels)
    return -(-n_panels // columns), columns


def small_multiples(
    medium: Medium,
    names: Sequence[str],
    draw: Callable[["Axes", str], None],
    *,
    label: str,
    entries: Iterable[tuple[str, ArmStyle]],
    columns: int = 0,
    row_height: float = 2.7,
    **options: Any,
) -> "Figure":
    """Return a figure with a panel per name, filled by ``draw``, with titles, ``label`` and one legend.

    ``label`` stands beside the first panel of each row; ``options`` are those of matplotlib's subplots.
    """
    rows, columns = panels(len(names), columns)
    height = 4.3 if columns == 1 else row_height * rows + 0.4
    figure, axes = medium.figure(rows, columns, height=height, wide=columns > 1, **options)
    for axis, name in zip(axes.flat, names, strict=False):
        draw(axis, name)
        axis.set_title(title(name, columns))
    hide_unused(axes, len(names))
    for row in axes:
        row[0].set_ylabel(label)
    legend_below(figure, list(entries), medium)
    return figure


def hide_unused(axes: Any, n_used: int) -> None:
    """Hide the panels beyond the first ``n_used``."""
    for axis in list(axes.flat)[n_used:]:
        axis.set_visible(False)


def _powers(value: float, _position: object = None) -> str:
    """Return a tick of a logarithmic axis, 3x10^11 in superscripts."""
    # Not mathtext, which is off because names of arms may hold dollars.
    exponent = int(np.floor(np.log10(value) + 1e-9))
    digits = value / 10.0**exponent
    raised = f"10{str(exponent).translate(str.maketrans('0123456789-', '⁰¹²³⁴⁵⁶⁷⁸⁹⁻'))}"
    return raised if abs(digits - 1) < 1e-6 else f"{digits:.2g}×{raised}"


def log_axis(axis: Any, low: float, high: float, *, crowded: bool = False) -> None:
    """Set the ticks of a logarithmic axis: 1, 2, 5 in each decade, fewer over many or where it is narrow."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    fewest = 3 if crowded else 30
    digits = (1, 2, 5) if high < fewest * low else (1, 3) if high < 33 * fewest * low else (1,)
    decades = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    axis.set_major_locator(FixedLocator([d * 10.0**k for k in decades for d in digits]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(_powers))


def token_axis(axis: "Axes", n_ticks: int = 4) -> None:
    """Set at most ``n_ticks`` ticks of counts (100k, 1.2M) on the horizontal axis."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(n_ticks))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def plain_ticks(axis: Any, n_ticks: int = 6) -> None:
    """Set at most ``n_ticks`` round numbers with the same number of decimals, also on a logarithmic axis."""
    from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

    axis.set_major_locator(MaxNLocator(n_ticks, steps=[1, 2, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(ScalarFormatter(useOffset=False))


def legend(owner: Any, entries: Iterable[tuple[str, ArmStyle]], medium: Medium, **placement: Any) -> None:
    """Add a legend of ``owner`` (axes or a figure) that shows every entry with its marker and its dash."""
    from matplotlib.lines import Line2D

    handles, labels = [], []
    for name, style in entries:
        handles.append(Line2D([], [], color=style.on(medium), marker=style.marker, linestyle=style.dash))
        labels.append(label_of(name))
    owner.legend(handles, labels, **placement)


def legend_below(figure: "Figure", entries: Sequence[tuple[str, ArmStyle]], medium: Medium) -> None:
    """Add one legend below all panels, as wide as they are; the figure grows by its further rows."""
    width, height = figure.get_size_inches()
    em = _legend_size() / 72
    longest = max((len(label_of(name)) for name, _ in entries), default=0)
    columns = int(min(MOST_COLUMNS, len(entries), width / (em * (LEGEND_HANDLE + LEGEND_LETTER * longest))))
    columns = max(1, columns)
    further = -(-len(entries) // columns) - ROWS_WITH_ROOM
    figure.set_size_inches(width, height + LEGEND_LINE * em * max(0, further))
    legend(figure, entries, medium, loc="outside lower center", ncols=columns)


def _legend_size() -> float:
    """Return the size of the legend's text in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points())


def band_between(axis: "Axes", x: FloatArray, low: FloatArray, high: FloatArray, colour: str) -> None:
    """Draw a pale band without an edge."""
    axis.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
