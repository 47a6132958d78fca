"""What a trial will cost: time, memory and disk, before it runs."""

from dataclasses import dataclass

from model.accounting import count_parameters, flops_per_token
from model.config import ModelConfig, RunOptions, Trial
from orchestrator.log_size import log_bytes

START_S = 5.0
"""A fresh process that imports torch (a forked worker need not), and the evaluation at the end, as seen on a
2-core machine."""
FLOPS_PER_S = {"cpu": 3.5e10, "cuda": 1.5e14}
"""Counted FLOPs a second of one trial. One CPU thread: seen at widths 32 to 64; a GPU: a rough figure, a
fifth of what a large card reaches in bf16."""
H100_SHARE = FLOPS_PER_S["cuda"] / 9.89e14
"""Of the dense bf16 peak that the vendor states."""
FLOAT_BYTES = 4
"""Of a weight, a gradient and an entry of the optimizer's state."""
BYTES_OF = {"float32": 4, "bfloat16": 2}
"""Of an activation, by the precision of the trial."""
STATE_PER_PARAMETER: dict[str, tuple[float, float]] = {
    "adamw": (2, 2),
    "sgd": (0, 0),
    "muon": (1, 2),
    "soap": (7.5, 2),
    "lion": (1, 1),
    "adafactor": (1, 1),
    "ademamix": (3, 3),
    "adopt": (2, 2),
}
"""Entries of the optimizer's state for each parameter of a block's matrices, and for each other parameter:
moments, and with SOAP the preconditioners of matrices whose sides are 1 to 1 or 3 to 8."""
FIXED_BYTES = 12_000
"""trial.json, environment.json, result.json, job.json, events, the claim and the log."""
FIXED_FILES = 13
"""Of a trial that ran undisturbed: seven files, three of the claim, three folders (that of the
checkpoints only where one was written)."""


@dataclass(frozen=True)
class Cost:
    """Estimates for one trial."""

    flops: int
    seconds: float
    memory_bytes: int
    disk_bytes: int
    """What stays when the trial is completed."""
    disk_files: int
    """Files and folders that stay; a quota counts both."""


def cost(trial: Trial, options: RunOptions) -> Cost:
    """The estimated cost of ``trial``; memory is parameters, gradients, optimizer and activations.

    A mixture holds the parameters of all its experts and computes those that a token passes. What
    ``options`` measures along the way counts in bytes but not in seconds.
    """
    counts = count_parameters(trial.model)
    flops = flops_per_token(trial.model, trial.sequence_length) * trial.tokens
    sequences = options.micro_batch or trial.batch_sequences
    width = BYTES_OF[trial.precision]
    activations = sequences * trial.sequence_length * width * _activation_entries(trial.model)
    kept = {"none": 0, "weights": FLOAT_BYTES * counts.total, "all": checkpoint_bytes(trial)}
    return Cost(
        flops=flops,
        seconds=START_S + flops / FLOPS_PER_S[options.device],
        memory_bytes=checkpoint_bytes(trial) + FLOAT_BYTES * counts.total + activations,
        disk_bytes=FIXED_BYTES + log_bytes(trial, options) + kept[options.keep],
        disk_files=FIXED_FILES + (options.keep != "none"),
    )


def checkpoint_bytes(trial: Trial) -> int:
    """Of one checkpoint: the weights and the optimizer's state."""
    counts = count_parameters(trial.model)
    matrices = counts.matrices_total
    of_matrix, of_other = STATE_PER_PARAMETER[trial.optimizer.name]
    state = of_matrix * matrices + of_other * (counts.total - matrices)
    return round(FLOAT_BYTES * (counts.total + state))


def _activation_entries(model: ModelConfig) -> int:
    """What one token leaves behind for the backward pass.

    A mixture repeats a token for each expert it passes, before and behind it.
    """
    shape, experts = model.shape, model.experts
    entries = shape.layers * (14 * shape.width + 4 * shape.feed_forward)
    if experts is not None:
        mixtures = shape.layers - experts.dense_layers
        hidden = experts.active * experts.feed_forward - shape.feed_forward
        entries += mixtures * (4 * hidden + 3 * experts.top_k * shape.width + 2 * experts.n_experts)
    return entries
