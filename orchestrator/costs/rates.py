"""How many FLOPs per second a trial is expected to run at: measured on this machine, else assumed.

``scalevec benchmark`` measures and keeps the figures of a machine in the user's cache folder, one small file
per host name: home folders are shared by machines of different speed. Nothing here loads torch.
"""

import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import RunOptions, Trial
from scalevec.model.fields import ConfigurationError, from_dict, to_dict
from scalevec.model.train.devices import model_flops_utilization
from scalevec.results.files import CorruptRecordError, cache_folder, read_json_if_any, write_json

VERSION = 1
"""Of the file; figures of another one are not read."""
ASSUMED_FLOPS_PER_S = {"cpu": 3.5e10, "cuda": 3e14}
"""Counted FLOPs per second of one trial. One CPU thread: seen at widths 32 to 64. A GPU: an H100 reached
3.4e14 to 5e14 with dense models of 0.12b to 1b in bf16, 2.2e14 with a mixture
(benchmarks/reference/gpu.json)."""
LAYER_STEP_S = 2.5e-3
"""A step on a GPU takes at least this for each layer: small models wait for kernels to be launched (6.2 ms
with two layers, 10.6 ms with four, on an H100)."""
H100_SHARE = ASSUMED_FLOPS_PER_S["cuda"] / 9.89e14
"""Of the dense bf16 peak that the vendor states."""

MEASURED = "measured here on"
"""Before the date, as plans say it."""
BUSY = 0.5
"""Load per core above which the figures are those of a busy machine."""


@dataclass(frozen=True)
class MeasuredRate:
    """What the training steps of one size took at one precision."""

    size: str
    n_params: int
    precision: str
    sequence_length: int
    batch_tokens: int
    micro_batch: int
    flops_per_token: int
    steps: int
    step_s: float
    """Median seconds of a step."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the median step."""
        return self.batch_tokens / self.step_s

    @property
    def flops_per_s(self) -> float:
        """Counted FLOPs per second of the median step."""
        return self.tokens_per_s * self.flops_per_token


@dataclass(frozen=True)
class MeasuredDevice:
    """A device and its rates; ``device`` is ``cpu`` or ``cuda:0`` and so on, ``name`` the driver's.

    ``at_once``: trials that were trained side by side while it was measured.
    """

    device: str
    name: str
    memory_bytes: int
    rates: tuple[MeasuredRate, ...]
    at_once: int = 1

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    def share_of_peak(self, rate: MeasuredRate) -> float | None:
        """MFU; None where the peak is not known."""
        name = None if self.kind == "cpu" else self.name
        return model_flops_utilization(rate.flops_per_token, rate.tokens_per_s, rate.precision, name)


@dataclass(frozen=True)
class MeasuredMachine:
    """The figures of one machine, as they are kept.

    measured: when, ISO 8601 in UTC. threads: of a trial on the CPU. load: processes that wanted a core when
    it began, over the cores.
    """

    version: int
    host: str
    measured: str
    torch: str
    threads: int
    load: float
    devices: tuple[MeasuredDevice, ...]

    def keep(self) -> Path:
        """Write the figures where :func:`measured_here` finds them; an older file stays until then."""
        path = rates_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, to_dict(self))
        return path


@dataclass(frozen=True)
class Rates:
    """The rates that a plan reckons with: those of ``measured``, and assumptions where it has none."""

    measured: MeasuredMachine | None = None
    words: str = field(init=False, default="assumed")

    def __post_init__(self) -> None:
        if self.measured is not None:
            busy = " while other work ran" if self.measured.load > BUSY else ""
            object.__setattr__(self, "words", f"{MEASURED} {self.measured.measured[:10]}{busy}")

    def of(self, trial: Trial, options: RunOptions) -> tuple[float, str]:
        """Return the FLOPs per second of ``trial`` on one device, and where that is known from.

        Of several devices of one kind the slowest counts, since a trial may run on any of them.
        """
        work = flops_per_token(trial.model, trial.sequence_length)
        rates = [self._on(device, work, trial.product_precision) for device in self._devices(options.device)]
        known = [rate for rate in rates if rate is not None]
        return (min(known), self.words) if known else (ASSUMED_FLOPS_PER_S[options.device], "assumed")

    @property
    def smallest_gpu(self) -> MeasuredDevice | None:
        """The measured GPU with the least memory: a trial may run on any of them."""
        return min(self._devices("cuda"), key=lambda device: device.memory_bytes, default=None)

    def _devices(self, kind: str) -> list[MeasuredDevice]:
        devices = () if self.measured is None else self.measured.devices
        return [device for device in devices if device.kind == kind]

    @staticmethod
    def _on(device: MeasuredDevice, work: float, precision: str) -> float | None:
        points = sorted(
            (rate.flops_per_token, rate.flops_per_s) for rate in device.rates if rate.precision == precision
        )
        return _between(points, work) if points else None


ASSUMED = Rates()


def _between(points: Sequence[tuple[float, float]], work: float) -> float:
    """The rate at ``work`` FLOPs per token: a power law between two sizes, the nearest one's beyond them."""
    if work <= points[0][0]:
        return points[0][1]
    for (less, slower), (more, faster) in pairwise(points):
        if work <= more:
            share = math.log(work / less) / math.log(more / less)
            return math.exp((1 - share) * math.log(slower) + share * math.log(faster))
    return points[-1][1]


def rates_path() -> Path:
    """Where the figures of this machine are kept."""
    return cache_folder() / "benchmarks" / f"{platform.node() or 'unnamed'}.json"


def measured_here(say: Callable[[str], None]) -> Rates:
    """Return the rates measured on this machine, assumed ones where there are none.

    ``say`` is told of a file that cannot be used.
    """
    path = rates_path()
    try:
        record = read_json_if_any(path, dict)
        return ASSUMED if record is None else Rates(_parsed(path, record))
    except (CorruptRecordError, OSError) as error:
        say(f"warning: {error}; times are from assumed rates. To measure again: scalevec benchmark")
        return ASSUMED


def _parsed(path: Path, record: dict[str, object]) -> MeasuredMachine:
    if record.get("version") != VERSION:
        raise CorruptRecordError(path, f"is of version {record.get('version')!r:.40}, not {VERSION}")
    try:
        machine = from_dict(MeasuredMachine, record)
    except ConfigurationError as error:
        raise CorruptRecordError(path, str(error)) from None
    for device in machine.devices:
        for rate in device.rates:
            if not (rate.flops_per_token > 0 and rate.batch_tokens > 0 and 0 < rate.step_s < math.inf):
                raise CorruptRecordError(path, f"has a rate of {rate.size} that is no positive number")
    return machine


def load_of_machine() -> float:
    """Processes that want a core, over all cores of the machine; above one they wait for each other."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)
