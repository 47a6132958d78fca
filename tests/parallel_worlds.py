"""Worlds of several processes: each trains in float64 or float32, and leaves what it has seen."""

import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import pytest
import torch

from scalevec.model.config import (
    Experts,
    ModelConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    Shape,
    Trial,
)
from scalevec.model.data.corpus import Corpus
from scalevec.model.strategies import PRESETS
from scalevec.model.train.ddp import ALONE, ProcessGroup, World
from scalevec.model.train.loop import TrainingRun
from scalevec.model.train.record import Recorder, SilentRecorder, TrainingInterruptedError
from scalevec.model.train.sharded import ShardedProcessGroup
from support import BATCH_TOKENS, SEQUENCE, MemoryRecorder

EXPERTS = {
    "loss": Experts(4, 2, 24),
    "batch": Experts(4, 2, 24, loss_coefficient=1.0, over="mean", per="batch"),
    "bias": Experts(4, 1, 24, shared_experts=1, balancing="bias", bias_rate=0.01),
}


def small_trial(
    corpus: Corpus,
    optimizer: str = "adamw",
    experts: str | None = None,
    steps: int = 5,
    schedule: ScheduleConfig | None = None,
) -> Trial:
    """A model of width 16 on batches of four sequences."""
    shape = Shape(16, 2, 2, 2, 48)
    model = ModelConfig(shape, 256, PRESETS["unified"], experts=EXPERTS[experts] if experts else None)
    rate = 0.01
    return Trial(
        model,
        OptimizerConfig(optimizer, rate),
        schedule or ScheduleConfig(warmup_tokens=2 * BATCH_TOKENS),
        corpus.fingerprint,
        SEQUENCE,
        BATCH_TOKENS,
        steps * BATCH_TOKENS,
        seed=3,
        evaluation_tokens=512,
    )


LOADED_BY_SHARDING = ("torch._dynamo", "torch._inductor")
Work = Callable[[World], Any]
"""What a rank does; it and what it holds can be pickled."""


@cache
def _clean() -> Any:
    """Starts processes from one that has only imported: forks of this one would lack its threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *LOADED_BY_SHARDING])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        ensure_running()
    return context


def _be_rank(rank: int, size: int, work: Work, folder: Path, shard: bool) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "GLOO_SOCKET_IFNAME": "lo"}
    kind = ShardedProcessGroup if shard else ProcessGroup
    try:
        with kind("cpu", f"file://{folder.absolute()}/meeting") as world:
            (folder / f"{rank}.json").write_text(json.dumps(work(world)))
    except Exception:
        (folder / f"{rank}.txt").write_text(traceback.format_exc())
        raise
    finally:
        os._exit(0 if (folder / f"{rank}.json").exists() else 1)


def world_of(size: int, work: Work, folder: Path, *, shard: bool = False) -> list[Any]:
    """What ``work`` returns at each rank of a world of ``size``."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [_clean().Process(target=_be_rank, args=(n, size, work, folder, shard)) for n in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    errors = [path.read_text() for path in sorted(folder.glob("*.txt"))]
    assert [process.exitcode for process in ranks] == [0] * size, "\n".join(errors)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]


def trained(
    trial: Trial,
    corpus: Corpus,
    checkpoints: Path,
    world: World = ALONE,
    *,
    double: bool = True,
    rows: list[dict[str, Any]] | None = None,
    stop_after: int | None = None,
    recorder: Recorder | None = None,
    trunk: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train at one rank; its result (None where it was stopped), rows, and parameters."""
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    if recorder is None:
        recorder = MemoryRecorder(stop_after) if world.leads else SilentRecorder()
    if world.leads and rows:
        recorder.replace_rows(rows)
    try:
        chosen = RunOptions(processes=world.size, **options)
        run = TrainingRun(trial, corpus, chosen, recorder, checkpoints, trunk, world)
        result = None
        with suppress(TrainingInterruptedError):
            result = run.run()
        parameters = {name: _whole(tensor) for name, tensor in run.model.named_parameters(prefix="model")}
        return {"result": result, "rows": list(recorder.recorded()), "parameters": parameters}
    finally:
        torch.set_default_dtype(torch.float32)


def _whole(parameter: torch.Tensor) -> list[Any]:
    """The values of a parameter whose shares the ranks may hold."""
    gather = getattr(parameter, "full_tensor", lambda: parameter)
    return gather().tolist()


def together(
    size: int, trial: Trial, corpus: Corpus, checkpoints: Path, *, shard: bool = False, **options: Any
) -> list[dict[str, Any]]:
    """As :func:`trained`, at each rank of a world of ``size``."""
    folder = checkpoints.with_name(f"{checkpoints.name}-{time.monotonic_ns()}")
    work = partial(trained, trial, corpus, checkpoints, shard=shard, **options)
    return world_of(size, work, folder, shard=shard)


def stopped_by_the_follower(trial: Trial, corpus: Corpus, checkpoints: Path, world: World) -> dict[str, Any]:
    """As :func:`trained`, where rank 1 alone is asked to stop, after its second step."""
    asked = iter([False, True])
    recorder = SilentRecorder(lambda: next(asked)) if world.rank == 1 else None
    return trained(trial, corpus, checkpoints, world, recorder=recorder)


def losses(run: dict[str, Any]) -> list[float]:
    """The terminal losses and those of every step."""
    terminal = [run["result"][name] for name in ("loss", "loss_validation")]
    return [*terminal, *(row["loss"] for row in run["rows"])]
