"""Worlds of several processes: each is forked, trains in float64 or float32, and leaves what it has found."""

import json
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from scalevec.model.strategies import PRESETS
from scalevec.model.training.corpora.prepare import Corpus
from scalevec.model.training.loop import TrainingRun
from scalevec.model.training.parallel.meeting import Seat, hosted, listening, meet, store_at
from scalevec.model.training.parallel.process_group import ProcessGroup
from scalevec.model.training.parallel.sharded import ShardedProcessGroup
from scalevec.model.training.parallel.world import ALONE, World
from scalevec.model.training.recorder import Recorder, SilentRecorder, TrainingInterruptedError
from support import BATCH_TOKENS, SEQUENCE, MemoryRecorder

EXPERTS = {
    "loss": Experts(4, 2, 24),
    "bias": Experts(4, 1, 24, shared_experts=1, balancing="bias", bias_rate=0.01),
}


def small_trial(
    corpus: Corpus, optimizer: str = "adamw", experts: str | None = None, steps: int = 5
) -> Trial:
    """A model of width 16 on batches of four sequences."""
    shape = Shape(16, 2, 2, 2, 48)
    model = ModelConfig(shape, 256, PRESETS["unified"], experts=EXPERTS[experts] if experts else None)
    rate = 0.01
    return Trial(
        model,
        OptimizerConfig(optimizer, rate),
        ScheduleConfig(warmup_tokens=2 * BATCH_TOKENS),
        corpus.fingerprint,
        SEQUENCE,
        BATCH_TOKENS,
        steps * BATCH_TOKENS,
        seed=3,
        evaluation_tokens=512,
    )


def forked(rank: int, work: Callable[[], Any], folder: Path) -> int:
    """A process that does ``work`` and leaves what it returns, as JSON, in ``folder``."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        (folder / f"{rank}.json").write_text(json.dumps(work()))
        code = 0
    except Exception:  # noqa: BLE001 (for the parent)
        (folder / f"{rank}.txt").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def world_of(size: int, work: Callable[[World], Any], folder: Path, *, shard: bool = False) -> list[Any]:
    """What ``work`` returns at each rank of a world of ``size``."""
    folder.mkdir(parents=True, exist_ok=True)
    listener = listening("127.0.0.1")
    port = listener.getsockname()[1]

    def at(rank: int) -> Any:
        seat = Seat(rank, size, {}, limit_s=60)
        store = hosted(listener, seat) if rank == 0 else store_at("127.0.0.1", port, seat)
        meet(store, seat)
        return work((ShardedProcessGroup if shard else ProcessGroup)(store, rank, size, "cpu"))

    children = [forked(rank, lambda rank=rank: at(rank), folder) for rank in range(size)]
    listener.close()
    codes = [os.waitpid(child, 0)[1] for child in children]
    errors = [path.read_text() for path in sorted(folder.glob("*.txt"))]
    assert codes == [0] * size, "\n".join(errors)
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
    **options: Any,
) -> dict[str, Any]:
    """Train at one rank; its result (None where it was stopped), rows, and parameters."""
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    if recorder is None:
        recorder = MemoryRecorder(stop_after) if world.leads else SilentRecorder()
    if world.leads and rows:
        recorder.replace_rows(rows)
    try:
        run = TrainingRun(
            trial, corpus, RunOptions(processes=world.size, **options), recorder, checkpoints, world=world
        )
        result = None
        with suppress(TrainingInterruptedError):
            result = run.run()
        whole = world.pack(run.model, None)
        if not whole and not options.get("shard"):
            whole = dict(run.model.named_parameters(prefix="model"))
        parameters = {name: whole[name].tolist() for name in whole if not name.endswith(".bias")}
        return {"result": result, "rows": list(recorder.recorded()), "parameters": parameters}
    finally:
        torch.set_default_dtype(torch.float32)


def together(
    size: int, trial: Trial, corpus: Corpus, checkpoints: Path, *, shard: bool = False, **options: Any
) -> list[dict[str, Any]]:
    """As :func:`trained`, at each rank of a world of ``size``."""
    folder = checkpoints.with_name(f"{checkpoints.name}-{time.monotonic_ns()}")

    def work(world: World) -> dict[str, Any]:
        return trained(trial, corpus, checkpoints, world, shard=shard, **options)

    return world_of(size, work, folder, shard=shard)


def losses(run: dict[str, Any]) -> list[float]:
    """The terminal losses and those of every step."""
    terminal = [run["result"][name] for name in ("loss", "loss_validation")]
    return [*terminal, *(row["loss"] for row in run["rows"])]
