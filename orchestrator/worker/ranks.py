"""The processes that train one trial on this machine: the first leads, the others are forks of it.

The leader holds the trial's claim where it is rank 0, and its forks end with it: the kernel kills them when
it dies, so a job is over when its leader is. A fork loads nothing again, and comes before CUDA is touched.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import setproctitle
import torch

from scalevec.model.config import RunOptions
from scalevec.model.data.prepare import Corpus
from scalevec.model.train.parallel.world import ALONE, World
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.worker.failures import AttemptFailedError, DefiniteError
from scalevec.orchestrator.worker.kill_with_parent import bind_to
from scalevec.orchestrator.worker.provenance import code_state, versions
from scalevec.results.files import CorruptRecordError, read_json, write_json
from scalevec.results.opening import make_folder

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

    from scalevec.model.train.parallel.meeting import Seat
    from scalevec.model.train.parallel.process_group import ProcessGroup
    from scalevec.model.train.parallel.vigil import Vigil

LOOPBACK = "127.0.0.1"
PATIENCE_S = 3.0
"""How long the leader waits for the word of another rank whose end it has noticed by a lost connection."""
LAST_STEPS_S = 30.0
"""How long forks have to end after their leader has."""
LOOK_S = 0.5
MEETING_POLL_S = 0.2
HANGING_S = 20.0
"""A leader that has not noticed the death of a fork for so long waits for a device, which waits for it."""


@dataclass(frozen=True)
class Address:
    """Where rank 0 awaits the others."""

    host: str
    port: int


class RankFailedError(AttemptFailedError):
    """What ended another rank of this trial."""


class RankKilledError(Exception):
    """A fork was killed; its leader is to end as it did."""


@dataclass
class Ranks:
    """The processes of a trial on this machine, seen from one of them.

    ``first`` is the rank of the leader, ``rank`` that of this process.
    """

    options: RunOptions
    first: int
    rank: int
    address: Address | None = None
    listener: socket.socket | None = None
    awaited: str = ""
    nodes: int = 1
    store: "Store | None" = None
    meeting: Path | None = None
    """The file by which other machines are told where rank 0 is."""

    def __post_init__(self) -> None:
        self.cause: Exception | None = None
        """What ended the ranks, once they have; None where nothing went wrong."""
        self.last_word: Callable[[Exception], object] = lambda _: None
        """Puts on record what ended the ranks, where the main thread of rank 0 cannot do so."""
        self._forks: dict[int, int] = {}
        self._over = threading.Event()
        self._silence = ""
        self._vigil: Vigil | None = None

    @property
    def here(self) -> int:
        """How many processes of the trial are on this machine."""
        return self.options.processes // self.nodes

    @property
    def are_several(self) -> bool:
        """Whether the trial is trained by more than this process."""
        return self.options.processes > 1

    def call_others(self) -> None:
        """Let the processes on other machines begin."""
        if self.meeting is not None and self.address is not None:
            make_folder(self.meeting.parent)
            write_json(self.meeting, asdict(self.address))

    def fork(self, count: int, follow: Callable[["Ranks"], int]) -> None:
        """Fork ``count`` further ranks, each of which ends with the exit code that ``follow`` returns."""
        leader = os.getpid()
        sys.stdout.flush()
        for rank in range(self.first + 1, self.first + 1 + count):
            pid = os.fork()
            if pid == 0:
                self._be_fork(leader, replace(self, rank=rank, listener=None), follow)
            self._forks[rank] = pid
        if self._forks:
            threading.Thread(target=self._watch, daemon=True, name="ranks").start()

    def _be_fork(self, leader: int, seen: "Ranks", follow: Callable[["Ranks"], int]) -> None:
        code = 1
        try:
            bind_to(leader)
            if self.listener is not None:
                self.listener.close()
            setproctitle.setproctitle(f"{setproctitle.getproctitle()} rank {seen.rank}")
            code = follow(seen)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def meet(self, corpus: Corpus) -> World:
        """The world of the trial, once all of its ranks are there.

        Raises ``NobodyCameError`` or ``UnlikeRanksError`` of ``model.train.parallel.meeting``.
        """
        if not self.are_several:
            return ALONE
        from scalevec.model.train.parallel import meeting

        assert self.address is not None
        size, device = self.options.processes, self.options.device
        if device == "cuda":
            torch.cuda.set_device(self.rank - self.first)
        seat = meeting.Seat(self.rank, size, traits(corpus, device), self.awaited)
        if self.listener is not None:
            self.store = meeting.hosted(self.listener, seat)
        else:
            self.store = meeting.store_at(self.address.host, self.address.port, seat)
        hosts = meeting.meet(self.store, seat)
        if self.rank == 0:
            print(f"{size} processes on {', '.join(dict.fromkeys(hosts))}", flush=True)
        self._vigil = self._begin_vigil(seat, hosts)
        if self.address.host == LOOPBACK and sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return _kind_of_world(self.options)(self.store, self.rank, size, device)

    def _begin_vigil(self, seat: "Seat", hosts: Sequence[str]) -> "Vigil":
        """Rank 0 watches the others, who watch it."""
        from scalevec.model.train.parallel import meeting
        from scalevec.model.train.parallel.vigil import Vigil

        assert self.address is not None
        store = meeting.store_at(self.address.host, self.address.port, seat)
        watched = range(1, seat.size) if self.rank == 0 else [0]

        def end(silent: Sequence[int]) -> None:
            named = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in silent)
            self._end_for(f"{named}: no sign of life for {seat.limit_s:g} s", silent)

        return Vigil(store, self.rank, watched, seat.limit_s, end)

    def _end_for(self, silence: str, silent: Sequence[int]) -> None:
        """End the attempt from another thread: the main one may wait for those that are ``silent``."""
        print(silence, flush=True)
        self._silence = silence
        if self.rank != 0:
            # Rank 0 on this machine takes this process with it; elsewhere its leader takes its forks along.
            os.kill(os.getppid() if self.first == 0 else os.getpid(), signal.SIGKILL)
        for rank in silent:
            if rank in self._forks:
                os.kill(self._forks[rank], signal.SIGKILL)
        if not self._over.wait(HANGING_S):
            self.last_word(RankFailedError(silence, "node_failure"))
            os._exit(WorkerExit.ERROR)

    def leave(self) -> None:
        """This rank has done its part: it gives no more signs of life."""
        if self._vigil is not None:
            self._vigil.leave()

    def report(self, problem: Exception, cause: str, digest: str) -> None:
        """Tell rank 0 why this rank ends, unless that is only because another did."""
        if self.store is None or lost_connection(problem):
            return
        message = f"rank {self.rank} on {socket.gethostname()}: {type(problem).__name__}: {problem}"
        report = {"message": message, "cause": cause, "digest": digest}
        if isinstance(problem, DefiniteError):
            report["definite"] = "yes"
        with suppress(RuntimeError):
            self.store.set("failure", json.dumps(report))

    def blame(self, problem: Exception) -> Exception:
        """What ended the ranks, where ``problem`` is only what this one noticed of it."""
        if self._silence:
            return RankFailedError(self._silence, "node_failure")
        if isinstance(problem, OSError):  # of this rank, or one that all ranks were told of
            return problem
        deadline = time.monotonic() + (PATIENCE_S if lost_connection(problem) else 0.0)
        while self.are_several:
            if killed := self._killed():
                return RankKilledError(killed)
            if reported := self._reported():
                return reported
            if time.monotonic() >= deadline:
                break
            time.sleep(0.05)
        if lost_connection(problem):
            return RankFailedError(f"another rank was lost: {problem}", "node_failure")
        return problem

    def _reported(self) -> Exception | None:
        """What another rank said that ended it."""
        if self.store is None:
            return None
        with suppress(RuntimeError):
            if self.store.check(["failure"]):
                report: dict[str, Any] = json.loads(self.store.get("failure"))
                is_definite = report.pop("definite", None)
                return (DefiniteError if is_definite else RankFailedError)(**report)
        return None

    def _killed(self) -> str:
        """Which fork was killed by a signal; empty where none was."""
        for rank, pid in self._forks.items():
            ended = _end_of(pid)
            if ended is not None and ended.si_code != os.CLD_EXITED:
                return f"rank {rank} (process {pid}) was killed by signal {ended.si_status}"
        return ""

    def _watch(self) -> None:
        """End this process where a fork is gone and the main thread cannot notice."""
        while not self._over.wait(LOOK_S):
            if any((ended := _end_of(pid)) and ended.si_status for pid in self._forks.values()):
                if not self._over.wait(HANGING_S) and not self._silence:
                    self._end_hanging()
                return

    def _end_hanging(self) -> None:
        """End this process, whose main thread waits for a fork that is gone, with what that fork said."""
        reports: list[Exception] = []

        def ask() -> None:
            if reported := self._reported():
                reports.append(reported)

        # The store does not answer where the main thread is what waits for it.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(PATIENCE_S)
        print("a rank is gone, and this one hangs", flush=True)
        if reports:
            self.last_word(reports[0])
            os._exit(WorkerExit.ERROR)
        os.kill(os.getpid(), signal.SIGKILL)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See that no fork is left: those of a leader that ended well are given the time for it."""
        self._over.set()
        self.leave()
        if isinstance(error, Exception):
            self.cause = self.blame(error)
        deadline = time.monotonic() + (LAST_STEPS_S if kind is None else 0.0)
        while time.monotonic() < deadline and any(_end_of(pid) is None for pid in self._forks.values()):
            time.sleep(0.02)
        for pid in self._forks.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def ranks_here(options: RunOptions, nodes: int = 1, meeting: Path | None = None) -> Ranks:
    """The ranks of a trial on its first machine; ``meeting`` will tell others where they reach it."""
    ranks = Ranks(options, 0, 0, nodes=nodes, meeting=meeting)
    if ranks.are_several:
        from scalevec.model.train.parallel.meeting import listening

        host = LOOPBACK if nodes == 1 else _own_address()
        ranks.listener = listening(LOOPBACK if nodes == 1 else "")
        ranks.address = Address(host, ranks.listener.getsockname()[1])
        ranks.awaited = os.environ.get("SLURM_JOB_NODELIST", "") if nodes > 1 else ""
    return ranks


def ranks_there(options: RunOptions, node: int, nodes: int, meeting: Path) -> Ranks | None:
    """The ranks of a trial on machine ``node`` (from 0); None where the first machine has called it off.

    Raises ``NobodyCameError`` of ``model.train.parallel.meeting`` where that has no word in time.
    """
    from scalevec.model.train.parallel.meeting import LIMIT_S, NobodyCameError

    deadline = time.monotonic() + LIMIT_S
    while True:
        with suppress(FileNotFoundError, CorruptRecordError):
            record = read_json(meeting, dict)
            if "called_off" in record:
                return None
            first = node * (options.processes // nodes)
            return Ranks(options, first, first, Address(**record), nodes=nodes)
        if time.monotonic() >= deadline:
            here = socket.gethostname()
            raise NobodyCameError(f"machine {node} of {nodes}, {here}: no word of the first in {LIMIT_S:g} s")
        time.sleep(MEETING_POLL_S)


def _own_address() -> str:
    """Where the other machines of a job reach this one; of SLURM's the first is the one that launches."""
    told = os.environ.get("MASTER_ADDR") or os.environ.get("SLURM_LAUNCH_NODE_IPADDR")
    return told or socket.gethostbyname(socket.gethostname())


def _kind_of_world(options: RunOptions) -> "type[ProcessGroup]":
    """Imported now: what shards loads the compiler."""
    if options.shard:
        from scalevec.model.train.parallel.sharded import ShardedProcessGroup

        return ShardedProcessGroup
    from scalevec.model.train.parallel.process_group import ProcessGroup

    return ProcessGroup


def traits(corpus: Corpus, device: str) -> Mapping[str, str]:
    """What has to be the same at all ranks, by what a person calls it."""
    code = code_state()
    splits = ", ".join(f"{tokens} {name} tokens" for name, tokens in corpus.tokens.items())
    return {
        "code": f"commit {code['commit']} with local changes {code['local_changes']}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "corpus": f"{corpus.fingerprint[:12]} of {splits}",
        "kind of device": torch.cuda.get_device_name() if device == "cuda" else device,
    }


def lost_connection(problem: BaseException) -> bool:
    """Whether ``problem`` says no more than that another rank does not answer."""
    if not isinstance(problem, RuntimeError):
        return False
    text = f"{type(problem).__name__} {problem}"
    return any(word in text for word in ("gloo", "NCCL", "Connection", "DistNetwork", "TCPStore"))


def _end_of(pid: int) -> "os.waitid_result | None":
    """How a child ended, without reaping it; None while it runs, and once it was reaped."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    return None
