"""What the results mean: laws, fits, comparisons, figures, tables, the report; on any tidy DataFrame.

Nothing is loaded until it is used, so that ``import analysis`` stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.comparison import Comparison, compare
    from analysis.data import DataError, read_table
    from analysis.fitting import Fit, FitSettings, fit
    from analysis.laws import LAWS, Law
    from analysis.report import write_report
    from analysis.table import Table, comparison_table, render
    from analysis.where import select

_HOMES = {
    "Comparison": "comparison",
    "compare": "comparison",
    "DataError": "data",
    "read_table": "data",
    "Fit": "fitting",
    "FitSettings": "fitting",
    "fit": "fitting",
    "LAWS": "laws",
    "Law": "laws",
    "write_report": "report",
    "Table": "table",
    "comparison_table": "table",
    "render": "table",
    "select": "where",
}

__all__ = [
    "LAWS",
    "Comparison",
    "DataError",
    "Fit",
    "FitSettings",
    "Law",
    "Table",
    "compare",
    "comparison_table",
    "fit",
    "read_table",
    "render",
    "select",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"analysis.{_HOMES[name]}"), name)
