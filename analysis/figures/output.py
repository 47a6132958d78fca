"""Figures as text for a page and as files for a paper, the same bytes every time."""

import html
import io
import re
from typing import TYPE_CHECKING, Any

from analysis.data import DataError
from analysis.figures.style import FAINT, INK, OKABE_ITO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What each format must not hold: dates, and the version of what wrote it.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
FORMATS = tuple(_METADATA)


def page_svg(figure: "Figure", name: str, description: str) -> str:
    """The figure as an SVG element with its own ids, the page's colours and no reference to anything outside.

    ``name`` (letters) keeps the ids of several figures on one page apart; ``description`` is read aloud.
    """
    text = file_bytes(figure, "svg", name).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = text.replace(INK, "var(--ink, #1b1f24)").replace(FAINT, "var(--faint, #8a929c)")
    for index, colour in enumerate(OKABE_ITO, start=1):
        text = text.replace(colour.lower(), f"var(--colour-{index}, {colour})")
    label = html.escape(description, quote=True)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip() + "\n"


def file_bytes(figure: "Figure", form: str, name: str) -> bytes:
    """The figure as a file of ``form``, one of :data:`FORMATS`; to be called in the style it was drawn in."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


def require_formats(formats: tuple[str, ...]) -> None:
    """Raise :class:`DataError` unless every one of ``formats`` is known and there is one."""
    unknown = [form for form in formats if form not in FORMATS]
    if unknown or not formats:
        shown = ", ".join(map(repr, unknown)) or "empty"
        raise DataError(f"format is {shown}; allowed: one or more of {', '.join(FORMATS)}")
