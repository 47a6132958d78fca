"""How the processes of a trial find each other, and make sure that they are about to train the same."""

import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LIMIT_S = 300.0
"""How long the ranks of a trial wait for each other."""
GRACE_S = 10.0
"""How much longer the others wait for rank 0's word than it waits for them."""


class NobodyCameError(RuntimeError):
    """Ranks did not meet in time: the fault of a machine or of the network between them."""


class UnlikeRanksError(RuntimeError):
    """The ranks that met would not train the same: other code, another corpus, another kind of device."""


@dataclass(frozen=True)
class Seat:
    """One process's place in a world.

    ``awaited`` names the machines that the processes were sent to, where that is known. ``traits`` are what
    has to be the same everywhere, by what a person calls them.
    """

    rank: int
    size: int
    traits: Mapping[str, str]
    awaited: str = ""
    limit_s: float = LIMIT_S


def listening(host: str) -> socket.socket:
    """A socket at which rank 0 awaits the others, on a free port of ``host`` (empty: of all addresses)."""
    return socket.create_server((host, 0), backlog=512)


def hosted(listener: socket.socket, seat: Seat) -> "Store":
    """The store that rank 0 keeps at ``listener``, through which the ranks meet."""
    port, patience = listener.getsockname()[1], timedelta(seconds=seat.limit_s)
    return dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1",
        port,
        is_master=True,
        timeout=patience,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def store_at(host: str, port: int, seat: Seat) -> "Store":
    """The store of rank 0 at ``host``. Raises :class:`NobodyCameError` where nobody answers in time."""
    patience = timedelta(seconds=seat.limit_s)
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            host, port, is_master=False, timeout=patience, wait_for_workers=False
        )
    except (dist.DistNetworkError, dist.DistStoreError) as problem:
        raise NobodyCameError(
            f"rank {seat.rank} on {socket.gethostname()} did not reach rank 0 at {host}:{port} in "
            f"{seat.limit_s:g} s; can these machines connect to each other?{_sent_to(seat)}"
        ) from problem


def meet(store: "Store", seat: Seat) -> list[str]:
    """Wait until all ranks are there and alike; returns their hosts, by rank.

    Raises:
        NobodyCameError: Some did not come in time; it names them and those that did.
        UnlikeRanksError: A trait of a rank is another than rank 0's.
    """
    record = {"host": socket.gethostname(), "traits": dict(seat.traits)}
    store.set(_key(seat.rank), json.dumps(record))
    if seat.rank == 0:
        return _received(store, seat)
    try:
        store.wait(["verdict"], timedelta(seconds=seat.limit_s + GRACE_S))
        verdict = json.loads(store.get("verdict"))
        store.set(f"heard/{seat.rank}", "")
    except (dist.DistStoreError, dist.DistNetworkError) as problem:
        raise NobodyCameError(f"rank 0 had no word for rank {seat.rank} on {record['host']}") from problem
    if verdict["problem"]:
        raise UnlikeRanksError(verdict["problem"])
    return list(verdict["hosts"])


def _received(store: "Store", seat: Seat) -> list[str]:
    """What rank 0 does at a meeting."""
    deadline = time.monotonic() + seat.limit_s
    records = [_awaited(store, rank, deadline) for rank in range(seat.size)]
    present = {rank: record for rank, record in enumerate(records) if record is not None}
    problem = _missing(present, seat) if len(present) < seat.size else ""
    error: Callable[[str], RuntimeError] = NobodyCameError
    if not problem:
        problem, error = _unlike(list(present.values())), UnlikeRanksError
    hosts = [str(record["host"]) for record in present.values()]
    store.set("verdict", json.dumps({"problem": problem, "hosts": hosts}))
    if problem:
        _leave_after_others(store, present)
        raise error(problem)
    return hosts


def _leave_after_others(store: "Store", present: Iterable[int]) -> None:
    """The store ends with rank 0: those that are there are given a moment to read why."""
    with suppress(dist.DistStoreError, dist.DistNetworkError):
        store.wait([f"heard/{rank}" for rank in present if rank], timedelta(seconds=GRACE_S))


def _awaited(store: "Store", rank: int, deadline: float) -> dict[str, object] | None:
    left = max(0.01, deadline - time.monotonic())
    try:
        store.wait([_key(rank)], timedelta(seconds=left))
    except (dist.DistStoreError, dist.DistNetworkError):
        return None
    record: dict[str, object] = json.loads(store.get(_key(rank)))
    return record


def _missing(present: Mapping[int, Mapping[str, object]], seat: Seat) -> str:
    absent = [str(rank) for rank in range(seat.size) if rank not in present]
    came = ", ".join(f"{rank} on {record['host']}" for rank, record in present.items())
    return (
        f"rank {', '.join(absent)} of {seat.size} did not come in {seat.limit_s:g} s{_sent_to(seat)}; "
        f"there are rank {came}"
    )


def _sent_to(seat: Seat) -> str:
    return f" (they were sent to {seat.awaited})" if seat.awaited else ""


def _unlike(records: Sequence[Mapping[str, object]]) -> str:
    """Which rank differs from rank 0, and in what; empty where all are alike."""
    first, traits = records[0], [dict(record["traits"]) for record in records]  # type: ignore[call-overload]
    for rank, (record, theirs) in enumerate(zip(records, traits, strict=True)):
        for name, value in traits[0].items():
            if theirs.get(name) != value:
                return (
                    f"the ranks of a trial need the same {name}: rank {rank} on {record['host']} has "
                    f"{theirs.get(name)}, rank 0 on {first['host']} has {value}"
                )
    return ""


def _key(rank: int) -> str:
    return f"rank/{rank}"
