"""What a table cannot be made of is refused with what is missing; no table is ever empty."""

import numpy as np
import pytest
from tests.shown_tables import FEW, shown

from scalevec import analysis
from scalevec.analysis import DataError, table


def test_a_source_without_time_and_memory_has_no_table_of_overhead(source):
    rows = source(FEW).drop(columns=["steps", "tokens_per_s", "peak_memory_bytes"])
    with pytest.raises(DataError, match="'overhead' needs wall_s and steps; or allocated_bytes"):
        shown(rows, "overhead")


@pytest.mark.parametrize("name", list(analysis.TABLES))
def test_no_table_is_made_of_trials_that_have_not_finished(source, name: str):
    rows = source({"baseline": 0.0, "no-decay": 0.0}).assign(status="pending", loss=np.nan)
    with pytest.raises(DataError, match="needs completed comparison trials; none of 16 is"):
        shown(rows, name)


def test_one_rung_is_no_scaling_table(source):
    rows = source({"baseline": 0.0, "unified": -0.03}, rungs={"25k": 25_088})
    with pytest.raises(DataError, match="table 'scaling' has no law to show: arm 'baseline': all points"):
        shown(rows, "scaling")


def test_an_unknown_table_is_refused_with_the_nearest_name(source):
    with pytest.raises(DataError, match="table is 'comparsion'; nearest: 'comparison'"):
        shown(source(FEW), "comparsion")


def test_a_table_says_which_rows_were_chosen(sweep):
    table_shown = table(sweep(), "comparison", reference="baseline", where="seed < 1", bootstrap=0)
    assert table_shown.notes[-1] == "Rows: where seed < 1 (8 left out)."


def test_a_table_shows_another_column_of_losses_and_refuses_one_of_scores(sweep):
    trials = sweep().assign(loss_validation=lambda t: t["loss"] + 1.0, accuracy=0.5)
    table_shown = table(trials, "comparison", reference="baseline", y="loss_validation", bootstrap=0)
    column = table_shown.columns.index("loss")
    assert float(table_shown.rows[0][column].split()[0]) > 4.5
    with pytest.raises(DataError, match="y is 'accuracy'; a table shows losses"):
        table(trials, "comparison", reference="baseline", y="accuracy")
