"""What ``squeue`` shows of jobs, for a person who asks how a sweep is doing."""

from collections.abc import Collection

from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import QueuedJob
from scalevec.orchestrator.executors.slurm.queue import JobRow, queued
from scalevec.orchestrator.executors.slurm.unanswered import ANSWERED, UNANSWERED


def look(numbers: Collection[str]) -> dict[str, QueuedJob]:
    """Return those of the executor's job numbers that the queue knows; one question for all.

    Raises ``MissingRequirementError`` where SLURM does not answer, or is not there.
    """
    # squeue refuses the whole question for one number that is none.
    jobs = {number: number.partition("/")[0] for number in numbers if ANSWERED.fullmatch(number)}
    unanswered = [number for number in numbers if UNANSWERED.fullmatch(number)]
    rows = queued(set(jobs.values())) if jobs else {}
    if rows is None:
        raise MissingRequirementError("SLURM does not answer")
    sent = {number: QueuedJob(number.partition("/")[0], "sent without an answer") for number in unanswered}
    return sent | {
        number: QueuedJob(job, row.state, row.reason * (row.state == "PENDING"), row.node, _remedy(row))
        for number, job in jobs.items()
        if (row := rows.get(job)) is not None and row.is_active and row.name.endswith(_token(number))
    }


def _remedy(row: JobRow) -> str:
    """Of a job that is held: before its start, or back in the queue by ``scontrol requeuehold``."""
    return f"scontrol release {row.job}" if "held" in row.reason.lower() else ""


def _token(number: str) -> str:
    return number.partition("@")[2]
