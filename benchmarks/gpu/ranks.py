"""Trials in several processes on one device: one trial in all of them, or one in each."""

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config
from parts import FORK
from stepping import steps_timed

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data.corpus import Corpus
from scalevec.model.train import ddp
from scalevec.model.train.ddp import ALONE, ProcessGroup
from scalevec.model.train.loop import train
from scalevec.model.train.record import SilentRecorder
from scalevec.model.train.sharded import ShardedProcessGroup

LIMIT_S = 170.0
"""How long ranks wait for each other, and a part for the figures of its processes."""
LIMIT = timedelta(seconds=LIMIT_S)


class LossRecorder(SilentRecorder):
    """Keeps the losses alone."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def record(self, row: Any) -> None:
        """Keep a row's loss."""
        self.losses.append(row["loss"])


@dataclass(frozen=True)
class Meeting:
    """How the processes of a trial meet: ``size`` of them, over torch's ``backend``; empty: one alone."""

    size: int = 1
    backend: str = ""
    shard: bool = False


def trained_together(meeting: Meeting, trial: Trial, corpus: Corpus, options: RunOptions) -> list[float]:
    """The losses of all steps and the terminal ones of ``trial``, trained by the processes of ``meeting``."""
    if meeting.backend:
        # A group of one, too, takes its options from those of two: one process alone shards nothing.
        options = replace(options, processes=2, shard=meeting.shard)
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        arguments = [(rank, meeting, trial, corpus, options, Path(folder)) for rank in range(meeting.size)]
        with _started(_be_rank, arguments) as ranks:
            losses: list[float] = next(iter([_answer(*rank) for rank in ranks]))
    return losses


def _be_rank(
    talk: Connection,
    rank: int,
    meeting: Meeting,
    trial: Trial,
    corpus: Corpus,
    options: RunOptions,
    folder: Path,
) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # All on one card.
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(meeting.size), "LOCAL_RANK": "0"}
    recorder = LossRecorder()
    kind = ShardedProcessGroup if meeting.shard else ProcessGroup
    with patch.dict(ddp.BACKENDS, cuda=meeting.backend), patch.object(ddp, "PATIENCE", LIMIT):
        world = kind(options.device, f"file://{folder}/meeting") if meeting.backend else ALONE
        with world:
            result = train(trial, corpus, options, recorder, folder, world=world)
    talk.send([*recorder.losses, result["loss_validation"], result["loss"]])


class SideBySide:
    """Processes that each train a trial of their own on one device, as a scheduler with slots has them."""

    def __init__(self, talks: list[tuple[Connection, BaseProcess]]) -> None:
        self._processes = talks

    def median_steps(self, n: int, trial: Trial, corpus: Corpus, seconds: float) -> list[float]:
        """The median seconds of a step in each of ``n`` processes at once, after they have warmed up."""
        running = self._processes[:n]
        for until in (0.0, seconds):
            for talk, _ in running:
                talk.send((trial, corpus, until))
            medians: list[float] = [_answer(*process) for process in running]
        return medians


@contextmanager
def side_by_side(n: int, options: RunOptions) -> Iterator[SideBySide]:
    """Within it there are ``n`` processes."""
    with _started(_train_when_asked, [(options,)] * n) as processes:
        yield SideBySide(processes)


def _train_when_asked(talk: Connection, options: RunOptions) -> None:
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1  # many processes share the cores
    while True:
        trial, corpus, seconds = talk.recv()
        rare = replace(options, checkpoint_s=1e9)
        talk.send(statistics.median(steps_timed(trial, corpus, rare, seconds)))


@contextmanager
def _started(work: Any, arguments: list[tuple[Any, ...]]) -> Iterator[list[tuple[Connection, BaseProcess]]]:
    """Within it there is a process for each of ``arguments``, with a pipe to it; killed at the end."""
    started: list[tuple[Connection, BaseProcess]] = []
    try:
        for of_process in arguments:
            talk, theirs = FORK.Pipe()
            process = FORK.Process(target=_to_the_end, args=(work, theirs, *of_process), daemon=True)
            process.start()
            theirs.close()
            started.append((talk, process))
        yield started
    finally:
        for _, process in started:
            process.kill()
            process.join()


def _to_the_end(work: Any, talk: Connection, *arguments: Any) -> None:
    """Do the work and say what went wrong; leave without the ends of libraries, which may wait for others."""
    try:
        work(talk, *arguments)
    except Exception as problem:  # noqa: BLE001 (told to the process that asked)
        talk.send(RuntimeError(f"{type(problem).__name__}: {problem}"))
    os._exit(0)


def _answer(talk: Connection, process: BaseProcess) -> Any:
    if not talk.poll(LIMIT_S):
        raise RuntimeError(f"a process did not answer in {LIMIT_S:g} s")
    try:
        answer = talk.recv()
    except EOFError:
        process.join(1.0)
        raise RuntimeError(f"a process ended with exit code {process.exitcode}") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
