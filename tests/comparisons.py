"""One arm compared with the baseline."""

from typing import Any

import pandas as pd

from scalevec.analysis import compare
from scalevec.analysis.comparison.compare import Comparison


def only(table: pd.DataFrame, **options: Any) -> Comparison:
    """The comparison of the one arm of ``table`` beside the baseline."""
    return compare(table, reference="baseline", **{"bootstrap": 100, **options}).only
