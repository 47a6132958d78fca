"""Losses by block of the test split, as a table gives them: lists, or the JSON text of lists."""

import json
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError

LOSS_BLOCKS, BLOCK_TOKENS = "loss_blocks", "block_tokens"
"""The mean loss of each block of the test split, and its tokens."""
AGREEMENT = 1e-4
"""The blocks' mean may differ from the loss by this share of it: rounding. Else they are of another loss."""


def numbers_of(value: object, column: str) -> FloatArray | None:
    """The numbers of one field [blocks]; None where it is empty. Raises :class:`DataError`."""
    if value is None or value is pd.NA or (isinstance(value, str) and not value):
        return None
    if isinstance(value, float) and np.isnan(value):
        return None
    try:
        numbers: Any = json.loads(value) if isinstance(value, str) else value
        result = np.asarray(numbers, float)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {column!r}: {value!r:.60} is no list of numbers") from error
    if result.ndim != 1 or not np.all(np.isfinite(result)):
        raise DataError(f"column {column!r}: {value!r:.60} is no list of finite numbers")
    return result


def losses_by_block(complete: pd.DataFrame) -> tuple[FloatArray, FloatArray] | None:
    """Losses [sides, pairs, blocks] and tokens [blocks] of complete pairs, reference first.

    None unless every trial has the same blocks and the blocks' mean is the loss that is compared. Raises
    :class:`DataError`.
    """
    losses, tokens = [], []
    for side in ("reference", "arm"):
        if f"{LOSS_BLOCKS}_{side}" not in complete or f"{BLOCK_TOKENS}_{side}" not in complete:
            return None
        losses.append([numbers_of(value, LOSS_BLOCKS) for value in complete[f"{LOSS_BLOCKS}_{side}"]])
        tokens += [numbers_of(value, BLOCK_TOKENS) for value in complete[f"{BLOCK_TOKENS}_{side}"]]
    first = tokens[0] if tokens else None
    if first is None or not len(first) or np.any(first <= 0):
        return None
    if not all(counts is not None and np.array_equal(counts, first) for counts in tokens):
        return None
    if any(row is None or len(row) != len(first) for side in losses for row in side):
        return None
    by_block = np.array(losses)
    means = by_block @ (first / first.sum())
    given = np.stack([complete[f"loss_{side}"].to_numpy(float) for side in ("reference", "arm")])
    return (by_block, first) if np.allclose(means, given, rtol=AGREEMENT) else None
