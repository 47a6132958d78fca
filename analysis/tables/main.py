"""The main table: a row for each rung and setting, the arms side by side."""

from dataclasses import dataclass, replace
from typing import Any

from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import laws_to_show
from scalevec.analysis.comparison.scale import extrapolation_remark, noted
from scalevec.analysis.comparison.trials import Cell, ComparedTrials, Key
from scalevec.analysis.formatting import count, equal_optima_warning
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables import phrases
from scalevec.analysis.tables.arm_cells import ArmCells
from scalevec.analysis.tables.content import Table

MOST_SIDE_BY_SIDE = 2
"""With more arms than these a row would not fit on a page: each arm has a row of its own."""


def build(trials: ComparedTrials) -> Table:
    """Terminal loss of each arm, its difference to the reference and its compute multiplier, by rung."""
    cells = _Cells(trials)
    is_wide = len(trials.arms) <= MOST_SIDE_BY_SIDE
    layout = _side_by_side(cells) if is_wide else _one_below_the_other(cells)
    texts = (*trials.varying_settings, "rung", "arm")
    return Table(
        title="Terminal losses",
        columns=layout.columns,
        rows=layout.rows,
        numeric=tuple(name not in texts for name in layout.columns),
        notes=(
            *phrases.loss_notes(trials),
            phrases.best_note(trials, "of the row" if is_wide else "of each cell"),
            *cells.multiplier_notes(),
            *phrases.convention_notes(trials),
            *phrases.mark_notes(text for row in layout.rows for text in row),
        ),
        groups=layout.groups,
        best=layout.best,
        breaks=layout.breaks,
        records=tuple(cells.line_record(arm, cell) for cell in cells.shown for arm in trials.arms),
    )


class _Cells(ArmCells):
    """The cells with a result, and the compute multipliers there."""

    def __init__(self, trials: ComparedTrials) -> None:
        super().__init__(trials)
        with_result = {key for of_arm in (*self.means.values(), *self.diverged.values()) for key in of_arm}
        self.shown = [cell for cell in trials.cells if cell.key in with_result]
        self.multipliers, self.reasons, self.remarks = _multipliers(trials)
        self.with_multiplier = [arm for arm in trials.others if self.multipliers[arm]]

    def multiplier(self, arm: str, key: Key) -> str:
        return phrases.multiplier(self.multipliers[arm].get(key))

    def multiplier_notes(self) -> list[str]:
        """What a multiplier is, or why there is none."""
        if not self.with_multiplier:
            return [f"No compute multipliers: {reason}." for reason in self.reasons]
        law = formula_of(replace(self.trials.options, x="C", y="loss"))
        return [
            f"Multiplier: how many times the compute {self.trials.reference} needs for the arm's loss, "
            f"from {law} fitted to both; above one the arm saves; interval in brackets.",
            *(f"Without a multiplier, {reason}." for reason in self.reasons),
            *phrases.remark_notes(self.remarks),
        ]

    def line_record(self, arm: str, cell: Cell) -> dict[str, Any]:
        """What CSV holds of one arm in one cell."""
        multiplier = self.multipliers[arm].get(cell.key)
        estimate, interval = (multiplier.estimate, multiplier.interval) if multiplier else (None, None)
        record = self.record(arm, cell.key)
        rank = {name: record.pop(name) for name in ("lr_status", "best", "separated")}
        return {
            **cell.setting,
            "rung": cell.rung,
            "n_params": cell.n_params,
            "n_tokens": cell.n_tokens,
            "arm": arm,
            **record,
            "at_flops": multiplier.at_flops if multiplier else None,
            **phrases.bounds("multiplier", estimate, interval),
            "extrapolated": multiplier.extrapolated if multiplier else None,
            **rank,
            "n_convention": self.trials.options.n_convention,
        }


@dataclass(frozen=True)
class _Layout:
    """The part of a table that depends on where its arms stand."""

    groups: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]]
    breaks: frozenset[int]


def _cell_texts(cell: Cell) -> list[str]:
    return [*cell.setting.values(), cell.rung, count(cell.n_params), count(cell.n_tokens)]


def _side_by_side(cells: _Cells) -> _Layout:
    """A row for each cell, the arms beside each other."""
    reference, arms = cells.trials.reference, cells.trials.arms
    headings = [("", name) for name in (*cells.trials.varying_settings, "rung", "N", "tokens", "seeds")]
    for arm in arms:
        names = ["loss"] if arm == reference else ["loss", "difference"]
        headings += [(arm, name) for name in (*names, *["multiplier"] * (arm in cells.with_multiplier))]
    rows = []
    for cell in cells.shown:
        numbers = sorted({cells.n_seeds(arm, cell.key) for arm in arms})
        row = [*_cell_texts(cell), "–".join(str(n) for n in dict.fromkeys([numbers[0], numbers[-1]]))]
        for arm in arms:
            row.append(cells.loss(arm, cell.key))
            row += [cells.difference(arm, cell.key)] if arm != reference else []
            row += [cells.multiplier(arm, cell.key)] if arm in cells.with_multiplier else []
        rows.append(tuple(row))
    best = ((number, cells.best[cell.key][0]) for number, cell in enumerate(cells.shown))
    return _Layout(
        groups=tuple(group for group, _ in headings),
        columns=tuple(name for _, name in headings),
        rows=tuple(rows),
        best=frozenset((number, headings.index((arm, "loss"))) for number, arm in best if arm),
        breaks=phrases.breaks([cell.setting for cell in cells.shown]),
    )


def _one_below_the_other(cells: _Cells) -> _Layout:
    """A row for each cell and arm that was run there; what is the same as in the row above is left blank."""
    trials = cells.trials
    run = {arm: set(trials.keys(trials.of_arm(arm))) for arm in trials.others}
    columns = (*trials.varying_settings, "rung", "N", "tokens", "arm", "seeds", "loss", "difference")
    rows: list[tuple[str, ...]] = []
    best, firsts = set(), []
    for cell in cells.shown:
        for arm in trials.arms:
            is_reference = arm == trials.reference
            if is_reference:
                firsts.append(len(rows))
            elif cell.key not in run[arm]:
                continue
            if cells.best[cell.key][0] == arm:
                best.add((len(rows), columns.index("loss")))
            names = _cell_texts(cell)
            row = [*(names if is_reference else [""] * len(names)), arm, str(cells.n_seeds(arm, cell.key))]
            row += [
                cells.loss(arm, cell.key),
                "reference" if is_reference else cells.difference(arm, cell.key),
            ]
            rows.append((*row, *[cells.multiplier(arm, cell.key)] * bool(cells.with_multiplier)))
    columns = (*columns, *["multiplier"] * bool(cells.with_multiplier))
    return _Layout(("",) * len(columns), columns, tuple(rows), frozenset(best), frozenset(firsts[1:]))


def _multipliers(
    trials: ComparedTrials,
) -> tuple[dict[str, dict[Key, Multiplier]], list[str], list[tuple[str, str]]]:
    """Compute multipliers of each arm by cell, the reasons where there are none, remarks on their laws."""
    multipliers: dict[str, dict[Key, Multiplier]] = {arm: {} for arm in trials.arms}
    reasons, remarks = [], []
    for setting, part in trials.lines():
        for arm in part.others:
            of_arm = laws_to_show(part.pairs(arm), part.options, {"reference": part.reference, "arm": arm})
            laws, held = of_arm.laws, of_arm.held
            if laws is None:
                reasons.append((of_arm.reason, arm))
            else:
                compute = part.compute(arm)
                shown = [laws.multiplier("chosen", c, c) for c in compute.values()]
                multipliers[arm] |= zip(compute, noted(shown, held), strict=True)
                remark = extrapolation_remark(shown, held)
                remarks += [(remark, phrases.arm_at(setting, arm))] if remark else []
                remarks += [
                    (warning, phrases.arm_at(setting, name))
                    for name, (law, number) in zip((part.reference, arm), laws.sides, strict=True)
                    for warning in equal_optima_warning(law.equal_parameters(number))
                ]
    return multipliers, [note.rstrip(".") for note in phrases.remark_notes(reasons)], remarks
