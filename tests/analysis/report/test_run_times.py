"""The table of times of a report: planned and measured by rung, from whatever columns there are."""

import pandas as pd
import pytest

from scalevec.analysis.data.tidy import checked
from scalevec.analysis.report.run_times import costs, times_by_rung


@pytest.fixture
def timed(sweep) -> pd.DataFrame:
    """Two rungs of four trials; each took an hour and a quarter, with evaluation, of a planned hour."""
    rows = sweep(rungs={"large": 83_000, "small": 25_000})
    return rows.assign(
        wall_s=4140.0,
        evaluation_s=360.0,
        planned_s=3600.0,
        step_s_median=[0.01, 0.02, 0.02, 0.5] * 2,
        tokens_per_s=20_480.0,
        mfu=0.413,
        peak_memory_bytes=[1e9, 1e9, 1e9, 2.5e9] * 2,
    )


def cells(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    table = times_by_rung(checked(rows))
    assert table is not None
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_each_rung_has_its_hours_and_the_medians_of_its_trials(timed):
    rungs = cells(timed)
    assert list(rungs) == ["small", "large"]
    assert rungs["small"] == {
        "rung": "small",
        "trials": "4",
        "planned, h": "4",
        "measured, h": "5",
        "measured / planned": "1.25",
        "step, ms": "20",
        "tokens/s": "20.5k",
        "MFU": "41%",
        "peak memory, GB": "2.5",
    }


def test_trials_without_a_result_do_not_count_and_diverged_ones_do(timed):
    timed.loc[0, "status"], timed.loc[1, "status"] = "pending", "diverged"
    assert cells(timed)["large"]["trials"] == "3"


def test_results_of_an_earlier_version_show_what_they_have(timed):
    earlier = timed.drop(columns=["evaluation_s", "planned_s", "step_s_median", "mfu"])
    assert list(cells(earlier)["small"]) == ["rung", "trials", "measured, h", "tokens/s", "peak memory, GB"]
    assert cells(earlier)["small"]["measured, h"] == "4.6"


def test_where_only_some_trials_were_planned_these_alone_are_compared(timed):
    timed.loc[:2, "planned_s"] = None
    assert (cells(timed)["large"]["planned, h"], cells(timed)["large"]["measured / planned"]) == ("1", "1.25")


def test_a_table_without_times_has_none(sweep):
    assert times_by_rung(checked(sweep())) is None
    assert times_by_rung(checked(sweep().assign(wall_s=None))) is None


def test_what_was_spent_and_what_the_plan_leaves_stand_by_stage(timed):
    timed = timed.assign(threads=2, device="cpu", flops=1e9)
    timed.loc[timed.index[:3], "stage"] = "tuning"
    timed.loc[timed.index[3], ["status", "wall_s"]] = ["pending", None]
    timed["stage"] = timed["stage"].fillna("comparison")
    table = costs(checked(timed))
    assert table is not None
    shown = {row[0]: row[1:] for row in table.rows}
    assert shown["tuning"] == ("3 of 3", "3.75", "7.5", "3", "0", "3.00e+09")
    assert shown["comparison"] == ("4 of 5", "5", "10", "4", "1", "4.00e+09")
    assert shown["all"][0] == "7 of 8"


def test_a_blank_stands_for_a_cost_that_nobody_recorded(sweep):
    table = costs(checked(sweep().assign(flops=1e9)))
    assert table is not None
    assert table.rows == (("comparison", "16 of 16", "", "", "", "0", "1.60e+10"),)
