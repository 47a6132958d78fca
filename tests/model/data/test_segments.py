"""Tokens that stand in several places of several files are read as one array would be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.data.corpus import Segments, TrainingBatches, evaluation_batches

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


def test_batches_of_segments_are_those_of_the_joined_array():
    table = np.array([[1, 5, 31], [0, 0, 20], [1, 40, 9]])
    tokens, array = Segments(FILES, table), joined(table)
    for step in range(5):
        of_segments, of_array = (
            TrainingBatches(source, 4, 3, "stream").batch(step) for source in (tokens, array)
        )
        assert (of_segments[0] == of_array[0]).all()
        assert (of_segments[1] == of_array[1]).all()
    pairs = zip(evaluation_batches(tokens, 4, 3), evaluation_batches(array, 4, 3), strict=True)
    assert all((mine[1] == other[1]).all() for mine, other in pairs)
