"""What is trained, at the sizes of a card and at toy size, and on which device."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from stepping import VOCABULARY

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Trial
from scalevec.model.data.corpus import Corpus
from scalevec.model.strategies import PRESETS as STRATEGIES
from scalevec.model.train.devices import LocalDevice, devices_here, missing_compiler, release_unused
from scalevec.sweeps.ladders import PRESETS as LADDER
from scalevec.sweeps.ladders import Size, size_of

CORPUS_TOKENS = 300_000
STEPS = 1_000_000
"""Of a trial that is timed: more than fit into any time."""
STREAM = "0" * 64
"""Of all trials: what follows from their own fields would differ with the precision."""
OVERHEAD_ARMS = ("baseline", "unified", "unified-dp", "none")


@dataclass(frozen=True)
class Text:
    """The tokens of a step: vocabulary, tokens of a sequence, tokens of a batch."""

    vocabulary: int
    sequence_length: int
    batch_tokens: int


@dataclass(frozen=True)
class Workloads:
    """All that is trained.

    head: rows, width and classes of the head's loss that is compared with one of many operations.
    checked: a dense size and a mixture whose losses are compared; ``steps`` are trained of each.
    timed: sizes whose share of the peak is measured; ``seconds`` for each, half in company.
    overhead: pairs of a size and what is recomputed, at which arms are compared.
    small: rungs of which ``side_by_side`` trials run at once.
    evaluated: the size whose evaluation's memory is measured.
    compiled: size, arm and precision of those whose blocks are compiled and compared with uncompiled ones.
    """

    head: tuple[int, int, int]
    checked: Mapping[str, Size]
    checked_text: Text
    steps: int
    timed: Mapping[str, Size]
    overhead: tuple[tuple[str, str], ...]
    timed_text: Text
    overhead_text: Text
    seconds: float
    small: Mapping[str, Size]
    small_text: Text
    side_by_side: tuple[int, ...]
    evaluated: str
    compiled: tuple[tuple[str, str, str], ...]


_FEW = {"n_experts": 4, "top_k": 2, "over": "mean"}
CARD = Workloads(
    head=(8192, 512, 50_304),
    checked={"dense": size_of(128, 4), "mixture": size_of(128, 4, experts=_FEW)},
    checked_text=Text(VOCABULARY, 128, 2048),
    steps=10,
    timed={name: LADDER[name] for name in ("0.12b", "1b", "0.5b", "moe-0.5b")},
    overhead=(("0.12b", "none"), ("0.5b", "none"), ("0.5b", "block")),
    timed_text=Text(50_304, 1024, 65_536),
    overhead_text=Text(50_304, 1024, 32_768),
    seconds=8.0,
    small={name: LADDER[name] for name in ("tiny-25k", "tiny-200k")},
    small_text=Text(VOCABULARY, 128, 1024),
    side_by_side=(1, 4, 16),
    evaluated="0.12b",
    compiled=(
        ("dense", "baseline", "float32"),
        ("dense", "unified", "float32"),
        ("dense", "unified", "bfloat16"),
        ("mixture", "unified", "bfloat16"),
    ),
)
_TOY = size_of(32, 2)
_TOY_TEXT = Text(VOCABULARY, 16, 64)
TOY = Workloads(
    head=(300, 32, VOCABULARY),
    checked={"dense": _TOY, "mixture": size_of(32, 2, experts=_FEW)},
    checked_text=_TOY_TEXT,
    steps=4,
    timed={"toy": _TOY, "moe-toy": size_of(32, 2, experts=_FEW)},
    overhead=(("toy", "none"), ("toy", "block")),
    timed_text=_TOY_TEXT,
    overhead_text=_TOY_TEXT,
    seconds=0.0,
    small={"toy": _TOY},
    small_text=_TOY_TEXT,
    side_by_side=(1, 2),
    evaluated="toy",
    compiled=(("dense", "baseline", "float32"),),
)


@dataclass(frozen=True)
class Site:
    """Where the parts run: ``cuda`` or ``cpu``, and with which workloads."""

    device: str
    workloads: Workloads

    def options(self) -> RunOptions:
        """As a trial is run on a card, with compiled blocks, wherever there is a compiler."""
        return RunOptions(device=self.device, compiled=not missing_compiler(self.device))

    @property
    def patience(self) -> int:
        """What limits of time are multiplied with: a CPU, which others may share, compiles slowly."""
        return 1 if self.device == "cuda" else 4

    def local(self) -> LocalDevice:
        """The device by its name and memory; the first card."""
        return devices_here()[0]


class DeviceMemory:
    """Bytes of tensors on a CUDA device, and waiting for it; on the CPU nothing is counted (zeros)."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.counts = self.device.type == "cuda"

    def allocated(self) -> int:
        """Now."""
        return torch.cuda.memory_allocated(self.device) if self.counts else 0

    def peak(self) -> int:
        """The most since :meth:`reset_peak`."""
        return torch.cuda.max_memory_allocated(self.device) if self.counts else 0

    def reset_peak(self) -> None:
        """Count the peak from now on."""
        if self.counts:
            torch.cuda.reset_peak_memory_stats(self.device)

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        if self.counts:
            torch.cuda.synchronize(self.device)

    def limit(self, n_bytes: float | None) -> None:
        """Let this process have ``n_bytes`` of the device at most; None: all."""
        release_unused(self.device)
        if self.counts:
            total = torch.cuda.get_device_properties(self.device).total_memory
            # Of the current device: this function alone refuses one without a number.
            torch.cuda.set_per_process_memory_fraction(min(1.0, (n_bytes or total) / total))


def trial_of(
    size: Size,
    text: Text,
    corpus: Corpus,
    arm: str = "baseline",
    *,
    steps: int = STEPS,
    precision: str = "float32",
    architecture: str = "llama",
) -> Trial:
    """A trial of ``size`` under AdamW with the scale vectors of ``arm``."""
    model = ModelConfig(
        size.shape, text.vocabulary, STRATEGIES[arm], architecture=architecture, experts=size.experts
    )
    return Trial(
        model,
        OptimizerConfig(learning_rate=1e-3),
        ScheduleConfig(),
        corpus.fingerprint,
        text.sequence_length,
        text.batch_tokens,
        steps * text.batch_tokens,
        seed=0,
        precision=precision,
        evaluation_tokens=min(4096, 16 * text.batch_tokens),
        stream=STREAM,
    )
