"""Comparisons with the baseline, by the cheapest law that the rows of tests obey and without replicates."""

from typing import Any

import pandas as pd

from scalevec.analysis import compare
from scalevec.analysis.comparison.compare import Comparison, Comparisons

CHEAP = {"bootstrap": 0, "law": "power"}


def compared(table: pd.DataFrame, **options: Any) -> Comparisons:
    """The comparison of each arm of ``table`` with the baseline, by its name."""
    return compare(table, reference="baseline", **{**CHEAP, **options})


def only(table: pd.DataFrame, **options: Any) -> Comparison:
    """The comparison of the one arm of ``table`` beside the baseline."""
    return compared(table, **options).only
