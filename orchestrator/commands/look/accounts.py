"""What a completed trial took, beside what a plan says of it."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from scalevec.model.config import RunOptions
from scalevec.model.fields import ConfigurationError
from scalevec.model.identity import trial_from_fields
from scalevec.orchestrator.costs.estimates import cost
from scalevec.orchestrator.progress import duration

Record = dict[str, Any]
_SPLITS = ("test_tokens", "validation_tokens")


def accounts(
    semantic: Record, result: Mapping[str, Any] | None, planned_s: float | None = None
) -> Record | None:
    """Return the planned and the actual seconds and bytes of a trial, and where its time went.

    ``planned_s`` is what its sweep planned; without it, what assumed rates say.

    None where the result is of an earlier version, which kept no times, of code that cannot be planned, or
    holds what no worker writes.
    """
    with suppress(ConfigurationError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        if result is not None and isinstance(result.get("timing"), dict):
            record = _accounts(semantic, result)
            record = record if planned_s is None else record | {"planned_s": planned_s}
            return record if list(account_lines(record)) else None  # that it can be told, too
    return None


def _accounts(semantic: Record, result: Mapping[str, Any]) -> Record:
    trial, timing = trial_from_fields(semantic), result["timing"]
    options = RunOptions(
        device="cuda" if result["device"].startswith("cuda") else "cpu",
        micro_batch=result["micro_batch"],
        processes=result["world_size"],
        recompute=result["recompute"],
        keep=result["keep"],
    )
    most = trial.evaluation_tokens or math.inf
    planned = cost(trial, options, round(sum(min(result[split] - 1, most) for split in _SPLITS)))
    return {
        "planned_s": planned.seconds - planned.start_s,
        "actual_s": result["wall_s"] + timing["evaluation_s"],
        "planned_bytes": planned.memory_bytes,
        "actual_bytes": result["peak_memory_bytes"],
        **timing,
    }


def account_lines(record: Record | None) -> Iterator[str]:
    """Yield what :func:`accounts` holds, for a person."""
    if record is None:
        return
    planned, actual = duration(record["planned_s"]), duration(record["actual_s"])
    parts = (("data", "data_s"), ("checkpoints", "checkpoints_s"), ("evaluation", "evaluation_s"))
    shares = ", ".join(f"{words} {duration(record[name])}" for words, name in parts)
    yield f"  time: {actual}, planned {planned}; of it {shares}"
    if step := record["step_s"]:
        share = "" if record["mfu"] is None else f"; {record['mfu']:.0%} of the device's peak"
        yield f"  step: {step['p50']:.3g} s (5 % to 95 %: {step['p5']:.3g} to {step['p95']:.3g}){share}"
    if record["actual_bytes"]:
        sizes = (record["actual_bytes"] / 1e6, record["planned_bytes"] / 1e6)
        yield "  memory: {:,.0f} MB, planned {:,.0f} MB".format(*sizes)
