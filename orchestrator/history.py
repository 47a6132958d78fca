"""What events say of those who look after a trial: who called it off, who dealt with the end of a job."""

from collections.abc import Sequence

from orchestrator.policy import Event, is_fault
from results.files import CorruptRecord
from results.run_directory import RunDirectory


def was_called_off(events: Sequence[Event]) -> bool:
    """Whether somebody has cancelled the trial since it was last queued."""
    for event in reversed(events):
        if event["state"] in ("queued", "cancelled"):
            return bool(event["state"] == "cancelled")
    return False


def was_sent_again(events: Sequence[Event], job: str, attempt: int) -> bool:
    """Whether another scheduler has dealt with the end of ``job`` already, and queued the trial anew.

    Several may watch one job. ``job`` is its token, ``attempt`` the newest claim if it is of this job, else
    0: what was queued while the job still ran came from a scheduler that knew nothing of it.
    """
    own = [place for place, event in enumerate(events) if _is_begin_of(event, job, attempt)]
    later = events[own[-1] + 1 if own else 0 :]
    faults = [place for place, event in enumerate(later) if is_fault(event)]
    return bool(faults) and any(event["state"] == "queued" for event in later[faults[0] :])


def unreadable(directory: RunDirectory, problem: CorruptRecord) -> str:
    """What a person can do where nobody can tell what became of a trial."""
    aside = f"move {directory.path} out of the runs, and scalevec run trains the trial anew"
    return f"{problem}; mend that file, or {aside}"


def _is_begin_of(event: Event, job: str, attempt: int) -> bool:
    if event["state"] == "running":
        return bool(attempt) and event.get("attempt") == attempt
    return event["state"] == "queued" and event.get("job") == job
