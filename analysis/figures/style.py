"""One look for all figures: the reference in ink, each arm with a colour, a marker and a dash of its own.

The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color), which the colour-blind can tell
apart; marker and dash say the same again, so that a figure stays legible in grey.
"""

import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOLD_LETTER, LETTER = 0.72, 0.62
"""Width of a letter of a title and of other text, in em."""
UNBROKEN = str.maketrans(" -", "\N{NO-BREAK SPACE}\N{NON-BREAKING HYPHEN}")
BROKEN = {after: before for before, after in UNBROKEN.items()}
SHEETS = Path(__file__).resolve().parent
INK, FAINT = "#111112", "#222223"
"""Stand-ins that a page replaces by its own colours, and a paper by black and grey."""
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
ON_DARK = ("#2f8fdc", "#f0742c", "#35c79a", "#cc79a7", "#f0b432", "#8fd0ff")
"""The same on a dark screen."""
PAGE_COLOURS = {
    INK: ("#1b1f24", "#e6e9ed"),
    FAINT: ("#8a929c", "#767f8a"),
    **{colour.lower(): (colour.lower(), dark) for colour, dark in zip(OKABE_ITO, ON_DARK, strict=True)},
}
"""What a page shows for a colour of a figure, light and dark."""
MARKERS = ("s", "^", "D", "v", "P", "X")
Dash = Literal["solid", "none"] | tuple[float, tuple[float, ...]]
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

    ``squeeze`` is the height of a figure over that on the page of a report, in a column and across the page;
    ``most_columns`` of panels: of a single row that is wrapped, and of a matrix. ``most_pages`` of a figure:
    what a report of thousands of trials has no room for is left to files.
    """

    sheets: tuple[str, ...]
    widths: tuple[float, float]
    squeeze: tuple[float, float]
    most_columns: tuple[int, int]
    ink: str
    faint: str
    most_pages: int | None = None
    axes: Any = None
    """Those of somebody's own figure, one or an array, on which panels are drawn instead of new ones."""

    def style(self) -> AbstractContextManager[None]:
        """Return the context in which figures are drawn and written."""
        from matplotlib import style

        # From the defaults: no matplotlibrc may change a byte of a figure, or ask for LaTeX.
        return style.context([SHEETS / name for name in self.sheets], after_reset=True)

    def figure(
        self, rows: int = 1, columns: int = 1, *, height: float = 4.1, wide: bool = False, **options: Any
    ) -> tuple["Figure", Any]:
        """Return a figure with its axes [rows, columns]; ``height``: inches on the page of a report."""
        from matplotlib.figure import Figure

        if self.axes is not None:
            given = np.ravel(self.axes)
            if len(given) != rows * columns:
                raise DataError(
                    f"the figure has {rows} x {columns} panels, and {len(given)} axes are given: give one "
                    "for each panel, or choose by where what is drawn"
                )
            return given[0].figure, given.reshape(rows, columns)
        size = (self.widths[wide], height * self.squeeze[wide])
        figure = Figure(figsize=size, layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, **options)


PAGE = Medium(("scalevec.mplstyle",), (7.6, 7.6), (1.0, 1.0), (3, 4), INK, FAINT, most_pages=4)
"""The report: a browser's page, light or dark."""
PAPER = Medium(("scalevec.mplstyle", "paper.mplstyle"), (3.3, 6.9), (0.6, 0.72), (3, 4), "#000000", "#555555")
"""A two-column paper."""
COLUMN = replace(PAPER, widths=(3.3, 3.3), squeeze=(0.6, 0.6), most_columns=(2, 2))
"""The same, every figure as wide as one column."""


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn in all figures; ``colour`` may be the stand-in :data:`INK`."""

    colour: str
    marker: str
    dash: Dash = SOLID
    is_hollow: bool = False

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


def title(text: str, inches: float, letter: float = BOLD_LETTER) -> str:
    """Return ``text`` in words, on as many lines as it needs over a panel of that width.

    ``adamw(learning_rate=0.016)`` becomes ``adamw, learning rate 0.016``.
    """
    for written, shown in (("_", " "), (" (", "("), ("(", ", "), (")", ""), ("=", " "), (",", ", ")):
        text = text.replace(written, shown)
    return wrapped(text, inches, letter * font_points("axes.titlesize"))


def wrapped(text: str, inches: float, points_per_letter: float) -> str:
    """Return ``text`` on as many lines as that width asks for.

    It is broken after , and ; where what stands between them fits a line, else between words, and at a hyphen
    only where a word alone is too long.
    """
    letters = max(8, int(inches * 72 / points_per_letter))
    parts = re.split(r"(?<=[,;]) ", " ".join(text.split()))
    pieces = chain(*([part] if len(part) <= letters else part.split() for part in parts))
    whole = " ".join(piece.translate(UNBROKEN) if len(piece) <= letters else piece for piece in pieces)
    return textwrap.fill(whole, letters, break_long_words=False).translate(BROKEN)


def font_points(
    name: Literal["axes.titlesize", "axes.labelsize", "figure.titlesize", "legend.fontsize"],
) -> float:
    """Return the size in points of a font of the style, ``axes.titlesize``."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=rcParams[name]).get_size_in_points())


def band_between(axis: "Axes", x: FloatArray, low: FloatArray, high: FloatArray, colour: str) -> None:
    """Draw a pale band without an edge."""
    axis.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
