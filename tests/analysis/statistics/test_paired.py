"""Paired differences: their noise, whole seeds, families of tests, and the error of the test split."""

from dataclasses import replace

import numpy as np
import pytest

from scalevec.analysis.statistics import paired
from scalevec.analysis.statistics.noise import MANY_CLUSTERS, RungNoise, pooled_noise
from scalevec.analysis.statistics.sample import WHOLE_SEEDS, PairedSample, SplitLosses

DIFFERENCES = np.array([1.0, 3.0, 4.0, 8.0])
CELLS = np.array([0, 0, 1, 1])
ALIKE = np.array([1.0, 3.0, 4.0, 6.0])
"""Two rungs whose noise is the same."""


def mean_of(values, cells, clusters=None, rungs=None):
    return paired.overall(PairedSample.of(values, cells, clusters, rungs))


def slope_of(values, cells, x, clusters=None):
    return paired.slope(PairedSample.of(values, cells, clusters), x)


def test_noise_is_pooled_within_cells():
    # Within cells: deviations -1, 1, -2, 2; sum of squares 10, degrees of freedom 4 - 2.
    noise = pooled_noise(DIFFERENCES, CELLS)
    assert noise.df == 2
    assert noise.sd == pytest.approx(np.sqrt(5))


def test_settings_of_one_rung_share_its_noise():
    assert mean_of(DIFFERENCES, CELLS, rungs=np.zeros(4)).df == pytest.approx(2)


def test_no_interval_is_shorter_than_the_one_with_noise_pooled_over_rungs():
    # The slope rests on the first and the last rung, which differ little; the middle one is noisy.
    values, cells = np.array([0.0, 0.1, -1.0, 1.0, 0.0, 0.1]), np.repeat(np.arange(3), 2)
    estimate = slope_of(values, cells, cells.astype(float))
    pooled = np.sqrt((2 * 0.005 + 2) / 3)
    assert estimate.df == pytest.approx(3)
    assert estimate.standard_error == pytest.approx(pooled * np.sqrt(0.25 / 2 + 0.25 / 2))


def test_copies_at_one_rung_take_the_noise_of_the_others():
    copied = mean_of(np.append(ALIKE, [9.0, 9.0]), np.append(CELLS, [2, 2]))
    assert copied.standard_error == pytest.approx(np.sqrt(2) / 3 * np.sqrt(1.5))


def test_a_single_seed_cell_enters_the_mean_and_adds_no_degree_of_freedom():
    estimate = mean_of(np.append(ALIKE, 10.0), np.append(CELLS, 2))
    assert estimate.value == pytest.approx((2 + 5 + 10) / 3)
    assert estimate.df == pytest.approx(2)
    assert estimate.standard_error == pytest.approx(np.sqrt(2) / 3 * np.sqrt(0.5 + 0.5 + 1))


def test_clusters_that_repeat_each_other_count_as_one_pair_each():
    # Two rungs of two budgets, two seeds; the clusters' means are 2, 4 and 1, 5, those of the rungs 3 and 3.
    cells = np.array([0, 1, 0, 1, 2, 3, 2, 3])
    seeds = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    values = np.array([1.0, 3.0, 3.5, 4.5, 0.0, 2.0, 5.0, 5.0])
    estimate = mean_of(values, cells, seeds, cells // 2)
    # The rungs' means have variances 2 / 2 and 8 / 2, with one degree of freedom each.
    assert estimate.value == 3.0
    assert estimate.df == pytest.approx(25 / 17)
    assert estimate.standard_error == pytest.approx(np.sqrt(1 + 4) / 2)


def test_the_slope_along_budgets_knows_that_their_noise_is_shared():
    # The seeds differ by 2 at both budgets alike: the slope between the budgets is known exactly.
    cells, seeds = np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1])
    estimate = slope_of(np.array([1.0, 4.0, 3.0, 6.0]), cells, cells.astype(float), seeds)
    assert (estimate.value, estimate.df) == (pytest.approx(3.0), 1)
    assert estimate.standard_error == pytest.approx(0.0, abs=1e-12)


def test_clusters_with_fewer_budgets_take_the_noise_of_whole_ones():
    # The last rung lacks a budget and a second seed: it enters the mean and adds no degree of freedom.
    cells = np.array([0, 1, 0, 1, 2])
    seeds = np.array([0, 0, 1, 1, 2])
    estimate = mean_of(np.array([1.0, 3.0, 3.5, 4.5, 9.0]), cells, seeds)
    assert (estimate.value, estimate.df) == (pytest.approx((2.25 + 3.75 + 9.0) / 3), 1)
    # Deviations from the cells' means: -+1.25 and -+0.75; a pair weighs 1/6 of two seeds, 1/3 alone.
    noise = 2 * np.array([[1.25 * 1.25, 1.25 * 0.75], [1.25 * 0.75, 0.75 * 0.75]])
    variance = 2 * noise.sum() / 36 + noise[0, 0] / 9
    assert estimate.standard_error == pytest.approx(np.sqrt(variance))


@pytest.mark.parametrize(
    ("cells", "clusters"),
    [
        ([0, 0, 1, 0, 0, 1], [0, 0, 0, 1, 1, 1]),  # two points of a cluster in one cell
        ([0, 1, 0, 2, 1, 2], [0, 0, 1, 1, 2, 2]),  # each lacks another budget
        ([0, 1, 2, 3], [0, 0, 1, 1]),  # one seed
    ],
)
def test_clusters_that_do_not_repeat_each_other_are_too_few_for_an_interval(cells, clusters):
    values = np.arange(float(len(cells)))
    assert mean_of(values, np.array(cells), np.array(clusters)).df == 0


def test_the_slope_of_cell_means_is_recovered_with_its_standard_error():
    # Means 2 and 6 one unit apart, of variances 2 / 2 and 8 / 2; coefficients -1 and 1.
    estimate = slope_of(DIFFERENCES, CELLS, np.array([11.0, 11.0, 12.0, 12.0]))
    assert estimate.value == pytest.approx(4.0)
    assert estimate.standard_error == pytest.approx(np.sqrt(1 + 4))


def test_whole_seeds_are_what_varies_where_rungs_share_them():
    # Seed 0 has 1 and 2, seed 1 has 3 and 6: their means 1.5 and 4.5.
    values, cells, seeds = np.array([1.0, 3.0, 2.0, 6.0]), CELLS, np.array([0, 1, 0, 1])
    estimate = paired.overall(replace(PairedSample.of(values, cells, seeds), unit=WHOLE_SEEDS))
    assert (estimate.value, estimate.df) == (3.0, pytest.approx(1))
    assert estimate.standard_error == pytest.approx(1.5)
    single = replace(PairedSample.of(values[:2], [0, 1], [0, 1]), unit=WHOLE_SEEDS, rounding=1e-9)
    assert (paired.overall(single).value, paired.overall(single).df) == (2.0, 0)


def test_seeds_that_some_rungs_lack_have_their_part_in_the_variance():
    cells, seeds = np.repeat(np.arange(3), [5, 5, 2]), np.array([*range(5), *range(5), 0, 1])
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        values = rng.normal(0, 1, 5)[seeds] + rng.normal(0, 0.5, 12)
        pairs = replace(PairedSample.of(values, cells, seeds), unit=WHOLE_SEEDS)
        low, high = paired.overall(pairs).interval(0.95)
        covered += low < 0 < high
    assert covered / 400 > 0.92


def test_there_is_no_slope_at_one_size():
    assert slope_of(DIFFERENCES, CELLS, np.full(4, 11.0)) is None


def test_holm_multiplies_by_the_hypotheses_left_and_never_falls():
    assert paired.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_an_arm_without_a_p_value_still_counts_in_the_family():
    assert paired.holm([0.01, None]) == [pytest.approx(0.02), None]


def test_equivalence_is_two_one_sided_tests():
    # (0.5 margin - 0) / se with 2 degrees of freedom; the t tail at 2.919986 is 5 %.
    estimate = paired.contrast(PairedSample.of(np.array([-1.0, 1.0, -1.0, 1.0]), CELLS), np.array([0.5, 0.5]))
    assert paired.equivalence_p(estimate, 2.919986 * estimate.standard_error) == pytest.approx(0.05, rel=1e-5)


def test_the_sign_test_is_exact():
    assert paired.sign_p(6, 0) == pytest.approx(2 / 64)
    assert paired.sign_p(5, 1) == pytest.approx(2 * 7 / 64)


NINE_CELLS = np.repeat(np.arange(3), 3)


def sample(common: float = 0.2, n_blocks: int = 32, tokens: np.ndarray | None = None) -> PairedSample:
    """Nine pairs whose blocks share an error; seeds of sd one."""
    rng = np.random.default_rng(0)
    by_block = rng.normal(size=(9, 1)) + common * rng.normal(size=n_blocks)
    counts = np.ones(n_blocks) if tokens is None else tokens
    losses = np.stack([np.zeros_like(by_block), by_block])
    values = by_block @ (counts / counts.sum())
    return replace(PairedSample.of(values, NINE_CELLS), split=SplitLosses(losses, counts))


def test_the_test_split_adds_its_error_to_that_of_the_seeds():
    estimate = paired.overall(sample())
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
    assert paired.overall(few).split_error == pytest.approx(paired.overall(pairs).split_error)


def test_blocks_weigh_as_many_tokens_as_they_have():
    halved = np.concatenate([np.full(31, 2.0), [1.0, 1.0]])
    whole, parted = sample(n_blocks=32), sample(n_blocks=33, tokens=halved)
    assert parted.split.shares.sum() == pytest.approx(1)
    assert parted.values == pytest.approx(parted.split.differences @ parted.split.shares)
    assert paired.overall(parted).split_error == pytest.approx(paired.overall(whole).split_error, rel=0.3)


def test_no_interval_is_shorter_for_knowing_the_test_splits_error():
    pairs = sample(common=0.5)
    without = replace(pairs, split=None)
    widths = [np.ptp(paired.overall(each).interval(0.95)) for each in (pairs, without)]
    assert widths[0] >= widths[1] * (1 - 1e-9)


def test_a_difference_as_small_as_the_test_splits_error_is_not_one_for_more_seeds():
    estimate = paired.overall(sample(common=20.0))
    assert paired.limited_by_split(estimate, 0.95)
    assert not paired.limited_by_split(replace(estimate, split_error=1e-6), 0.95)
    assert not paired.limited_by_split(replace(estimate, split_error=None), 0.95)


@pytest.mark.parametrize("n_seeds", [5, 3 * MANY_CLUSTERS])
def test_draws_have_the_variance_of_a_contrast_whether_clusters_are_few_or_many(n_seeds):
    rng = np.random.default_rng(4)
    seeds, rungs = np.tile(np.arange(n_seeds), 2), np.repeat([0, 1], n_seeds)
    common = rng.normal(size=2 * n_seeds)
    values = np.stack([common, 0.8 * common + 0.3 * rng.normal(size=2 * n_seeds)]) * (1 + rungs)
    noise = RungNoise(values, rungs, seeds + n_seeds * rungs, rungs)
    weights = np.stack([np.full(2 * n_seeds, -1 / n_seeds), np.full(2 * n_seeds, 1 / n_seeds)])
    drawn = (noise.draws(20_000, rng) * weights).sum(axis=(1, 2))
    expected = sum(component.variance for component in noise.components(weights))
    assert np.var(drawn) == pytest.approx(expected, rel=0.05)
