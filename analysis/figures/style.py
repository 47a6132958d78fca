"""One look for all figures: the reference in ink, each arm with a colour, a marker and a dash of its own.

The colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color), which the colour-blind can tell
apart; marker and dash say the same again, so that a figure stays legible in grey.
"""

import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
from matplotlib import rc_params_from_file, rcParams, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError

BOLD_LETTER, LETTER = 0.72, 0.62
"""Width of a letter of a title and of other text, in em."""
INCHES_OF_TICK = {"x": 0.52, "y": 0.3}
"""What one number on an axis takes with the space beside it."""
SHEETS = Path(__file__).resolve().parent
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
ON_DARK = ("#2f8fdc", "#f0742c", "#35c79a", "#cc79a7", "#f0b432", "#8fd0ff")
"""The same on a dark screen."""
DARK = {
    "#1b1f24": "#e6e9ed",
    "#8a929c": "#767f8a",
    **{colour.lower(): dark for colour, dark in zip(OKABE_ITO, ON_DARK, strict=True)},
}
"""What a dark page shows for each colour of a figure: ink, grey and the arms'."""
MARKERS = ("s", "^", "D", "v", "P", "X")
LOOKS = len(OKABE_ITO) * len(MARKERS)
"""How many pairs of a colour and a marker there are."""
Dash = Literal["solid", "none"] | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = (
    (0, (5, 1.6)),
    (0, (1.4, 1.2)),
    (0, (5, 1.4, 1.2, 1.4)),
    (0, (8, 2)),
    (0, (3, 1.2, 1, 1.2, 1, 1.2)),
    (0, (2.6, 1.2)),
)
SALT = 53793
"""With it the names of the arms of ``sweeps`` that are drawn together give six colours."""
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class Medium:
    """Where figures stand: style sheets, widths in inches of a single panel and of several.

    ``squeeze`` is the height of a figure over that on the page of a report, ``most_columns`` of panels.
    """

    sheets: tuple[str, ...]
    widths: tuple[float, float]
    squeeze: float
    most_columns: int

    def style(self) -> AbstractContextManager[None]:
        """Return the context in which figures are drawn and written."""
        # From the defaults: no matplotlibrc may change a byte of a figure, or ask for LaTeX.
        return style.context([SHEETS / name for name in self.sheets], after_reset=True)

    def over(self, sheet: Path) -> "Medium":
        """Return the same with a style sheet of one's own over ours. Raises :class:`DataError`."""
        try:
            settings = rc_params_from_file(sheet, fail_on_error=True, use_default_template=False)
        except (OSError, KeyError, ValueError) as problem:
            raise DataError(f"style {sheet} is no style sheet of matplotlib: {problem}") from problem
        if not settings:
            raise DataError(f"style {sheet} has no setting of matplotlib, as font.size: 9")
        return replace(self, sheets=(*self.sheets, str(sheet.absolute())))


PAGE = Medium(("scalevec.mplstyle",), (7.6, 7.6), 1.0, 3)
"""The report: a browser's page, light or dark."""
PAPER = Medium(("scalevec.mplstyle", "paper.mplstyle"), (3.25, 6.75), 0.68, 3)
"""A paper of two columns: a single panel is as wide as one, several as both."""
COLUMN = replace(PAPER, widths=(3.25, 3.25), most_columns=2)
"""The same, every figure as wide as one column."""
TEXT = replace(PAPER, widths=(5.5, 5.5))
"""A paper of one column."""


@dataclass(frozen=True)
class ArmStyle:
    """How an arm is drawn in all figures; without a ``colour`` of its own in ink."""

    colour: str = ""
    marker: str = "o"
    dash: Dash = "solid"
    gid: str | None = None
    """What an SVG calls all that is drawn of the arm."""

    @property
    def color(self) -> str:
        """The colour for matplotlib."""
        return self.colour or ink()


def ink() -> str:
    """Return the colour of text in the style that is in force."""
    return str(rcParams["text.color"])


def arm_styles(
    arms: Sequence[str], reference: str, palette: Mapping[str, str] | None = None
) -> dict[str, ArmStyle]:
    """Return the style of each arm: the reference ink, round and solid, the others by their names.

    So an arm looks the same in all figures, whatever stands beside it; only where two names of a figure
    give one colour or marker, the later arm has the next that is free. Those in ``palette`` have that
    colour, and no other arm has it while there are others.
    """
    palette = palette or {}
    chosen = {colour.upper() for colour in palette.values()}
    styles = {reference: ArmStyle(palette.get(reference, ""), gid="arm-0")}
    for number, arm in enumerate((arm for arm in arms if arm != reference), start=1):
        taken = {(style.colour, style.marker) for style in styles.values()}
        first = crc32(arm.encode(), SALT)
        looks = [nth_style((first + step) % LOOKS) for step in range(LOOKS)]
        free = [look for look in looks if (look.colour, look.marker) not in taken]
        used = chosen | {colour for colour, _ in taken}
        others = (look for avoided in (used, chosen) for look in free if look.colour not in avoided)
        look = next(others, (free or looks)[0])
        markers = {style.marker for style in styles.values()}
        if look.marker in markers:
            alike = (each for each in free if each.colour == look.colour and each.marker not in markers)
            look = next(alike, look)
        styles[arm] = replace(look, colour=palette.get(arm) or look.colour, gid=f"arm-{number}")
    return styles


def nth_style(number: int) -> ArmStyle:
    """Return one of the :data:`LOOKS` styles, of which neighbours share nothing."""
    # From six on a colour comes again, with another marker and dash.
    shift = number // len(OKABE_ITO)
    return ArmStyle(
        OKABE_ITO[number % len(OKABE_ITO)],
        MARKERS[(number + shift) % len(MARKERS)],
        DASHES[(number + 2 * shift) % len(DASHES)],
    )


def title(text: str, inches: float) -> str:
    """Return ``text`` in words, on as many lines as it needs over a panel of that width.

    ``adamw(learning_rate=0.016)`` becomes ``adamw, learning rate 0.016``.
    """
    if "=" in text:
        for written, shown in ((" (", "("), ("(", ", "), (")", ""), ("=", " "), (",", ", ")):
            text = text.replace(written, shown)
    text = text.replace("_", " ")
    return wrapped(" ".join(text.split()), inches, BOLD_LETTER * font_points("axes.titlesize"))


def wrapped(text: str, inches: float, points_per_letter: float) -> str:
    """Return ``text`` on as many lines as that width asks for."""
    return textwrap.fill(text, max(8, int(inches * 72 / points_per_letter)))


def font_points(
    name: Literal["axes.titlesize", "axes.labelsize", "ytick.labelsize", "legend.fontsize"],
) -> float:
    """Return the size in points of a font of the style, ``axes.titlesize``."""
    return float(FontProperties(size=rcParams[name]).get_size_in_points())


def draw_curve(
    axis: Axes, x: FloatArray, y: FloatArray, ends: Any, style: ArmStyle, is_beyond: Any = False
) -> None:
    """Draw the curve of an arm over its band (``ends``: low and high); thin where it is beyond the data."""
    axis.fill_between(x, *ends, color=style.color, alpha=0.14, linewidth=0, gid=style.gid)
    axis.plot(x, np.where(is_beyond, np.nan, y), color=style.color, linestyle=style.dash, gid=style.gid)
    if np.any(is_beyond):
        axis.plot(x, y, color=style.color, linewidth=0.5, gid=style.gid)


def draw_points(
    axis: Axes,
    x: FloatArray,
    y: FloatArray,
    style: ArmStyle,
    names: Sequence[str] | None = None,
    size: float | None = None,
) -> None:
    """Draw points, which a page shows with their ``names`` when a reader hovers over them."""
    area = ((size or rcParams["lines.markersize"]) + 1) ** 2  # a point of their edge
    axis.scatter(
        x, y, area, style.color, marker=style.marker, alpha=0.75, linewidths=0, urls=names, gid=style.gid
    )


def round_ticks(panels: Sequence[Axes]) -> None:
    """Set round numbers and powers of ten, as many as there is room for, where no ticks are chosen."""
    both = [axis for panel in panels for axis in (panel.xaxis, panel.yaxis)]
    free = [axis for axis in both if not isinstance(axis.get_major_locator(), FixedLocator)]
    for axis in free:
        _set_ticks(axis)
    figure = panels[0].figure
    if isinstance(figure, Figure) and (engine := figure.get_layout_engine()):
        engine.execute(figure)  # from which on panels have their size
        for axis in free:
            _set_ticks(axis)


def _set_ticks(axis: Any) -> None:
    low, high = sorted(axis.get_view_interval())
    box = axis.axes.get_window_extent().transformed(axis.axes.figure.dpi_scale_trans.inverted())
    most = max(2, int((box.width if axis.axis_name == "x" else box.height) / INCHES_OF_TICK[axis.axis_name]))
    is_log = axis.get_scale() == "log"
    if is_log or high >= 1e4:
        axis.set_major_formatter(FuncFormatter(power_of_ten))
    if is_log:
        axis.set_minor_locator(NullLocator())
    if is_log and not np.isfinite(axis.get_data_interval()).all():  # a panel without points
        axis.set_major_locator(NullLocator())
        return
    if not is_log or high < 5 * low:
        axis.set_major_locator(MaxNLocator(min(5, most), steps=[1, 2, 5, 10], min_n_ticks=2))
        return
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = np.outer(decades, digits).ravel()
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) <= most:
            break
    axis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // most)].tolist()))


def power_of_ten(value: float, _position: object = None) -> str:
    """Return a number as on a logarithmic axis, 0.05 or 3x10^11 in superscripts."""
    # Not mathtext, which is off because names of arms may hold dollars.
    if value == 0 or 1e-3 < value < 1e4:
        return f"{value:g}"
    digits, exponent = f"{value:.1e}".split("e")
    raised = f"10{str(int(exponent)).translate(_RAISED)}"
    return raised if float(digits) == 1 else f"{float(digits):g}×{raised}"
