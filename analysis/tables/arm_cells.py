"""The differences of arms in each cell and over all cells, as text and with every digit, for all tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scalevec.analysis.comparison.differences import (
    CellMean,
    LossDifference,
    corrected_differences,
    excludes_zero,
)
from scalevec.analysis.comparison.trials import ComparedTrials, Key
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import p_value, plural
from scalevec.analysis.tables import phrases


class ArmCells:
    """The means and differences of every arm of ``trials`` by cell; an arm has none where it was not run."""

    def __init__(self, trials: ComparedTrials) -> None:
        self.trials = trials
        self.means = {arm: trials.losses(arm) for arm in trials.arms}
        self.differences = {arm: trials.differences(arm) for arm in trials.others}
        self.diverged = {arm: trials.diverged(arm) for arm in trials.arms}
        self.rate_statuses = {arm: trials.values(arm, "lr_status") for arm in trials.arms}
        self.best = {cell.key: self._best(cell.key) for cell in trials.cells}
        """The arm with the lowest mean ("" if it has no rival), and whether the next is separated from it."""

    def _best(self, key: Key) -> tuple[str, bool]:
        ranked = [arm for arm in self.means if key in self.means[arm] and key not in self.diverged[arm]]
        ranked.sort(key=lambda arm: self.means[arm][key].mean)
        if len(ranked) < 2:
            return "", False
        difference = self.trials.differences(*ranked[:2]).get(key)
        return ranked[0], bool(difference and excludes_zero(difference.interval) and difference.mean < 0)

    def n_seeds(self, arm: str, key: Key) -> int:
        """How many completed trials the mean is over."""
        return self.means[arm][key].n if key in self.means[arm] else 0

    def loss(self, arm: str, key: Key) -> str:
        """The mean loss as text, with its marks."""
        mean = self.means.get(arm, {}).get(key)
        if mean is None:
            return "diverged" if key in self.diverged.get(arm, ()) else ""
        censored = phrases.CENSORED if "censored" in self.rate_statuses[arm].get(key, []) else ""
        return (
            phrases.plus_minus(mean) + censored + (phrases.SEPARATED if self.best[key] == (arm, True) else "")
        )

    def difference(self, arm: str, key: Key) -> str:
        """The difference to the reference as text."""
        return phrases.difference(self.differences.get(arm, {}).get(key))

    def record(self, arm: str, key: Key) -> dict[str, Any]:
        """The same with every digit, and the state of the learning rate."""
        difference = self.differences.get(arm, {}).get(key)
        return {
            "seeds": self.n_seeds(arm, key),
            "diverged": key in self.diverged[arm],
            **phrases.of_mean("loss", self.means[arm].get(key)),
            "pairs": difference.n if difference else 0,
            **phrases.of_mean("difference", difference),
            "lr_status": ", ".join(self.rate_statuses[arm].get(key, [])),
            "best": self.best[key][0] == arm,
            "separated": self.best[key] == (arm, True),
        }


@dataclass(frozen=True)
class Overall:
    """One arm's mean difference over the cells of ``trials``, with Holm's p over the whole family."""

    trials: ComparedTrials
    arm: str
    difference: LossDifference

    @cached_property
    def cells(self) -> dict[Key, CellMean]:
        """The difference in each cell."""
        return self.trials.differences(self.arm)

    @property
    def n_pairs(self) -> int:
        """Complete pairs."""
        return len(self.trials.pairs(self.arm).complete)

    @property
    def mean(self) -> float:
        """The mean difference; infinite without a complete pair."""
        return float("inf") if self.difference.mean is None else self.difference.mean

    @property
    def is_whole(self) -> bool:
        """Whether the mean is over all cells of the reference, so that it may be ranked beside others."""
        trials, pairs = self.trials, self.trials.pairs(self.arm)
        # By the columns of the pairs: an arm and the reference may each have run one rate, and not the same.
        cells_of_reference, cells = (
            set(trials.keys(rows, pairs.cell_columns))
            for rows in (trials.of_arm(trials.reference, "completed"), pairs.complete)
        )
        return bool(cells) and cells == cells_of_reference

    def texts(self) -> tuple[str, str, str]:
        """Difference, Holm's p (a word for trials that are the same; empty without one) and pairs."""
        p = "" if self.difference.p_holm is None else p_value(self.difference.p_holm)
        if self.trials.pairs(self.arm).same_trials:
            p = "same trials"
        return phrases.difference(self.difference), p, str(self.n_pairs)

    def record(self) -> dict[str, Any]:
        """The same with every digit."""
        of_mean = phrases.of_mean("difference", self.difference)
        return {**of_mean, "p_holm": self.difference.p_holm, "pairs": self.n_pairs}


def overall(parts: Sequence[ComparedTrials]) -> list[Overall]:
    """Every arm but the reference of every part; p-values are corrected over all of them.

    Raises :class:`DataError` where there is no pair at all.
    """
    members = [(trials, trials.paired(arm)) for trials in parts for arm in trials.others]
    if not any(paired.estimate for _, paired in members):
        raise DataError("no arm has a completed pair with the reference, so there is no difference to show")
    differences = corrected_differences([paired for _, paired in members], parts[0].options.level)
    return [
        Overall(trials, paired.arm, difference)
        for (trials, paired), difference in zip(members, differences, strict=True)
    ]


def holm_note(n_members: int, column: str = "All") -> str:
    """What the overall column and its p-value are."""
    return (
        f"{column}: the mean over cells with the same weight for each; p: two-sided t test of it against "
        f"zero, corrected by Holm over the {plural(n_members, 'row')} that have a reference."
    )
