from dataclasses import replace

import numpy as np
import pytest

from scalevec.analysis.statistics.paired import limited_by_split, overall
from scalevec.analysis.statistics.sample import PairedSample
from scalevec.analysis.statistics.test_split import SplitLosses

CELLS = np.repeat(np.arange(3), 3)


def sample(common: float = 0.2, n_blocks: int = 32, tokens: np.ndarray | None = None) -> PairedSample:
    """Nine pairs whose blocks share an error; seeds of sd one."""
    rng = np.random.default_rng(0)
    by_block = rng.normal(size=(9, 1)) + common * rng.normal(size=n_blocks)
    counts = np.ones(n_blocks) if tokens is None else tokens
    losses = np.stack([np.zeros_like(by_block), by_block])
    values = by_block @ (counts / counts.sum())
    return replace(PairedSample.of(values, CELLS), split=SplitLosses(losses, counts))


def test_the_test_split_adds_the_variance_between_blocks_over_their_number():
    pairs = sample()
    by_block = pairs.split.differences.mean(axis=0)
    estimate = overall(pairs)
    assert estimate.split_error == pytest.approx(by_block.std(ddof=1) / 32**0.5)
    parts = np.hypot(estimate.seeds_error, estimate.split_error)
    assert estimate.standard_error == pytest.approx(parts)


def test_more_pairs_do_not_reduce_it():
    pairs = sample()
    few = pairs.kept(np.arange(9) % 3 < 2)
    assert overall(few).split_error == pytest.approx(overall(pairs).split_error)


def test_blocks_weigh_as_many_tokens_as_they_have():
    halved = np.concatenate([np.full(31, 2.0), [1.0, 1.0]])
    whole, parted = sample(n_blocks=32), sample(n_blocks=33, tokens=halved)
    assert parted.split.shares.sum() == pytest.approx(1)
    assert parted.values == pytest.approx(parted.split.differences @ parted.split.shares)
    assert overall(parted).split_error == pytest.approx(overall(whole).split_error, rel=0.3)


def test_no_interval_is_shorter_for_knowing_the_test_splits_error():
    pairs = sample(common=0.5)
    without = replace(pairs, split=None)
    widths = [np.ptp(overall(each).interval(0.95)) for each in (pairs, without)]
    assert widths[0] >= widths[1] * (1 - 1e-9)


def test_a_difference_as_small_as_the_test_splits_error_is_not_one_for_more_seeds():
    estimate = overall(sample(common=20.0))
    assert limited_by_split(estimate, 0.95)
    assert not limited_by_split(replace(estimate, split_error=1e-6), 0.95)
    assert not limited_by_split(replace(estimate, split_error=None), 0.95)
