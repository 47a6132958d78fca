"""What a run leaves undone, what the end of a job means, and in which order trials are sent."""

from dataclasses import dataclass, field
from typing import Any

from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.attempts.retry_policy import is_fault
from scalevec.orchestrator.executors.base import Ended

Events = list[dict[str, Any]]


@dataclass
class Outcome:
    """What a run left undone: the trials given up, and why it ended early if it did."""

    failed: dict[str, str] = field(default_factory=dict)
    """Trial id -> reason."""
    cancelled: dict[str, str] = field(default_factory=dict)
    """Trial id -> label."""
    stopped: bool = False
    left_running: int = 0
    """Jobs that go on in a cluster's queue without this scheduler."""
    left_out: int = 0
    """Trials without a result that the person did not ask for."""
    no_space: bool = False


def as_event(ended: Ended) -> dict[str, Any]:
    """Return what the executor knows of an end, as fields of an event."""
    cause = ended.cause or ("error" if (ended.exit_code or 0) > 0 else "killed")
    fields = {"cause": cause, "exit_code": ended.exit_code, "node": ended.node, "note": ended.message or None}
    return {name: value for name, value in fields.items() if value is not None}


def launch_order(task: Task) -> tuple[float, int, float]:
    """Arms take turns among trials of like length: what a machine does meanwhile strikes both of a pair.

    Of a seed the longest still goes first: it trains the trunk that others branch off.
    """
    return -float(f"{task.estimate_s:.2g}"), task.trial.seed, -task.estimate_s


def interruption_text(events: Events, ended: Ended) -> str:
    """Return what interrupted a trial that is sent again, for a person."""
    if ended.cause == "not_started":
        return f"{ended.message}; it is sent again"
    cause = next((str(event["cause"]) for event in reversed(events) if is_fault(event)), "interrupted")
    return f"{cause.replace('_', ' ')}{f' on {ended.node}' if ended.node else ''}; it is sent again"
