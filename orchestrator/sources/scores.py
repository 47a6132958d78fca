"""Scores from elsewhere beside the rows of a table: evaluations of the trained models, by trial."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import shortened

TRIAL = "trial_id"
SHORTEST_ID = 6
"""Digits of a trial's id that a file of scores has to give."""
KEYS = ("arm", "rung", "seed", "n_params", "n_tokens", "optimizer", "schedule", "learning_rate", "stage")
"""Columns that tell trials apart where a file of scores names none."""


def joined(table: pd.DataFrame, scores: pd.DataFrame, name: str = "the scores") -> pd.DataFrame:
    """``table`` with the columns of ``scores``; trials without a score have none.

    A row of ``scores`` belongs to the trial whose id it gives (the first digits are enough), else to the
    trials with its values of those of :data:`KEYS` that it has.

    Raises:
        DataError: No such column, a row that fits no trial or is given twice, or a column that ``table`` has.
    """
    keys = _keys(table, scores, name)
    given = _with_whole_ids(scores, table, name) if keys == [TRIAL] else scores
    columns = [column for column in scores.columns if column not in keys]
    taken = [column for column in columns if column in table]
    if taken:
        raise DataError(f"{name} has columns that the table has too ({shortened(taken)}): rename them")
    if not columns:
        raise DataError(f"{name} has no scores")
    alike = {key: _comparable(table[key], given[key]) for key in keys}
    ours = table.assign(**{key: of_table for key, (of_table, _) in alike.items()})
    theirs = given.assign(**{key: of_scores for key, (_, of_scores) in alike.items()})
    _refuse_rows(theirs.duplicated(keys), "are of a trial that another row is of", name)
    known = ours[keys].drop_duplicates().assign(_known=True)
    _refuse_rows(theirs[keys].merge(known, "left", keys)["_known"].isna(), "fit no trial", name)
    merged = ours[keys].merge(theirs[[*keys, *columns]], "left", keys)
    return table.assign(**{column: merged[column].to_numpy() for column in columns})


def _keys(table: pd.DataFrame, scores: pd.DataFrame, name: str) -> list[str]:
    if TRIAL in scores and TRIAL in table:
        return [TRIAL]
    keys = [key for key in KEYS if key in scores and key in table]
    if not keys:
        raise DataError(f"{name} has no column {TRIAL}, and none of {', '.join(KEYS)}; one is needed")
    return keys


def _comparable(*columns: "pd.Series[Any]") -> "list[pd.Series[Any]]":
    """Numbers as such, whatever their type, where all ``columns`` hold nothing else; else text."""
    numbers = [pd.to_numeric(column, errors="coerce") for column in columns]
    are_numbers = (read.notna() == column.notna() for read, column in zip(numbers, columns, strict=True))
    if all(each.all() for each in are_numbers):
        return [column.astype(float) for column in numbers]
    return [column.astype(str) for column in columns]


def _with_whole_ids(scores: pd.DataFrame, table: pd.DataFrame, name: str) -> pd.DataFrame:
    ids = table[TRIAL].astype(str).unique().tolist()
    whole = [_whole(str(given), ids) for given in scores[TRIAL]]
    wrong = pd.Series([match is None for match in whole])
    _refuse_rows(wrong, f"fit no trial, or several ({SHORTEST_ID} digits of its id are needed)", name)
    return scores.assign(**{TRIAL: [str(match) for match in whole]})


def _whole(given: str, ids: Sequence[str]) -> str | None:
    matching = [whole for whole in ids if whole.startswith(given)]
    return matching[0] if len(matching) == 1 and len(given) >= SHORTEST_ID else None


def _refuse_rows(bad: "pd.Series[bool]", why: str, name: str) -> None:
    rows = [position + 1 for position, is_bad in enumerate(bad) if is_bad]
    if rows:
        raise DataError(f"{name}: rows {shortened(rows)} {why}; nothing was joined")
