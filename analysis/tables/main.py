"""The main table: a row for each rung and setting, the arms side by side."""

from functools import cached_property
from typing import Any

from analysis.multipliers import Multiplier, line_to_show_problem, multipliers_at
from analysis.tables import phrases
from analysis.tables.content import Table
from analysis.tables.question import Cell, Key, Question
from analysis.words import count

MOST_SIDE_BY_SIDE = 2
"""With more arms than these a row would not fit on a page: each arm has a row of its own."""


def build(question: Question) -> Table:
    """Terminal loss of each arm, its difference to the reference and its compute multiplier, by rung."""
    made = (_SideBySide if len(question.arms) <= MOST_SIDE_BY_SIDE else _OneBelowTheOther)(question)
    rows = made.rows()
    groups, columns = made.headings()
    return Table(
        title="Terminal losses",
        columns=columns,
        rows=tuple(rows),
        numeric=tuple(name not in made.texts for name in columns),
        notes=(
            *phrases.loss_notes(question),
            phrases.best_note(question, made.among),
            *made.multiplier_notes(),
            *phrases.convention_notes(question),
            *phrases.mark_notes(text for row in rows for text in row),
        ),
        groups=groups,
        best=frozenset(made.best_cells()),
        breaks=made.breaks(),
        records=tuple(made.record(cell, arm) for cell in made.cells for arm in question.arms),
    )


class _Made:
    """What the cells of the table are made of, each part computed once."""

    among = ""
    """The rows or columns among which one loss is in bold."""

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
    def texts(self) -> tuple[str, ...]:
        """The columns that are not numbers."""
        return (*self.question.varying_settings, "rung", "arm")

    @property
    def with_multiplier(self) -> list[str]:
        return [arm for arm in self.question.others if self.multipliers[arm]]

    def _best(self, key: Key) -> tuple[str, bool]:
        """The arm with the lowest mean ("" if it has no rival), and whether the next is separated from it."""
        order = phrases.ranked(self.question, self.question.arms, self.means, key)
        if len(order) < 2:
            return "", False
        return order[0], phrases.is_separated(self.question, order[0], order[1], key)

    def _cell(self, cell: Cell) -> list[str]:
        return [*cell.setting.values(), cell.rung, count(cell.n_params), count(cell.n_tokens)]

    def _difference(self, cell: Cell, arm: str) -> str:
        return phrases.difference(self.differences[arm].get(cell.key))

    def _multiplier(self, cell: Cell, arm: str) -> str:
        return phrases.multiplier(self.multipliers[arm].get(cell.key))

    def _seeds(self, arm: str, key: Key) -> int:
        return self.means[arm][key].n if key in self.means[arm] else 0

    def _loss(self, key: Key, arm: str) -> str:
        mean = self.means[arm].get(key)
        if mean is None:
            return "diverged" if key in self.diverged[arm] else ""
        marks = phrases.CENSORED if "censored" in self.rates[arm].get(key, []) else ""
        return phrases.plus_minus(mean) + marks + (phrases.SEPARATED if self.best[key] == (arm, True) else "")

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


class _SideBySide(_Made):
    """A row for each cell, the arms beside each other."""

    among = "of the row"

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

    def rows(self) -> list[tuple[str, ...]]:
        """The text of each row."""
        return [self._row(cell) for cell in self.cells]

    def _row(self, cell: Cell) -> tuple[str, ...]:
        numbers = sorted({self._seeds(arm, cell.key) for arm in self.question.arms})
        row = [*self._cell(cell), "–".join(str(n) for n in dict.fromkeys([numbers[0], numbers[-1]]))]
        for arm in self.question.arms:
            row.append(self._loss(cell.key, arm))
            row += [self._difference(cell, arm)] if arm != self.question.reference else []
            row += [self._multiplier(cell, arm)] if arm in self.with_multiplier else []
        return tuple(row)

    def best_cells(self) -> list[tuple[int, int]]:
        """Row and column of the best loss of each row."""
        groups, columns = self.headings()
        place = {
            group: n for n, (group, name) in enumerate(zip(groups, columns, strict=True)) if name == "loss"
        }
        best = [(number, self.best[cell.key][0]) for number, cell in enumerate(self.cells)]
        return [(number, place[arm]) for number, arm in best if arm]

    def breaks(self) -> frozenset[int]:
        """The rows above which a rule stands."""
        return phrases.breaks([cell.setting for cell in self.cells])


class _OneBelowTheOther(_Made):
    """A row for each cell and arm; what is the same as in the row above is left blank."""

    among = "between two rules"

    def headings(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """No heading over the columns, and their own."""
        columns = [
            *self.question.varying_settings,
            "rung",
            "N",
            "tokens",
            "arm",
            "seeds",
            "loss",
            "difference",
        ]
        columns += ["multiplier"] if self.with_multiplier else []
        return ("",) * len(columns), tuple(columns)

    @cached_property
    def _lines(self) -> list[tuple[Cell, str]]:
        """The cell and arm of each row; an arm that was not run in a cell has none."""
        trials = self.question.trials
        run = {arm: set(self.question.keys(trials[trials["arm"] == arm])) for arm in self.question.arms}
        return [
            (cell, arm)
            for cell in self.cells
            for arm in self.question.arms
            if arm == self.question.reference or cell.key in run[arm]
        ]

    def rows(self) -> list[tuple[str, ...]]:
        """The text of each row."""
        return [self._row(cell, arm) for cell, arm in self._lines]

    def _row(self, cell: Cell, arm: str) -> tuple[str, ...]:
        is_reference = arm == self.question.reference
        named = self._cell(cell)
        row = named if is_reference else [""] * len(named)
        row += [arm, str(self._seeds(arm, cell.key)), self._loss(cell.key, arm)]
        row += ["reference" if is_reference else self._difference(cell, arm)]
        row += [self._multiplier(cell, arm)] if self.with_multiplier else []
        return tuple(row)

    def best_cells(self) -> list[tuple[int, int]]:
        """Row and column of the best loss of each cell."""
        column = self.headings()[1].index("loss")
        return [(row, column) for row, (cell, arm) in enumerate(self._lines) if self.best[cell.key][0] == arm]

    def breaks(self) -> frozenset[int]:
        """The rows above which a rule stands."""
        firsts = (row for row, (_, arm) in enumerate(self._lines) if arm == self.question.reference)
        return frozenset(row for row in firsts if row)


def _multipliers(question: Question) -> tuple[dict[str, dict[Key, Multiplier]], list[str]]:
    """Compute multipliers of each arm by cell, and the reasons where there are none."""
    found: dict[str, dict[Key, Multiplier]] = {arm: {} for arm in question.arms}
    reasons = []
    for _, part in question.lines():
        for arm in part.others:
            compute = part.compute(arm)
            pairs = part.pairs(arm)
            reason = line_to_show_problem(pairs, part.settings.law)
            own: list[Multiplier] = []
            if not reason:
                own, reason = multipliers_at(pairs, part.settings, list(compute.values()))
            reasons += [f"{arm}: {reason}"] if reason else []
            found[arm].update(zip(compute, own, strict=False))
    return found, list(dict.fromkeys(reasons))
