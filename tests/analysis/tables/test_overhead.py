"""The table of costs: medians of paired ratios of time and memory on one device."""

import numpy as np
from tests.shown_tables import column, shown


def test_overhead_is_a_median_of_paired_ratios_with_their_range(source):
    table_shown = shown(source({"baseline": 0.0, "unified": -0.03}), "overhead")
    first = [dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows[:2]]
    assert first[0]["step time"] == "100 ms"
    assert first[1]["step time"] == "1.10× [1.10, 1.10]"
    assert first[0]["peak memory"] == "1024 MiB"
    assert (first[1]["scale vectors"], first[1]["share"]) == ("160", "0.00613")


def test_overhead_shows_allocated_memory_where_it_is_known_and_not_the_resident_size(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    rows["allocated_bytes"] = np.where(rows["arm"] == "unified", 3 * 2**20, 2 * 2**20)
    table_shown = shown(rows, "overhead")
    first = [dict(zip(table_shown.columns, row, strict=True)) for row in table_shown.rows[:2]]
    assert [row["allocated memory"] for row in first] == ["2 MiB", "1.50× [1.50, 1.50]"]
    assert "peak memory" not in table_shown.columns


def test_overhead_compares_no_trials_of_different_devices(source):
    rows = source({"baseline": 0.0, "unified": -0.03})
    rows.loc[(rows["arm"] == "unified") & (rows["rung"] == "25k"), "device"] = "cpu"
    table_shown = shown(rows, "overhead")
    assert column(table_shown, "rung")[:3] == ["25k", "55k", "55k"]
    assert any("Left out: 2 pairs" in note for note in table_shown.notes)
