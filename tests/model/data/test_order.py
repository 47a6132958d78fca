"""The order of the windows: any number of them is permuted, by stream and epoch, from any position."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scalevec.model.data.corpus import epoch_order

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


def test_each_epoch_has_its_own_order() -> None:
    assert len({tuple(order(50, "a", epoch)) for epoch in range(20)}) == 20


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
    assert (
        chi_square < 22.5
    )  # exceeded once in a thousand by uniform draws, of which these are always the same


def test_neighbours_do_not_stay_neighbours() -> None:
    windows = np.array(order(10_000))
    assert abs(np.corrcoef(windows[:-1], windows[1:])[0, 1]) < 0.04
    assert abs(np.corrcoef(np.arange(10_000), windows)[0, 1]) < 0.04


def test_the_order_of_a_large_corpus_takes_no_memory() -> None:
    tracemalloc.start()
    epoch_order(np.arange(1024), 10**12, "a", 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
