"""Which tokens a step sees: the order of the windows, the batches, and what they cost in any corpus."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.data.corpus import Segments, TrainingBatches, epoch_order, evaluation_batches

streams = st.text("0123456789abcdef", min_size=1, max_size=64)


def order(n_windows: int, stream: str = "a", epoch: int = 0) -> list[int]:
    return epoch_order(np.arange(n_windows), n_windows, stream, epoch).tolist()


def test_the_order_of_an_epoch_never_changes() -> None:
    assert order(12, "a", 3) == [8, 2, 6, 4, 11, 10, 9, 1, 0, 3, 5, 7]
    assert order(12, "f" * 64, 0) == [10, 3, 8, 2, 4, 0, 7, 1, 5, 11, 6, 9]


@given(st.integers(1, 700), streams, st.integers(0, 1000))
def test_an_epoch_visits_every_window_once(n_windows: int, stream: str, epoch: int) -> None:
    assert sorted(order(n_windows, stream, epoch)) == list(range(n_windows))


@given(streams, streams)
def test_each_stream_has_its_own_order(first: str, second: str) -> None:
    assert (order(50, first) == order(50, second)) == (first == second)


@given(st.integers(1, 10**15), st.data())
def test_any_position_is_reached_without_those_before_it(n_windows: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(0, n_windows - 1), min_size=1, max_size=8)))
    together = epoch_order(places, n_windows, "a", 0)
    alone = [epoch_order(places[i : i + 1], n_windows, "a", 0)[0] for i in range(len(places))]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < n_windows)).all()
    assert len(set(together.tolist())) == len(set(places.tolist()))


def test_every_window_is_as_likely_to_come_first() -> None:
    n_windows, n_streams = 7, 3_500
    first = [epoch_order(np.array([0]), n_windows, str(stream), 0)[0] for stream in range(n_streams)]
    counts = np.bincount(first, minlength=n_windows)
    chi_square = ((counts - n_streams / n_windows) ** 2).sum() / (n_streams / n_windows)
    # Exceeded once in a thousand by uniform draws, of which these are always the same.
    assert chi_square < 22.5


def test_neighbours_do_not_stay_neighbours() -> None:
    windows = np.array(order(10_000))
    assert abs(np.corrcoef(windows[:-1], windows[1:])[0, 1]) < 0.04
    assert abs(np.corrcoef(np.arange(10_000), windows)[0, 1]) < 0.04


lengths = st.integers(1, 20)
short_streams = st.text("0123456789abcdef", max_size=4)


def batches_over(n_tokens: int, length: int = 4, sequences: int = 3, stream: str = "a") -> TrainingBatches:
    return TrainingBatches(np.arange(n_tokens, dtype=np.uint16), length, sequences, stream)


@given(lengths, st.integers(1, 7), st.integers(0, 60), short_streams)
def test_consecutive_batches_walk_through_the_epochs_without_a_gap(length, sequences, extra, stream):
    batches = batches_over(length + 1 + extra, length, sequences, stream)
    steps = 2 * batches.n_windows // sequences + 1
    visited = np.concatenate([batches.windows(step) for step in range(steps)])
    numbers = np.arange(batches.n_windows)
    two_epochs = [epoch_order(numbers, batches.n_windows, stream, epoch) for epoch in (0, 1)]
    assert visited[: 2 * batches.n_windows].tolist() == np.concatenate(two_epochs).tolist()


def test_targets_are_the_tokens_after_the_inputs() -> None:
    inputs, targets = batches_over(50).batch(0)
    assert inputs.shape == targets.shape == (3, 4)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)  # the tokens count up
    assert (inputs[:, 0] % 4 == 0).all()


def test_tokens_that_fill_no_window_are_refused() -> None:
    with pytest.raises(ValueError, match="4 tokens hold no sequence of 4"):
        batches_over(4, length=4)


@given(st.integers(0, 200), lengths, st.integers(1, 7))
def test_evaluation_predicts_every_token_but_the_first_exactly_once(n_tokens, length, sequences):
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


FILES = [np.arange(100, 160, dtype="<u2"), np.arange(200, 280, dtype="<u2")]


@st.composite
def tables(draw):
    rows = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 50), st.integers(1, 10)), min_size=1))
    return np.array(rows, np.int64)


def joined(table) -> np.ndarray:
    return np.concatenate([FILES[file][first : first + length] for file, first, length in table.tolist()])


@given(tables(), st.data())
def test_any_places_and_any_slice_are_those_of_the_joined_array(table, data):
    tokens, array = Segments(FILES, table), joined(table)
    assert len(tokens) == len(array)
    assert tokens.dtype == array.dtype
    position = st.integers(0, len(array) - 1)
    places = np.array(data.draw(st.lists(st.tuples(position, position), max_size=5)), np.int64).reshape(-1, 2)
    assert (tokens[places] == array[places]).all()
    start, stop = data.draw(position), data.draw(st.none() | position)
    assert np.asarray(tokens[start:stop]).tolist() == array[start:stop].tolist()
    assert np.asarray(tokens[start:][:3]).tolist() == array[start:][:3].tolist()


@pytest.mark.parametrize("position", [-1, 7])
def test_a_place_without_a_token_is_refused(position):
    with pytest.raises(IndexError, match="7 tokens, none at"):
        Segments(FILES, np.array([[0, 3, 7]]))[np.array([0, position])]
