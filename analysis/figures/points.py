"""Points of a figure on a page that name their trial when a reader hovers over them or steps through them."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd

from scalevec.analysis.formatting import count, shortened_in

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

_PREFIX = "points:"
_NAMED = re.compile(rf'<g id="{_PREFIX}([^"]*)">')
_MARKER = re.compile(r"<use ([^>]*?)/>")


def name_points(line: "Line2D", names: Sequence[str]) -> None:
    """Let each point of ``line`` bear its name on a page; files for a paper carry none."""
    drawn = np.isfinite(np.asarray(line.get_xydata(), float)).all(axis=1)
    kept = (quote(name, safe="") for name, is_drawn in zip(names, drawn, strict=True) if is_drawn)
    line.set_gid(_PREFIX + ",".join(kept))


def trial_names(rows: pd.DataFrame, settings: Sequence[str] = ()) -> list[str]:
    """Return a name for each of ``rows``, trials: arm, rung, settings, tokens, seed, loss."""
    names = []
    for row in rows.to_dict("records"):
        parts = [
            row["arm"],
            row["rung"],
            *(row[name] for name in settings),
            f"{count(row['n_tokens'])} tokens",
        ]
        trial = f" (trial {str(row['trial_id'])[:12]})" if "trial_id" in row else ""
        names.append(f"{', '.join(map(str, parts))}, seed {row['seed']}: {row['loss']:.4f}{trial}")
    return names


def with_titles(svg: str) -> str:
    """Return ``svg`` of matplotlib with the names of :func:`name_points` as titles of the points."""
    head, *rest = _NAMED.split(svg)
    parts = [head]
    for encoded, part in zip(rest[::2], rest[1::2], strict=True):
        names = [html.escape(unquote(name)) for name in encoded.split(",")]
        parts += ["<g>", _titled(part, names)]
    return "".join(parts)


def with_whole_names(svg: str, names: Mapping[str, str]) -> str:
    """Return ``svg`` with the whole of each short one of ``names`` as title of the texts that show it."""
    plain = {re.sub(r"[\W_]", "", short): name for name, short in names.items()}

    def titled(comment: re.Match[str]) -> str:
        text = re.sub(r"[\W_]", "", comment[1])
        whole = [html.escape(name) for short, name in plain.items() if short in text]
        return f"{comment[0]}<title>{', '.join(whole)}</title>" if whole else comment[0]

    whole_names = {html.escape(short): html.escape(name) for name, short in names.items()}
    svg = re.sub(r"<title>[^<]*", lambda title: shortened_in(title[0], whole_names), svg)  # of points
    return re.sub(r"<!-- (.*?) -->", titled, svg, flags=re.DOTALL) if names else svg


def _titled(part: str, names: Sequence[str]) -> str:
    """Return ``part`` with a title in each of its first markers; as it is where some are not drawn."""
    if len(_MARKER.findall(part)) < len(names):
        return part
    titles = iter(names)
    return _MARKER.sub(
        lambda use: f"<use {use[1]}><title>{next(titles)}</title></use>", part, count=len(names)
    )
