"""The ablation table: a row an arm with its design choices and its differences to the reference."""

from typing import Any

from analysis.tables import phrases, strategies
from analysis.tables.content import Table
from analysis.tables.family import Overall, holm_note, lowest, lowest_note, overall
from analysis.tables.question import Cell, Question


def build(question: Question) -> Table:
    """The reference first, then the arms by the number of their design choices and by name."""
    found = {row.arm: row for row in overall([question])}
    known = strategies.is_known(question)
    cells = [cell for cell in question.cells() if any(cell.key in row.cells for row in found.values())]
    fields = {arm: strategies.fields_of(question, arm) for arm in question.arms} if known else {}
    arms = sorted(question.others, key=lambda arm: (strategies.n_choices(fields[arm]) if known else 0, arm))
    best = lowest(list(found.values()))
    before = ("arm", *((*strategies.CHOICES, "decay") if known else ()))
    columns = (*before, *(_name(cell) for cell in cells), "all", "Holm p", "pairs")
    rows = [(question.reference, *(strategies.marks(fields[question.reference]) if known else ()))]
    rows[0] += ("reference", *("" for _ in columns[len(before) + 1 :]))
    for arm in arms:
        texts = [phrases.difference(found[arm].cells.get(cell.key)) for cell in cells]
        rows.append((arm, *(strategies.marks(fields[arm]) if known else ()), *texts, *found[arm].texts()))
    place = len(before) + len(cells)
    return Table(
        title="Ablation",
        columns=columns,
        rows=tuple(rows),
        numeric=tuple(n >= len(before) for n in range(len(columns))),
        notes=(
            *phrases.loss_notes(question),
            holm_note(len(found)),
            lowest_note(best, list(found.values())),
            strategies.CHOICES_NOTE if known else "The source does not hold the strategies of its arms.",
            *_unequal(found),
            *phrases.convention_notes(question),
        ),
        groups=("",) * len(before) + ("difference",) * (len(cells) + 1) + ("", ""),
        best=frozenset({(1 + arms.index(best.arm), place)} if best else ()),
        breaks=frozenset({1}),
        records=tuple(
            record
            for arm in arms
            for record in _records(found[arm], cells, fields.get(arm, {}), is_best=best is found[arm])
        ),
    )


def _name(cell: Cell) -> str:
    return ", ".join([cell.rung, *cell.setting.values()])


def _unequal(found: dict[str, Overall]) -> list[str]:
    """A sentence on the arms whose mean is not over all cells."""
    partial = [row.arm for row in found.values() if row.mean is not None and not row.is_whole]
    if not partial:
        return []
    return [f"Not over all cells, so not to be ranked beside the others: {', '.join(partial)}."]


def _records(
    row: Overall, cells: list[Cell], fields: dict[str, str], *, is_best: bool
) -> list[dict[str, Any]]:
    """A record for each cell and one over all (cell ``all``)."""
    start = {"arm": row.arm, **(strategies.record(fields) if fields else {})}
    found = []
    for cell in cells:
        mean = row.cells.get(cell.key)
        own = {"cell": _name(cell), "n_params": cell.n_params, "n_tokens": cell.n_tokens}
        own |= {**phrases.of_mean("difference", mean), "p_holm": None, "pairs": mean.n if mean else 0}
        found.append({**start, **own, "best": False})
    whole = {"cell": "all", "n_params": None, "n_tokens": None, **row.record()}
    return [*found, {**start, **whole, "best": is_best}]
