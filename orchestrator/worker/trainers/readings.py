"""What the numbers of a foreign trainer mean: units, and what is held against the plan."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalevec.orchestrator.worker.failures import DefiniteError
from scalevec.results.files import CorruptRecordError, read_bytes_if_any
from scalevec.sweeps.trainers.any_trial import ForeignTrial, Readings

Row = Mapping[str, Any]

LIKE = 0.05
"""Share by which a first loss may miss the loss of a uniform guess, and still be taken for it."""
TOLERATED = 0.01
"""Share by which tokens and parameters may differ from the plan's."""
_NO_NUMBER = re.compile(r"\s*[-+]?1\.#[A-Z]+\s*")
"""NaN as some systems write it, 1.#QNAN or -1.#IND."""
_ODD_GROUP = re.compile(r"_(?!\d{3}(?!\d))")
"""Python reads 3_2127 as 32127."""


def path_below(out: Path, name: str) -> Path:
    """The file ``name`` of the folder ``out``, behind any links. Raises ``DefiniteError`` for one outside."""
    real, folder = (out / name).resolve(), out.parent.resolve() / out.name
    if not real.is_relative_to(folder):
        raise DefiniteError(f"{name}: is {real}, which is outside of the trial's folder {out}")
    return real


def number(row: Row, key: str, where: str) -> float | None:
    """The value of ``key``, None where the row has none. Raises ``DefiniteError`` for what is no number."""
    value = row.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, str) and _NO_NUMBER.fullmatch(value):
        return math.nan
    try:
        if not isinstance(value, bool) and not _ODD_GROUP.search(str(value)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DefiniteError(f"{where}: {key} is {value!r:.80}; a number is expected, or nan")


def whole(value: float, key: str) -> int:
    """The count that ``key`` of a trainer's metrics holds. Raises ``DefiniteError`` for what is no count."""
    if value.is_integer() and -1 <= value < 2**63:  # some log -1 before the first step
        return int(value)
    raise DefiniteError(f"the trainer's metrics: {key} is {value:g}; a whole number is expected")


def in_nats(loss: float, readings: Readings) -> float:
    """``loss`` in nats per token; NaN for a perplexity that has no logarithm."""
    if readings.unit == "perplexity":
        return math.log(loss) if loss > 0 else math.nan
    bits = {"bits": 1.0, "bits-per-byte": readings.bytes_per_token}
    return loss * bits[readings.unit] * math.log(2) if readings.unit in bits else loss


def require_unit(first: float, readings: Readings) -> None:
    """Raise ``DefiniteError`` where the first loss is that of a uniform guess in another unit."""
    size = readings.vocabulary
    if size < 2:
        return
    guess = {"nats": math.log(size), "bits": math.log2(size), "perplexity": float(size)}
    if readings.bytes_per_token:
        guess["bits-per-byte"] = math.log2(size) / readings.bytes_per_token
    alike = [unit for unit, loss in guess.items() if abs(first / loss - 1) < LIKE]
    if alike and readings.unit not in alike:
        due = f"not in {readings.unit} ({guess[readings.unit]:.4g})"
        raise DefiniteError(
            f"the first loss, {first:g}, is what a uniform guess among {size} tokens costs in {alike[0]}, "
            f"{due}; correct unit or vocabulary of the trainer"
        )


def result_file(out: Path, name: str) -> Row:
    """The JSON object in ``name``. Raises ``DefiniteError`` where there is none."""
    path = path_below(out, name)
    try:
        content = read_bytes_if_any(path)
    except CorruptRecordError as problem:
        raise DefiniteError(str(problem)) from None
    if content is None:
        raise DefiniteError(f"the trainer ended without {path}; its exit code said that all is well")
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise DefiniteError(f"{path}: is not whole JSON ({problem})") from None
    if not isinstance(record, dict):
        raise DefiniteError(f"{path}: holds {type(record).__name__}; an object is expected")
    return record


def terminal_losses(record: Row, readings: Readings, where: str) -> dict[str, float]:
    """``loss`` and, where it is declared, ``loss_validation`` of a result in nats.

    NaN stands for one that is not finite, or of training that says it has diverged. Raises ``DefiniteError``
    where a declared one is absent.
    """
    keys = {"loss": readings.loss, "loss_validation": readings.loss_validation}
    is_lost = record.get("diverged") is True or record.get("status") == "diverged"
    losses = {
        name: math.nan if is_lost or record.get(key, "") is None else _required(record, key, where)
        for name, key in keys.items()
        if key
    }
    for name, loss in losses.items():
        losses[name] = in_nats(loss, readings) if math.isfinite(loss) else math.nan
        if losses[name] <= 0:
            raise DefiniteError(f"{where}: {keys[name]} is {loss:g}, which is no loss in {readings.unit}")
    return losses


def losses_of_rows(
    rows: Sequence[Row], readings: Readings, seen: Iterable[str]
) -> tuple[Row, dict[str, float]]:
    """The last of ``rows`` of metrics that has the losses, with tokens where one up to it says them.

    And the losses: of that row, or of the best if that is asked. ``seen``: the keys of its rows.
    """
    names = {name: key for name, key in row_names(readings).items() if key}
    whole = [row for row in rows if all(row.get(name) is not None for name in names)]
    if not whole:
        keys = " and ".join(map(repr, (readings.step, *names.values())))
        none = (
            "none: it is not there, or has no row below its header"
            if readings.metrics
            else "none, as no line fits the pattern"
        )
        there = ", ".join(f"{key:.40}" for key in seen) or none
        raise DefiniteError(
            f"the trainer ended without a row of metrics that holds {keys}; keys in "
            f"{readings.metrics or 'its output'}: {there}"
        )
    end, last_step = max(row["step"] for row in rows), whole[-1]["step"]
    if end - last_step > max(1.0, TOLERATED * end):
        raise DefiniteError(
            f"the last row with the losses is of step {last_step:,}, and rows go on to step {end:,}. "
            "Evaluate after the last step"
        )
    row = min(whole, key=lambda row: float(row[list(names)[-1]])) if readings.best else whole[-1]
    tokens = (row["tokens"] for row in rows if row.get("tokens") and row["step"] <= whole[-1]["step"])
    last = {**whole[-1], "tokens": max(tokens, default=None)}
    losses = {("loss" if name != "loss_validation" else name): float(row[name]) for name in names}
    if min(losses.values()) <= 0:  # which no reader of results takes
        raise DefiniteError(
            f"the row of step {row['step']} says {min(losses.values()):g} nats, which is no loss"
        )
    return last, losses


def require_end(step: float | None, tokens: float | None, trial: ForeignTrial, where: str) -> None:
    """Raise ``DefiniteError`` where the losses were not measured at the planned end, as far as that is said.

    Steps may be counted from 0.
    """
    due = trial.steps
    if due and step is not None and not abs(step - due) <= max(1.0, TOLERATED * due):
        raise DefiniteError(
            f"{where} is of step {step:,.0f}; the plan ends at step {due:,} ({trial.tokens:,} tokens). "
            "Evaluate after the last step, or choose tokens so that an evaluation falls on it"
        )
    if key := trial.trainer.readings.tokens:
        if tokens is None:
            raise DefiniteError(f"{where}: has no {key!r}")
        _require_alike("tokens", tokens, trial.tokens, where)


def require_params(record: Row, trial: ForeignTrial, where: str) -> None:
    """Raise ``DefiniteError`` where the trainer is to say its N, and it is not the plan's."""
    if key := trial.trainer.readings.n_params:
        _require_alike("parameters", _required(record, key, where), trial.n_params, where)


def _require_alike(what: str, count: float, planned: int, where: str) -> None:
    if not abs(count / planned - 1) <= TOLERATED:
        raise DefiniteError(f"{where}: says {count:,.0f} {what}; the plan is {planned:,}")


def _required(record: Row, key: str, where: str) -> float:
    value = number(record, key, where)
    if value is None:
        raise DefiniteError(f"{where}: has no {key!r}; keys: {', '.join(map(str, record)) or 'none'}")
    return value


def row_names(readings: Readings) -> dict[str, str]:
    """The trainer's keys of the terminal losses by their names in metrics.jsonl.

    There ``loss`` is the training loss, if the trainer has one.
    """
    test = "loss_test" if readings.training_loss else "loss"
    return {test: readings.loss, "loss_validation": readings.loss_validation}
