"""The ablation table: one row per arm with its design choices and its differences to the reference."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from scalevec.analysis.comparison.differences import corrected_differences, excludes_zero
from scalevec.analysis.comparison.trials import Cell, ComparedTrials
from scalevec.analysis.tables import phrases, strategies
from scalevec.analysis.tables.arm_cells import Overall, holm_note, overall
from scalevec.analysis.tables.content import Table


def build(trials: ComparedTrials) -> Table:
    """The reference first, then the arms by the number of their design choices and by name."""
    known = strategies.is_known(trials)
    fields = {arm: strategies.fields_of(trials, arm) for arm in trials.arms} if known else {}
    family = overall([trials])
    rows = sorted(family, key=lambda row: (strategies.n_choices(fields[row.arm]) if known else 0, row.arm))
    cells = [cell for cell in trials.cells if any(cell.key in row.cells for row in rows)]
    best = _lowest(rows)
    before = ("arm", *((*strategies.CHOICES, "decay") if known else ()))
    after = (*(cell.name for cell in cells), "all", "Holm p", "pairs")
    texts = {trials.reference: ("reference", *[""] * (len(after) - 1))}
    texts |= {
        row.arm: (*(phrases.difference(row.cells.get(c.key)) for c in cells), *row.texts()) for row in rows
    }
    marks = {arm: strategies.marks(fields[arm]) if known else () for arm in texts}
    return Table(
        title="Ablation",
        columns=(*before, *after),
        rows=tuple((arm, *marks[arm], *of_arm) for arm, of_arm in texts.items()),
        numeric=(False,) * len(before) + (True,) * len(after),
        notes=(
            *phrases.loss_notes(trials),
            holm_note(len(rows)),
            _lowest_note(best, rows),
            strategies.CHOICES_NOTE if known else "The source does not hold the strategies of its arms.",
            *_unequal(family),
            *phrases.convention_notes(trials),
        ),
        groups=("",) * len(before) + ("difference",) * (len(cells) + 1) + ("", ""),
        best=frozenset({(1 + rows.index(best), len(before) + len(cells))} if best else ()),
        breaks=frozenset({1}),
        records=tuple(
            {"arm": row.arm, **(strategies.record(fields[row.arm]) if known else {}), **record}
            for row in rows
            for record in _records(row, cells, is_best=best is row)
        ),
    )


def _lowest(rows: Sequence[Overall]) -> Overall | None:
    """The row with the lowest mean below zero, of those over all cells whose arm never diverged."""
    kept = [row for row in rows if row.mean < 0 and row.is_whole and not row.trials.diverged(row.arm)]
    return min(kept, key=lambda row: row.mean, default=None)


def _lowest_note(best: Overall | None, rows: Sequence[Overall]) -> str:
    """What bold means here, and whether the interval separates the best arm from the next."""
    rule = "Bold: the lowest overall difference below zero, among arms without a diverged trial."
    if best is None:
        return f"{rule} No arm lies below the reference."
    rivals = [row for row in rows if row is not best and row.is_whole]
    if not rivals:
        return rule
    following = min(rivals, key=lambda row: row.mean)
    between = best.trials.paired(best.arm, following.arm)
    if between.estimate is None or not _in_shown_cells(best, following):
        return rule
    (difference,) = corrected_differences([between], best.trials.options.level)
    words = "separated from" if excludes_zero(difference.interval) else "not separated from"
    shown = phrases.difference(difference)
    return f"{rule} {best.arm} is {words} the next, {following.arm}: {shown} between them."


def _in_shown_cells(*rows: Overall) -> bool:
    """Whether two rows are paired in cells that both show, not at a rate that one of them does not."""
    return all(
        row.trials.differences(row.arm, other.arm).keys() <= row.cells.keys()
        for row, other in permutations(rows)
    )


def _unequal(rows: Sequence[Overall]) -> list[str]:
    """A sentence on the arms whose mean is not over all cells."""
    partial = [row.arm for row in rows if row.cells and not row.is_whole]
    if not partial:
        return []
    return [f"Not over all cells, so not to be ranked beside the others: {', '.join(partial)}."]


def _records(row: Overall, cells: Sequence[Cell], *, is_best: bool) -> list[dict[str, Any]]:
    """A record for each cell and one over all (cell ``all``)."""
    records: list[dict[str, Any]] = []
    for cell in cells:
        mean = row.cells.get(cell.key)
        size = {"cell": cell.name, "n_params": cell.n_params, "n_tokens": cell.n_tokens}
        difference = phrases.of_mean("difference", mean)
        records.append({**size, **difference, "p_holm": None, "pairs": mean.n if mean else 0, "best": False})
    whole = {"cell": "all", "n_params": None, "n_tokens": None, **row.record(), "best": is_best}
    return [*records, whole]
