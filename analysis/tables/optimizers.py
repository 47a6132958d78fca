"""The table of optimizers and schedules: each arm's loss, difference and learning rate under each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalevec.analysis.comparison.trials import Cell, ComparedTrials
from scalevec.analysis.tables import phrases
from scalevec.analysis.tables.arm_cells import ArmCells, Overall, holm_note, overall
from scalevec.analysis.tables.content import Table

COLUMNS = ("optimizer", "schedule")
_LOSS = ("n_params", "n_tokens", "seeds", "loss", "loss_low", "loss_high", "learning_rate", "lr_status")
_DIFFERENCE = ("best", "separated", "difference", "difference_low", "difference_high", "p_holm", "pairs")
_RECORD = (*_LOSS, *_DIFFERENCE)
"""What CSV holds of an arm in a cell; over all cells it has the difference alone."""


@dataclass(frozen=True)
class _Line:
    labels: tuple[str, ...]
    """Optimizer, schedule and cell."""
    texts: tuple[str, ...]
    best: int | None
    """The position in ``texts`` of the best loss."""
    records: tuple[dict[str, Any], ...]


def build(trials: ComparedTrials) -> Table:
    """A row for each optimizer, schedule and cell, and one over all cells. Raises :class:`DataError`."""
    trials.require("optimizers", *COLUMNS, why="what the rows are")
    parts = trials.split(COLUMNS)
    family = overall([part for _, part in parts])
    lines: list[_Line] = []
    for setting, part in parts:
        cells = _RatedCells(part)
        lines += [cells.line(setting, cell, trials.arms) for cell in part.cells]
        lines.append(_total(setting, {row.arm: row for row in family if row.trials is part}, trials))
    rows = tuple((*line.labels, *line.texts) for line in lines)
    labels = (*COLUMNS, "cell")
    headings = [
        (arm, name)
        for arm in trials.arms
        for name in ("loss", "difference", "rate")
        if name != "difference" or arm != trials.reference
    ]
    return Table(
        title="Optimizers and schedules",
        columns=(*labels, *(name for _, name in headings)),
        rows=rows,
        numeric=(False,) * len(labels) + (True,) * len(headings),
        notes=(
            *phrases.loss_notes(trials),
            phrases.best_note(trials, "of the row"),
            holm_note(len(family)),
            "Rate: the learning rate of the completed trials.",
            *phrases.convention_notes(trials),
            *phrases.mark_notes(text for row in rows for text in row),
        ),
        groups=("",) * len(labels) + tuple(arm for arm, _ in headings),
        best=frozenset((n, len(labels) + line.best) for n, line in enumerate(lines) if line.best is not None),
        breaks=phrases.breaks([line.labels[:-1] for line in lines]),
        records=tuple(record for line in lines for record in line.records),
    )


class _RatedCells(ArmCells):
    """The cells of one optimizer and schedule, with the learning rates of each arm."""

    def __init__(self, trials: ComparedTrials) -> None:
        super().__init__(trials)
        self.rates = {arm: trials.values(arm, "learning_rate") for arm in trials.arms}

    def line(self, setting: Mapping[str, str], cell: Cell, arms: Sequence[str]) -> _Line:
        """The row of one cell, with a place for each of ``arms``."""
        texts: list[str] = []
        best = None
        for arm in arms:
            best = len(texts) if arm == self.best[cell.key][0] else best
            texts.append(self.loss(arm, cell.key))
            texts += [self.difference(arm, cell.key)] if arm != self.trials.reference else []
            texts.append(", ".join(f"{rate:.3g}" for rate in self.rates.get(arm, {}).get(cell.key, [])))
        name = ", ".join([cell.rung, *(v for k, v in cell.setting.items() if k not in COLUMNS)])
        records = (
            {**setting, "cell": name, "arm": arm, **self._record(arm, cell)} for arm in self.trials.arms
        )
        return _Line((*setting.values(), name), tuple(texts), best, tuple(records))

    def _record(self, arm: str, cell: Cell) -> dict[str, Any]:
        rates = self.rates[arm].get(cell.key, [])
        size = {"n_params": cell.n_params, "n_tokens": cell.n_tokens, "p_holm": None}
        record = {
            **self.record(arm, cell.key),
            **size,
            "learning_rate": rates[0] if len(rates) == 1 else None,
        }
        return {name: record[name] for name in _RECORD}


def _total(setting: Mapping[str, str], rows: Mapping[str, Overall], trials: ComparedTrials) -> _Line:
    """The overall difference of each arm, with Holm's p."""
    texts = ["", ""]
    for arm in trials.others:
        shown, p, _ = rows[arm].texts() if arm in rows else ("", "", "")
        texts += ["", f"{shown}, p {p}" if p else shown, ""]
    start = {**setting, "cell": "all"}
    records = ({**start, "arm": arm, **dict.fromkeys(_RECORD), **row.record()} for arm, row in rows.items())
    return _Line((*setting.values(), "all"), tuple(texts), None, tuple(records))
