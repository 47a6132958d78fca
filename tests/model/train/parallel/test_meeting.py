"""Ranks that do not come, or that come to train something else, are named with their hosts."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from scalevec.model.train.parallel.meeting import (
    NobodyCameError,
    Seat,
    UnlikeRanksError,
    hosted,
    listening,
    meet,
    store_at,
)

HOST = socket.gethostname()


def a_listener():
    listener = listening("127.0.0.1")
    return listener, listener.getsockname()[1]


def test_a_rank_that_does_not_come_is_named_with_those_that_did_and_where_it_was_sent():
    seat = Seat(0, 2, {}, awaited="n[1-2]", limit_s=0.2)
    with pytest.raises(NobodyCameError) as failure:
        meet(hosted(a_listener()[0], seat), seat)
    assert str(failure.value) == (
        f"rank 1 of 2 did not come in 0.2 s (they were sent to n[1-2]); there are rank 0 on {HOST}"
    )


def test_a_rank_that_finds_nobody_names_the_place():
    listener, port = a_listener()
    listener.close()
    with pytest.raises(NobodyCameError, match=f"rank 1 on {HOST} did not reach rank 0 at 127.0.0.1:{port}"):
        store_at("127.0.0.1", port, Seat(1, 2, {}, limit_s=0.2))


@pytest.mark.parametrize("name", ["code", "corpus", "device"])
def test_a_rank_with_another_trait_is_refused_by_name(name):
    listener, port = a_listener()
    traits = {"code": "c1", "corpus": "t1", "device": "H100"}
    seat = Seat(0, 2, traits, limit_s=20)

    def other():
        unlike = Seat(1, 2, {**traits, name: "another"}, limit_s=20)
        with pytest.raises(UnlikeRanksError) as failure:
            meet(store_at("127.0.0.1", port, unlike), unlike)
        return str(failure.value)

    with ThreadPoolExecutor(1) as threads:
        theirs = threads.submit(other)
        with pytest.raises(UnlikeRanksError) as failure:
            meet(hosted(listener, seat), seat)
    refusal = f"need the same {name}: rank 1 on {HOST} has another, rank 0 on {HOST} has {traits[name]}"
    assert str(failure.value) == f"the ranks of a trial {refusal}"
    assert theirs.result() == str(failure.value)
