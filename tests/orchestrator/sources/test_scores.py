"""A file of scores: names stay names, whatever they look like."""

import pandas as pd

from scalevec.analysis import read_table
from scalevec.orchestrator.sources.scores import joined

TABLE = pd.DataFrame(
    {
        "trial_id": ["aaaaaa11", "bbbbbb22", "cccccc33"],
        "arm": ["baseline", "unified", "unified"],
        "rung": ["small", "small", "large"],
        "loss": [3.2, 3.1, 3.0],
    }
)


def test_names_that_look_like_numbers_meet_as_text(tmp_path):
    table = TABLE.assign(rung=["0.12b", "0.12b", "0.25b"])
    (tmp_path / "evals.csv").write_text("arm,rung,arc\nbaseline,0.12b,1\nunified,0.12b,2\nunified,0.25b,3\n")
    assert joined(table, read_table(tmp_path / "evals.csv"))["arc"].tolist() == [1, 2, 3]


def test_ids_of_digits_alone_stay_ids(tmp_path):
    (tmp_path / "evals.csv").write_text("trial_id,arc\n123456,1\n")
    table = TABLE.assign(trial_id=["12345678", "bbbbbb22", "cccccc33"])
    assert joined(table, read_table(tmp_path / "evals.csv"))["arc"].fillna(-1).tolist() == [1, -1, -1]
