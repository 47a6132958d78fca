import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.data.corpus import TrainingBatches, epoch_order, evaluation_batches

lengths = st.integers(1, 20)
streams = st.text("0123456789abcdef", max_size=4)


def batches_over(n_tokens: int, length: int = 4, sequences: int = 3, stream: str = "a") -> TrainingBatches:
    return TrainingBatches(np.arange(n_tokens, dtype=np.uint16), length, sequences, stream)


@given(lengths, st.integers(1, 7), st.integers(0, 60), streams)
def test_consecutive_batches_walk_through_the_epochs_without_a_gap(
    length: int, sequences: int, extra: int, stream: str
) -> None:
    batches = batches_over(length + 1 + extra, length, sequences, stream)
    steps = 2 * batches.n_windows // sequences + 1
    visited = np.concatenate([batches.windows(step) for step in range(steps)])
    numbers = np.arange(batches.n_windows)
    two_epochs = [epoch_order(numbers, batches.n_windows, stream, epoch) for epoch in (0, 1)]
    assert visited[: 2 * batches.n_windows].tolist() == np.concatenate(two_epochs).tolist()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=10), streams)
def test_a_step_sees_the_same_tokens_however_it_is_reached(steps: list[int], stream: str) -> None:
    wandering = batches_over(50, stream=stream)
    for step in steps:
        inputs, targets = wandering.batch(step)
        expected_inputs, expected_targets = batches_over(50, stream=stream).batch(step)
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
