"""The table of optimizers and schedules: each arm's loss, difference and learning rate under each of them."""

from dataclasses import dataclass
from typing import Any

from analysis.tables import phrases
from analysis.tables.content import Table
from analysis.tables.family import Overall, holm_note, overall
from analysis.tables.question import Cell, Question

COLUMNS = ("optimizer", "schedule")


@dataclass(frozen=True)
class _Line:
    names: tuple[str, ...]
    texts: tuple[str, ...]
    best: int | None
    """The place in ``texts`` of the best loss."""
    records: tuple[dict[str, Any], ...]


def build(question: Question) -> Table:
    """A row for each optimizer, schedule and cell, and one over all cells. Raises :class:`DataError`."""
    question.require("optimizers", *COLUMNS, why="what the rows are")
    parts = question.split(list(COLUMNS))
    whole = overall([part for _, part in parts])
    lines = [line for setting, part in parts for line in _lines(setting, part, whole, question)]
    texts = [(*line.names, *line.texts) for line in lines]
    n_before = len(COLUMNS) + 1
    groups, names = _headings(question)
    return Table(
        title="Optimizers and schedules",
        columns=(*COLUMNS, "cell", *names),
        rows=tuple(texts),
        numeric=tuple(n >= n_before for n in range(n_before + len(names))),
        notes=(
            *phrases.loss_notes(question),
            phrases.best_note(question, "of the row"),
            holm_note(len(whole)),
            "Rate: the learning rate of the completed trials.",
            *phrases.convention_notes(question),
            *phrases.mark_notes(text for row in texts for text in row),
        ),
        groups=("",) * n_before + groups,
        best=frozenset((n, n_before + line.best) for n, line in enumerate(lines) if line.best is not None),
        breaks=phrases.breaks([dict(zip(COLUMNS, line.names, strict=False)) for line in lines]),
        records=tuple(record for line in lines for record in line.records),
    )


def _headings(question: Question) -> tuple[tuple[str, ...], tuple[str, ...]]:
    groups: list[str] = []
    names: list[str] = []
    for arm in question.arms:
        own = ["loss", "rate"] if arm == question.reference else ["loss", "difference", "rate"]
        names += own
        groups += [arm] * len(own)
    return tuple(groups), tuple(names)


def _lines(setting: dict[str, str], part: Question, whole: list[Overall], question: Question) -> list[_Line]:
    """The rows of one optimizer and schedule: a cell each, then all cells."""
    start = tuple(setting.values())
    made = _Part(part, question.arms, {row.arm: row for row in whole if row.question is part})
    lines = [made.line(start, cell) for cell in part.cells()]
    return [*lines, made.total(start)]


class _Part:
    """What one optimizer and schedule hold, each part computed once."""

    def __init__(self, part: Question, arms: list[str], whole: dict[str, Overall]) -> None:
        self.part, self.arms, self.whole = part, arms, whole
        self.means = {arm: part.losses(arm) for arm in part.arms}
        self.differences = {arm: part.differences(arm) for arm in part.others}
        self.rates = {arm: part.values(arm, "learning_rate") for arm in part.arms}
        self.statuses = {arm: part.values(arm, "lr_status") for arm in part.arms}

    def line(self, start: tuple[str, ...], cell: Cell) -> _Line:
        order = phrases.ranked(self.part, self.part.arms, self.means, cell.key)
        separated = len(order) > 1 and phrases.is_separated(self.part, order[0], order[1], cell.key)
        best = order[0] if len(order) > 1 else ""
        texts: list[str] = []
        place = None
        for arm in self.arms:
            place = len(texts) if arm == best else place
            texts.append(self._loss(arm, cell) + (phrases.SEPARATED if separated and arm == best else ""))
            if arm != self.part.reference:
                texts.append(phrases.difference(self.differences.get(arm, {}).get(cell.key)))
            texts.append(", ".join(f"{rate:.3g}" for rate in self._rates(arm, cell)))
        name = ", ".join([cell.rung, *(v for k, v in cell.setting.items() if k not in COLUMNS)])
        records = tuple(self._record(start, name, cell, arm, best, separated) for arm in self.part.arms)
        return _Line((*start, name), tuple(texts), place, records)

    def _rates(self, arm: str, cell: Cell) -> list[float]:
        return self.rates.get(arm, {}).get(cell.key, [])

    def _loss(self, arm: str, cell: Cell) -> str:
        mean = self.means.get(arm, {}).get(cell.key)
        if mean is None:
            diverged = arm in self.part.arms and cell.key in self.part.diverged(arm)
            return "diverged" if diverged else ""
        is_bound = "censored" in self.statuses[arm].get(cell.key, [])
        return phrases.plus_minus(mean) + (phrases.CENSORED if is_bound else "")

    def total(self, start: tuple[str, ...]) -> _Line:
        """The overall difference of each arm, with Holm's p."""
        texts: list[str] = []
        records = []
        for arm in self.arms:
            if arm == self.part.reference:
                texts += ["", ""]
                continue
            row = self.whole.get(arm)
            shown, p = ("", "") if row is None else row.texts()[:2]
            texts += ["", shown + (f", p {p}" if p else ""), ""]
            if row is not None:
                records.append({**_start(start, "all", arm), **_blank(), **row.record()})
        return _Line((*start, "all"), tuple(texts), None, tuple(records))

    def _record(
        self, start: tuple[str, ...], name: str, cell: Cell, arm: str, best: str, separated: bool
    ) -> dict[str, Any]:
        mean, difference = self.means[arm].get(cell.key), self.differences.get(arm, {}).get(cell.key)
        rates = self._rates(arm, cell)
        own = {
            "n_params": cell.n_params,
            "n_tokens": cell.n_tokens,
            "seeds": mean.n if mean else 0,
            **phrases.of_mean("loss", mean),
            "learning_rate": rates[0] if len(rates) == 1 else None,
            "lr_status": ", ".join(self.statuses[arm].get(cell.key, [])),
            "best": arm == best,
            "separated": arm == best and separated,
            **phrases.of_mean("difference", difference),
            "p_holm": None,
            "pairs": difference.n if difference else 0,
        }
        return {**_start(start, name, arm), **own}


def _start(start: tuple[str, ...], cell: str, arm: str) -> dict[str, Any]:
    return {**dict(zip(COLUMNS, start, strict=True)), "cell": cell, "arm": arm}


def _blank() -> dict[str, Any]:
    names = ("n_params", "n_tokens", "seeds")
    rest = ("learning_rate", "lr_status", "best", "separated")
    return {**dict.fromkeys(names), **phrases.bounds("loss", None, None), **dict.fromkeys(rest)}
