"""What follows from the events of trials: try again, give up, or keep away from a machine."""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from scalevec.orchestrator.attempts.jobs import Task
from scalevec.results.claims import claim_record, newest_attempt
from scalevec.results.run_directory import RunDirectory
from scalevec.results.trial_state import ASKED_AGAIN, RETRY, calling_off

ATTEMPTS_WITHOUT_PROGRESS = 3
INTERRUPTIONS = ("preempted", "timeout", "killed", "node_failure")
FAULTS = (*INTERRUPTIONS, "error", "out_of_memory")
FAULTS_OF_A_NODE = ("killed", "node_failure")
ERRORS_OF_A_NODE = ("AcceleratorError", "CUDA error", "OSError: [Errno 5]")
"""Errors that say more of the machine than of the trial: a broken GPU, a broken disk."""
PASSING_ERRORS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EMFILE, errno.ENFILE)
"""Errors of a file server that is away, and of a machine that has too many files open."""
BAD_AFTER = 2
"""Different trials that fail on a machine before it counts as bad."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Retry:
    """Whether to try ``again`` (with ``micro_batch`` sequences, 0 for all), and the cause if not."""

    again: bool
    micro_batch: int = 0
    cause: str | None = None
    reason: str = ""


def decide(events: Sequence[Event], batch_sequences: int) -> Retry:
    """Return what follows the last of ``events``, which are those of one run directory.

    An interruption is tried again as long as checkpoints advance, an error once; out of memory halves the
    micro-batch. A person's ``retry`` wipes the slate.
    """
    events = since_retry(events)
    micro_batch = _newest("micro_batch", events, 0)
    last = next((event for event in reversed(events) if event.get("cause") in FAULTS), {})
    cause = last.get("cause")
    if cause == "out_of_memory":
        # The processes of the newest attempt shared the batch.
        whole = batch_sequences // _newest("world_size", events, 1)
        if 1 in (micro_batch, whole):
            return Retry(False, 1, "out_of_memory", "out of memory with a micro-batch of one sequence")
        return Retry(True, (micro_batch or whole) // 2)
    if cause == "error" and last.get("definite"):
        return Retry(False, micro_batch, "error", str(last.get("error")))
    if cause == "error" and _repeated(events):
        return Retry(False, micro_batch, "error", f"the same error twice: {last.get('error')}")
    if _faults_without_progress(events) >= ATTEMPTS_WITHOUT_PROGRESS:
        reason = f"{ATTEMPTS_WITHOUT_PROGRESS} attempts without a new checkpoint"
        return Retry(False, micro_batch, cause, reason)
    return Retry(True, micro_batch)


def micro_batch_left(events: Sequence[Event], batch_sequences: int, asked: int) -> int:
    """Return the micro-batch of the next attempt (0: all): ``asked``, or what out of memory left of it.

    Whoever sends the trial, a scheduler that was started again too, goes on from what was learnt.
    """
    events = since_retry(events)
    ends = [index for index, event in enumerate(events, 1) if event.get("cause") == "out_of_memory"]
    if not ends:
        return asked
    since = _newest("micro_batch", events[ends[-1] :], 0)
    left = since or decide(events[: ends[-1]], batch_sequences).micro_batch
    return min((size for size in (asked, left) if size), default=0)


def with_what_fits(task: Task, events: Sequence[Event]) -> Task:
    """Return ``task`` with the micro-batch that is left of it."""
    left = micro_batch_left(events, task.trial.batch_sequences, task.options.micro_batch)
    return replace(task, options=replace(task.options, micro_batch=left))


def failure_text(label: str, reason: str, directory: RunDirectory) -> str:
    """Return why a trial was given up, with the last line of its log where ``reason`` does not have it."""
    last = directory.last_log_line()
    # A traceback names an exception by its module too, the reason does not.
    why = reason if (last.partition(": ")[2] or last) in reason else f"{reason}: {last}"
    return f"{label}: {why}; see {directory.log_path}"


def why_failed(events: Sequence[Event], directory: RunDirectory) -> str:
    """Return how the last attempt ended: its error, else what its machine said, else its log's last line."""
    last = next((event for event in reversed(events) if is_fault(event)), {})
    told = last.get("error") or last.get("note") or directory.last_log_line()
    return str(told or f"{last.get('cause', 'unknown')}".replace("_", " "))


def since_retry(events: Sequence[Event]) -> Sequence[Event]:
    """Those after a person last asked for a trial that had failed."""
    retries = [index for index, event in enumerate(events) if event.get("cause") == RETRY]
    return events[retries[-1] + 1 :] if retries else events


def _newest(name: str, events: Sequence[Event], otherwise: int) -> int:
    """What the last of ``events`` that counts ``name`` says of it."""
    counts = [event[name] for event in events if isinstance(event.get(name), int)]
    return counts[-1] if counts else otherwise


def _repeated(events: Sequence[Event]) -> bool:
    """Whether the last two errors have the same traceback (a process that died before any left none).

    Not where the checkpoint at which they began is out of the way now, or was another one.
    """
    errors = [event for event in events if event.get("cause") == "error"]
    same = ("traceback", "failed_at")
    return (
        len(errors) >= 2
        and errors[-1].get("traceback") is not None
        and "set_aside" not in errors[-1]
        and all(errors[-1].get(name) == errors[-2].get(name) for name in same)
    )


def _faults_without_progress(events: Sequence[Event]) -> int:
    """Count the faults since the last new checkpoint; an interruption that wrote one is itself progress."""
    furthest = newest = faults = 0
    jobs = set[str]()
    for event in events:
        step, is_end = event.get("step"), is_fault(event)
        # Of a foreign trainer that logs no steps; one that does may write the same again before a new one.
        checkpoint = event.get("checkpoint", newest)
        if event.get("set_aside"):
            faults = 0
        elif (isinstance(step, int) and step > furthest) or checkpoint != newest:
            furthest, newest, faults = max(furthest, step or 0), checkpoint, 0
        # Two schedulers that watched one job may both have recorded its end: it counts once.
        elif is_end and event.get("job") not in jobs:
            faults += 1
        if is_end and (job := event.get("job")):
            jobs.add(job)
    return faults


def is_fault(event: Event) -> bool:
    """Whether the event is the end of an attempt without a result."""
    return event["state"] == "pending" and event.get("cause") in FAULTS


def was_called_off(events: Sequence[Event]) -> bool:
    """Whether somebody has cancelled the trial since a person last asked for it."""
    return calling_off(events) is not None


def was_ended_by_hand(events: Sequence[Event], job: str, cause: str | None) -> bool:
    """Whether the ``cause`` of the end of ``job`` (its token) says that somebody called it off, for good.

    Not where a person has asked for the trial again since the job was queued.
    """
    since = next((event for event in reversed(events) if _asks_again(event) or event.get("job") == job), {})
    return cause == "cancelled" and not _asks_again(since)


def _asks_again(event: Event) -> bool:
    return event.get("cause") in (ASKED_AGAIN, RETRY)


def was_sent_again(events: Sequence[Event], job: str, attempt: int) -> bool:
    """Whether another scheduler has dealt with the end of ``job`` already, and queued the trial again.

    Several may watch one job. ``job`` is its token, ``attempt`` the newest claim if it is of this job, else
    0: what was queued while the job still ran came from a scheduler that knew nothing of it.
    """
    starts = [index for index, event in enumerate(events) if _is_start_of(event, job, attempt)]
    later = events[starts[-1] + 1 if starts else 0 :]
    faults = [index for index, event in enumerate(later) if is_fault(event)]
    return bool(faults) and any(event["state"] == "queued" for event in later[faults[0] :])


def _is_start_of(event: Event, job: str, attempt: int) -> bool:
    if event["state"] == "running":
        return bool(attempt) and event.get("attempt") == attempt
    return event["state"] == "queued" and event.get("job") == job


def attempt_of(directory: RunDirectory, token: str) -> int:
    """Return the newest attempt, if the job ``token`` has claimed it; else 0."""
    attempt = newest_attempt(directory)
    return attempt if attempt and claim_record(directory, attempt).get("job") == token else 0


def unreadable(directory: RunDirectory, problem: Exception | str) -> str:
    """Return what a person can do where the records of a trial cannot be read."""
    retrain = f"move {directory.path} away and `scalevec run` will retrain the trial"
    return f"{problem}; repair the file, or {retrain}"


class NodeWatch:
    """Counts the trials that failed on each machine; ``BAD_AFTER`` different ones make it bad.

    Never more than half of the machines seen are bad: then it is not the machines.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._failed: dict[str, set[str]] = {}

    def learn(self, trial_id: str, events: Sequence[Event]) -> None:
        """Take in what the events of one trial say; doing so again changes nothing."""
        node: str | None = None
        for event in events:
            if event["state"] == "running":
                node = event.get("node") or event.get("host")
            if node is not None:
                self._seen.add(node)
            if _is_of_the_node(event) and (where := event.get("node") or node):
                self._failed.setdefault(where, set()).add(trial_id)

    @property
    def bad(self) -> tuple[str, ...]:
        """The machines to avoid, those with most failures first."""
        nodes = [node for node, trials in self._failed.items() if len(trials) >= BAD_AFTER]
        nodes.sort(key=lambda node: (-len(self._failed[node]), node))
        return tuple(nodes[: len(self._seen | self._failed.keys()) // 2])


def _is_of_the_node(event: Event) -> bool:
    if event["state"] != "pending" or event.get("cause") == "out_of_memory":  # which CUDA may tell of, too
        return False
    error = str(event.get("error", ""))
    return event.get("cause") in FAULTS_OF_A_NODE or any(name in error for name in ERRORS_OF_A_NODE)


LOOK_BACK = 5
"""Starts that are looked at."""
MOST_STARTS = 50
"""A trial that would need more starts than this at its pace is warned of."""
_CAUSES = ("timeout", "preempted")


def little_progress(events: Sequence[dict[str, Any]], steps: int) -> str | None:
    """Return what a person should know of a trial whose last starts hardly advanced it, else None."""
    stops = [
        event["step"]
        for event in events
        if event["state"] == "pending"
        and event.get("cause") in _CAUSES
        and isinstance(event.get("step"), int)
    ]
    if len(stops) <= LOOK_BACK:
        return None
    gained = sum(max(0, later - earlier) for earlier, later in pairwise(stops[-LOOK_BACK - 1 :]))
    if gained * MOST_STARTS >= steps * LOOK_BACK:
        return None
    return (
        f"interrupted {len(stops)} times; the last {LOOK_BACK} starts brought {gained} of {steps} steps: "
        "raise time in the profile, or use a partition that is not preempted"
    )
