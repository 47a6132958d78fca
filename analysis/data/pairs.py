"""Pairs: two trials of different arms that agree in everything but the arm and the tuned fields."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.data import tidy
from scalevec.analysis.data.runs import HAS_RESULT, differing, joined_labels
from scalevec.analysis.data.values import CELL_COLUMNS
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import count, joined, plural, shortened
from scalevec.analysis.options import AnalysisOptions


class PairKind(StrEnum):
    """What came of a pair; of ``UNPAIRED`` the table does not hold the other arm's row."""

    COMPLETE = "complete"
    ARM_DIVERGED = "arm diverged"
    REFERENCE_DIVERGED = "reference diverged"
    BOTH_DIVERGED = "both diverged"
    WAITING = "no result yet"
    FAILED = "failed or cancelled"
    UNPAIRED = "one side only"


WITHOUT_RESULT = (PairKind.WAITING, PairKind.FAILED)
"""Planned pairs (both sides have a row) that have no result: a diverged trial is one, a failed one is not."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of one arm with the reference, one row each.

    ``table`` has the pair's key columns, ``cell`` (a number), ``kind`` (a :class:`PairKind`), and each
    side's columns with the suffixes ``_reference`` and ``_arm``.
    """

    table: pd.DataFrame
    cell_columns: tuple[str, ...]
    cluster: str = "cluster"
    """The column that says which trials are not independent."""
    one_sided: tuple[str, ...] = ()
    """The settings in which one of the two arms has no trial at all, and so no pair, as text."""
    seeds_differ: bool = False
    """Whether a seed's random numbers are stated to differ from rung to rung."""
    at_random: bool = False
    """Whether the arms have no seed in common, so that runs of a cell are paired at random."""
    next_look: int | None = None
    """The seeds of the next declared look, while the looks so far decide nothing."""

    def of_kind(self, *kinds: PairKind) -> pd.DataFrame:
        """The pairs of these kinds."""
        return self.table[self.table["kind"].isin(kinds)]

    @property
    def settings(self) -> list[str]:
        """The columns of a cell beside rung and tokens."""
        return [name for name in self.cell_columns if name not in ("rung", "n_tokens")]

    @property
    def absences(self) -> dict[PairKind, tuple[str, ...]]:
        """The names of the pairs that have no difference, by kind."""
        return {kind: tuple(self.names(kind)) for kind in PairKind if kind != PairKind.COMPLETE}

    @property
    def planned(self) -> pd.DataFrame:
        """The pairs of which both sides have a row, with a result or not."""
        return self.table[self.table["kind"] != PairKind.UNPAIRED]

    @cached_property
    def n_without_result(self) -> int:
        """Planned pairs that have no result."""
        return int(self.table["kind"].isin(WITHOUT_RESULT).sum())

    @property
    def is_interim(self) -> bool:
        """Whether a planned pair has no result, or a declared look is still to come: nothing is claimed."""
        return self.n_without_result > 0 or self.next_look is not None

    @property
    def progress(self) -> str:
        """How many of the planned pairs have a result, as text."""
        n_planned = len(self.planned)
        return f"{n_planned - self.n_without_result} of {plural(n_planned, 'pair')}"

    def cut(self, keep: tidy.BoolArray) -> "Pairs":
        """Only the pairs ``keep`` [pairs], with the numbers of their cells."""
        return replace(self, table=self.table[keep].reset_index(drop=True))

    @property
    def same_trials(self) -> bool:
        """Whether both sides of every complete pair *are* one trial, identical by construction."""
        if "trial_id_arm" not in self.complete or self.complete.empty:
            return False
        # Other tools count the trials of each study from 0.
        sides = (
            self.complete[f"{name}_arm"] == self.complete[f"{name}_reference"]
            for name in ("trial_id", "loss")
        )
        return bool(all(side.all() for side in sides))

    @cached_property
    def complete(self) -> pd.DataFrame:
        """Pairs of which both trials completed."""
        return self.of_kind(PairKind.COMPLETE)

    @property
    def differences(self) -> tidy.FloatArray:
        """Arm minus reference, nats/token [complete pairs]."""
        return (self.complete["loss_arm"] - self.complete["loss_reference"]).to_numpy(float)

    @property
    def cells(self) -> tidy.FloatArray:
        """The cell of each complete pair [complete pairs]."""
        return self.complete["cell"].to_numpy(float)

    @property
    def records_streams(self) -> bool:
        """Whether every trial of the complete pairs says which stream its random numbers follow from."""
        streams = [name for name in ("stream_reference", "stream_arm") if name in self.complete]
        values = self.complete[streams]
        return len(streams) == 2 and bool((values.notna() & (values != "")).all(axis=None))

    @property
    def names_seeds(self) -> bool:
        """Whether seeds are told apart by a column: of one number alone nothing is known to repeat."""
        return bool(self.complete["seed"].nunique() > 1)

    @property
    def seeds_repeat(self) -> bool:
        """Whether most complete pairs share their cell with another: then their laws are by least squares."""
        return tidy.mostly_repeated(self.cells)

    @cached_property
    def clusters(self) -> npt.NDArray[np.intp]:
        """A number for each complete pair; pairs that are not independent share it.

        They are those of which any trials share a cluster or a stream and, where no stream is recorded, those
        of one rung and seed.
        """
        labels = self._recorded_labels()
        if not self.records_streams and self.names_seeds:
            complete = self.complete
            labels.append("seed\n" + complete["rung"].astype(str) + "\n" + complete["seed"].astype(str))
        return joined_labels(labels)

    @property
    def related(self) -> bool:
        """Whether some complete pairs are recorded to share a cluster or a stream."""
        return len(np.unique(joined_labels(self._recorded_labels()))) < len(self.complete)

    def _recorded_labels(self) -> "list[pd.Series[str]]":
        """The clusters of both sides, and the streams where they are recorded."""
        kinds = [self.cluster, *(["stream"] if self.records_streams else [])]
        # Labels of two kinds are never the same. A column that is part of the pair's key stands there once.
        return [
            f"{kind}\n" + self.complete[name].astype(str)
            for kind in kinds
            for name in (kind, f"{kind}_reference", f"{kind}_arm")
            if name in self.complete
        ]

    def names(self, *kinds: PairKind) -> list[str]:
        """Return the pairs of these kinds as text, one for each pair (see :meth:`names_of`)."""
        return self.names_of(self.of_kind(*kinds))

    def names_of(self, pairs: pd.DataFrame) -> list[str]:
        """Return ``pairs``, rows of the table, as text: ``55k, seed 1``.

        Settings that vary are named, and the tokens where a rung was planned with several budgets.
        """
        if pairs.empty:
            return []
        settings = tidy.varying(self.table, self.settings)
        has_budgets = bool((self.table.groupby("rung", dropna=False)["n_tokens"].nunique() > 1).any())
        names = []
        for row in pairs[["rung", "n_tokens", "seed", *settings]].to_dict("records"):
            budget = [f"{count(row['n_tokens'])} tokens"] if has_budgets else []
            seed = named("seed {}", [row["seed"]])
            names.append(", ".join([*named("{}", [row[c] for c in ["rung", *settings]]), *budget, *seed]))
        return names


def paired_by(table: pd.DataFrame, reference: str, arm: str, options: AnalysisOptions) -> Pairs:
    """Pair the comparison trials of ``arm`` with those of ``reference``; ``table`` is checked.

    Raises :class:`DataError` where two rows of an arm have the same key.
    """
    tidy.require_column(table, options.cluster)
    rows = tidy.comparison_rows(table)
    cell_columns = tidy.columns_of_cells(rows[rows["arm"].isin([reference, arm])], options.settings)
    # Random numbers of two identity versions differ: equal seeds are not equal starts.
    key = [*cell_columns, *(name for name in (tidy.VERSION,) if name in rows), "seed", "alone"]
    # A run without a seed pairs with none, unless no run has one.
    alone = rows.index.to_series().where(rows["seed"].isna() & bool(rows["seed"].notna().any()))
    sizes = {"compute": tidy.variable_of(rows, "C", options), "size": tidy.variable_of(rows, "N", options)}
    rows = rows.assign(**sizes, alone=alone)
    sides = [_one_arm(rows, name, key) for name in (reference, arm)]
    merged = sides[0].merge(sides[1], how="outer", on=key, suffixes=("_reference", "_arm"), sort=False)
    merged, one_sided = _in_common_settings(merged, cell_columns)
    kinds = [_kind(a, b).value for a, b in zip(merged["status_reference"], merged["status_arm"], strict=True)]
    size = merged["size_reference"].fillna(merged["size_arm"])
    merged = merged.copy().assign(kind=kinds, size=size)  # pandas warns of columns put into very many blocks
    # By size, not by the text of the rungs: 1.02643e+08 stands before 1.01361e+09.
    merged = merged.sort_values(["size", "n_tokens", *key], kind="stable", ignore_index=True)
    merged["cell"] = merged.groupby(cell_columns, sort=False, dropna=False).ngroup()
    stated = options.repeated_seeds == "independent"
    return Pairs(merged, tuple(cell_columns), options.cluster, one_sided, stated)


def named(form: str, values: Iterable[Any]) -> list[str]:
    """Those of ``values`` that are there, in ``form``: a field that a trainer does not have has no name."""
    return [form.format(value) for value in values if not pd.isna(value) and value != ""]


def _in_common_settings(
    merged: pd.DataFrame, cell_columns: list[str]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The pairs in settings in which both arms have some trial, and the names of the other settings.

    There nothing was lost: a fractional design runs an arm in a part of the settings. Where the arms have no
    setting in common, every pair stays.
    """
    settings = tidy.varying(merged, [name for name in cell_columns if name not in ("rung", "n_tokens")])
    if not settings:
        return merged, ()
    groups = merged.groupby(settings, dropna=False, sort=True)
    common = (groups[["status_reference", "status_arm"]].transform("count") > 0).all(axis=1)
    if not common.any():
        return merged, ()
    rows = merged.loc[~common, settings].itertuples(index=False, name=None)
    names = {", ".join(named("{}", row)) or f"no {joined(settings, 'or')}" for row in rows}
    return merged[common].reset_index(drop=True), tuple(sorted(names))


def placed(rows: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with what names the cell of a trial that has not run yet, where the others leave no doubt.

    A trial that never started knows its rung and seed; its tokens, corpus or architecture stand in no record.
    """
    unknown = ~rows["status"].isin(HAS_RESULT)
    if not unknown.any():
        return rows
    rows = rows.copy()
    alike = [name for name in ("rung", "tokens_per_parameter") if name in rows]
    for name in ("n_params", *(column for column in (*CELL_COLUMNS, tidy.VERSION) if column in rows)):
        known = rows[name].mask(rows[name] == "")
        values = known.groupby([rows[column] for column in alike], dropna=False)
        only = values.transform("first").where(values.transform("nunique") == 1)
        rows[name] = rows[name].mask(unknown & known.isna() & only.notna(), only)
    return rows


def _one_arm(rows: pd.DataFrame, arm: str, key: list[str]) -> pd.DataFrame:
    of_arm = rows[rows["arm"] == arm]
    twice = of_arm[key].duplicated()
    if twice.any():
        values = of_arm[twice].iloc[0]
        values = values.astype(object).where(values.notna(), "")
        texts = {name: count(values[name]) if name == "n_tokens" else values[name] for name in key}
        shown = ", ".join(text for name in key for text in named(f"{name} {{}}", [texts[name]]))
        cells = np.asarray(of_arm.groupby(key, sort=False, dropna=False).ngroup(), float)
        columns = [name for name in differing(of_arm, cells) if name not in key]
        unlike = f" (they differ in {shortened(columns)})" if columns else ""
        if not columns and "seed" in key and (rows["seed"] == 0).all():
            unlike += "; no seed tells them apart: number the runs of a cell in a column seed"
        raise DataError(
            f"arm {arm!r} has two rows with {shown}; a pair needs one{unlike}: choose one with --where, say "
            "which column tells repeated runs apart: --map seed=COLUMN, or which are settings of both arms: "
            f"--settings {columns[0] if len(columns) == 1 else 'COLUMN'}"
        )
    return of_arm


def _kind(reference: object, arm: object) -> PairKind:
    sides = {reference, arm}
    if not all(isinstance(side, str) for side in sides):
        return PairKind.UNPAIRED
    if not sides <= HAS_RESULT:
        return PairKind.FAILED if sides <= HAS_RESULT | {"failed", "cancelled"} else PairKind.WAITING
    if reference == arm:
        return PairKind.COMPLETE if arm == "completed" else PairKind.BOTH_DIVERGED
    return PairKind.ARM_DIVERGED if arm == "diverged" else PairKind.REFERENCE_DIVERGED


def differs(pairs: Pairs, column: str, absent: object = None) -> tidy.BoolArray:
    """In which complete pairs the two sides differ in ``column`` (in none where the column is not there).

    ``absent`` is what a side has that says nothing.
    """
    complete = pairs.complete
    if f"{column}_arm" not in complete:
        return np.zeros(len(complete), bool)
    # Values, not their text: beside a pair that lacks a side a count is 0.0, elsewhere it is 0.
    columns = (complete[f"{column}_{side}"].astype(object) for side in ("reference", "arm"))
    left, right = (column.where(column.notna(), absent).to_numpy() for column in columns)
    return np.asarray(left != right, bool)
