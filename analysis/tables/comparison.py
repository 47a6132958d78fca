"""The main table of a paper: loss, difference and compute multiplier by rung and setting, with verdicts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from scalevec.analysis.comparison.compare import Comparison, compared
from scalevec.analysis.comparison.differences import CellMean, excludes_zero
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.pair_laws import laws_to_show
from scalevec.analysis.comparison.trials import Cell, ComparedTrials, Key
from scalevec.analysis.formatting import count, equal_optima_warning, p_value
from scalevec.analysis.laws import formula_of
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.content import Table

MOST_SIDE_BY_SIDE = 2
"""With more arms than these a row would not fit on a page: each arm has a row of its own."""
_MEAN = "mean"


def build(trials: ComparedTrials, comparisons: Sequence[Comparison] | None = None) -> Table:
    """A row for each cell, the arms side by side, or one for each arm in it; below, the means that decide.

    ``comparisons`` are those of ``trials`` where a page shows them: then no note repeats their verdicts.
    """
    cells = _Cells(trials)
    by_arm = {comparison.arm: comparison for comparison in comparisons or compared(trials)}
    is_wide = len(trials.arms) <= MOST_SIDE_BY_SIDE
    table = (_side_by_side if is_wide else _one_below_the_other)(cells, by_arm)
    names = [comparison.arm for comparison in by_arm.values()]
    return replace(
        table,
        notes=(
            *(() if comparisons else map(_verdict, by_arm.values())),
            *notes.loss_notes(trials),
            notes.mean_note(len(names) + trials.n_arms_left_out, trials.options.level),
            notes.best_note(trials, "of the row" if is_wide else "of each cell"),
            *cells.multiplier_notes(),
            *notes.convention_notes(trials),
            *notes.mark_notes(table.rows),
        ),
        records=(*cells.records(), *(_mean_record(trials, comparison) for comparison in by_arm.values())),
    )


def _verdict(comparison: Comparison) -> str:
    """The verdict, with the lines of the answer that say at which sizes and what becomes of it with scale."""
    if comparison.interim:
        return f"{comparison.arm}: {comparison.interim}."
    p = comparison.loss_difference.p_holm
    sentences = [comparison.scope.text, *([] if p is None else [f"p {p_value(p)}"])]
    answer = f"{comparison.verdict} ({', '.join(sentences)}), {comparison.at_sizes.text}"
    return f"{comparison.arm}: {answer}. With scale: {comparison.with_scale.text}."


def _mean_record(trials: ComparedTrials, comparison: Comparison) -> dict[str, Any]:
    of_mean = comparison.loss_difference
    return {
        "rung": _MEAN,
        "arm": comparison.arm,
        "pairs": of_mean.n_pairs,
        **notes.of_mean("difference", of_mean),
        "p_holm": of_mean.p_holm,
        "verdict": "incomplete" if comparison.interim else comparison.verdict,
        "scope": comparison.scope.text,
        "n_convention": trials.options.n_convention,
    }


class _Cells:
    """What stands in each cell: means, differences and multipliers of the arms that were run there."""

    def __init__(self, trials: ComparedTrials) -> None:
        self.trials = trials
        self.means = {arm: trials.losses(arm) for arm in trials.arms}
        self.differences = {arm: trials.differences(arm) for arm in trials.others}
        self.diverged = {arm: trials.diverged(arm) for arm in trials.arms}
        self.rates, self.rate_statuses = (
            {arm: trials.values(arm, name) for arm in trials.arms} for name in ("learning_rate", "lr_status")
        )
        with_result = {key for of_arm in (*self.means.values(), *self.diverged.values()) for key in of_arm}
        self.shown = [cell for cell in trials.cells if cell.key in with_result]
        self.multipliers: dict[str, dict[Key, Multiplier]] = {arm: {} for arm in trials.arms}
        self.reasons: list[tuple[str, str]] = []
        self.remarks: list[tuple[str, str]] = []
        self._fit()

    def _fit(self) -> None:
        """Compute multipliers by cell, the reasons where there are none, remarks on their laws."""
        for setting, part in self.trials.lines():
            for arm in part.others:
                names = {"reference": part.reference, "arm": arm}
                of_arm = laws_to_show(part.pairs(arm), part.options, names)
                if of_arm.laws is None:
                    self.reasons.append((of_arm.reason.rstrip("."), arm))
                    continue
                compute = part.compute(arm)
                shown = {key: of_arm.multiplier(c, "chosen") for key, c in compute.items()}
                self.multipliers[arm] |= shown
                if of_arm.unchecked and any(each.extrapolated for each in shown.values()):
                    self.remarks.append((of_arm.unchecked, notes.arm_at(setting, arm)))
                for name, (law, number) in zip((part.reference, arm), of_arm.laws.sides, strict=True):
                    warnings = equal_optima_warning(law.equal_parameters(number))
                    self.remarks += [(warning, notes.arm_at(setting, name)) for warning in warnings]

    @property
    def with_multiplier(self) -> list[str]:
        """The arms that have one somewhere."""
        return [arm for arm in self.trials.others if self.multipliers[arm]]

    @cached_property
    def best(self) -> dict[Key, tuple[str, bool]]:
        """The arm with the lowest mean ("" if it has no rival), and whether the next is separated from it."""
        return {cell.key: self._best(cell.key) for cell in self.shown}

    def _best(self, key: Key) -> tuple[str, bool]:
        ranked = [arm for arm in self.means if key in self.means[arm] and key not in self.diverged[arm]]
        ranked.sort(key=lambda arm: self.means[arm][key].mean)
        if len(ranked) < 2:
            return "", False
        difference = self._between(*ranked[:2]).get(key)
        return ranked[0], bool(difference and excludes_zero(difference.interval) and difference.mean < 0)

    @cache  # noqa: B019 (lives as long as the table is made)
    def _between(self, arm: str, other: str) -> dict[Key, CellMean]:
        """The differences of two arms in all cells, once for the many cells that ask."""
        return self.trials.differences(arm, other)

    def n_seeds(self, arm: str, key: Key) -> int:
        """How many completed trials the mean is over."""
        return self.means[arm][key].n if key in self.means[arm] else 0

    def texts(self, arm: str, key: Key) -> dict[str, str]:
        """Loss with its marks, difference and multiplier, by the names of their columns."""
        mean = self.means[arm].get(key)
        if mean is None:
            loss = "diverged" if key in self.diverged[arm] else ""
        else:
            censored = notes.CENSORED if "censored" in self.rate_statuses[arm].get(key, []) else ""
            loss = notes.loss(mean) + censored + (notes.SEPARATED if self.best[key] == (arm, True) else "")
        difference = "reference"
        if arm != self.trials.reference:
            difference = notes.difference(self.differences[arm].get(key))
        multiplier = notes.multiplier(self.multipliers[arm].get(key))
        return {"loss": loss, "difference": difference, "multiplier": multiplier}

    def multiplier_notes(self) -> list[str]:
        """What a multiplier is, or why there is none."""
        reasons = notes.remark_notes(self.reasons)
        if not self.with_multiplier:
            return [f"No compute multipliers: {reason}" for reason in reasons]
        law = formula_of(replace(self.trials.options, x="C", y="loss"))
        return [
            f"Multiplier: how many times the compute {self.trials.reference} needs for the arm's loss, "
            f"from {law} fitted to both; above one the arm saves; interval in brackets.",
            *(f"Without a multiplier, {reason}" for reason in reasons),
            *notes.remark_notes(self.remarks),
        ]

    def records(self) -> Iterator[dict[str, Any]]:
        """Every arm in every cell with every digit."""
        for cell in self.shown:
            for arm in self.trials.arms:
                yield self._record(arm, cell)

    def _record(self, arm: str, cell: Cell) -> dict[str, Any]:
        key, options = cell.key, self.trials.options
        difference: CellMean | None = self.differences.get(arm, {}).get(key)
        rates = self.rates[arm].get(key, [])
        return {
            **cell.setting,
            "rung": cell.rung,
            "n_params": cell.n_params,
            "n_tokens": cell.n_tokens,
            "arm": arm,
            "seeds": self.n_seeds(arm, key),
            "diverged": key in self.diverged[arm],
            **notes.of_mean("loss", self.means[arm].get(key)),
            "pairs": difference.n if difference else 0,
            **notes.of_mean("difference", difference),
            **notes.of_multiplier("multiplier", self.multipliers[arm].get(key)),
            "learning_rate": rates[0] if len(rates) == 1 else None,
            "lr_status": ", ".join(self.rate_statuses[arm].get(key, [])),
            "best": self.best[key][0] == arm,
            "separated": self.best[key] == (arm, True),
            "n_convention": options.n_convention,
        }


def _names(trials: ComparedTrials) -> tuple[str, ...]:
    return (*trials.varying_settings, "rung", "N", "tokens")


def _of_cell(cell: Cell) -> tuple[str, ...]:
    return (*cell.setting.values(), cell.rung, count(cell.n_params), count(cell.n_tokens))


def _named_mean(trials: ComparedTrials) -> tuple[str, ...]:
    """The mean over cells in the columns that name one."""
    return (*[""] * len(trials.varying_settings), _MEAN, "", "")


def _side_by_side(cells: _Cells, by_arm: dict[str, Comparison]) -> Table:
    """A row for each cell, the arms beside each other."""
    trials = cells.trials
    headings = [("", name) for name in (*_names(trials), "seeds")]
    n_labels = len(headings)
    for arm in trials.arms:
        names = ["loss"] if arm == trials.reference else ["loss", "difference"]
        headings += [(arm, name) for name in (*names, *["multiplier"] * (arm in cells.with_multiplier))]
    rows = []
    for cell in cells.shown:
        numbers = sorted({cells.n_seeds(arm, cell.key) for arm in trials.arms})
        seeds = "–".join(str(n) for n in dict.fromkeys([numbers[0], numbers[-1]]))
        texts = {arm: cells.texts(arm, cell.key) for arm in trials.arms}
        rows.append((*_of_cell(cell), seeds, *(texts[arm][name] for arm, name in headings[n_labels:])))
    total = (
        notes.difference(by_arm[arm].loss_difference) if name == "difference" and arm in by_arm else ""
        for arm, name in headings[n_labels:]
    )
    best = ((number, cells.best[cell.key][0]) for number, cell in enumerate(cells.shown))
    return Table(
        title="Comparison with the reference",
        columns=tuple(name for _, name in headings),
        rows=(*rows, (*_named_mean(trials), "", *total)),
        numeric=tuple(at > len(trials.varying_settings) for at in range(len(headings))),
        groups=tuple(group for group, _ in headings),
        best=frozenset((number, headings.index((arm, "loss"))) for number, arm in best if arm),
        breaks=notes.breaks([*(cell.setting for cell in cells.shown), None]),
        totals=frozenset({len(rows)}),
    )


def _one_below_the_other(cells: _Cells, by_arm: dict[str, Comparison]) -> Table:
    """A row for each cell and arm that was run there; what is the same as in the row above is left blank."""
    trials = cells.trials
    run = {arm: set(trials.keys(trials.of_arm(arm))) for arm in trials.others}
    shown = ("loss", "difference", *["multiplier"] * bool(cells.with_multiplier))
    columns = (*_names(trials), "arm", "seeds", *shown)
    rows: list[tuple[str, ...]] = []
    best, firsts = set(), []
    for cell in cells.shown:
        firsts.append(len(rows))
        names = _of_cell(cell)
        for arm in trials.arms:
            if arm != trials.reference and cell.key not in run[arm]:
                continue
            if cells.best[cell.key][0] == arm:
                best.add((len(rows), columns.index("loss")))
            texts = cells.texts(arm, cell.key)
            row = (*names, arm, str(cells.n_seeds(arm, cell.key)), *(texts[name] for name in shown))
            rows.append(row)
            names = ("",) * len(names)
    totals = range(len(rows), len(rows) + len(by_arm))
    names = _named_mean(trials)
    for arm, comparison in by_arm.items():
        mean = notes.difference(comparison.loss_difference)
        rows.append((*names, arm, "", "", mean, *[""] * (len(shown) - 2)))
        names = ("",) * len(names)
    return Table(
        title="Comparison with the reference",
        columns=columns,
        rows=tuple(rows),
        numeric=tuple(name not in (*trials.varying_settings, "rung", "arm") for name in columns),
        best=frozenset(best),
        breaks=frozenset({*firsts[1:], totals.start}),
        totals=frozenset(totals),
    )
