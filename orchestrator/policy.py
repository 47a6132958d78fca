"""What becomes of a trial whose attempt ended without a result: again, again with less memory, or failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ATTEMPTS_WITHOUT_PROGRESS = 3
INTERRUPTIONS = ("preempted", "timeout", "killed", "node_failure")
FAULTS = (*INTERRUPTIONS, "error", "out_of_memory")

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Decision:
    """Whether to try ``again`` (with ``micro_batch`` sequences, 0 for all), and the cause if not."""

    again: bool
    micro_batch: int = 0
    cause: str | None = None
    reason: str = ""


def decide(events: Sequence[Event], batch_sequences: int) -> Decision:
    """The decision after the last of ``events``, as the run directory keeps them.

    An interruption is tried again as long as checkpoints advance, an error once; out of memory halves the
    micro-batch. A person's ``retry`` wipes the slate.
    """
    events = _since_retry(events)
    micro_batch = _micro_batch(events)
    last = next((event for event in reversed(events) if event.get("cause") in FAULTS), {})
    cause = last.get("cause")
    if cause == "out_of_memory":
        return _with_less_memory(micro_batch or batch_sequences)
    if cause == "error" and _repeated(events):
        return Decision(False, micro_batch, "error", f"the same error twice: {last.get('error')}")
    if _faults_without_progress(events) >= ATTEMPTS_WITHOUT_PROGRESS:
        reason = f"{ATTEMPTS_WITHOUT_PROGRESS} attempts without a new checkpoint"
        return Decision(False, micro_batch, cause, reason)
    return Decision(True, micro_batch)


def _since_retry(events: Sequence[Event]) -> Sequence[Event]:
    places = [place for place, event in enumerate(events) if event.get("cause") == "retry"]
    return events[places[-1] + 1 :] if places else events


def _micro_batch(events: Sequence[Event]) -> int:
    sizes = [event["micro_batch"] for event in events if isinstance(event.get("micro_batch"), int)]
    return sizes[-1] if sizes else 0


def _with_less_memory(micro_batch: int) -> Decision:
    if micro_batch == 1:
        return Decision(False, 1, "out_of_memory", "out of memory with a micro-batch of one sequence")
    return Decision(True, micro_batch // 2)


def _repeated(events: Sequence[Event]) -> bool:
    """The last two; of a process that died before it could say anything there is no traceback to compare."""
    traces = [event.get("traceback") for event in events if event.get("cause") == "error"]
    return len(traces) >= 2 and traces[-1] is not None and traces[-1] == traces[-2]


def _faults_without_progress(events: Sequence[Event]) -> int:
    """Those since the last new checkpoint; an interruption that wrote one is itself progress.

    A scheduler names the job of whose end it speaks: two that watched it may have spoken at once.
    """
    furthest = faults = 0
    jobs = set[str]()
    for event in events:
        step, is_end = event.get("step"), is_fault(event)
        if isinstance(step, int) and step > furthest:
            furthest, faults = step, 0
        elif is_end and event.get("job") not in jobs:
            faults += 1
        if is_end and (job := event.get("job")):
            jobs.add(job)
    return faults


def is_fault(event: Event) -> bool:
    """Whether it is the end of an attempt without a result."""
    return event["state"] == "pending" and event.get("cause") in FAULTS
