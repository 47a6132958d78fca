"""The table of decay policies: a row for each architecture and policy, norms where they are known."""

import pandas as pd
from tests.shown_tables import column, shown


def test_decay_has_a_row_for_each_architecture_and_policy(source):
    rows = source({"baseline": 0.0, "no-decay": 0.01, "unified": -0.03})
    both = pd.concat([rows, rows.assign(architecture="gemma")])
    table_shown = shown(both, "decay")
    assert column(table_shown, "architecture") == ["gemma"] * 3 + ["llama"] * 3
    assert column(table_shown, "decayed vectors")[:3] == ["all", "none", "input"]
    assert any("Holm over the 4 rows" in note for note in table_shown.notes)


def test_decay_has_a_column_by_rung_and_rows_for_every_setting(source):
    parts = [
        source({"baseline": 0.0, "no-decay": gain}).assign(norm_gain=name)
        for name, gain in (("g", -0.05), ("1+w", 0.05))
    ]
    rows = pd.concat(parts)
    rows.loc[(rows["rung"] == "25k") & (rows["arm"] == "no-decay"), "loss"] += 0.5
    table_shown = shown(rows, "decay", settings=["norm_gain"])
    at_25k, at_55k = (column(table_shown, rung, "by rung") for rung in ("25k", "55k"))
    assert column(table_shown, "norm_gain") == ["1+w", "1+w", "g", "g"]
    assert float(at_25k[1].split()[0]) > 0.4
    assert [at_55k[row][0] for row in (1, 3)] == ["+", "−"]
    assert at_25k[0].startswith("3.")  # the loss of the reference


def test_decay_shows_norms_where_the_source_has_them(source):
    rows = source({"baseline": 0.0, "no-decay": 0.01}).assign(vector_rms_query_input=0.5)
    assert column(shown(rows, "decay"), "query_input", "root mean square of the vectors") == ["0.500"] * 2


def test_arms_that_are_the_same_trials_are_said_to_be(source):
    rows = source({"baseline": 0.0, "no-decay": 0.0})
    rows["trial_id"] = rows["rung"] + rows["seed"].astype(str)
    rows["loss"] = rows.groupby("trial_id")["loss"].transform("first")
    assert column(shown(rows, "decay"), "Holm p")[1] == "same trials"
