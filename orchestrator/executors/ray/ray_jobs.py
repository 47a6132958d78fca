"""The controllers of sweeps as jobs of a Ray cluster: its job server runs them on a node of its own choice.

A job of Ray is bound to its cluster: it ends with the cluster's head, and nobody starts it again.
"""

import os
import secrets
import shlex
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError, TryLaterError
from scalevec.orchestrator.executors.base import Ended, QueuedJob, Site
from scalevec.orchestrator.executors.ray.connection import (
    AUTO,
    is_listening,
    parts_of,
    require_answer,
    require_ray,
)
from scalevec.orchestrator.snapshots.snapshot import taken
from scalevec.results.extras import install_command

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

SERVER = "RAY_API_SERVER_ADDRESS"
"""The variable with which Ray itself is told where the job server is; it counts before all else."""
STOP_S = 120
"""How long a controller has, once asked to stop, before Ray kills it: its trials write checkpoints."""
POLL_S = 1.0


class RayJobs:
    """What ``scalevec submit`` sends to on Ray. A job's number is its id and its server, ``ID@HOST:PORT``."""

    name = "ray-jobs"

    def __init__(self, site: Site) -> None:
        """Raises ``MissingRequirementError`` where Ray, or what it needs for jobs, is not installed."""
        _require_jobs()
        self.site = site
        self._server: str | None = None
        self._running: set[str] = set()

    @property
    def cluster(self) -> str:
        """Where the job server listens, HOST:PORT; the profile's cluster is asked the first time.

        Raises ``InvalidInputError`` without an address, ``MissingRequirementError`` where nobody answers.
        """
        if self._server is None:
            self._server = _server_at(self.site.profile.address)
        return self._server

    @property
    def free_slots(self) -> int:
        """One at a time. Raises ``MissingRequirementError`` where no job server answers."""
        with _in_our_words(self.cluster):
            _client(self.cluster)
        return 1

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Start each as a job that asks for no resources: it only waits for others."""
        return [self._send(job) for job in jobs]

    def _send(self, job: Job) -> str:
        command = taken(self.site.private).command(job.command)
        with _in_our_words(self.cluster):
            submitted = _client(self.cluster).submit_job(
                entrypoint=f"exec {shlex.join(command)} >> {shlex.quote(str(job.log))} 2>&1",
                submission_id=f"scalevec-{secrets.token_hex(8)}",
                metadata={"job_name": job.label},
                runtime_env={"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S)}},
            )
        number = f"{submitted}@{self.cluster}"
        self._running.add(number)
        return number

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those that wait or run. Where a server is silent and the profile's is another, the cluster is gone.

        Raises ``TryLaterError`` where the profile's own is silent.
        """
        alive = {number for number in numbers if not self._is_gone(number) and _unfinished(number)}
        self._running |= alive
        return alive

    def _is_gone(self, number: str) -> bool:
        server = _server(number)
        return (
            self.site.profile.address is not None
            and server != self.cluster
            and not is_listening(parts_of(server))
        )

    def wait(self, timeout_s: float) -> list[Ended]:
        """One question for each job, every second."""
        deadline = time.monotonic() + timeout_s
        while True:
            over = [number for number in self._running if not _unfinished(number)]
            left_s = deadline - time.monotonic()
            if over or left_s <= 0:
                break
            time.sleep(min(POLL_S, left_s))
        self._running.difference_update(over)
        return [_ended(number) for number in over]

    def interruptions(self) -> list[tuple[str, str]]:
        """None: what was interrupted here has ended."""
        return []

    def cancel(self, numbers: Collection[str]) -> None:
        """Ask these jobs to end; their trials, which are their tasks, write checkpoints."""
        for number in set(numbers) & self._running:
            with _in_our_words(_server(number)):
                _client(_server(number)).stop_job(_id(number))

    def stop(self, *, hard: bool = False) -> None:  # noqa: ARG002 (Ray itself kills what does not end)
        """Ask all its jobs to end."""
        self.cancel(self._running)

    def close(self) -> None:
        """Nothing is held."""


def look(numbers: Collection[str]) -> dict[str, QueuedJob]:
    """Return those of ``numbers`` that wait or run. Raises ``MissingRequirementError``."""
    _require_jobs()
    unfinished = {number: details for number in numbers if (details := _unfinished(number))}
    return {
        number: QueuedJob(_id(number), details.status.value, _reason(details))
        for number, details in unfinished.items()
    }


def _reason(details: "JobDetails") -> str:
    return (details.message or "") if details.status == "PENDING" else ""


def _id(number: str) -> str:
    return number.partition("@")[0]


def _server(number: str) -> str:
    return number.partition("@")[2]


def _unfinished(number: str) -> "JobDetails | None":
    """What the server says of a job that is not over. Raises ``TryLaterError`` where it is silent."""
    details = _details(number)
    return None if details is None or details.status.is_terminal() else details


def _details(number: str) -> "JobDetails | None":
    """None for a job that the server does not know: that of an earlier cluster at the same address."""
    with _in_our_words(_server(number)):
        client = _client(_server(number))
        known = {details.submission_id: details for details in client.list_jobs()}
    return known.get(_id(number))


def _ended(number: str) -> Ended:
    details = _details(number)
    if details is None:
        return Ended(number, None, "killed")
    return Ended(
        number,
        details.driver_exit_code,
        "cancelled" if details.status == "STOPPED" else None,
        message=details.message or "",
    )


def _require_jobs() -> None:
    require_ray()
    if find_spec("aiohttp") is None:
        raise MissingRequirementError(
            f"jobs of Ray need more than Ray alone: {install_command('ray')}; "
            "scalevec run --executor ray does without"
        )


def _server_at(address: str | None) -> str:
    """The job server, HOST:PORT, of the cluster with the head ``address``."""
    if address is None:
        raise InvalidInputError(
            "submit on Ray needs a cluster that outlives this command: a profile with its 'address'"
        )
    from ray.dashboard.utils import get_address_for_submission_client

    require_answer(address)
    # Ray prefers the variable to what it is given.
    with _environment("RAY_ADDRESS", None if address == AUTO else address), _in_our_words(address):
        return get_address_for_submission_client(address).removeprefix("http://")


def _client(server: str) -> "JobSubmissionClient":
    from ray.job_submission import JobSubmissionClient

    url = server if "://" in server else f"http://{server}"
    with _environment(SERVER, url):
        return JobSubmissionClient(url)


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """The variable ``name`` with ``value`` for a while; as it is where that is None."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def _in_our_words(server: str) -> Iterator[None]:
    """Raises ``TryLaterError`` where nobody answers, ``MissingRequirementError`` where Ray refuses."""
    try:
        yield
    except OSError as error:
        raise TryLaterError(f"the job server of Ray at {server} does not answer: {error}") from error
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise MissingRequirementError(f"the job server of Ray at {server}: {reason}") from error
