"""What trackers measured along runs becomes training curves, or is refused with all that is wrong."""

import pandas as pd
import pytest

from scalevec.analysis.errors import DataError
from scalevec.orchestrator.sources.imports.given_tables import GivenTable
from scalevec.orchestrator.sources.imports.histories import imported_curves
from scalevec.orchestrator.sources.imports.tidy_rows import ImportedTable

TABLE = pd.DataFrame(
    {
        "trial_id": ["t1", "t2"],
        "Name": ["r1", "r2"],
        "arm": "a",
        "n_params": 1e6,
        "n_tokens": 2e6,
        "steps": 100.0,
        "loss": [3.0, 3.1],
    }
)


def curves(
    history: pd.DataFrame, *maps: str, unit: str = "nats", table: pd.DataFrame = TABLE
) -> ImportedTable:
    return imported_curves([GivenTable("history.csv", history)], ImportedTable(table, {}, []), maps, unit)


def points(
    *rows: tuple[object, ...], columns: tuple[str, ...] = ("run", "_step", "train/loss")
) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns)


def test_a_row_per_run_and_step_is_a_curve_by_the_tokens_of_a_step():
    rows = curves(points(("r1", 50, "4.0"), ("r1", 100, "3.5"), ("r2", 100, "3.6"))).rows
    assert rows.to_numpy().tolist() == [["t1", 1e6, 4.0], ["t1", 2e6, 3.5], ["t2", 2e6, 3.6]]


def test_a_chart_with_a_column_per_run_is_read_without_its_bounds():
    names = ("Step", "r1 - train/loss", "r1 - train/loss__MIN", "r2 - train/loss")
    chart = points((50, 4.0, 3.9, ""), (100, 3.5, 3.4, 3.6), columns=names)
    assert curves(chart).rows.to_numpy().tolist() == [["t1", 1e6, 4.0], ["t1", 2e6, 3.5], ["t2", 2e6, 3.6]]


def test_values_of_one_step_in_several_rows_belong_together_and_the_last_of_a_step_counts():
    history = points(
        ("r1", 50, "9.9", ""), ("r1", 50, "4.0", ""), ("r1", 50, "", "7e5"),
        columns=("run", "_step", "train/loss", "tokens"),
    )  # fmt: skip
    assert curves(history).rows.to_numpy().tolist() == [["t1", 7e5, 4.0]]


def test_losses_along_a_run_are_in_the_unit_of_its_result():
    assert curves(points(("r1", 100, "1")), unit="bits").rows["loss"].tolist() == [pytest.approx(0.693147)]


def test_curves_of_runs_that_the_table_lacks_are_left_out_and_named():
    curve = curves(points(("r1", 100, "3.5"), ("crashed", 7, "5.0")))
    assert curve.rows["trial_id"].tolist() == ["t1"]
    assert "no run of the table is named crashed" in curve.notes[0]


def test_all_that_is_missing_of_a_history_is_said_at_once():
    with pytest.raises(DataError) as refused:
        curves(points(("x", 1, 2), columns=("what", "when", "perplexity")))
    for part in ("--map history_run=COLUMN", "--map history_steps=COLUMN", "--map history_loss=COLUMN"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("history", "table", "why"),
    [
        (points(("r1", 1, "three")), TABLE, "holds what is no number: three"),
        (points(("other", 1, "3")), TABLE, "no run of the table is named as one of the history"),
        (points(("r1", 1, "3")), TABLE.drop(columns="steps"), "--map 'history_tokens=_step [*] 65536'"),
    ],
)
def test_a_history_that_gives_no_curve_is_refused(history, table, why):
    with pytest.raises(DataError, match=why):
        curves(history, table=table)


def test_a_loss_that_is_not_of_training_text_is_said():
    curve = curves(
        points(("r1", 100, "3.5")).rename(columns={"train/loss": "val/loss"}), "history_loss=val/loss"
    )
    assert any("need not be of training text" in note for note in curve.notes)
