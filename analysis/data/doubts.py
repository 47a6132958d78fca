"""What is doubtful about a table, said beside every answer to it: units, losses, odd rows, simulations."""

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray, completed_rows, n_copies
from scalevec.analysis.formatting import plural

SMALLEST_LIKELY = {"n_params": 20_000, "n_tokens": 100_000}
"""Below these the largest trial is smaller than the smallest rung shipped (25,088 parameters, 200,704 tokens)
and no larger than a large model in millions (10,000), so that the unit is in doubt."""
LIKELY_RATIOS = (0.1, 1e5)
"""Tokens per parameter."""
FEWEST_FREE = 5
WIDER = 3.0
"""Few rows that make the scatter so many times as wide decide the interval alone."""
MOST_ODD = 3
"""Those of them that are named."""
LARGEST_LOSS = 15.0
"""nats/token; a uniform guess among three million tokens has no more."""
APART = 1.35
"""Losses at one N and tokens differ by no such factor, unless they are of two units or a run has failed."""


def unit_warnings(table: pd.DataFrame) -> list[str]:
    """What is doubtful about the numbers of checked rows: units, counts together, losses, one odd row.

    A sweep of ours knows its counts: only its trials have a stream and an id.
    """
    if {"stream", "trial_id"} <= set(table) and table["stream"].notna().all():
        return []
    known = [name for name in SMALLEST_LIKELY if name in table.columns and len(table)]
    warnings = [
        f"the largest {name} is {table[name].max():g}: is it in thousands or millions? Give plain counts."
        for name in known
        if table[name].max() < SMALLEST_LIKELY[name]
    ]
    if len(known) == 2 and not warnings:
        ratios = table["n_tokens"] / table["n_params"]
        low, high = ratios.min(), ratios.max()
        if low < LIKELY_RATIOS[0] or high > LIKELY_RATIOS[1]:
            shown = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            warnings.append(
                f"{shown} tokens per parameter: is n_params or n_tokens in thousands, millions or billions, "
                "or a count of steps? Give plain counts"
            )
    if "loss" in table and (high := table.loc[table["status"] == "completed", "loss"].max()) > LARGEST_LOSS:
        warnings.append(
            f"losses of up to {high:g} are no nats/token (a uniform guess among three million tokens has "
            f"{LARGEST_LOSS:g}); of perplexities scalevec import --unit perplexity makes nats/token"
        )
    if copies := n_copies(table):
        warnings.append(f"{plural(copies, 'row')} equal to another in every column left out")
    return warnings + (odd_rows(table) or _of_two_units(table))


def _of_two_units(table: pd.DataFrame) -> list[str]:
    """A warning where losses at the same N and tokens (and corpus) are :data:`APART`."""
    rows = completed_rows(table)[0] if {"n_params", "n_tokens", "loss"} <= set(table) else table[:0]
    point = [name for name in ("n_params", "n_tokens", "corpus") if name in rows]
    losses = rows.groupby(point, dropna=False)["loss"] if len(rows) else None
    if losses is None or (factor := (losses.max() / losses.min()).max()) <= APART:
        return []
    return [
        f"losses at the same N and tokens differ by a factor of up to {factor:.2f}: of two units (bits are "
        "1.44 times nats), or of runs that failed to train?"
    ]


def odd_rows(table: pd.DataFrame) -> list[str]:
    """A warning that names the few rows, at most one in eight, without which the scatter is far smaller.

    The scatter is about a plane with curvature in the logarithms of N and tokens, one level for each arm:
    no law, but close to any. Below :data:`FEWEST_FREE` degrees of freedom nothing is said.
    """
    names = ["n_params", "n_tokens", "loss"]
    rows = completed_rows(table)[0] if set(names) <= set(table) else table[:0].reindex(columns=names)
    rows = rows[(rows[names] > 0).all(axis=1)]  # a law of N alone is fitted to runs without tokens too
    if len(rows) < FEWEST_FREE:
        return []
    size, tokens, loss = (np.log(rows[name].to_numpy(float)) for name in names)
    arms = [rows["arm"].to_numpy() == arm for arm in rows["arm"].unique()]
    centred = [values - values.mean() for values in (size, tokens)]
    columns = np.column_stack([*arms, *centred, *(values**2 for values in centred)]).astype(float)
    kept, noise = np.ones(len(rows), bool), (1e-12 * np.abs(loss).max()) ** 2 * len(rows)
    scatter, worst = _scatter(columns[kept], loss[kept])
    before = scatter
    for _ in range(max(1, len(rows) // 8)):
        kept[np.flatnonzero(kept)[worst]] = False
        scatter, worst = _scatter(columns[kept], loss[kept])
        if np.isnan(scatter) or before <= noise:
            return []
        if scatter * WIDER**2 <= before:
            return [_odd(rows[~kept])]
    return []


def _scatter(columns: FloatArray, values: FloatArray) -> tuple[float, int]:
    """The variance of ``values`` [rows] about their least squares on ``columns``, and the row furthest out.

    The variance is nan below :data:`FEWEST_FREE` degrees of freedom, one of which is the row's.
    """
    basis, scales, _ = np.linalg.svd(columns, full_matrices=False)
    basis = basis[:, scales > 1e-9 * scales[0]]
    free, residual = len(values) - basis.shape[1], values - basis @ (basis.T @ values)
    without = residual**2 / np.maximum(1 - np.sum(basis**2, axis=1), 1e-12)
    variance = float(residual @ residual) / free if free >= FEWEST_FREE - 1 else float("nan")
    return variance, int(without.argmax())


def _odd(rows: pd.DataFrame) -> str:
    """The warning of these ``rows``, the first of which are named."""
    named = []
    for row in rows.head(MOST_ODD).to_dict("records"):
        where = [f"arm {row['arm']}", *(f"{name} {row[name]:g}" for name in ("n_params", "n_tokens"))]
        where += [f"seed {row['seed']}"] if "seed" in row else []
        named.append(f"loss {row['loss']:g} ({', '.join(where)})")
    more = f" and {len(rows) - MOST_ODD} more" if len(rows) > MOST_ODD else ""
    subject = "one row alone makes" if len(rows) == 1 else f"{len(rows)} rows make"
    asked = " and ".join(f"loss != {value!r}" for value in dict.fromkeys(map(float, rows["loss"])))
    return (
        f"{subject} the scatter of the losses more than {WIDER:g} times as wide: {', '.join(named)}{more}. A "
        f"mistyped cell, or a run that failed? To see what holds without: --where '{asked}'"
    )


def simulation_warnings(table: pd.DataFrame) -> list[str]:
    """A warning where results were simulated, which nobody may take for trained ones."""
    n_simulated = int((table["device"] == "simulated").sum()) if "device" in table else 0
    if not n_simulated:
        return []
    return [f"simulated: {n_simulated} of {len(table)} results follow a planted law; nothing was trained"]
