"""How fast a device takes the steps of a trial: by the training loop itself, on drawn tokens."""

import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data import CorpusConfig, TokenProcess
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.train.device_memory import release_unused
from scalevec.model.train.devices import missing_compiler
from scalevec.model.train.loop import TrainingRun, train
from scalevec.model.train.record import SilentRecorder

FEWEST_STEPS = 3
"""The first one is slower than the others, and counts for nothing."""

VOCABULARY = 1024
"""Of drawn tokens; a synthetic corpus takes memory with its square."""


@dataclass(frozen=True)
class LocalDevice:
    """A device of this machine: as torch calls it, the name that its driver gives it, its bytes of memory."""

    device: str
    name: str
    memory_bytes: int

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]


def devices_here() -> list[LocalDevice]:
    """Each CUDA device that this process may use; the CPU where there is none."""
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return [LocalDevice(f"cuda:{n}", card.name, card.total_memory) for n, card in enumerate(cards)]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return [LocalDevice("cpu", _processor(), memory)]


def precisions_of(device: str) -> list[str]:
    """The precisions in which ``device`` computes by itself."""
    if device == "cpu":
        has_it = re.search(r"\b(avx512_|amx_)?bf16\b", _of_processor()) is not None
    else:
        with torch.cuda.device(device):
            has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    return ["float32", "bfloat16"] if has_it else ["float32"]


def _processor() -> str:
    named = re.search(r"^model name\s*:\s*(.+)$", _of_processor(), re.MULTILINE)
    return named[1] if named else platform.machine()


def _of_processor() -> str:
    """What Linux says of the processors; nothing where it says nothing."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@contextmanager
def drawn_corpus(tokens: int) -> Iterator[Corpus]:
    """Yield a synthetic corpus of so many training tokens, which is removed afterwards.

    Models of a larger vocabulary can be timed on it too.
    """
    process = TokenProcess(vocabulary=VOCABULARY, tokens=tokens)
    config = CorpusConfig("synthetic", "ids", VOCABULARY, process=process)
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        yield prepare(config, Path(folder), lambda _: None)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch takes one thread, as a trial does that asks for no more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compiles_by_itself(device: str) -> bool:
    """Whether all trials on ``device`` (``cpu`` or ``cuda``) are compiled where nobody says otherwise."""
    return device == "cuda" and not missing_compiler(device)


class SteppedRun(TrainingRun):
    """A run that takes a step only when it is asked to, so that several can take turns on one device.

    Nothing is recorded and no checkpoint is written.
    """

    def __init__(self, trial: Trial, corpus: Corpus, options: RunOptions) -> None:
        super().__init__(trial, corpus, options, SilentRecorder(), Path(os.devnull))
        self._compile()

    def take(self) -> dict[str, Any]:
        """Take the next optimizer step; returns its row of metrics."""
        self._step(self.progress.step)
        (row,) = self.pending.read(self.measurements.seconds)
        self.progress.take(row["step"], row["loss"])
        return row


def steps_timed(trial: Trial, corpus: Corpus, options: RunOptions, seconds: float) -> list[float]:
    """Train ``trial`` for about ``seconds``, three steps at least; nothing is kept.

    Args:
        trial: What is trained; it needs more steps than fit.
        corpus: Its tokens.
        options: Device and micro-batch.
        seconds: After which no further step is begun.

    Returns:
        The seconds of each step but the first.

    Raises:
        RuntimeError: The device had not enough memory, or refused.
    """
    watch = _Stopwatch(seconds)
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        try:
            train(trial, corpus, options, watch, Path(folder))
        except _TimeIsUpError:
            pass
        finally:
            release_unused(torch.device(options.device))
    return [trial.batch_tokens / rate for rate in watch.tokens_per_s[1:]]


class _TimeIsUpError(Exception):
    """Ends a training that only its speed was wanted of."""


class _Stopwatch(SilentRecorder):
    """Keeps the speed of each step and ends the training when its time is up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.tokens_per_s = seconds, list[float]()
        self.until: float | None = None

    def record(self, row: Mapping[str, Any]) -> None:
        """The time counts from the end of the first step."""
        now = time.monotonic()
        self.until = now + self.seconds if self.until is None else self.until
        self.tokens_per_s.append(row["tokens_per_s"])
        if len(self.tokens_per_s) >= FEWEST_STEPS and now >= self.until:
            raise _TimeIsUpError
