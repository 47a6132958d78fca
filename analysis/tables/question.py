"""What a table is made from: checked trials, a reference, and how differences and laws are estimated.

Means and differences are pooled as ``scalevec compare`` pools them, so that a table and a verdict agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis import inference
from analysis.comparison import other_arms
from analysis.data import (
    BoolArray,
    DataError,
    FloatArray,
    checked,
    comparison_rows,
    compute_of,
    parameters_of,
)
from analysis.inference import Estimate
from analysis.pairs import CELL_COLUMNS, Pairs, make_pairs, run_as_a_grid, setting_columns, varying
from analysis.settings import FitSettings
from analysis.where import select
from analysis.words import is_loss

_ORDER = ("n_params", "rung", "n_tokens", "learning_rate", "seed", "trial_id", "optimizer", "schedule")
Key = tuple[Any, ...]
"""The values that name a cell, in the order of :attr:`Question.cell_columns`; None for a missing one."""


@dataclass(frozen=True)
class Cell:
    """One rung and setting: ``setting`` holds the settings that vary in the table, as text."""

    key: Key
    rung: str
    n_params: float
    n_tokens: int
    setting: dict[str, str]


@dataclass(frozen=True)
class Mean:
    """A mean of ``n`` values with its interval (None without a degree of freedom), nats a token."""

    value: float
    interval: tuple[float, float] | None
    n: int

    @property
    def separated(self) -> bool:
        """Whether the interval excludes zero."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


class Question:
    """The comparison ``trials`` of a table, one arm of which is the ``reference``."""

    def __init__(
        self, trials: pd.DataFrame, reference: str, settings: FitSettings, margin: float | None = None
    ) -> None:
        self.trials, self.reference, self.settings, self.margin = trials, reference, settings, margin
        self.others = other_arms(trials, reference)
        columns = [name for name in CELL_COLUMNS if name in trials.columns]
        further = setting_columns(trials, None)
        self.further = [*further, *run_as_a_grid(trials, [*columns, *further])]
        self.cell_columns = [*columns, *self.further]
        self._pairs: dict[tuple[str, str], Pairs] = {}

    @property
    def arms(self) -> list[str]:
        """All arms, the reference first."""
        return [self.reference, *self.others]

    def require(self, table: str, *columns: str, why: str) -> None:
        """Raise :class:`DataError` that names every column of ``columns`` that the source lacks."""
        absent = [name for name in columns if not self.has(name)]
        if absent:
            raise DataError(
                f"table {table!r} needs {', '.join(absent)} ({why}), which this source does not hold; its "
                f"columns: {', '.join(sorted(map(str, self.trials.columns)))}"
            )

    def has(self, column: str) -> bool:
        """Whether some trial has a value in ``column``."""
        return column in self.trials and bool(
            (self.trials[column].notna() & (self.trials[column] != "")).any()
        )

    @property
    def varying_settings(self) -> list[str]:
        """The settings beside rung and tokens that take more than one value."""
        return varying(self.trials, [name for name in self.cell_columns if name not in ("rung", "n_tokens")])

    def part(self, rows: "pd.Series[bool]") -> "Question | None":
        """The same question on some trials; None where they leave nothing to compare."""
        kept = self.trials[rows].reset_index(drop=True)
        arms = set(kept["arm"])
        if self.reference not in arms or len(arms) < 2:
            return None
        return Question(kept, self.reference, self.settings, self.margin)

    def keys(self, rows: pd.DataFrame) -> list[Key]:
        """The cell of each row."""
        columns = [
            rows[name].astype(object).where(rows[name].notna(), None).tolist() for name in self.cell_columns
        ]
        return list(zip(*columns, strict=True))

    def cells(self) -> list[Cell]:
        """All cells: by setting, then by size."""
        shown = self.varying_settings
        size = parameters_of(self.trials, self.settings.n_convention)
        found: dict[Key, Cell] = {}
        is_reference = (self.trials["arm"] == self.reference).to_numpy()
        order = np.argsort(~is_reference, kind="stable")  # the reference's N, where arms differ in it
        keys = self.keys(self.trials)
        for place in order.tolist():
            row = self.trials.iloc[place]
            setting = {name: _text(row[name]) for name in shown}
            cell = Cell(keys[place], str(row["rung"]), float(size[place]), int(row["n_tokens"]), setting)
            found.setdefault(keys[place], cell)
        return sorted(
            found.values(), key=lambda c: (_order(c.setting), c.n_params, c.n_tokens, tuple(map(str, c.key)))
        )

    def of_arm(self, arm: str, status: str = "completed") -> pd.DataFrame:
        """The trials of ``arm`` that have ``status``."""
        return self.trials[(self.trials["arm"] == arm) & (self.trials["status"] == status)]

    def losses(self, arm: str) -> dict[Key, Mean]:
        """Mean terminal loss of ``arm`` in each cell over its seeds."""
        rows = self.of_arm(arm)
        clusters = np.asarray(pd.factorize(rows[self.settings.cluster])[0])
        return self._means(rows["loss"].to_numpy(float), self.keys(rows), clusters)

    def diverged(self, arm: str) -> set[Key]:
        """The cells in which some trial of ``arm`` diverged."""
        return set(self.keys(self.of_arm(arm, "diverged")))

    def values(self, arm: str, column: str) -> dict[Key, list[Any]]:
        """The distinct values of ``column`` of the completed trials of ``arm`` in each cell, in order."""
        rows = self.of_arm(arm)
        found: dict[Key, list[Any]] = {}
        if column in rows:
            for key, value in zip(self.keys(rows), rows[column].tolist(), strict=True):
                own = found.setdefault(key, [])
                if value not in own and value == value and value != "":
                    own.append(value)
        return found

    def pairs(self, arm: str, against: str | None = None) -> Pairs:
        """The pairs of ``arm`` with another arm, the reference unless one is given."""
        names = (against or self.reference, arm)
        if names not in self._pairs:
            self._pairs[names] = make_pairs(
                self.trials,
                *names,
                self.further,
                cluster=self.settings.cluster,
                n_convention=self.settings.n_convention,
                c_convention=self.settings.c_convention,
            )
        return self._pairs[names]

    def differences(self, arm: str, against: str | None = None) -> dict[Key, Mean]:
        """Mean paired difference in each cell, ``arm`` minus the other."""
        pairs = self.pairs(arm, against)
        return self._means(pairs.differences, self.keys(pairs.complete), pairs.clusters)

    def overall(self, arm: str) -> Estimate | None:
        """The mean difference to the reference with equal weight for each cell; None without a pair."""
        pairs = self.pairs(arm)
        values = pairs.differences
        return inference.overall(values, pairs.cells, pairs.clusters) if len(values) else None

    def _means(self, values: FloatArray, keys: Sequence[Key], clusters: Any) -> dict[Key, Mean]:
        """The noise is pooled over cells; where cells share clusters, each has that of its own seeds."""
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        cells = np.array([places[key] for key in keys], float)
        pooled = not inference.dependent(clusters)
        found = {}
        for key, place in places.items():
            own: BoolArray = cells == place
            chosen = np.ones(len(cells), bool) if pooled else own
            contrast = np.eye(len(places))[place] if pooled else np.ones(1)
            estimate = inference.contrast(values[chosen], cells[chosen], contrast)
            found[key] = Mean(estimate.value, estimate.interval(self.settings.level), int(own.sum()))
        return found

    def compute(self, arm: str) -> dict[Key, float]:
        """C of ``arm`` in each cell, FLOPs."""
        rows = self.trials[self.trials["arm"] == arm]
        c = compute_of(rows, self.settings.n_convention, self.settings.c_convention)
        return dict(zip(self.keys(rows), c.tolist(), strict=True))

    def lines(self) -> "list[tuple[dict[str, str], Question]]":
        """The parts on which a law in one variable can stand: one setting, one ratio of tokens to N."""
        columns = self.varying_settings + varying(
            self.trials, [c for c in ("tokens_per_parameter",) if c in self.trials]
        )
        return self.split(columns)

    def split(self, columns: Sequence[str]) -> "list[tuple[dict[str, str], Question]]":
        """The parts with one value of each of ``columns``; those that hold no pair of arms are left out."""
        if not columns:
            return [({}, self)]
        parts = []
        for values, rows in self.trials.groupby(list(columns), sort=True, dropna=False):
            part = self.part(pd.Series(self.trials.index.isin(rows.index), index=self.trials.index))
            if part is not None:
                names = values if isinstance(values, tuple) else (values,)
                parts.append((dict(zip(columns, map(_text, names), strict=True)), part))
        return parts


def _text(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(setting: dict[str, str]) -> tuple[tuple[int, float, str], ...]:
    """Settings that are numbers by size, others by name."""
    return tuple(_sortable(text) for text in setting.values())


def _sortable(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def question(
    results: pd.DataFrame,
    *,
    reference: str,
    settings: FitSettings,
    margin: float | None = None,
    where: str | None = None,
) -> Question:
    """The question that ``results`` (tidy rows) are asked. Raises :class:`DataError`.

    Trials are put in the order of a sweep's tidy table, so that no digit hangs on the order of the rows; arms
    keep the order in which the table names them.
    """
    trials = comparison_rows(_of_column(checked(select(results, where)), settings.y))
    place = {arm: number for number, arm in enumerate(dict.fromkeys(trials["arm"]))}
    order = [name for name in _ORDER if name in trials]
    ordered = trials.sort_values(order, kind="stable")
    ordered = ordered.sort_values("arm", key=lambda arms: arms.map(place), kind="stable", ignore_index=True)
    return Question(ordered, reference, settings, margin)


def _of_column(table: pd.DataFrame, y: str) -> pd.DataFrame:
    """The checked table with the losses of column ``y`` under the name loss."""
    if y == "loss":
        return table
    if not is_loss(y):
        raise DataError(f"y is {y!r}; a table shows losses: allowed is a column whose name starts with loss")
    table = checked(table, ("n_params", "n_tokens", y))
    return table.assign(loss=table[y])
