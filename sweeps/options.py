"""The section ``compare`` of a sweep file, given or resolved, as options of ``scalevec.analysis``."""

from collections.abc import Mapping
from typing import Any

NO_OPTIONS_OF_ANALYSIS = ("reference", "predict", "at_most")
"""What the section ``compare`` holds beside options of an analysis."""
X_OF_COLUMN = {"n_params": "N", "n_tokens": "D", "flops": "C"}
"""Earlier names of the variables, which sweep files and resolved sweeps may still hold."""


def analysis_options(compare: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``compare`` says about the fields of ``analysis.AnalysisOptions``."""
    options = {name: value for name, value in compare.items() if name not in NO_OPTIONS_OF_ANALYSIS}
    if "x" in options:
        options["x"] = X_OF_COLUMN.get(options["x"], options["x"])
    for name in ("settings", "looks", "fix", "bound"):
        if options.get(name) is not None:
            options[name] = tuple(options[name])
    return options


FIRST_LOOK = 0.4
"""The share of the seeds at the first of a number of looks; fewer decide next to nothing."""


def spread(n_looks: int, n_seeds: int) -> tuple[int, ...]:
    """The sizes of ``n_looks`` looks that end with ``n_seeds``: the first at 0.4 of them, the others evenly.

    Raises ``ValueError`` where the seeds are too few for so many looks.
    """
    step = (1 - FIRST_LOOK) / max(1, n_looks - 1)
    shares = [1 - step * left for left in reversed(range(n_looks))]
    looks = tuple(max(2, round(share * n_seeds)) for share in shares)
    if list(looks) != sorted(set(looks)) or looks[-1] != n_seeds:
        raise ValueError(f"{n_seeds} seeds are too few for {n_looks} looks, of which the first takes two")
    return looks
