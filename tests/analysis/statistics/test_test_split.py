from dataclasses import replace

import numpy as np
import pytest

from scalevec.analysis.statistics.paired import limited_by_split, overall
from scalevec.analysis.statistics.sample import PairedSample, SplitLosses

CELLS = np.repeat(np.arange(3), 3)


def sample(common: float = 0.2, n_blocks: int = 32, tokens: np.ndarray | None = None) -> PairedSample:
    """Nine pairs whose blocks share an error; seeds of sd one."""
    rng = np.random.default_rng(0)
    by_block = rng.normal(size=(9, 1)) + common * rng.normal(size=n_blocks)
    counts = np.ones(n_blocks) if tokens is None else tokens
    losses = np.stack([np.zeros_like(by_block), by_block])
    values = by_block @ (counts / counts.sum())
    return replace(PairedSample.of(values, CELLS), split=SplitLosses(losses, counts))


def test_the_test_split_adds_its_error_to_that_of_the_seeds():
    estimate = overall(sample())
    parts = np.hypot(estimate.seeds_error, estimate.split_error)
    assert estimate.standard_error == pytest.approx(parts)


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_its_error_is_that_of_the_mean_over_blocks_which_may_be_like_their_neighbours(alike):
    rng, n_blocks = np.random.default_rng(1), 64
    noise = rng.normal(size=(400, n_blocks + 50))
    for block in range(1, n_blocks + 50):
        noise[:, block] += alike * noise[:, block - 1]
    texts = noise[:, 50:]
    variances = [
        SplitLosses(np.stack([np.zeros((1, n_blocks)), text[None]]), np.ones(n_blocks)).variance(np.ones(1))[
            0
        ]
        for text in texts
    ]
    assert np.mean(variances) == pytest.approx(texts.mean(axis=1).var(), rel=0.3)


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
