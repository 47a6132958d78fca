"""What makes an imported row doubtful: its unit, its size beside the others', a copy of another."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from scalevec.analysis.data.runs import plain_columns, shortened

LARGEST_LOSS = 15.0
"""nats/token; a uniform guess among three million tokens has no more."""
SMALLEST_COUNT = 1e4
"""Parameters; fewer beside many times more are in another unit, as millions beside plain counts."""


def checked_sizes(table: pd.DataFrame, problems: list[str]) -> None:
    """Add a problem where N or tokens of some rows are in another unit than those of others."""
    for name in ("n_params", "n_tokens"):
        values = table[name]
        small = (values < SMALLEST_COUNT) & (values > 0)
        if small.any() and (values >= SMALLEST_COUNT).any():
            problems.append(
                f"{name} of rows {_listed(small)} is below {SMALLEST_COUNT:,.0f} beside {values.max():.4g}: "
                "of another unit? Give plain counts, or 10.6M"
            )
        counted = table["status"].isin(["completed", "diverged"])
        bad = counted & ~(np.isfinite(values) & (values > 0))
        if bad.any():
            problems.append(f"{name} of rows {_listed(bad)} is missing or not above zero")


def checked_losses(
    table: pd.DataFrame, unit: str, problems: list[str], notes: list[str]
) -> "pd.Series[float]":
    """The losses in nats/token where ``unit`` allows it; adds a problem where some cannot be in ``unit``."""
    loss = table["loss"].where(table["status"] == "completed")
    if unit == "perplexity":
        _refuse(loss < 1, "is below 1, which no perplexity is", problems)
        nats: pd.Series[float] = np.log(loss.where(loss >= 1))
        return nats
    if unit == "bits-per-byte" and "bytes_per_token" in table:
        return loss * math.log(2) * table["bytes_per_token"]
    if unit == "bits-per-byte":
        notes.append("losses stay in bits per byte; say so to fit and compare: --unit bits-per-byte")
        return loss
    in_nats = loss * math.log(2) if unit == "bits" else loss
    _refuse(
        in_nats > LARGEST_LOSS,
        f"is more than {LARGEST_LOSS:g} nats/token: a perplexity? --unit perplexity takes it (of all rows)",
        problems,
    )
    _refuse(in_nats <= 0, "is not above zero", problems)
    return in_nats


def _refuse(bad: "pd.Series[bool]", why: str, problems: list[str]) -> None:
    if bad.any():
        problems.append(f"loss of rows {_listed(bad)} {why}")


def without_copies(table: pd.DataFrame, problems: list[str], notes: list[str]) -> pd.DataFrame:
    """``table`` with each run once; adds a problem where rows of one run differ."""
    copies = table.duplicated(plain_columns(table))
    if copies.any():
        notes.append(f"rows {_listed(copies)} repeat others in every column: left out")
    kept = table[~copies]
    if "run" in kept:
        twice = kept["run"].ne("") & kept["run"].duplicated(keep=False)
        if twice.any():
            names: Sequence[object] = kept.loc[twice, "run"].unique().tolist()
            problems.append(
                f"rows {shortened((kept.index[twice] + 1).tolist())} are of the same runs "
                f"({shortened(names)}) and differ: one row per run is needed, its last"
            )
    return kept


def _listed(which: "pd.Series[bool]") -> str:
    return shortened((np.flatnonzero(which) + 1).tolist())
