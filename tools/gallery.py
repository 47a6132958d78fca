"""The gallery: every figure, as narrow as one column of a paper, from kept results: ``make gallery``.

Writes docs/gallery.md and its drawings. Each way in which a figure can look has an example.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import findings
import numpy as np
import pandas as pd
import paper

from scalevec import analysis
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import FIGURES
from scalevec.results.sweep_folder import SweepFolder

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gallery.md"
DRAWINGS = PAGE.parent / "figures" / "gallery"


@dataclass(frozen=True)
class Example:
    """A figure of a kept sweep of ``sweeps/small``."""

    figure: str
    sweep: str
    what: str
    width: str = "column"

    @property
    def name(self) -> str:
        """The beginning of its files' names."""
        return f"{self.figure}-{self.sweep}"


WITHDRAWN = (
    "All drawings were withdrawn when the paper's own text had been read: `or` and `er` had been other "
    "formulas here, and the head had no vector. `make paper-small` trains the sweeps again, `make gallery` "
    "then draws what they give."
)
"""Stands on the page until every example has results."""
PLANTED = "planted"
"""No sweep: runs drawn around a published law."""
EXAMPLES = (
    Example("loss", "removal-tuned", "laws, their bands, what was held out, and what is left"),
    Example("loss", "scaling", "budgets side by side", "page"),
    Example("differences", "removal-tuned", "a panel for each arm"),
    Example("differences", "mixture", "one arm at several sizes"),
    Example("differences", "theory", "settings with long names", "page"),
    Example("multipliers", "scaling", "a panel for each budget"),
    Example("predictions", "removal-tuned", "beyond the data"),
    Example("isoflop", PLANTED, "five budgets, two arms", "page"),
    Example("optimal", PLANTED, "by a law in N and D"),
    Example("surface", PLANTED, "where the runs lie on it", "page"),
    Example("tuning", "removal-tuned", "a panel for each rung"),
    Example("tuning", "optimizers", "a panel for each optimizer", "page"),
    Example("curves", "removal-tuned", "few arms"),
    Example("curves", "overhead", "many arms", "page"),
    Example("envelope", "removal-tuned", "a panel for each arm"),
    Example("statistics", "removal-tuned", "scale vectors of each arm"),
    Example("statistics", "theory", "settings side by side", "page"),
)


@cache
def source(sweep: str) -> dict[str, Any]:
    """What figures of ``sweep`` are drawn from: arguments of ``analysis.write_figures``."""
    if sweep == PLANTED:
        options = AnalysisOptions(law="chinchilla", cluster="run")
        return {"results": planted(), "reference": "baseline", "options": options}
    rows = findings.kept_rows(sweep)
    choices = (SweepFolder(paper.KEPT / sweep).tuning() or {}).get("choices", ())
    return {
        "results": rows,
        "choices": choices,
        **paper.measured(paper.KEPT / sweep, rows),
        **findings.question(sweep),
    }


def planted() -> pd.DataFrame:
    """Nine sizes at each of five budgets, around the law of Hoffmann et al. (2203.15556), table A.3.

    The other arm needs a tenth less data for the same; the noise is half a thousandth of the loss.
    """
    law = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
    noise, rows = np.random.default_rng(0), []
    for arm, worth in (("baseline", 1.0), ("better", 1.1)):
        for budget in np.geomspace(1e19, 1e21, 5):
            best = (law["alpha"] * law["A"] / law["beta"] / law["B"]) ** (1 / 0.62)
            n = best * (budget / 6) ** (0.28 / 0.62) * np.geomspace(0.35, 2.8, 9)
            d = budget / 6 / n
            loss = law_named("chinchilla").predict(law, {"N": n, "D": worth * d})
            loss = loss * np.exp(noise.normal(0, 5e-4, len(n)))
            names = [f"{arm}-{budget:.0e}-{number}" for number in range(len(n))]
            columns = {"arm": arm, "n_params": n, "n_tokens": d, "loss": loss, "run": names}
            rows.append(pd.DataFrame(columns))
    return pd.concat(rows, ignore_index=True)


def has_rows(example: Example) -> bool:
    """Whether there is something to draw: what is planted, or a kept sweep."""
    return example.sweep == PLANTED or findings.is_evidence(example.sweep)


def section(example: Example, folder: Path) -> str:
    """Draw ``example`` to ``folder`` and return its section of the page; it says so where nothing is kept."""
    title = f"**{example.what.capitalize()}** (`{example.sweep}`)."
    if not has_rows(example):
        return f"{title} Not run yet."
    shown = {**source(example.sweep), "only": [example.figure], "formats": ["svg"], "width": example.width}
    written = analysis.write_figures(folder=folder, **shown)
    images = []
    for path in written.paths:
        target = folder / f"{example.name}{path.stem.removeprefix(example.figure)}.svg"
        path.replace(target)
        images.append(f"![{FIGURES[example.figure].shows}](figures/gallery/{target.name})")
    return "\\\n".join([*images, f"{title} {written.captions[example.figure]}"])


def main() -> None:
    """Write the page and its drawings."""
    for path in DRAWINGS.glob("*.svg"):
        path.unlink()
    parts = [
        "# Gallery of figures",
        "Every figure of `scalevec figures`, made by `make gallery` from the kept results of the small "
        "sweeps ([findings.md](findings.md)). Each is as it would stand in one column of a paper (3.25 "
        "inches, `--width column`), or across both where it shows settings side by side. `planted` is no "
        "sweep: runs drawn around the law of Hoffmann et al. (2203.15556).",
    ]
    parts += [] if all(map(has_rows, EXAMPLES)) else [WITHDRAWN]
    for figure, entry in FIGURES.items():
        parts.append(f"## `{figure}`: {entry.shows}")
        shown = [section(example, DRAWINGS) for example in EXAMPLES if example.figure == figure]
        parts.append("\\\n".join(shown))
    PAGE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
