"""The processes that train one trial on this machine, started and watched by torchrun's agent.

The worker that holds the trial's claim runs the agent; every rank, rank 0 too, is a fork of it that ends with
it. The first rank that fails ends the others, and the attempt: whether there is another is the scheduler's to
decide, so the agent never restarts anything. Its files of errors carry what the trial's record has to say. A
fork loads nothing again, and comes before CUDA is touched.
"""

import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import setproctitle
import torch
import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

from scalevec.model.config import RunOptions
from scalevec.model.data.corpus import Corpus
from scalevec.model.train.ddp import ALONE, ProcessGroup, World
from scalevec.model.train.record import TrainingInterruptedError
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.worker.failures import (
    AttemptFailedError,
    RankKilledError,
    as_record,
    from_record,
    report_path,
)
from scalevec.orchestrator.worker.guard import bind_to
from scalevec.orchestrator.worker.provenance import code_state, versions
from scalevec.results.files import CorruptRecordError, read_json, write_json
from scalevec.results.opening import make_folder

LOOPBACK = "127.0.0.1"
LIMIT_S = 300.0
"""How long the machines of a trial wait for each other."""
POLL_S = 0.1
POLL_OTHERS_S = 1.0
"""Where each look asks a file server what other machines say."""
LOST_S = 1.0
"""How long a rank that has lost another one stays, so that the agent sees first who is to blame."""
LAST_WORD_S = 3.0
"""How long the first machine waits for what another one has to say, where it has only lost it."""


@dataclass(frozen=True)
class Address:
    """Where the first machine awaits the others."""

    host: str
    port: int


@dataclass(frozen=True)
class Ranks:
    """The processes of a trial on machine ``node`` (from 0) of ``nodes``.

    ``meeting`` is the file by which other machines are told where the first one is, which has a ``listener``.
    """

    options: RunOptions
    node: int = 0
    nodes: int = 1
    meeting: Path | None = None
    address: Address | None = None
    listener: socket.socket | None = None

    @property
    def here(self) -> int:
        """How many processes of the trial are on this machine."""
        return self.options.processes // self.nodes

    def call_others(self) -> None:
        """Let the processes on other machines begin."""
        if self.meeting is not None and self.address is not None:
            make_folder(self.meeting.parent)
            write_json(self.meeting, asdict(self.address))

    def run(self, work: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
        """Do ``work``, given its rank, at each rank of this machine; return what the first of them returns.

        Raises:
            TrainingInterruptedError: The ranks were asked to stop; their state is in the newest checkpoint.
            RankKilledError: A rank was killed by a signal.
            AttemptFailedError: What ended a rank, or that the machines did not meet.
            OSError: What the disk refused a rank.
        """
        with tempfile.TemporaryDirectory(prefix="scalevec-ranks-") as folder:
            agent = self._agent(work, folder)
            try:
                ended = agent.run()
            except (dist.DistError, TimeoutError) as problem:
                raise AttemptFailedError(self._not_met(problem), "node_failure") from problem
        if ended.is_failed():
            raise self._blamed(*next(iter(ended.failures.items()), (0, None)))
        result: dict[str, Any] = ended.return_values[self.node * self.here]
        if "stopped_after" in result:
            raise TrainingInterruptedError(result["stopped_after"])
        return result

    def _agent(self, work: Callable[[int], dict[str, Any]], folder: str) -> LocalElasticAgent:
        assert self.address is not None
        torch._dynamo  # noqa: B018 (loaded once here: DDP would load it in each fork)
        # Failures are told in the trial's words; it takes no signal, as the worker does.
        for name in ("torch.distributed.elastic", "torch.multiprocessing.spawn"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ""
        if self.address.host == LOOPBACK and sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        spec = WorkerSpec(
            role="rank",
            local_world_size=self.here,
            rdzv_handler=_Rendezvous(self),
            entrypoint=_be_rank,
            args=(work, os.getpid()),
            max_restarts=0,
            monitor_interval=POLL_S if self.nodes == 1 else POLL_OTHERS_S,
            master_addr=self.address.host,
            master_port=self.address.port,
        )
        # Of this process, in which no other thread holds a lock: that of the claim sleeps between its beats.
        return _Agent(self, spec, DefaultLogsSpecs(log_dir=folder), start_method="fork")

    def meet(self, corpus: Corpus) -> World:
        """The world of the trial at one of its ranks, once all are there.

        Raises ``UnlikeRanksError`` of ``model.train.ddp``.
        """
        if self.options.processes == 1:
            return ALONE
        device = self.options.device
        world = _kind_of_world(self.options)(device)
        hosts = world.require_alike(traits(corpus, device))
        if world.leads:
            print(f"{world.size} processes on {', '.join(dict.fromkeys(hosts))}", flush=True)
        return world

    def _not_met(self, problem: Exception) -> str:
        sent_to = os.environ.get("SLURM_JOB_NODELIST")
        words = f", sent to {sent_to}," if sent_to else ""
        return (
            f"the {self.nodes} machines of this trial{words} did not meet in {LIMIT_S:g} s; "
            f"machine {self.node}, {socket.gethostname()}, says: {problem}"
        )

    def _blamed(self, rank: int, failure: ProcessFailure | None) -> Exception:
        """What ended ``rank``, or the one on another machine that it has only lost (``failure`` is None)."""
        record = None if failure is None else failure.error_file_data.get("failure")
        if failure is not None and record is None and failure.exitcode < 0:
            number = -failure.exitcode
            return RankKilledError(f"rank {rank} (process {failure.pid}) was killed by signal {number}")
        if failure is not None and record is None:
            return AttemptFailedError(f"rank {rank} ended with exit code {failure.exitcode}")
        deadline = time.monotonic() + (LAST_WORD_S if self.nodes > 1 else 0.0)
        while (record is None or record["lost"]) and time.monotonic() < deadline:
            record = self.said_elsewhere() or record
            time.sleep(POLL_S)
        return (
            from_record(record) if record else AttemptFailedError("another machine was lost", "node_failure")
        )

    def said_elsewhere(self) -> dict[str, Any] | None:
        """What another machine has told of its end (:meth:`report`)."""
        if self.meeting is not None:
            for node in range(1, self.nodes):
                with suppress(FileNotFoundError, CorruptRecordError):
                    return read_json(report_path(self.meeting, node), dict)
        return None

    def report(self, problem: Exception) -> None:
        """Tell the first machine what ended this one."""
        if self.meeting is not None:
            record = as_record(problem, str(problem), is_lost=lost_connection(problem))
            write_json(report_path(self.meeting, self.node), record)


class _Agent(LocalElasticAgent):
    """Ends its ranks, too, once another machine has told what ended its own: they may wait for those."""

    def __init__(self, ranks: Ranks, *spec: Any, **how: Any) -> None:
        super().__init__(*spec, **how)
        self._ranks = ranks

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self._ranks.said_elsewhere() is not None:
            self._shutdown(signal.SIGKILL)
            return RunResult(state=WorkerState.FAILED)
        return super()._monitor_workers(worker_group)  # type: ignore[no-any-return]


class _Rendezvous(StaticTCPRendezvous):
    """Machines meet in a given order at the first one's socket, which listens where it was told to.

    torch's own would listen at all addresses, and at a port that another program may have taken meanwhile; it
    says of machines only how many came, and waits for those that have failed.
    """

    def __init__(self, ranks: Ranks) -> None:
        assert ranks.address is not None
        super().__init__(
            ranks.address.host, ranks.address.port, ranks.node, ranks.nodes, "scalevec", int(LIMIT_S)
        )
        self._ranks = ranks

    def next_rendezvous(self) -> Any:
        if (listener := self._ranks.listener) is not None:
            self._store = dist.TCPStore(  # type: ignore[attr-defined]
                *(LOOPBACK, self.master_port, self.world_size, True, self.timeout, False),
                master_listen_fd=listener.detach(),
            )
        meeting = super().next_rendezvous()
        meeting.store.set(f"machine {self.rank}", "is there")
        if self.rank == 0:
            self._await_others(meeting.store)
        return meeting

    def _await_others(self, store: Any) -> None:
        deadline = time.monotonic() + LIMIT_S
        while absent := [n for n in range(self.world_size) if not store.check([f"machine {n}"])]:
            if record := self._ranks.said_elsewhere():
                raise from_record(record)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not here: machine {', '.join(map(str, absent))}")
            time.sleep(POLL_S)


def _be_rank(work: Callable[[int], dict[str, Any]], agent: int) -> dict[str, Any]:
    """Do ``work`` in a fork of process ``agent``, which reads from a file what ended it."""
    bind_to(agent)
    rank = int(os.environ["RANK"])
    setproctitle.setproctitle(f"{setproctitle.getproctitle()} rank {rank}")
    try:
        return work(rank)
    except TrainingInterruptedError as stop:
        return {"stopped_after": stop.step}
    except Exception as problem:
        is_lost = lost_connection(problem)
        if not is_lost:
            print(f"rank {rank}: {traceback.format_exc()}", file=sys.stderr)
        message = f"rank {rank} on {socket.gethostname()}: {type(problem).__name__}: {problem}"
        failure = as_record(problem, message, is_lost=is_lost)
        told = {"message": message, "timestamp": int(time.time()), "failure": failure}
        Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(told))
        if is_lost:
            time.sleep(LOST_S)
        raise SystemExit(WorkerExit.ERROR) from problem


def ranks_here(options: RunOptions, nodes: int = 1, meeting: Path | None = None) -> Ranks:
    """The ranks of a trial on its first machine; ``meeting`` will tell others where they reach it."""
    if options.processes == 1:
        return Ranks(options)
    host = LOOPBACK if nodes == 1 else _own_address()
    listener = socket.create_server((LOOPBACK if nodes == 1 else "", 0), backlog=512)
    address = Address(host, listener.getsockname()[1])
    return Ranks(options, 0, nodes, meeting, address, listener)


def ranks_there(options: RunOptions, node: int, nodes: int, meeting: Path) -> Ranks | None:
    """The ranks of a trial on machine ``node`` (from 0); None where the first machine has called it off.

    Raises :class:`AttemptFailedError` where that has no word in time.
    """
    here, deadline = socket.gethostname(), time.monotonic() + LIMIT_S
    while True:
        with suppress(FileNotFoundError, CorruptRecordError):
            record = read_json(meeting, dict)
            if "called_off" in record:
                return None
            print(f"machine {node} of {nodes}, {here}, joins {record['host']}:{record['port']}", flush=True)
            return Ranks(options, node, nodes, meeting, Address(**record))
        if time.monotonic() >= deadline:
            problem = f"machine {node} of {nodes}, {here}: no word of the first in {LIMIT_S:g} s"
            raise AttemptFailedError(problem, "node_failure")
        time.sleep(POLL_S)


def _own_address() -> str:
    """Where the other machines of a job reach this one; of SLURM's the first is the one that launches."""
    told = os.environ.get("MASTER_ADDR") or os.environ.get("SLURM_LAUNCH_NODE_IPADDR")
    return told or socket.gethostbyname(socket.gethostname())


def _kind_of_world(options: RunOptions) -> type[ProcessGroup]:
    """Imported now: what shards loads the compiler."""
    if options.shard:
        from scalevec.model.train.sharded import ShardedProcessGroup

        return ShardedProcessGroup
    return ProcessGroup


def traits(corpus: Corpus, device: str) -> dict[str, str]:
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
    words = ("gloo", "NCCL", "Connection", "DistNetwork", "TCPStore", "timeout caused pair closure")
    return any(word in text for word in words)
