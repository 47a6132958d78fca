"""The section ``compare`` of a sweep file, given or resolved, as options of ``scalevec.analysis``."""

from collections.abc import Mapping
from typing import Any

NO_OPTIONS_OF_ANALYSIS = ("reference", "predict")
"""What the section ``compare`` holds beside options of an analysis."""
X_OF_COLUMN = {"n_params": "N", "n_tokens": "D", "flops": "C"}
"""Earlier names of the variables, which sweep files and resolved sweeps may still hold."""


def analysis_options(compare: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``compare`` says about the fields of ``analysis.AnalysisOptions``."""
    options = {name: value for name, value in compare.items() if name not in NO_OPTIONS_OF_ANALYSIS}
    if "x" in options:
        options["x"] = X_OF_COLUMN.get(options["x"], options["x"])
    return options
