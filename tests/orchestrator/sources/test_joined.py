"""Scores of trained models come beside their trials, or are refused with the rows that fit none."""

import pandas as pd
import pytest

from scalevec.analysis.errors import DataError
from scalevec.orchestrator.sources.scores import joined

TABLE = pd.DataFrame(
    {
        "trial_id": ["aaaaaa11", "bbbbbb22", "cccccc33"],
        "arm": ["baseline", "unified", "unified"],
        "rung": ["small", "small", "large"],
        "seed": [0, 0, 1],
        "loss": [3.2, 3.1, 3.0],
    }
)


def test_the_first_digits_of_an_id_are_enough_and_who_has_no_score_has_none():
    scores = pd.DataFrame({"trial_id": ["bbbbbb", "aaaaaa11"], "arc": [0.4, 0.3]})
    rows = joined(TABLE, scores)
    assert rows["arc"].fillna(-1).tolist() == [0.3, 0.4, -1]
    assert rows.drop(columns="arc").equals(TABLE)


def test_without_ids_rows_meet_by_the_columns_that_both_have():
    scores = pd.DataFrame(
        {"arm": ["baseline", "unified", "unified"], "seed": ["0", "0", "1"], "arc": [1, 2, 3]}
    )
    assert joined(TABLE, scores)["arc"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ({"trial_id": ["dddddd44"], "arc": [1]}, "rows 1 fit no trial"),
        ({"trial_id": ["aaa"], "arc": [1]}, "6 digits of its id are needed"),
        ({"trial_id": ["aaaaaa", "aaaaaa11"], "arc": [1, 2]}, "rows 2 are of a trial that another row is of"),
        ({"arm": ["muon"], "arc": [1]}, "rows 1 fit no trial"),
        ({"model": ["x"], "arc": [1]}, "has no column trial_id"),
        ({"trial_id": ["aaaaaa"], "loss": [1]}, "columns that the table has too"),
        ({"trial_id": ["aaaaaa"]}, "has no scores"),
    ],
)
def test_scores_that_fit_no_trial_are_refused(scores, why):
    with pytest.raises(DataError, match=why):
        joined(TABLE, pd.DataFrame(scores), "evals.csv")
