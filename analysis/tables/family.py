"""The arms of a table as one family of tests: their overall differences, corrected by Holm."""

from dataclasses import dataclass
from typing import Any

from analysis import inference
from analysis.data import DataError
from analysis.tables import phrases
from analysis.tables.question import Key, Mean, Question
from analysis.words import p_value


@dataclass(frozen=True)
class Overall:
    """One arm's mean difference over the cells of ``question``, with Holm's p over the whole family."""

    question: Question
    arm: str
    mean: Mean | None
    p_holm: float | None
    cells: dict[Key, Mean]

    @property
    def is_whole(self) -> bool:
        """Whether the mean is over all cells of the reference, so that it may be ranked beside others."""
        return self.mean is not None and set(self.question.losses(self.question.reference)) == set(self.cells)

    @property
    def same_trials(self) -> bool:
        """Whether the arm's trials *are* those of the reference, identical by construction."""
        complete = self.question.pairs(self.arm).complete
        if "trial_id_arm" not in complete or complete.empty:
            return False
        return bool((complete["trial_id_arm"] == complete["trial_id_reference"]).all())

    def texts(self) -> tuple[str, str, str]:
        """Difference, Holm's p and pairs."""
        return phrases.difference(self.mean), p_text(self), str(self.mean.n if self.mean else 0)

    def record(self) -> dict[str, Any]:
        """The same with every digit."""
        return {
            **phrases.of_mean("difference", self.mean),
            "p_holm": self.p_holm,
            "pairs": self.mean.n if self.mean else 0,
        }


def p_text(one: Overall) -> str:
    """Holm's p; a word for trials that are the same, nothing where there is no degree of freedom."""
    if one.same_trials:
        return "same trials"
    return "" if one.p_holm is None else p_value(one.p_holm)


def overall(questions: list[Question]) -> list[Overall]:
    """Every arm but the reference of every question; p-values are corrected over all of them.

    Raises :class:`DataError` where there is no pair at all.
    """
    members = [(question, arm) for question in questions for arm in question.others]
    estimates = [question.overall(arm) for question, arm in members]
    if not any(estimates):
        raise DataError("no arm has a completed pair with the reference, so there is no difference to show")
    corrected = inference.holm([one.p_value() if one else None for one in estimates])
    found = []
    for (question, arm), estimate, p in zip(members, estimates, corrected, strict=True):
        n_pairs = len(question.pairs(arm).complete)
        mean = None
        if estimate is not None:
            mean = Mean(estimate.value, estimate.interval(question.settings.level), n_pairs)
        found.append(Overall(question, arm, mean, p, question.differences(arm)))
    return found


def holm_note(n_members: int, column: str = "All") -> str:
    """What the overall column and its p-value are."""
    rows = "row" if n_members == 1 else "rows"
    return (
        f"{column}: the mean over cells with the same weight for each; p: two-sided t test of it against "
        f"zero, corrected by Holm over the {n_members} {rows} that have a reference."
    )


def lowest(rows: list[Overall]) -> Overall | None:
    """The row with the lowest mean below zero, of those over all cells whose arm never diverged."""
    kept = [row for row in rows if row.mean and row.is_whole and not row.question.diverged(row.arm)]
    best = min(kept, key=lambda row: row.mean.value if row.mean else 0.0, default=None)
    return best if best is not None and best.mean is not None and best.mean.value < 0 else None


def lowest_note(found: Overall | None, rows: list[Overall]) -> str:
    """What bold means here, and whether the interval separates the best arm from the next."""
    rule = "Bold: the lowest overall difference below zero, among arms without a diverged trial."
    if found is None:
        return f"{rule} No arm lies below the reference."
    rivals = [
        row
        for row in rows
        if row.question is found.question and row.arm != found.arm and row.mean and row.is_whole
    ]
    if not rivals:
        return rule
    following = min(rivals, key=lambda row: row.mean.value if row.mean else 0.0)
    question = found.question
    between = question.pairs(found.arm, following.arm)
    values = between.differences
    if not len(values):
        return rule
    estimate = inference.overall(values, between.cells, between.clusters)
    interval = estimate.interval(question.settings.level)
    mean = Mean(estimate.value, interval, len(values))
    words = "separated from" if mean.separated else "not separated from"
    return (
        f"{rule} {found.arm} is {words} the next, {following.arm}: {phrases.difference(mean)} between them."
    )
