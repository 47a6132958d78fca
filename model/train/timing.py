"""Where the time of a run went, and what share of its device it used."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import Trial
from scalevec.model.train.devices import model_flops_utilization
from scalevec.model.train.progress import RunProgress

PERCENTILES = (5, 50, 95)


def timing_of(
    trial: Trial,
    progress: RunProgress,
    rows: Iterable[Mapping[str, Any]],
    device: torch.device,
    world_size: int,
) -> dict[str, Any]:
    """The accounts of a run, as plain values.

    Args:
        trial: What was trained.
        progress: How far, and the seconds that went to batches, checkpoints and evaluation.
        rows: Its rows of metrics, those of earlier attempts and of its trunk among them.
        device: Of one process.
        world_size: Processes, on a device each.

    Returns:
        ``step_s``: percentiles of the seconds of a step.
        ``data_s``, ``checkpoints_s`` (what they held the training up), ``evaluation_s``.
        ``mfu``: the counted FLOPs of the median step over the devices' peak; None where that is not known.
        ``allocated_bytes``: the most that arrays took on a GPU, None elsewhere.
    """
    seconds = [trial.batch_tokens / row["tokens_per_s"] for row in rows if row.get("tokens_per_s")]
    step_s = {f"p{q}": float(np.percentile(seconds, q)) for q in PERCENTILES} if seconds else {}
    on_gpu = device.type == "cuda"
    return {
        "step_s": step_s,
        "data_s": progress.data_s,
        "checkpoints_s": progress.checkpoints_s,
        "evaluation_s": progress.evaluation_s,
        "mfu": _utilization(trial, step_s["p50"], device, world_size) if step_s and on_gpu else None,
        "allocated_bytes": int(torch.cuda.max_memory_allocated(device)) if on_gpu else None,
    }


def _utilization(trial: Trial, step_s: float, device: torch.device, world_size: int) -> float | None:
    per_token, name = flops_per_token(trial.model, trial.sequence_length), torch.cuda.get_device_name(device)
    return model_flops_utilization(
        per_token, trial.batch_tokens / step_s, trial.product_precision, name, world_size
    )
