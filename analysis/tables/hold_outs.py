"""The table of rolling hold-outs: each next rung predicted by the law of the smaller ones."""

import dataclasses
from typing import Any

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.columns import rung_size
from scalevec.analysis.fits.fit import rolling
from scalevec.analysis.formatting import count
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables import phrases
from scalevec.analysis.tables.content import Table

_RECORD = ("rungs", "size", "n_points", "predicted", "observed", "relative_error", "largest_absolute_error")


def build(trials: ComparedTrials) -> Table:
    """A row for each setting, arm and next rung. Raises :class:`DataError` where no rung is predicted."""
    records = rolling_of_parts(trials)
    if not any("predicted" in record for _, record in records):
        reasons = dict.fromkeys(record["reason"] for _, record in records)
        raise DataError(
            f"table 'hold-outs' has no rung to predict: {'; '.join(reasons) or 'there is one rung'}"
        )
    labels = (*records[0][0], "arm")
    of_size = f"{rung_size(trials.options)} predicted"
    numbers = ("rungs fitted", of_size, "points", "predicted", "seen", "error")
    rows = tuple((*setting.values(), record["arm"], *_texts(record)) for setting, record in records)
    remarks = [
        (record["reason"], f"{record['arm']}, k {record['rungs']}")
        for _, record in records
        if "reason" in record
    ]
    return Table(
        title="Rolling hold-outs",
        columns=(*labels, *numbers),
        rows=rows,
        numeric=(False,) * len(labels) + (True,) * len(numbers),
        notes=(
            f"Law: {formula_of(trials.options)}, fitted to the k smallest rungs and asked for the next. "
            "Error: predicted over seen less one, of the means over the points of that rung.",
            *phrases.remark_notes(remarks),
            *phrases.convention_notes(trials),
        ),
        breaks=phrases.breaks([setting for setting, _ in records]),
        records=tuple(
            {**setting, "arm": record["arm"], **{name: record.get(name) for name in _RECORD}}
            for setting, record in records
        ),
    )


def rolling_of_parts(trials: ComparedTrials) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The rolling hold-outs of every part through which the law can go, each with its setting."""
    options = dataclasses.replace(trials.options, where=None)
    return [
        (setting, record) for setting, part in trials.law_parts() for record in rolling(part.rows, options)
    ]


def _texts(record: dict[str, Any]) -> tuple[str, ...]:
    shown = (str(record["rungs"]), count(record["size"]), str(record["n_points"]))
    if "predicted" not in record:
        return (*shown, "", "", "")
    error = f"{100 * record['relative_error']:+.3f} %".replace("-", "\u2212")
    return (*shown, f"{record['predicted']:.5g}", f"{record['observed']:.5g}", error)
