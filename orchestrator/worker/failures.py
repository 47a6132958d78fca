"""How an attempt at a trial ends without a result, beyond what an exception of Python says of itself."""

import hashlib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.retry_policy import PASSING_ERRORS


class AttemptFailedError(Exception):
    """What ended the attempt, in words for a person.

    ``cause`` is one of ``attempts.retry_policy.FAULTS``; ``digest`` tells whether it is the same error again.
    """

    def __init__(self, message: str, cause: str = "error", digest: str | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.digest = digest or hashlib.sha256(message.encode()).hexdigest()


class DefiniteError(AttemptFailedError):
    """A mistake that a person has to correct: another attempt would meet it again."""


class RankKilledError(Exception):
    """A rank of the trial was killed; its worker is to end as it did."""


def cause_of(problem: Exception) -> str:
    """One of ``attempts.retry_policy.FAULTS``."""
    from scalevec.model.train.devices import is_out_of_memory

    if isinstance(problem, AttemptFailedError):
        return problem.cause
    if isinstance(problem, RankKilledError):
        return "node_failure"
    if isinstance(problem, OSError) and problem.errno in PASSING_ERRORS:
        return "node_failure"
    return "out_of_memory" if is_out_of_memory(problem) else "error"


def digest_of(problem: Exception) -> str:
    """The same for the same error at the same place."""
    if isinstance(problem, AttemptFailedError):
        return problem.digest
    return hashlib.sha256("".join(traceback.format_exception(problem)).encode()).hexdigest()


def as_record(problem: Exception, message: str, *, is_lost: bool) -> dict[str, Any]:
    """What a process tells another of ``problem``, in plain values; ``is_lost``: it only lost another."""
    return {
        "message": f"another rank was lost: {message}" if is_lost else message,
        "cause": "node_failure" if is_lost else cause_of(problem),
        "digest": digest_of(problem),
        "definite": isinstance(problem, DefiniteError),
        "errno": getattr(problem, "errno", None),
        "lost": is_lost,
    }


def from_record(record: Mapping[str, Any]) -> Exception:
    """The problem that :func:`as_record` told of."""
    if record["errno"] is not None:
        return OSError(record["errno"], record["message"])
    kind = DefiniteError if record["definite"] else AttemptFailedError
    return kind(record["message"], record["cause"], record["digest"])


def report_path(meeting: Path, node: int) -> Path:
    """Where the first machine of a trial finds what ended that of number ``node``, as :func:`as_record`."""
    return meeting.with_name(f"{meeting.stem}.failed-{node}.json")
