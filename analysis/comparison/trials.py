"""The comparison trials of a table with their pairs: verdicts, tables and figures are computed from these."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.differences import CellMean, PairedArm, cell_means
from scalevec.analysis.comparison.plan import VERDICTS, as_first_judged, at_looks
from scalevec.analysis.data.pairs import Pairs, paired_by, placed
from scalevec.analysis.data.runs import at_planned_end, best_rate_of_each_cell, last_of_each_run
from scalevec.analysis.data.tidy import (
    checked,
    columns_of_cells,
    comparison_rows,
    require_column,
    variable_of,
    varying,
)
from scalevec.analysis.data.values import number
from scalevec.analysis.data.where import rows_left_out, select
from scalevec.analysis.errors import DataError, nearest
from scalevec.analysis.fits.arm_data import with_default_law
from scalevec.analysis.fits.fit import fitted_arms
from scalevec.analysis.fits.predicted_points import FittedArm
from scalevec.analysis.formatting import chosen_rows, is_loss, plural, short_names
from scalevec.analysis.laws import law_named, with_columns
from scalevec.analysis.options import AnalysisOptions, with_meanings
from scalevec.analysis.statistics.sample import PairedSample

_ORDER = ("n_params", "rung", "n_tokens", "learning_rate", "seed", "trial_id", "optimizer", "schedule")
Key = tuple[Any, ...]
"""The values that name a cell, by :attr:`ComparedTrials.cell_columns`; None for a missing one."""


@dataclass(frozen=True)
class Cell:
    """One rung and setting: ``setting`` holds the settings that vary in the table, as text."""

    key: Key
    rung: str
    n_params: float
    n_tokens: int
    setting: dict[str, str]

    @property
    def name(self) -> str:
        """The rung and the settings that vary."""
        return ", ".join([self.rung, *self.setting.values()])


@dataclass(frozen=True, eq=False)
class ComparedTrials:
    """The comparison trials of a table, one arm of which is the ``reference``.

    ``rows`` are checked, chosen and ordered, and their column ``loss`` is the one that is compared;
    ``source`` are all rows of the table, as they were given.
    """

    rows: pd.DataFrame
    reference: str
    others: tuple[str, ...]
    """The arms beside the reference, in the order of the table."""
    options: AnalysisOptions
    source: pd.DataFrame
    n_unplaced: int = 0
    """Trials without a result that were left out, since nothing says of which size and budget they are."""
    n_arms_left_out: int = 0
    """Arms of the source that the chosen rows do not hold: they count in Holm's correction all the same."""
    chosen: tuple[str, ...] = ()
    """How one run was chosen for each cell and seed, a sentence each."""
    asked_law: str = ""
    """The law that was asked for; that of the options is what it stands for on these rows."""
    checkpoints: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The rows before the last of each run: a law in N and D goes through them too."""

    @property
    def arms(self) -> list[str]:
        """All arms, the reference first."""
        return [self.reference, *self.others]

    @property
    def long_names(self) -> dict[str, str]:
        """What is shown for the name of each arm or rung that is too long."""
        return short_names([*self.arms, *self.rows["rung"].unique()])

    @cached_property
    def cell_columns(self) -> list[str]:
        """The columns that name a cell."""
        return columns_of_cells(self.rows, self.options.settings)

    @cached_property
    def varying_settings(self) -> list[str]:
        """The settings beside rung and tokens that take more than one value."""
        return varying(self.rows, [name for name in self.cell_columns if name not in ("rung", "n_tokens")])

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells: by setting, then by size."""
        size = variable_of(self.rows, "N", self.options)
        cells: dict[Key, Cell] = {}
        # The reference comes first: its N stands for the cell where arms differ in it.
        other = (self.rows["arm"] != self.reference).to_numpy()
        keys, rows = self.keys(self.rows), self.rows.to_dict("records")
        for position in np.argsort(other, kind="stable").tolist():
            key, row = keys[position], rows[position]
            setting = {name: _text(row[name]) for name in self.varying_settings}
            cell = Cell(key, str(row["rung"]), float(size[position]), int(row["n_tokens"]), setting)
            cells.setdefault(key, cell)

        def order(cell: Cell) -> tuple[Any, ...]:
            settings = tuple(map(_sortable, cell.setting.values()))
            return settings, cell.n_params, cell.n_tokens, tuple(map(str, cell.key))

        return sorted(cells.values(), key=order)

    def keys(self, rows: pd.DataFrame) -> list[Key]:
        """Return the cell of each of ``rows``, trials or pairs (of which the arm's side counts)."""
        columns = [rows[name if name in rows else f"{name}_arm"] for name in self.cell_columns]
        values = [column.astype(object).where(column.notna(), None) for column in columns]
        return list(zip(*values, strict=True))

    def has(self, column: str) -> bool:
        """Whether some trial has a value in ``column``."""
        return column in self.rows and bool((self.rows[column].notna() & (self.rows[column] != "")).any())

    def left_out(self, arms: Sequence[str]) -> int:
        """How many rows of ``arms`` the expression ``where`` leaves out."""
        where = self.options.where
        return rows_left_out(self.source, where, arms) if where else 0

    def chosen_rows(self) -> list[str]:
        """The expression that chose the rows and how many it left out, as one line; none for all rows."""
        return chosen_rows(self.options.where, self.left_out(self.arms))

    def of_arm(self, arm: str, status: str | None = None) -> pd.DataFrame:
        """The trials of ``arm``, only those that have ``status`` if one is given."""
        rows = self.rows[self.rows["arm"] == arm]
        return rows if status is None else rows[rows["status"] == status]

    @property
    def completed(self) -> pd.DataFrame:
        """The trials of all arms that have a result."""
        return self.rows[self.rows["status"] == "completed"]

    def values(self, arm: str, column: str) -> dict[Key, list[Any]]:
        """The distinct values of ``column`` of the completed trials of ``arm`` in each cell, in order."""
        rows = self.of_arm(arm, "completed")
        values: dict[Key, list[Any]] = {}
        for key, value in zip(self.keys(rows), rows.get(column, ()), strict=False):
            if value == value and value != "" and value not in values.setdefault(key, []):
                values[key].append(value)
        return values

    def compute(self, arm: str) -> dict[Key, float]:
        """C of ``arm`` in each cell, FLOPs."""
        rows = self.of_arm(arm)
        return dict(zip(self.keys(rows), variable_of(rows, "C", self.options).tolist(), strict=True))

    def diverged(self, arm: str) -> set[Key]:
        """The cells in which some trial of ``arm`` diverged."""
        return set(self.keys(self.of_arm(arm, "diverged")))

    def losses(self, arm: str) -> dict[Key, CellMean]:
        """Mean terminal loss of ``arm`` in each cell over its seeds."""
        rows = self.of_arm(arm, "completed")
        keys, clusters = self.keys(rows), pd.factorize(rows[self.options.cluster])[0]
        cells = pd.factorize(pd.Series(keys, dtype=object))[0]
        sample = PairedSample.of(rows["loss"].to_numpy(float), cells, clusters)
        return cell_means(sample, keys, self.options.level)

    @cached_property
    def _family(self) -> dict[str, PairedArm]:
        family, looks = [self._all_pairs(arm) for arm in self.others], self.options.looks
        verdicts = self.source.attrs.get(VERDICTS, ())
        due = at_looks(family, looks) if looks else [as_first_judged(each, verdicts) for each in family]
        return {paired.arm: paired for paired in due}

    def paired(self, arm: str) -> PairedArm:
        """The pairs of ``arm`` that a verdict is due on: at a declared look, or as they were first judged."""
        return self._family[arm]

    def _all_pairs(self, arm: str) -> PairedArm:
        """All pairs of an arm; runs of equal cells without a seed in common are paired at random.

        Such runs are independent, so that any order which does not follow from the losses gives a t interval
        that holds (one less in degrees of freedom than Welch's would have). It is that of the hashes of what
        each seed gave, whatever the seeds are called. So are arms with one seed in common beside others.
        """
        pairs = paired_by(self.rows, self.reference, arm, self.options)
        if _most_of_a_cell(pairs) < 2:
            rows = self.rows[self.rows["arm"].isin([self.reference, arm])]
            label = rows["seed"].where(rows["seed"].notna(), -1 - rows.index.to_series())
            losses = rows["loss"].map(repr).groupby([rows["arm"], label])
            of_seed = losses.transform(lambda of: crc32(" ".join(sorted(of)).encode()))
            rows = rows.iloc[np.argsort(of_seed, kind="stable")]
            number = rows.groupby(["arm", *pairs.cell_columns], dropna=False, sort=False).cumcount()
            drawn = paired_by(rows.assign(seed=number), self.reference, arm, self.options)
            if _most_of_a_cell(drawn) > _most_of_a_cell(pairs):
                pairs = replace(drawn, at_random=True)
        n_arms = len(self.others) + self.n_arms_left_out
        return PairedArm(self.reference, arm, pairs, self.options, n_arms)

    def interim(self) -> list[str]:
        """The arms with planned pairs that have no result, each with how many have one, as text."""
        return [f"{arm} {paired.progress}" for arm, paired in self._family.items() if paired.pairs.is_interim]

    def pairs(self, arm: str) -> Pairs:
        """The pairs of ``arm`` with the reference."""
        return self.paired(arm).pairs

    def differences(self, arm: str) -> dict[Key, CellMean]:
        """Mean paired difference in each cell, ``arm`` minus the reference."""
        pairs, level = self.pairs(arm), self.options.level
        keys = self.keys(pairs.complete)
        return cell_means(self.paired(arm).sample, keys, None if pairs.is_interim else level)

    def lines(self, *, alone: bool = False) -> "list[tuple[dict[str, str], ComparedTrials]]":
        """The parts on which a law in one variable can stand: one setting, one budget for each size."""
        ratio = [name for name in ("tokens_per_parameter",) if name in self.rows]
        by_size = self.rows.groupby("n_params")[ratio].nunique()
        return self.split(
            [*self.varying_settings, *(name for name in ratio if by_size[name].max() > 1)], alone=alone
        )

    @cached_property
    def law_parts(self) -> "list[tuple[dict[str, str], ComparedTrials]]":
        """The parts through each of which the law of the options can go, those of one arm alone too."""
        if law_named(self.options.law).variables == ("x",):
            return self.lines(alone=True)
        return self.split([] if len(self.checkpoints) else self.varying_settings, alone=True)

    @cached_property
    def laws(self) -> tuple[dict[str, FittedArm], list[str]]:
        """The law of each arm, and why others have none; without a hold-out where the rows can give none."""
        laws: dict[str, FittedArm] = {}
        reasons = []
        # The rows are chosen and checked: their rungs are text by now, which where need not compare with.
        options, law, every = replace(self.options, where=None), law_named(self.options.law), self.rows
        if len(self.checkpoints) and law.variables != ("x",):
            every = pd.concat([every, self.checkpoints], ignore_index=True)
        for arms in [self.arms] if law.per_arm else [[arm] for arm in self.arms]:
            rows = every[every["arm"].isin(arms)]
            for hold_out in dict.fromkeys((options.hold_out, "none")) if len(rows) else ():
                try:
                    fitted = fitted_arms(rows, replace(options, hold_out=hold_out))
                except DataError as error:
                    reasons.append(str(error))
                else:
                    laws |= {each.data.arm: each for each in fitted}
                    break
        return {arm: laws[arm] for arm in self.arms if arm in laws}, list(dict.fromkeys(reasons))

    def split(
        self, columns: Sequence[str], *, alone: bool = False
    ) -> "list[tuple[dict[str, str], ComparedTrials]]":
        """The parts with one value of each of ``columns``; those without a pair of arms only if ``alone``."""
        if not columns:
            return [({}, self)]
        if tuple(columns) not in self._parts:
            self._parts[tuple(columns)] = [
                (dict(zip(columns, map(_text, values), strict=True)), self._part(rows))
                for values, rows in self.rows.groupby(list(columns), sort=True, dropna=False)
            ]
        parts = self._parts[tuple(columns)]
        return [
            (setting, part)
            for setting, part in parts
            if alone or (part.others and (part.rows["arm"] == self.reference).any())
        ]

    @cached_property
    def _parts(self) -> "dict[tuple[str, ...], list[tuple[dict[str, str], ComparedTrials]]]":
        """The parts by their columns: tables and figures of one page share what is fitted to them."""
        return {}

    def _part(self, rows: pd.DataFrame) -> "ComparedTrials":
        others = tuple(arm for arm in self.others if (rows["arm"] == arm).any())
        return replace(self, rows=rows.reset_index(drop=True), others=others)


def _most_of_a_cell(pairs: Pairs) -> int:
    planned = pairs.planned["cell"].value_counts()
    return int(planned.max()) if len(planned) else 0


def _text(value: Any) -> str:
    if pd.isna(value):
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sortable(text: str) -> tuple[int, float, str]:
    """Settings that are numbers by size, others by name."""
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def compared_trials(
    results: pd.DataFrame, reference: str, options: AnalysisOptions, *, may_be_alone: bool = False
) -> ComparedTrials:
    """Return the trials of ``results`` (tidy rows) to be compared. Raises :class:`DataError`.

    The reference needs another arm unless it ``may_be_alone``.

    Trials are put in the order of a sweep's tidy table, so that no digit depends on the order of the rows;
    arms keep the order in which the table names them.
    """
    chosen, reference = select(results, options.where), str(reference)  # an arm called 0 may come as a number
    require_column(chosen, options.y)
    asked_law, options = options.law, with_meanings(options, results.columns)
    options = replace(options, law=with_columns(options.law, list(chosen.columns)))
    law_columns = law_named(options.law).own_columns
    whole = checked(chosen, ("n_params", "n_tokens", options.y, *law_columns), options.cluster)
    planned = placed(comparison_rows(whole))
    table = planned.dropna(subset=["n_params", "n_tokens"]).assign(loss=lambda rows: rows[options.y])
    n_unplaced, told = len(planned) - len(table), list[str]()
    ranks = {arm: number for number, arm in enumerate(dict.fromkeys(table["arm"]))}
    others = () if may_be_alone and list(ranks) == [reference] else _others(list(ranks), reference, results)
    earlier = table[:0]
    if others:
        of_runs, earlier = last_of_each_run(table, options.cluster)
        if before := len(table) - len(of_runs):
            left_out = f"({plural(before, 'row')} before it left out)"
            told.append(f"the last of each run's checkpoints is compared {left_out}")
        table = at_planned_end(of_runs)
        table, by_rate = best_rate_of_each_cell(table, options.settings or ())
        told += [by_rate] if by_rate else []
    rows, n_left_out = table.sort_values([name for name in _ORDER if name in table], kind="stable"), 0
    rows = rows.sort_values("arm", key=lambda arms: arms.map(ranks), kind="stable", ignore_index=True)
    if options.where and "arm" in results:
        compared = results[results["stage"] != "tuning"] if "stage" in results else results
        compared = compared[compared["n_params"].map(number).notna()]  # a footer is no arm
        n_left_out = max(compared["arm"].nunique() - len(ranks), 0)
    options = with_default_law(options, rows)
    return ComparedTrials(
        rows, reference, others, options, results, n_unplaced, n_left_out, tuple(told), asked_law, earlier
    )


def _others(arms: list[str], reference: str, table: pd.DataFrame) -> tuple[str, ...]:
    if not arms:
        raise DataError("there is no trial to compare yet: none beside those of tuning has a result")
    if reference not in arms:
        holding = [f"--map arm={name}" for name in table if (table[name].astype(str) == reference).any()]
        column = f"; a column arm is needed: {' or '.join(holding)}" if "arm" not in table and holding else ""
        raise DataError(f"reference is {reference!r}, which is no arm; {nearest(reference, arms)}{column}")
    if len(arms) == 1:
        raise DataError(f"reference is {reference!r}, the only arm; a comparison needs another one")
    return tuple(arm for arm in arms if arm != reference)


def compared_losses(
    results: pd.DataFrame, reference: str, options: AnalysisOptions, *, may_be_alone: bool = False
) -> ComparedTrials:
    """The same for tables and figures, which show losses only. Raises :class:`DataError`."""
    if not is_loss(y := options.y):
        raise DataError(f"y is {y!r}; a table shows losses: allowed is a column whose name starts with loss")
    return compared_trials(results, reference, options, may_be_alone=may_be_alone)
