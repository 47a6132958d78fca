"""The table of optimizers: the rates of each, and a row over all."""

import pandas as pd
from tests.shown_tables import column, shown


def test_optimizers_has_the_rates_and_an_overall_row_for_each(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    both = pd.concat([rows, rows.assign(optimizer="muon", schedule="wsd")])
    table_shown = shown(both, "optimizers")
    assert column(table_shown, "cell") == ["25k", "55k", "83k", "150k", "all"] * 2
    assert column(table_shown, "rate", "baseline")[:5] == ["0.016"] * 4 + [""]
    assert all(", p " in text for text in column(table_shown, "difference", "unified")[4::5])
