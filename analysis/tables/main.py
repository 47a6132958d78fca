"""The main table: a row for each rung and setting, the arms side by side."""

from typing import Any

from analysis.multipliers import Multiplier, multipliers_at
from analysis.tables import phrases
from analysis.tables.content import Table
from analysis.tables.question import Cell, Key, Question
from analysis.words import count


def build(question: Question) -> Table:
    """Terminal loss of each arm, its difference to the reference and its compute multiplier, by rung."""
    made = _Made(question)
    rows = [made.row(cell) for cell in made.cells]
    groups, columns = made.headings()
    n_text = len(question.varying_settings) + 1
    return Table(
        title="Terminal losses",
        columns=columns,
        rows=tuple(rows),
        numeric=tuple(place >= n_text for place in range(len(columns))),
        notes=(
            *phrases.loss_notes(question),
            phrases.best_note(question, "of the row"),
            *made.multiplier_notes(),
            *phrases.convention_notes(question),
            *phrases.mark_notes(text for row in rows for text in row),
        ),
        groups=groups,
        best=frozenset(made.best_cells(columns, groups)),
        breaks=phrases.breaks([cell.setting for cell in made.cells]),
        records=tuple(made.record(cell, arm) for cell in made.cells for arm in question.arms),
    )


class _Made:
    """What the cells of the table are made of, each part computed once."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.means = {arm: question.losses(arm) for arm in question.arms}
        self.differences = {arm: question.differences(arm) for arm in question.others}
        self.diverged = {arm: question.diverged(arm) for arm in question.arms}
        self.rates = {arm: question.values(arm, "lr_status") for arm in question.arms}
        seen = {key for arm in question.arms for key in {*self.means[arm], *self.diverged[arm]}}
        self.cells = [cell for cell in question.cells() if cell.key in seen]
        self.multipliers, self.reasons = _multipliers(question)
        self.best = {cell.key: self._best(cell.key) for cell in self.cells}

    @property
    def with_multiplier(self) -> list[str]:
        return [arm for arm in self.question.others if self.multipliers[arm]]

    def _best(self, key: Key) -> tuple[str, bool]:
        """The arm with the lowest mean ("" if it has no rival), and whether the next is separated from it."""
        order = phrases.ranked(self.question, self.question.arms, self.means, key)
        if len(order) < 2:
            return "", False
        return order[0], phrases.is_separated(self.question, order[0], order[1], key)

    def headings(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The heading over each column, and its own."""
        columns = [*self.question.varying_settings, "rung", "N", "tokens", "seeds"]
        groups = [""] * len(columns)
        for arm in self.question.arms:
            own = ["loss"] if arm == self.question.reference else ["loss", "difference"]
            own += ["multiplier"] if arm in self.with_multiplier else []
            columns += own
            groups += [arm] * len(own)
        return tuple(groups), tuple(columns)

    def row(self, cell: Cell) -> tuple[str, ...]:
        numbers = sorted({self._seeds(arm, cell.key) for arm in self.question.arms})
        seeds = "–".join(str(n) for n in dict.fromkeys([numbers[0], numbers[-1]]))
        row = [*cell.setting.values(), cell.rung, count(cell.n_params), count(cell.n_tokens), seeds]
        for arm in self.question.arms:
            row.append(self._loss(cell.key, arm))
            if arm != self.question.reference:
                row.append(phrases.difference(self.differences[arm].get(cell.key)))
            if arm in self.with_multiplier:
                row.append(phrases.multiplier(self.multipliers[arm].get(cell.key)))
        return tuple(row)

    def _seeds(self, arm: str, key: Key) -> int:
        return self.means[arm][key].n if key in self.means[arm] else 0

    def _loss(self, key: Key, arm: str) -> str:
        mean = self.means[arm].get(key)
        if mean is None:
            return "diverged" if key in self.diverged[arm] else ""
        marks = phrases.CENSORED if "censored" in self.rates[arm].get(key, []) else ""
        return phrases.plus_minus(mean) + marks + (phrases.SEPARATED if self.best[key] == (arm, True) else "")

    def best_cells(self, columns: tuple[str, ...], groups: tuple[str, ...]) -> list[tuple[int, int]]:
        """Row and column of the best loss of each row."""
        place = {
            group: n for n, (group, name) in enumerate(zip(groups, columns, strict=True)) if name == "loss"
        }
        best = [(number, self.best[cell.key][0]) for number, cell in enumerate(self.cells)]
        return [(number, place[arm]) for number, arm in best if arm]

    def multiplier_notes(self) -> list[str]:
        """What a multiplier is, or why there is none."""
        if not self.with_multiplier:
            return [f"No compute multipliers: {reason}." for reason in self.reasons]
        law = self.question.settings.functional_form.formula.replace("x", "C")
        return [
            f"Multiplier: how many times the compute {self.question.reference} needs for the arm's loss, "
            f"from {law} fitted to both; above one the arm saves; interval in brackets.",
            *(f"Without a multiplier, {reason}." for reason in self.reasons),
        ]

    def record(self, cell: Cell, arm: str) -> dict[str, Any]:
        key = cell.key
        mean, difference = self.means[arm].get(key), self.differences.get(arm, {}).get(key)
        multiplier = self.multipliers[arm].get(key)
        estimate, interval = (multiplier.estimate, multiplier.interval) if multiplier else (None, None)
        return {
            **cell.setting,
            "rung": cell.rung,
            "n_params": cell.n_params,
            "n_tokens": cell.n_tokens,
            "arm": arm,
            "seeds": self._seeds(arm, key),
            "diverged": key in self.diverged[arm],
            **phrases.of_mean("loss", mean),
            "pairs": difference.n if difference else 0,
            **phrases.of_mean("difference", difference),
            "at_flops": multiplier.at_flops if multiplier else None,
            **phrases.bounds("multiplier", estimate, interval),
            "extrapolated": multiplier.extrapolated if multiplier else None,
            "lr_status": ", ".join(self.rates[arm].get(key, [])),
            "best": self.best[key][0] == arm,
            "separated": self.best[key] == (arm, True),
            "n_convention": self.question.settings.n_convention,
        }


def _multipliers(question: Question) -> tuple[dict[str, dict[Key, Multiplier]], list[str]]:
    """Compute multipliers of each arm by cell, and the reasons where there are none."""
    found: dict[str, dict[Key, Multiplier]] = {arm: {} for arm in question.arms}
    reasons = []
    for _, part in question.lines():
        for arm in part.others:
            compute = part.compute(arm)
            own, reason = multipliers_at(part.pairs(arm), part.settings, list(compute.values()))
            reasons += [f"{arm}: {reason}"] if reason else []
            found[arm].update(zip(compute, own, strict=False))
    return found, list(dict.fromkeys(reasons))
