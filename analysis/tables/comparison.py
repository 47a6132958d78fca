"""The main table of a paper: loss, difference and compute multiplier by rung and setting, with verdicts."""

from typing import Any

from scalevec.analysis.comparison.compare import Comparison, compared
from scalevec.analysis.comparison.trials import Cell, ComparedTrials, Key
from scalevec.analysis.formatting import count
from scalevec.analysis.tables import notes
from scalevec.analysis.tables.render import Table
from scalevec.analysis.tables.scaling import multipliers_of_cells

_MEAN = "mean"


def build(trials: ComparedTrials) -> Table:
    """A row for each cell and arm that was run there; below, the means that decide with their verdicts."""
    comparisons, cells = compared(trials), _Cells(trials)
    run = {arm: set(trials.keys(trials.of_arm(arm))) for arm in trials.arms}
    shown = ("loss", "difference", *["multiplier"] * any(cells.multipliers.values()))
    columns = (*trials.varying_settings, "rung", "N", "tokens", "arm", "seeds", *shown)
    rows: list[tuple[str, ...]] = []
    best, starts = set(), []
    for cell in cells.shown:
        starts.append(len(rows))
        names = (*cell.setting.values(), cell.rung, count(cell.n_params), count(cell.n_tokens))
        for arm in (arm for arm in trials.arms if cell.key in run[arm]):
            if cells.best(cell.key) == arm:
                best.add((len(rows), columns.index("loss")))
            rows.append((*names, arm, *cells.texts(arm, cell.key)[: len(shown) + 1]))
            names = ("",) * len(names)  # what is the same as in the row above is left blank
    starts.append(len(rows))
    names = (*[""] * len(trials.varying_settings), _MEAN, "", "")
    for comparison in comparisons:
        mean = notes.difference(comparison.loss_difference)
        rows.append((*names, comparison.arm, "", "", mean, *[""] * (len(shown) - 2)))
        names = ("",) * len(names)
    return Table(
        title=f"Comparison with {trials.reference}",
        columns=columns,
        rows=tuple(rows),
        numeric=tuple(name in ("N", "tokens", "seeds", *shown) for name in columns),
        notes=(
            *(f"{c.sentence} With scale: {c.with_scale.text}." for c in comparisons),
            *notes.loss_notes(trials, len(comparisons) + trials.n_arms_left_out),
            "Bold: the lowest mean of a cell, among arms without a diverged trial there; a rank, no finding.",
            *([notes.multiplier_note(trials, "by the laws of both")] if "multiplier" in columns else []),
            # What withholds a multiplier stands in the sentence on scale already.
            *notes.remark_notes(
                (text, arm)
                for text, arm in cells.remarks
                if not any(
                    text.removeprefix("no multiplier: ") in comparison.with_scale.text
                    for comparison in comparisons
                )
            ),
            *notes.convention_notes(trials),
            *notes.mark_notes(rows),
        ),
        best=frozenset(best),
        breaks=frozenset(starts[1:]),
        records=(
            *(cells.record(arm, cell) for cell in cells.shown for arm in trials.arms),
            *(_mean_record(trials, comparison) for comparison in comparisons),
        ),
    )


def _mean_record(trials: ComparedTrials, comparison: Comparison) -> dict[str, Any]:
    of_mean = comparison.loss_difference
    return {
        "rung": _MEAN,
        "arm": comparison.arm,
        "pairs": of_mean.n_pairs,
        **notes.of_mean("difference", of_mean),
        "p_holm": of_mean.p_holm,
        "verdict": comparison.verdict,
        "scope": comparison.scope.text,
        "n_convention": trials.options.n_convention,
    }


class _Cells:
    """What stands in each cell: means, differences and multipliers of the arms that were run there."""

    def __init__(self, trials: ComparedTrials) -> None:
        self.trials = trials
        self.means = {arm: trials.losses(arm) for arm in trials.arms}
        self.differences = {arm: trials.differences(arm) for arm in trials.others}
        self.differences[trials.reference] = {}
        self.diverged = {arm: trials.diverged(arm) for arm in trials.arms}
        self.rates, self.rate_statuses = (
            {arm: trials.values(arm, name) for arm in trials.arms} for name in ("learning_rate", "lr_status")
        )
        with_result = {key for of_arm in (*self.means.values(), *self.diverged.values()) for key in of_arm}
        self.shown = [cell for cell in trials.cells if cell.key in with_result]
        self.multipliers, self.remarks = multipliers_of_cells(trials)

    def best(self, key: Key) -> str:
        """The arm with the lowest mean; empty if it has no rival."""
        ranked = [arm for arm in self.means if key in self.means[arm] and key not in self.diverged[arm]]
        return min(ranked, key=lambda arm: self.means[arm][key].mean) if len(ranked) > 1 else ""

    def texts(self, arm: str, key: Key) -> tuple[str, ...]:
        """Seeds, loss with its mark, difference and multiplier."""
        mean = self.means[arm].get(key)
        if mean is None:
            loss = "diverged" if key in self.diverged[arm] else ""
        else:
            censored = "censored" in self.rate_statuses[arm].get(key, [])
            loss = notes.loss(mean) + (notes.CENSORED if censored else "")
        is_reference = arm == self.trials.reference
        difference = "reference" if is_reference else notes.difference(self.differences[arm].get(key))
        multiplier = notes.multiplier(self.multipliers[arm].get(key))
        return str(mean.n if mean else 0), loss, difference, multiplier

    def record(self, arm: str, cell: Cell) -> dict[str, Any]:
        """The same with every digit."""
        key = cell.key
        mean, difference = self.means[arm].get(key), self.differences[arm].get(key)
        rates = self.rates[arm].get(key, [])
        return {
            **cell.setting,
            "rung": cell.rung,
            "n_params": cell.n_params,
            "n_tokens": cell.n_tokens,
            "arm": arm,
            "seeds": mean.n if mean else 0,
            "diverged": key in self.diverged[arm],
            **notes.of_mean("loss", mean),
            "pairs": difference.n if difference else 0,
            **notes.of_mean("difference", difference),
            **notes.of_multiplier("multiplier", self.multipliers[arm].get(key)),
            "learning_rate": rates[0] if len(rates) == 1 else None,
            "lr_status": ", ".join(self.rate_statuses[arm].get(key, [])),
            "best": self.best(key) == arm,
            "n_convention": self.trials.options.n_convention,
        }
