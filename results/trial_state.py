"""The state of a trial, as its events and its result say it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

State = Literal["pending", "queued", "running", "completed", "diverged", "failed", "cancelling", "cancelled"]
STATES: tuple[str, ...] = get_args(State)
OPEN_STATES = ("pending", "queued", "running", "cancelling")
"""A trial in one of them may still get a result without anybody asking for it again."""
ASKED_AGAIN, RETRY = "asked for again", "retry"
"""The causes of the ``pending`` with which a person brings a cancelled or a failed trial back."""
RESULT_STATES = ("completed", "diverged")
Event = Mapping[str, Any]


@dataclass(frozen=True)
class TrialState:
    """Where a trial is; ``attempt`` is the last that an event names (0: none), ``time`` the last event's."""

    state: str
    cause: str | None = None
    attempt: int = 0
    time: str | None = None


def state_of(events: list[dict[str, Any]], result: dict[str, Any] | None) -> TrialState:
    """The state that these events and this result (None: not there yet) say.

    What a job says that ends after its trial was called off brings the trial back into no state.
    """
    last = events[-1] if events else {}
    attempts = (event["attempt"] for event in reversed(events) if isinstance(event.get("attempt"), int))
    attempt = next(attempts, 0)
    if result is not None:
        return TrialState(result["status"], None, attempt, last.get("time"))
    deciding: Event = (calling_off(events) or last) if last.get("state", "pending") in OPEN_STATES else last
    return TrialState(deciding.get("state", "pending"), deciding.get("cause"), attempt, last.get("time"))


def calling_off(events: Sequence[Event]) -> Event | None:
    """The last event that called the trial off; None where nobody has, since a person asked for it."""
    for event in reversed(events):
        if event["state"] in ("cancelling", "cancelled"):
            return event
        if event["state"] == "pending" and event.get("cause") in (ASKED_AGAIN, RETRY):
            return None
    return None
