"""What makes an imported row doubtful: its unit, its size beside the others', a copy of another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import plain_columns, shortened
from scalevec.analysis.errors import DataError

LARGEST_LOSS = 15.0
"""nats/token; a uniform guess among three million tokens has no more."""
APART = 1.35
"""Losses at one N and tokens differ by no such factor, unless they are of two units or a run has failed."""
BITS_PER_NAT = 1 / math.log(2)
SMALLEST_COUNT = 1e4
"""Parameters; fewer beside many times more are in another unit, as millions beside plain counts."""


MOST_PROBLEMS = 10


@dataclass
class Findings:
    """What is found out about tables on their way."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, source: str, of_source: "Findings") -> None:
        """Add what was found out about one source."""
        if of_source.problems:
            self.problems += [f"{source}:", *(f"  {problem}" for problem in of_source.problems)]
        self.notes += [f"{source}: {note}" for note in of_source.notes]

    def refuse(self) -> None:
        """Raise :class:`DataError` with all problems, if there are any."""
        if self.problems:
            more = len(self.problems) - MOST_PROBLEMS
            lines = [*self.problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
            raise DataError("\n".join(lines))


def checked_sizes(table: pd.DataFrame, findings: Findings) -> None:
    """Add a problem where N or tokens of some rows are in another unit than those of others."""
    for name in ("n_params", "n_tokens"):
        values = table[name]
        small = (values < SMALLEST_COUNT) & (values > 0)
        if small.any() and (values >= SMALLEST_COUNT).any():
            findings.problems.append(
                f"{name} of rows {listed(small)} is below {SMALLEST_COUNT:,.0f} beside {values.max():.4g}: "
                "of another unit? Give plain counts, or 10.6M"
            )
        counted = table["status"].isin(["completed", "diverged"])
        bad = counted & ~(np.isfinite(values) & (values > 0))
        if bad.any():
            findings.problems.append(f"{name} of rows {listed(bad)} is missing or not above zero")


def checked_losses(table: pd.DataFrame, unit: str, findings: Findings) -> "pd.Series[float]":
    """The losses in nats/token where ``unit`` allows it; adds a problem where some cannot be in ``unit``."""
    loss = table["loss"].where(table["status"] == "completed")
    nats = in_nats(loss, unit, table)
    if unit == "perplexity":
        _refuse(loss < 1, "is below 1, which no perplexity is", findings)
    elif unit == "bits-per-byte":
        if "bytes_per_token" not in table:
            findings.notes.append(
                "losses stay in bits per byte; say so to fit and compare: --unit bits-per-byte"
            )
    else:
        too_large = f"is more than {LARGEST_LOSS:g} nats/token: a perplexity? --unit perplexity takes it"
        _refuse(nats > LARGEST_LOSS, f"{too_large} (of all rows)", findings)
        _refuse(nats <= 0, "is not above zero", findings)
    return nats


def in_nats(loss: "pd.Series[float]", unit: str, table: pd.DataFrame) -> "pd.Series[float]":
    """``loss`` [rows] in nats/token; bits per byte stay where ``table`` [rows] has no ``bytes_per_token``."""
    if unit == "perplexity":
        return loss.where(loss >= 1).map(math.log, na_action="ignore")
    if unit == "bits-per-byte":
        return loss * math.log(2) * table["bytes_per_token"] if "bytes_per_token" in table else loss
    return loss * math.log(2) if unit == "bits" else loss


def _refuse(bad: "pd.Series[bool]", why: str, findings: Findings) -> None:
    if bad.any():
        findings.problems.append(f"loss of rows {listed(bad)} {why}")


def without_copies(table: pd.DataFrame, findings: Findings) -> pd.DataFrame:
    """``table`` with each run once; adds a problem where rows of one run differ.

    Where a column ``cluster`` says which rows are dependent, a run may have several token counts.
    """
    copies = table.duplicated(plain_columns(table))
    if copies.any():
        findings.notes.append(f"rows {listed(copies)} repeat others in every column: left out")
    kept = table[~copies]
    if "run" in kept:
        of_row = ["run", "n_tokens"] if {"cluster", "n_tokens"} <= set(kept) else ["run"]
        twice = kept["run"].ne("") & kept.duplicated(of_row, keep=False)
        if twice.any():
            names: Sequence[object] = kept.loc[twice, "run"].unique().tolist()
            findings.problems.append(
                f"rows {shortened((kept.index[twice] + 1).tolist())} are of the same runs "
                f"({shortened(names)}) and differ: one row per run is needed, its last; checkpoints of runs "
                "are taken where a column says so (--map cluster=...)"
            )
    return kept


def checked_units(table: pd.DataFrame, findings: Findings) -> None:
    """Add a problem where some losses look as if they were in another unit than others at their N and tokens.

    A minority of higher losses may be of runs that failed to train: that is noted, unless they are higher by
    as much as bits are than nats. The index of ``table`` names its rows.
    """
    completed = table[table["status"] == "completed"]
    logs: pd.Series[float] = np.log(completed["loss"])
    point = [name for name in ("n_params", "n_tokens", "corpus") if name in completed]
    higher = [_higher(logs[rows.index]) for _, rows in completed.groupby(point, dropna=False)]
    is_higher = pd.concat([pd.Series(dtype=bool), *higher])
    if is_higher.empty:
        return
    split, others = logs[is_higher.index], logs.drop(is_higher.index)
    low, high = (float(split[is_higher == side].median()) for side in (False, True))
    n_high = is_higher.sum() + (others > (low + high) / 2).sum()
    odd = is_higher if 2 * n_high < len(logs) else ~is_higher
    as_bits = abs(high - low - math.log(BITS_PER_NAT)) < math.log(1.03) and is_higher.sum() > 1
    how = "as bits are to nats" if as_bits else "of another unit?"
    names = _named(odd)
    words = f"losses at the same N and tokens differ by a factor of {math.exp(high - low):.2f}"
    if as_bits or odd is not is_higher:
        findings.problems.append(
            f"{words}, {how} ({names}): import what is in one unit with its --unit, or leave these rows out"
        )
    else:
        findings.notes.append(f"{words} ({names}): runs that failed to train? They count as they are")


def _higher(logs: "pd.Series[float]") -> "pd.Series[bool]":
    """Whether each of these lies above their widest gap; empty where there is no gap as wide as that."""
    ordered = logs.sort_values()
    gaps = ordered.diff()
    if not (gaps > math.log(APART)).any():
        return pd.Series(dtype=bool)
    above: pd.Series[bool] = ordered >= ordered.iloc[int(np.nanargmax(gaps))]
    return above


def without_repeats(table: pd.DataFrame, common: Sequence[str], findings: Findings) -> pd.DataFrame:
    """``table`` of several sources without runs that two of them have; a problem where such runs differ.

    ``common`` are our columns that every source has; without a run or seed among them nothing is known. The
    index of ``table`` names its rows.
    """
    what_ran = [name for name in common if name in _WHAT_RAN]
    if not {"run", "seed"} & set(what_ran):
        return table
    known = table[what_ran].notna().all(axis=1)
    again = known & table.duplicated(list(common))
    if again.any():
        findings.notes.append(f"{_named(again)}: in another source too, left out")
    kept = table[~again]
    twice = known[~again] & kept.duplicated(what_ran, keep=False)
    if "run" in what_ran and twice.any():
        names = _named(twice)
        findings.problems.append(
            f"{names} are of the same runs and differ: one row per run is needed, its last"
        )
    return kept


_WHAT_RAN = ("run", "arm", "rung", "seed", "n_params", "n_tokens", "optimizer", "schedule", "learning_rate")


def _named(which: "pd.Series[bool]") -> str:
    """The names of rows in an index, of which the end tells most: the beginning is a path."""
    return shortened([str(name)[-40:] for name in which.index[which]])


def listed(which: "pd.Series[bool]") -> str:
    """The numbers, from 1, of the rows that ``which`` tells."""
    return shortened((np.flatnonzero(which) + 1).tolist())
