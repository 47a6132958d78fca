"""Figures as text for a page and as files for a paper: the same bytes every time, on every processor."""

import html
import io
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scalevec.analysis.errors import DataError
from scalevec.analysis.figures.style import DARK
from scalevec.analysis.formatting import shortened_in

# What each format must not hold: dates, and the version of what wrote it.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}
FORMATS = tuple(_METADATA)
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Control characters, which a name may hold and an XML file may not."""
_COORDINATE = re.compile(r"scale\([^)]*\)|(?<![\w.])-?\d+\.\d{3,}(?![\w.])")
_NAMED_POINT = re.compile(
    r"""<a xlink:href=(?:"([^"]*)"|'([^']*)')[^>]*>.*?<(use|path) ([^>]*)/>.*?</a>""", re.DOTALL
)
_ON_DARK = "".join(
    f'svg.figure [style*="{part}: {colour}"]{{{part}:{dark}!important}}'
    for colour, dark in DARK.items()
    for part in ("fill", "stroke")
)
"""No renderer but a browser reads it: to the others a figure is one on white."""


def page_svg(figure: Figure, name: str, description: str, names: Mapping[str, str]) -> str:
    """Return the figure as an SVG element that refers to nothing outside itself, dark on a dark screen.

    ``name`` (letters) keeps the ids of several figures on one page apart; ``description`` is read aloud.
    Points bear their names as titles, with the whole of each of ``names`` that is shortened; what is drawn
    of an arm has its number as ``data-arm``.
    """
    whole = {short: name for name, short in names.items()}

    def titled(point: re.Match[str]) -> str:
        text = html.escape(shortened_in(html.unescape(point[1] or point[2]), whole), quote=False)
        return f"<{point[3]} {point[4]}><title>{text}</title></{point[3]}>"

    text = re.sub(r'\bid="arm-(\d+)"', r'data-arm="\1"', _saved(figure, "svg").decode())
    text = _stable_svg(_NAMED_POINT.sub(titled, text), name)
    text = re.sub(r"\n +", "\n", text[text.index("<svg") :])
    label = html.escape(description, quote=True)
    text = text.replace("<svg ", f'<svg class="figure" role="img" aria-label="{label}" ', 1)
    dark = f"@media screen and (prefers-color-scheme: dark) {{{_ON_DARK}}}"
    return text.replace("</style>", f"{dark}</style>", 1).strip() + "\n"


def file_bytes(figure: Figure, form: str, name: str) -> bytes:
    """Return the figure as a file of ``form`` (:data:`FORMATS`); call it in the style of the drawing."""
    content = _saved(figure, form)
    if form != "svg":
        return content
    return _stable_svg(_NAMED_POINT.sub(r"<\3 \4/>", content.decode()), name).encode()


def _saved(figure: Figure, form: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, metadata=_METADATA[form])
    return buffer.getvalue()


def _stable_svg(text: str, name: str) -> str:
    """Return the SVG ``text`` without what differs between two processors that draw the same figure.

    Matplotlib writes coordinates to six decimals and hashes them into its ids, so the last bit of a fit
    would change both. Two decimals of a point are far finer than any screen or printer.
    """
    text = _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[a-z][^<>]*>", lambda tag: _COORDINATE.sub(_rounded, tag[0]), text)
    referred = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    ids = dict.fromkeys(found_id for found_id in re.findall(r'\bid="([^"]+)"', text) if found_id in referred)
    numbered = {old: f"{name}-{number}" for number, old in enumerate(ids, start=1)}
    text = re.sub(r'((?:href="|url\()#)([^")]+)', lambda link: link[1] + numbered[link[2]], text)
    # An element to which nothing refers needs none.
    new = {old: f' id="{name}"' for old, name in numbered.items()}
    return re.sub(r'\s+id="([^"]+)"', lambda attribute: new.get(attribute[1], ""), text)


def _rounded(number: re.Match[str]) -> str:
    """Return a coordinate with two decimals; the scale of a glyph is a constant and stays as it is."""
    if number[0].startswith("scale"):
        return number[0]
    return f"{round(float(number[0]), 2) + 0.0:.10g}"  # the sum makes a negative zero a plain one


def require_formats(formats: tuple[str, ...]) -> None:
    """Raise :class:`DataError` unless every one of ``formats`` is known and there is one."""
    unknown = [form for form in formats if form not in FORMATS]
    if unknown or not formats:
        shown = ", ".join(map(repr, unknown)) or "empty"
        raise DataError(f"format is {shown}; allowed: one or more of {', '.join(FORMATS)}")


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside ``path``, then rename; missing folders are made. Raises an ``OSError`` that names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not ``tempfile``: its files are for their owner alone, whatever the umask.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError as error:  # of a full disk: it names no file
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
