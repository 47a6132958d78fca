"""Every trial as a table of the page, and every pair as a record, with all digits for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind, varying
from scalevec.analysis.formatting import count
from scalevec.analysis.tables.content import Table

_TRIAL = (
    *("trial_id", "arm", "stage", "rung", "n_params", "n_tokens", "seed", "learning_rate", "lr_status"),
    *("status", "cause", "loss", "loss_validation", "flops", "wall_s", "planned_s", "device"),
)
"""What CSV holds of a trial, as far as it is known; the settings that vary stand after the seed."""
_DIGITS = 12
"""Of a trial's id on the page."""


def trials_table(table: pd.DataFrame, trials: ComparedTrials) -> Table:
    """Return a row for each trial of the checked ``table``, those of tuning too."""
    settings = trials.varying_settings
    names = [*_TRIAL[:7], *(name for name in settings if name not in _TRIAL), *_TRIAL[7:]]
    records = _records(table, [name for name in names if name in table.columns])
    shown = [name for name in _SHOWN if any(record.get(name) not in (None, "") for record in records)]
    shown[shown.index("seed") + 1 : shown.index("seed") + 1] = settings
    shown = list(dict.fromkeys(shown))
    columns = tuple(_SHOWN.get(name, name.replace("_", " ")) for name in shown)
    rows = tuple(tuple(_cell(name, record.get(name)) for name in shown) for record in records)
    numeric = tuple(name in _NUMBERS for name in shown)
    return Table("Trials", columns, rows, numeric, records=tuple(records))


_SHOWN = {
    "trial_id": "trial",
    "arm": "arm",
    "stage": "stage",
    "rung": "rung",
    "n_tokens": "tokens",
    "seed": "seed",
    "learning_rate": "learning rate",
    "lr_status": "rate is",
    "status": "status",
    "cause": "cause",
    "loss": "loss",
    "wall_s": "hours",
}
"""The columns on the page with their headings."""
_NUMBERS = ("n_tokens", "seed", "learning_rate", "loss", "wall_s")


def _records(table: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows as plain values, None where there is none."""
    chosen = table[list(names)].astype(object)
    values = chosen.where(chosen.notna(), None).to_numpy(object)
    return [dict(zip(names, row, strict=True)) for row in values]


def _cell(name: str, value: Any) -> str:
    """A value with the digits that a reader needs."""
    if value is None or value == "":
        return ""
    if name == "trial_id":
        return str(value)[:_DIGITS]
    forms: Mapping[str, Any] = {
        "n_tokens": count,
        "learning_rate": "{:.3g}".format,
        "loss": "{:.4f}".format,
        "wall_s": lambda seconds: f"{seconds / 3600:.3g}",
    }
    return str(forms.get(name, str)(value))


def pair_records(trials: ComparedTrials) -> list[dict[str, Any]]:
    """Every pair of every arm with the reference, complete or not; a loss only where its trial completed."""
    records = []
    for arm in trials.others:
        paired = trials.paired(arm)
        pairs = paired.beyond or paired.pairs
        table = pairs.table
        sides = {
            side: table[f"loss_{side}"].where(table[f"status_{side}"] == "completed")
            for side in ("reference", "arm")
        }
        ids = [f"trial_id_{side}" for side in sides if f"trial_id_{side}" in table]
        rows = table[["rung", "n_tokens", *varying(table, pairs.settings), "seed", *ids]].assign(
            **{f"loss_{side}": losses for side, losses in sides.items()},
            difference=(sides["arm"] - sides["reference"]).where(table["kind"] == PairKind.COMPLETE),
            pair=table["kind"],
        )
        records += [{"arm": arm, **record} for record in _records(rows, list(rows.columns))]
    return records
