"""Tables as tests look at them: the cells of a column, or one dictionary for each row."""

import csv
import io

import pandas as pd

from scalevec import analysis

FEW = {"baseline": 0.0, "unified": -0.03, "no-decay": 0.002}
EFFECTS = {"baseline": 0.0, "none": 0.04, "unified": -0.03, "no-decay": 0.002, "product": 0.001}


def shown(results: pd.DataFrame, name: str, **options) -> analysis.Table:
    cheap = {"reference": "baseline", "bootstrap": 20, "law": "power"}
    return analysis.table(results, name, **cheap | options)


def column(table_shown: analysis.Table, name: str) -> list[str]:
    position = table_shown.columns.index(name)
    return [row[position] for row in table_shown.rows]


def records(table_shown: analysis.Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(analysis.render(table_shown, "csv"))))
