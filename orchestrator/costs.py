"""What a trial will cost before it runs: FLOPs, time, memory and disk; whether its device has room for it."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from scalevec.model.accounting import count_parameters, flops_per_token
from scalevec.model.config import RunOptions, Trial
from scalevec.model.estimate import FLOAT_BYTES, Memory, memory_of, optimizer_bytes
from scalevec.model.strategies import NORMED_MAPS
from scalevec.model.train.devices import DEVICES, device_named
from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.errors import read_or_else
from scalevec.results.columns import checked_columns, timing_columns
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.trainers.any_trial import ForeignTrial

ASSUMED_FLOPS_PER_S = {"cpu": 3.5e10, "cuda": 3e14}
"""Counted FLOPs per second of one trial. One CPU thread: seen at widths 32 to 64. A GPU: an H100 reached
3.4e14 to 5e14 with dense models of 0.12b to 1b in bf16, 2.2e14 with a mixture
(benchmarks/reference/gpu.json)."""
H100_SHARE = ASSUMED_FLOPS_PER_S["cuda"] / 9.89e14
"""Of the dense bf16 peak that the vendor states."""
LAYER_STEP_S = 2.5e-3
"""A step on a GPU takes at least this for each layer: small models wait for kernels to be launched (6.2 ms
with two layers, 10.6 ms with four, on an H100)."""
FRESH_START_S = 5.0
"""A process that imports torch, as seen on a 2-core machine."""
COMPILED_START_S = 14.0
"""On a GPU, with compiled blocks: 12 to 16 s were seen beside an H100, eight starting at once on 16 cores."""
FORKED_START_S = 1.0
"""A worker on a CPU, forked from a process that has: 0.8 s were seen between two trials."""
TRAINING_OVER_FORWARD = 3
"""FLOPs of a training step over those of its forward pass."""
BYTES_PER_STEP = 170
"""One row of metrics.jsonl without statistics."""
BYTES_PER_VALUE = 10
"""One of a list of values by layer."""
BYTES_PER_STATISTIC = 70
"""The two names of a statistic, and its value over all layers."""
STATISTICS = 3
"""Of each kind of scale vector: mean, deviation, share near zero."""
BYTES_PER_QUANTITY = 30
"""The name of a quantity."""
QUANTITIES = 12
"""Of each kind of effective matrix: movement, eigenvalues, what is conserved."""
KINDS = len(NORMED_MAPS) + 1
"""Of scale vectors, and of effective matrices: one at each map behind a norm, and the final one."""
SHARPNESS_BYTES = 180
FIXED_BYTES = 12_000
"""trial.json, environment.json, result.json, jobs.jsonl, events, the claim and the log."""
FIXED_FILES = 13
"""Of a trial that ran undisturbed: seven files, three of the claim, three folders (that of the
checkpoints only where one was written)."""


UNKNOWN_TIME = "nobody knows yet how long trials of this trainer take"
SEEN = "by the finished trials of this sweep"
ASSUMED = {
    "cpu": f"at an assumed {ASSUMED_FLOPS_PER_S['cpu']:.2g} FLOPs per second",
    "cuda": (
        f"at an assumed {ASSUMED_FLOPS_PER_S['cuda']:.2g} FLOPs per second, {H100_SHARE:.0%} of an H100"
    ),
}
"""Where times are known from; assumed ones by device."""
MOST_TIMED = 9
"""Finished trials of a size that are asked how long they took."""


@dataclass(frozen=True)
class Cost:
    """Estimates for one trial; its memory is measured once it is asked for.

    ``seen_s`` are the seconds that finished trials of the sweep let expect, where there are any. The
    evaluation at the end goes over ``evaluated_tokens``, of which each takes the forward pass alone. A
    mixture holds the parameters of all its experts and computes those that a token passes. What ``options``
    measures along the way counts in bytes but not in seconds.
    """

    trial: Trial
    options: RunOptions
    evaluated_tokens: int = 0
    seen_s: float | None = None

    @property
    def flops(self) -> int:
        """Those of training and evaluation, counted once each."""
        return _flops(self.trial, self.evaluated_tokens)

    @property
    def start_s(self) -> float:
        """Of the seconds, those before the first step."""
        if self.options.device == "cpu":
            return FORKED_START_S if self.options.processes == 1 else FRESH_START_S
        return COMPILED_START_S if self.options.compiled else FRESH_START_S

    @property
    def assumed_s(self) -> float:
        """The seconds of training and evaluation at the assumed rate, without those of the start."""
        trial, options = self.trial, self.options
        flops_per_s = ASSUMED_FLOPS_PER_S[options.device]
        computing = _computed(trial, options, self.evaluated_tokens) / flops_per_s / options.processes
        launching = trial.steps * trial.model.shape.layers * LAYER_STEP_S if options.device == "cuda" else 0.0
        return max(computing, launching)

    @property
    def planned_s(self) -> float | None:
        """:attr:`assumed_s`, as a sweep keeps it."""
        return float(f"{self.assumed_s:.4g}")

    @property
    def seconds(self) -> float:
        """Those of the start, training and evaluation."""
        return self.start_s + (self.assumed_s if self.seen_s is None else self.seen_s)

    @cached_property
    def memory(self) -> Memory:
        """On the trial's device, the framework's own share included."""
        return memory_of(self.trial, self.options)

    @property
    def disk_bytes(self) -> int:
        """What stays when the trial is completed."""
        weights = FLOAT_BYTES * count_parameters(self.trial.model).total
        kept = {"none": 0, "weights": weights, "all": checkpoint_bytes(self.trial)}
        return FIXED_BYTES + log_bytes(self.trial, self.options) + kept[self.options.keep]

    def columns(self) -> dict[str, Any]:
        """The estimates as a row of a plan has them; a quota counts files and folders, so both are told."""
        return {
            "flops": self.flops,
            "seconds": self.seconds,
            "start_s": self.start_s,
            "rate": ASSUMED[self.options.device] if self.seen_s is None else SEEN,
            "memory_bytes": self.memory.total,
            "memory": vars(self.memory),
            "disk_bytes": self.disk_bytes,
            "disk_files": FIXED_FILES + (self.options.keep != "none"),
        }


@dataclass(frozen=True)
class ForeignCost:
    """The cost of a trial of a foreign trainer: C = 6 N D; ``known_s`` where somebody knows, by ``rate``."""

    trial: ForeignTrial
    known_s: float | None
    rate: str

    @property
    def planned_s(self) -> float | None:
        """The seconds; None where nobody knows."""
        return self.known_s or None

    @property
    def seconds(self) -> float:
        """The seconds; 0 where nobody knows."""
        return self.known_s or 0.0

    def columns(self) -> dict[str, Any]:
        """The estimates as a row of a plan has them."""
        return {
            "flops": self.trial.training_flops,
            "seconds": self.seconds,
            "start_s": 0.0,
            "rate": self.rate if self.known_s else UNKNOWN_TIME,
            "memory_bytes": 0,
            "memory": dict.fromkeys(Memory.__dataclass_fields__, 0),
            "disk_bytes": FIXED_BYTES,
            "disk_files": FIXED_FILES,
        }


def _flops(trial: Trial, evaluated_tokens: int) -> int:
    per_token = flops_per_token(trial.model, trial.sequence_length)
    return per_token * trial.tokens + per_token * evaluated_tokens // TRAINING_OVER_FORWARD


def _computed(trial: Trial, options: RunOptions, evaluated_tokens: int) -> float:
    """FLOPs with those of further forward passes: recomputed blocks, counted choices."""
    flops, training = _flops(trial, evaluated_tokens), _flops(trial, 0)
    again = flops * (options.recompute == "block") + training * options.needs_counting_pass(trial)
    return flops + again / TRAINING_OVER_FORWARD


def checkpoint_bytes(trial: Trial) -> int:
    """Return the size of one checkpoint: weights and optimizer state."""
    return FLOAT_BYTES * count_parameters(trial.model).total + optimizer_bytes(trial)


def log_bytes(trial: Trial, options: RunOptions) -> int:
    """Estimate the size of metrics.jsonl when ``trial`` is done, with scale vectors at every map."""
    values = BYTES_PER_VALUE * trial.model.shape.layers
    n_statistics = (trial.steps // options.metrics_steps + 1) * STATISTICS * KINDS
    n_measured = trial.steps // options.measure_steps + 2
    size = BYTES_PER_STEP * trial.steps + n_statistics * (BYTES_PER_STATISTIC + values)
    if "preconditioner" in options.measure:
        size += n_measured * QUANTITIES * KINDS * (BYTES_PER_QUANTITY + values)
    if "sharpness" in options.measure:
        size += n_measured * SHARPNESS_BYTES
    return size


@dataclass(frozen=True)
class Room:
    """The memory for one process of a trial."""

    size: float
    """Bytes."""
    words: str
    is_certain: bool
    """Whether the card is known, not assumed; what a process on the CPU takes is known less well."""


def room_of(request: ResourceRequest, card: str | None) -> Room | None:
    """Return the room for one process: on a GPU, or memory_gb. None where nobody says how much there is.

    The GPU is of type ``card``, else an H100. A share of it has that share of its memory.
    """
    if request.gpus:
        known, share = device_named(card), min(request.gpus, 1.0)
        device = known or DEVICES["h100"]
        words = (
            f"the {device.memory * share / 1e9:.3g} GB of {'its share of ' * (share < 1)}one {device.name}"
        )
        return Room(device.memory * share, words, is_certain=known is not None)
    if request.memory_gb is None:
        return None
    return Room(request.memory_gb * 1e9, f"memory_gb, {request.memory_gb:g}", is_certain=False)


def recompute_for(trials: Iterable[Trial], options: RunOptions, room: Room | None) -> str:
    """Return ``block`` where one of ``trials`` has no room without it: the arms of a rung are run alike."""
    if room is None:
        return "none"
    again = replace(options, recompute="block")
    for trial in trials:
        needed = memory_of(trial, options).total
        # Measurements may need more than training: then it would be in vain.
        if needed > room.size and memory_of(trial, again).total < needed:
            return "block"
    return "none"


def what_fits(trial: Trial, options: RunOptions, room: Room) -> str:
    """Return what a trial that has no room would fit with: words for a person."""
    memory = memory_of(trial, options)
    start = f"needs {memory.total / 1e9:,.3g} GB, more than {room.words}"
    if memory.measurements > memory.training:
        return f"{start}, {memory.measurements / 1e9:,.3g} GB of it to be measured"
    part = trial.batch_sequences // options.processes
    sequences = min(options.micro_batch or part, part)
    while sequences > 1:
        sequences //= 2
        for recompute in dict.fromkeys((options.recompute, "block")):
            smaller = replace(options, micro_batch=sequences, recompute=recompute)
            if (size := memory_of(trial, smaller).total) <= room.size:
                how = f"micro_batch: {sequences} with recompute: {recompute}"
                return f"{start}; {how} fits ({size / 1e9:,.3g} GB)"
    return (
        f"{start}, even with one sequence at a time and recompute: block; a larger card has room, or several "
        "with shard: true"
    )


def seen_seconds(pace: Mapping[int, float], n_params: int, tokens: int) -> float | None:
    """The seconds of a trial by the pace of the nearest size; None without any."""
    if not pace:
        return None
    nearest = min(pace, key=lambda size: abs(math.log(size / n_params)))
    return pace[nearest] * n_params * tokens


def pace_of(folder: SweepFolder, runs_dir: Path) -> dict[int, float]:
    """The median seconds for a parameter and a token of the finished trials of a sweep, by N."""
    paces: defaultdict[int, list[float]] = defaultdict(list)
    for member in read_or_else(folder.members, None) or []:
        of_size = paces[member["n_params"]]
        if len(of_size) == MOST_TIMED:
            continue
        with suppress(CorruptRecordError):
            directory = RunDirectory.of(runs_dir, member["trial_id"])
            result = directory.result() or {}
            timed = checked_columns(directory.result_path, timing_columns(result) | result)
            # A branch has trained its own part alone.
            if timed.get("wall_s") and timed.get("n_tokens") and not result.get("trunk_step"):
                seconds = timed["wall_s"] + (timed["evaluation_s"] or 0.0)
                of_size.append(seconds / member["n_params"] / timed["n_tokens"])
    return {size: statistics.median(of_size) for size, of_size in paces.items() if of_size}
