import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.training.corpora.batches import TrainingBatches, epoch_order, evaluation_batches

lengths = st.integers(1, 20)
seeds = st.integers(0, 2**63 - 1)


def batches_over(n_tokens: int, length: int = 4, sequences: int = 3, seed: int = 0) -> TrainingBatches:
    return TrainingBatches(np.arange(n_tokens, dtype=np.uint16), length, sequences, seed)


def test_the_order_of_an_epoch_never_changes() -> None:
    assert epoch_order(12, seed=7, epoch=3).tolist() == [2, 1, 4, 8, 10, 9, 3, 5, 7, 6, 11, 0]
    assert epoch_order(12, seed=2**63 - 1, epoch=0).tolist() == [2, 3, 0, 4, 1, 6, 7, 9, 8, 5, 11, 10]


@given(st.integers(1, 300), seeds, st.integers(0, 1000))
def test_an_epoch_visits_every_window_once(n_windows: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(n_windows, seed, epoch)) == list(range(n_windows))


@given(seeds, seeds)
def test_different_seeds_give_different_orders(first: int, second: int) -> None:
    same = epoch_order(50, first, 0).tolist() == epoch_order(50, second, 0).tolist()
    assert same == (first == second)


def test_each_epoch_has_its_own_order() -> None:
    orders = {tuple(epoch_order(50, 0, epoch)) for epoch in range(20)}
    assert len(orders) == 20


def test_the_high_half_of_a_seed_is_not_taken_for_an_epoch() -> None:
    assert epoch_order(50, 1 + 2**32, 0).tolist() != epoch_order(50, 1, 1).tolist()


@given(lengths, st.integers(1, 7), st.integers(0, 60), seeds)
def test_consecutive_batches_walk_through_the_epochs_without_a_gap(
    length: int, sequences: int, extra: int, seed: int
) -> None:
    batches = batches_over(length + 1 + extra, length, sequences, seed)
    steps = 2 * batches.n_windows // sequences + 1
    visited = np.concatenate([batches.windows(step) for step in range(steps)])
    two_epochs = [epoch_order(batches.n_windows, seed, epoch) for epoch in (0, 1)]
    assert visited[: 2 * batches.n_windows].tolist() == np.concatenate(two_epochs).tolist()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=10), seeds)
def test_a_step_sees_the_same_tokens_however_it_is_reached(steps: list[int], seed: int) -> None:
    wandering = batches_over(50, seed=seed)
    for step in steps:
        inputs, targets = wandering.batch(step)
        expected_inputs, expected_targets = batches_over(50, seed=seed).batch(step)
        assert torch.equal(inputs, expected_inputs)
        assert torch.equal(targets, expected_targets)


def test_targets_are_the_tokens_after_the_inputs() -> None:
    inputs, targets = batches_over(50).batch(0)
    assert inputs.shape == targets.shape == (3, 4)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)  # the tokens count up
    assert (inputs[:, 0] % 4 == 0).all()


def test_a_batch_larger_than_an_epoch_repeats_whole_epochs() -> None:
    visited = batches_over(9, length=4, sequences=6).windows(0)  # two windows
    assert [sorted(pair) for pair in visited.reshape(3, 2).tolist()] == [[0, 1]] * 3


def test_tokens_that_fill_no_window_are_refused() -> None:
    with pytest.raises(ValueError, match="4 tokens hold no sequence of 4"):
        batches_over(4, length=4)


@given(st.integers(0, 200), lengths, st.integers(1, 7))
def test_evaluation_predicts_every_token_but_the_first_exactly_once(
    n_tokens: int, length: int, sequences: int
) -> None:
    batches = list(evaluation_batches(np.arange(n_tokens, dtype=np.uint16), length, sequences))
    targets = [target for _, rows in batches for target in rows.flatten().tolist()]
    assert targets == list(range(1, n_tokens))
    for inputs, rows in batches:
        assert torch.equal(rows, inputs + 1)
        assert inputs.shape[0] <= sequences
        assert inputs.shape[1] <= length


def test_large_token_ids_survive() -> None:
    tokens = np.array([0, 70_000, 2**32 - 1], dtype="<u4")
    (_, targets), *_ = evaluation_batches(tokens, 2, 1)
    assert targets.tolist() == [[70_000, 2**32 - 1]]
