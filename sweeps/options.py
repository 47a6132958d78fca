"""The section ``compare`` of a sweep file, given or resolved, as options of ``scalevec.analysis``."""

from collections.abc import Mapping
from typing import Any

NO_OPTIONS_OF_ANALYSIS = ("reference", "predict")
"""What the section ``compare`` holds beside options of an analysis."""


def analysis_options(compare: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``compare`` says about the fields of ``analysis.AnalysisOptions``."""
    return {name: value for name, value in compare.items() if name not in NO_OPTIONS_OF_ANALYSIS}
