"""What the trunks of a sweep save: in its plan, before anything is spent."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalevec.model.accounting import flops_per_token
from scalevec.model.config import Trial
from scalevec.orchestrator.costs.estimates import checkpoint_bytes
from scalevec.orchestrator.progress import duration
from scalevec.sweeps.trainers.any_trial import AnyTrial, branch_step, ours, trunk_id

Row = dict[str, Any]
DONE = ("completed", "diverged")
_NOTHING = {
    "n_tokens_from_trunk": 0,
    "flops_from_trunk": 0,
    "seconds_from_trunk": 0.0,
    "trunk_bytes": 0,
}


def add_savings(rows: Sequence[Row], trials: Sequence[AnyTrial]) -> None:
    """Give each of the ``rows`` of a plan its trunk, and what it need not train because another trial does.

    Of the trials of one trunk that are not done, the one that goes furthest before its cooldown trains the
    trunk; the others begin with its states. ``trunk_id`` is None for a trial that shares its trunk with none;
    where a tuned field is open it only says with which trials. ``trunk_bytes`` is the size of a state that is
    kept meanwhile, counted once.
    """
    shared = _shared(rows, trials)
    named = {rows[index]["trial_id"]: name for (name, _), indices in shared.items() for index in indices}
    named.pop(None, None)
    for row in rows:
        row |= {**_NOTHING, "trunk_id": named.get(row["trial_id"])}
    for (name, _), indices in shared.items():
        missing = [index for index in indices if rows[index]["state"] not in DONE]
        branches = {index: branch_step(trials[index]) for index in missing}
        leader = max(missing, key=lambda index: branches[index], default=None)
        kept: set[int] = set()
        for index in indices:
            rows[index]["trunk_id"] = name
        for index, step in branches.items():
            if index != leader:
                rows[index].update(_spared(rows[index], ours(trials[index]), step, is_kept=step in kept))
                kept.add(step)


def _shared(rows: Sequence[Row], trials: Sequence[AnyTrial]) -> dict[tuple[str, str], list[int]]:
    """Return trunk -> indices of its trials, each trial once, for trunks of several trials.

    A trial with an open field has no name yet; those of one arm and trunk will get the same choice, but for
    the trials that check a carried rate: each has a rate of its own.
    """
    first: dict[Any, int] = {}
    for index, row in enumerate(rows):
        first.setdefault(row["trial_id"] or index, index)
    groups: dict[tuple[str, str], list[int]] = {}
    for index in first.values():
        is_check = rows[index]["trial_id"] is None and rows[index]["stage"] == "tuning"
        if (name := trunk_id(trials[index])) and not is_check:
            arm = "" if rows[index]["trial_id"] else rows[index]["arm"]
            groups.setdefault((name, arm), []).append(index)
    return {name: indices for name, indices in groups.items() if len(indices) > 1}


def _spared(row: Mapping[str, Any], trial: Trial, step: int, *, is_kept: bool) -> Row:
    training = flops_per_token(trial.model, trial.sequence_length) * trial.tokens
    share = step / trial.steps * training / row["flops"]  # the evaluation at the end is never spared
    return {
        "n_tokens_from_trunk": step * trial.batch_tokens,
        "flops_from_trunk": round(row["flops"] * share),
        "seconds_from_trunk": (row["seconds"] - row["start_s"]) * share,
        "trunk_bytes": 0 if is_kept else checkpoint_bytes(trial),
    }


def independent(rows: Sequence[Row]) -> list[Row]:
    """Return ``rows`` without those that share a trunk with a larger token budget."""
    largest: dict[tuple[str, str], int] = {}
    for row in rows:
        largest[_of(row)] = max(row["n_tokens"], largest.get(_of(row), 0))
    return [row for row in rows if not row["trunk_id"] or row["n_tokens"] == largest[_of(row)]]


def _of(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["trunk_id"], row["arm"]


def savings_text(rows: Sequence[Row]) -> list[str]:
    """What the trunks of a plan save, as one line; none where they save nothing."""
    spared = [row for row in rows if row["n_tokens_from_trunk"]]
    if not spared:
        return []
    tokens, flops, seconds, size = (
        sum(row[name] for row in spared)
        for name in ("n_tokens_from_trunk", "flops_from_trunk", "seconds_from_trunk", "trunk_bytes")
    )
    trunks = len({row["trunk_id"] for row in spared})
    return [
        f"trunks: {len(spared)} trials branch off {trunks} trunks that other trials train; that saves "
        f"{tokens:,} tokens, {flops:.3g} FLOPs, about {duration(seconds)} of one trial at a time; "
        f"their states take up to {size / 1e6:,.1f} MB meanwhile"
    ]
