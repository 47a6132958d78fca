"""Measuring how fast the devices of this machine train: a few sizes, in each precision."""

import platform
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import torch

from scalevec.model.accounting import active_matrices, flops_per_token
from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.data.corpus import Corpus
from scalevec.model.data.system import usable_cpus
from scalevec.model.estimate import memory_of
from scalevec.model.train.devices import (
    LocalDevice,
    compiles_by_itself,
    devices_here,
    is_out_of_memory,
    precisions_of,
)
from scalevec.model.train.speed import drawn_corpus, steps_timed
from scalevec.orchestrator.costs.rates import (
    BUSY,
    VERSION,
    MeasuredDevice,
    MeasuredMachine,
    MeasuredRate,
    load_of_machine,
)
from scalevec.results.files import utc_now
from scalevec.sweeps.ladders import PRESETS, shape

Say = Callable[[str], None]

SHARE_OF_MEMORY = 0.8
"""Of a device, that a timed trial may take by the plan's own estimate."""
STEPS = 1_000_000
"""More than fit into any time."""
CORPUS_TOKENS = 300_000


@dataclass(frozen=True)
class Workload:
    """What is trained on a kind of device: shapes by the names of their sizes, and the text of a step."""

    sizes: dict[str, Shape]
    vocabulary: int
    sequence_length: int
    batch_tokens: int


WORKLOADS = {
    "cpu": Workload(
        {**{name: PRESETS[name].shape for name in ("tiny-25k", "tiny-200k")}, "3m": shape(256, 4)},
        vocabulary=1024,
        sequence_length=128,
        batch_tokens=1024,
    ),
    "cuda": Workload(
        {name: PRESETS[name].shape for name in ("tiny-200k", "0.12b", "0.5b")},
        vocabulary=50_304,
        sequence_length=1024,
        batch_tokens=65_536,
    ),
}
"""From a size at which starting the operations takes the time to one at which the arithmetic does."""


def measured_machine(seconds: float, say: Say) -> MeasuredMachine:
    """Measure every device of this machine in about ``seconds``, one after the other; nothing is kept.

    A CPU trains a trial on each of its cores meanwhile, as a sweep does: side by side they are slower.

    Returns:
        The figures; a device on which nothing could be measured has none. ``say`` is told of each.
    """
    load, began, present = load_of_machine(), utc_now(), devices_here()
    if load > BUSY:
        say(f"warning: this machine is busy (load {load:.2f} per core); measure again when it is idle")
    torch.set_num_threads(1)  # as a trial takes that asks for no more
    devices = tuple(_measured(device, seconds / len(present), say) for device in present)
    return MeasuredMachine(VERSION, platform.node(), began, torch.__version__, 1, load, devices)


def _measured(device: LocalDevice, seconds: float, say: Say) -> MeasuredDevice:
    work, precisions = WORKLOADS[device.kind], precisions_of(device.device)
    each, rates = seconds / len(work.sizes) / len(precisions), []
    at_once = usable_cpus() if device.kind == "cpu" else 1
    with drawn_corpus(CORPUS_TOKENS) as corpus:
        for size in work.sizes:
            for precision in precisions:
                try:
                    rate = _rate(size, _trial(size, precision, work, corpus), corpus, device, at_once, each)
                except _LeftOutError as reason:
                    say(f"{device.device}, {size}, {precision}: left out, {reason}")
                else:
                    say(f"{device.device}, {size}, {precision}: {rate.tokens_per_s:,.0f} tokens/s")
                    rates.append(rate)
    return MeasuredDevice(device.device, device.name, device.memory_bytes, tuple(rates), at_once)


class _LeftOutError(Exception):
    """A size cannot be measured; the message says why."""


def _trial(size: str, precision: str, work: Workload, corpus: Corpus) -> Trial:
    return Trial(
        ModelConfig(work.sizes[size], work.vocabulary),
        OptimizerConfig(),
        ScheduleConfig(),
        corpus.fingerprint,
        work.sequence_length,
        work.batch_tokens,
        work.batch_tokens * STEPS,
        seed=0,
        precision=precision,
    )


def _rate(
    size: str, trial: Trial, corpus: Corpus, device: LocalDevice, at_once: int, seconds: float
) -> MeasuredRate:
    options = options_that_fit(trial, replace(device, memory_bytes=device.memory_bytes // at_once))
    if options is None:
        raise _LeftOutError(f"it would not fit in {device.memory_bytes / 1e9:.3g} GB")
    try:
        steps = _steps_of(at_once, trial, corpus, options, seconds)
    except RuntimeError as problem:
        why = "not enough memory" if is_out_of_memory(problem) else str(problem).splitlines()[0]
        raise _LeftOutError(why) from problem
    return MeasuredRate(
        size,
        active_matrices(trial.model),
        trial.precision,
        trial.sequence_length,
        trial.batch_tokens,
        options.micro_batch,
        flops_per_token(trial.model, trial.sequence_length),
        len(steps),
        statistics.median(steps),
    )


def _steps_of(at_once: int, trial: Trial, corpus: Corpus, options: RunOptions, seconds: float) -> list[float]:
    """The seconds of the steps of ``trial`` in each of ``at_once`` processes that train it side by side."""
    if at_once == 1:
        return _steps(trial, corpus, options, seconds)
    with ProcessPoolExecutor(at_once, get_context("fork")) as pool:
        training = [pool.submit(_steps, trial, corpus, options, seconds) for _ in range(at_once)]
        return [step for of_one in training for step in of_one.result()]


def _steps(trial: Trial, corpus: Corpus, options: RunOptions, seconds: float) -> list[float]:
    return steps_timed(trial, corpus, options, seconds)


def options_that_fit(trial: Trial, device: LocalDevice, recompute: str = "none") -> RunOptions | None:
    """How ``trial`` is run on ``device``: with the largest micro-batch that fits; None where none does."""
    options = RunOptions(device=device.kind, recompute=recompute, compiled=compiles_by_itself(device.kind))
    room, sequences = SHARE_OF_MEMORY * device.memory_bytes, trial.batch_sequences
    while sequences:
        micro = replace(options, micro_batch=0 if sequences == trial.batch_sequences else sequences)
        if memory_of(trial, micro).total <= room:
            return replace(micro, device=device.device, checkpoint_s=1e9)
        sequences //= 2
    return None
