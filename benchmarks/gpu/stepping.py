"""How fast a device takes the steps of a trial: by the training loop itself, on drawn tokens."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scalevec.model.config import RunOptions, Trial
from scalevec.model.data import CorpusConfig
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.estimate import memory_of
from scalevec.model.train.devices import LocalDevice, missing_compiler, release_unused
from scalevec.model.train.loop import TrainingRun
from scalevec.model.train.record import SilentRecorder

FEWEST_STEPS = 3
"""The first one is slower than the others, and counts for nothing."""

SHARE_OF_MEMORY = 0.8
"""Of a device, that a timed trial may take by the plan's own estimate."""
VOCABULARY = 1024
"""Of drawn tokens."""


@contextmanager
def drawn_corpus(tokens: int) -> Iterator[Corpus]:
    """Yield a corpus of so many random training tokens, which is removed afterwards.

    Models of a larger vocabulary can be timed on it too.
    """
    with tempfile.TemporaryDirectory(prefix="scalevec-") as folder:
        shard = Path(folder) / "drawn.bin"
        # At most a fifth of it is held out.
        np.random.default_rng(0).integers(VOCABULARY, size=tokens * 5 // 4, dtype=np.uint16).tofile(shard)
        config = CorpusConfig("shards", "ids", VOCABULARY, (str(shard),), dtype="uint16", in_place=True)
        yield prepare(config, Path(folder), lambda _: None)


class SteppedRun(TrainingRun):
    """A run that takes a step only when it is asked to, so that several can take turns on one device.

    Nothing is recorded and no checkpoint is written.
    """

    def __init__(self, trial: Trial, corpus: Corpus, options: RunOptions) -> None:
        super().__init__(trial, corpus, options, SilentRecorder(), Path(os.devnull))
        self._compile()

    def take(self, steps: int = 1) -> list[dict[str, Any]]:
        """Take the next optimizer steps and wait for the device; returns their rows of metrics."""
        for step in range(self.progress.step, self.progress.step + steps):
            self._step(step)
        rows = self.pending.read(self.measurements.seconds)
        for row in rows:
            self.progress.take(row["step"], row["loss"])
        return rows


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
    try:
        return _timed(SteppedRun(trial, corpus, options), seconds)
    finally:
        release_unused(torch.device(options.device))


def _timed(run: SteppedRun, seconds: float) -> list[float]:
    with run.feed:
        run.take()
        until, rows = time.monotonic() + seconds, list[dict[str, Any]]()
        while len(rows) + 1 < FEWEST_STEPS or time.monotonic() < until:
            # As many as training leaves a GPU to itself.
            rows += run.take(run.read_every)
    return [run.trial.batch_tokens / row["tokens_per_s"] for row in rows]


def options_that_fit(trial: Trial, device: LocalDevice, recompute: str = "none") -> RunOptions | None:
    """How ``trial`` is run on ``device``: with the largest micro-batch that fits; None where none does."""
    options = RunOptions(
        device=device.kind,
        recompute=recompute,
        compiled=device.kind == "cuda" and not missing_compiler("cuda"),
    )
    room, sequences = SHARE_OF_MEMORY * device.memory_bytes, trial.batch_sequences
    while sequences:
        micro = replace(options, micro_batch=0 if sequences == trial.batch_sequences else sequences)
        if memory_of(trial, micro).total <= room:
            return replace(micro, device=device.device, checkpoint_s=1e9)
        sequences //= 2
    return None
