"""What SLURM says of jobs and of limits: its commands, given as lists of arguments, and what they print."""

import getpass
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from scalevec.orchestrator.errors import MissingRequirementError, TryLaterError
from scalevec.orchestrator.executors.base import QueuedJob

PATIENCE_S = 60
"""Seconds that a command of SLURM may take."""
ACTIVE_STATES = frozenset(
    (
        *("PENDING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING"),
        *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT", "RESV_DEL_HOLD"),
    )
)
CAUSES = {
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "OUT_OF_MEMORY": "out_of_memory",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
}
_TOKEN = r"(?P<token>[0-9]{8}T[0-9]{6}-[0-9a-f]{8})"
UNANSWERED = re.compile(rf"\?\d+/\d+@{_TOKEN}")
ANSWERED = re.compile(rf"\d+(_\d+)?/\d+@{_TOKEN}")
"""The numbers that the executor gives: before SLURM has answered a submission, and after."""
UNREACHABLE = re.compile(
    r"Unable to contact|timed out|Connection refused|Zero Bytes|Communication|configuration source"
)
FULL = re.compile(r"(Max|Grp)Submit|[Tt]emporarily un|limit on submitted jobs|MaxJobCount")
"""What sbatch says where a limit on submitted jobs is reached; such a limit gives way as jobs end."""
DENIED = re.compile(r"denied|not permitted", re.IGNORECASE)
_SQUEUE_FIELDS = ("JobArrayID", "Name", "State", "exit_code", "NodeList", "Reason", "RestartCnt")
_SACCT_FIELDS = ("JobID", "JobName", "State", "ExitCode", "NodeList")
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_")
_OF_A_COMMAND = ("SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
_OF_THE_CLUSTER = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
_MOST_IDS = 500
"""Named in one command; with more, all jobs of this user are asked for."""


@dataclass(frozen=True)
class JobRow:
    """One job as SLURM shows it; ``exit_code`` is negative for a signal."""

    job: str
    name: str
    state: str
    exit_code: int | None = None
    node: str | None = None
    reason: str = ""
    restarts: int = 0
    """How often SLURM has started it again."""

    @property
    def is_active(self) -> bool:
        """Whether the job waits, runs, or will run again."""
        return self.state in ACTIVE_STATES

    @property
    def is_stuck(self) -> bool:
        """Whether SLURM could not start it and holds it until somebody intervenes."""
        return self.state == "PENDING" and "launch failed" in self.reason.replace("_", " ")

    @property
    def cause(self) -> str | None:
        """The cause of its end, where the state says one.

        A short time limit may strike before anything is there to hear SLURM's signal, and dies of it.
        """
        if self.state == "FAILED" and self.exit_code in (-signal.SIGUSR2, 128 + signal.SIGUSR2):
            return "timeout"
        return "node_failure" if self.is_stuck else CAUSES.get(self.state)


class SlurmCommandError(Exception):
    """A command of SLURM failed; the message is its own."""


def call(*command: str) -> str:
    """What a command of SLURM prints. Raises :class:`SlurmCommandError` with what it says of a failure."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment()
        )
    except subprocess.TimeoutExpired:
        raise SlurmCommandError(f"{command[0]}: timed out") from None
    except FileNotFoundError:
        raise absent(command[0]) from None
    if done.returncode:
        raise SlurmCommandError(done.stderr.strip() or f"{command[0]}: exit code {done.returncode}")
    return done.stdout


def absent(command: str) -> MissingRequirementError:
    """Return the error for a command of SLURM that is not installed here."""
    return MissingRequirementError(
        f"no {command} on the PATH: SLURM's commands are needed; run scalevec on a login node of the "
        "cluster, or choose another executor"
    )


def clean_environment() -> dict[str, str]:
    """This process's variables without those of a SLURM job that it may be part of.

    Inside a job (the controller is one) they would change what a new job asks for.
    """
    return {name: value for name, value in os.environ.items() if not _is_of_a_job(name)}


def _is_of_a_job(name: str) -> bool:
    """Those that say which cluster is meant stay; those that filter what a command shows go too."""
    return name.startswith(_OF_A_JOB + _OF_A_COMMAND) and name not in _OF_THE_CLUSTER


@contextmanager
def outside_any_job() -> Iterator[None]:
    """Hides the variables of the SLURM job that this process may be part of, for libraries that inherit."""
    hidden = {name: value for name, value in os.environ.items() if _is_of_a_job(name)}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def configuration() -> Mapping[str, str]:
    """Return the settings of the cluster, as ``scontrol show config`` names them.

    Raises ``TryLaterError`` where SLURM does not answer.
    """
    try:
        text = call("scontrol", "show", "config")
    except SlurmCommandError as problem:
        raise TryLaterError(f"SLURM does not answer: {problem}") from None
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def node_names(partition: str | None) -> set[str]:
    """The nodes of a partition, or of all."""
    within = ["--partition", partition] if partition else []
    return set(call("sinfo", "--noheader", "--Node", "--format=%N", *within).split())


def accounts_of_user() -> list[str]:
    """The accounts that this user may charge, the default one first; none where there is no accounting."""
    options = ("--noheader", "--parsable2", "show")
    try:
        default = call("sacctmgr", *options, "user", getpass.getuser(), "format=DefaultAccount").split()
        rows = call("sacctmgr", *options, "associations", f"user={getpass.getuser()}", "format=Account")
    except (SlurmCommandError, MissingRequirementError):
        return []
    return list(dict.fromkeys([*default, *sorted(rows.split())]))


def queued(jobs: Collection[str]) -> dict[str, JobRow] | None:
    """What the queue knows of ``jobs``, also of those that ended lately; None where it does not answer."""
    fields = ",".join(f"{field}:|" for field in _SQUEUE_FIELDS)
    try:
        text = call("squeue", "--noheader", "--array", "--states=all", f"--Format={fields}", *_which(jobs))
    except SlurmCommandError as problem:
        return {} if "Invalid job id" in str(problem) else None
    rows = map(_queue_row, table(text, len(_SQUEUE_FIELDS)))
    return {row.job: row for row in rows}


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
        if (row := rows.get(job)) is not None
        and row.is_active
        and row.name.endswith(number.partition("@")[2])
    }


def _remedy(row: JobRow) -> str:
    """Of a job that is held: before its start, or back in the queue by ``scontrol requeuehold``."""
    return f"scontrol release {row.job}" if "held" in row.reason.lower() else ""


def number_of(name: str) -> str | None:
    """The number of the job, or of the array, called ``name``, if the queue has one or had it lately.

    Raises ``TryLaterError`` where SLURM does not answer.
    """
    try:
        text = call("squeue", "--noheader", "--states=all", f"--name={name}", "--Format=ArrayJobID:|,JobID:|")
    except SlurmCommandError as problem:
        raise TryLaterError(f"SLURM does not answer: {problem}") from None
    numbers = [row[0] if row[0].isdecimal() else row[1] for row in table(text, 2)]
    return min(numbers, key=int, default=None)


def accounted(jobs: Collection[str]) -> dict[str, JobRow]:
    """What the accounting knows of ``jobs``; nothing where there is no accounting, or none that answers."""
    fields = ",".join(_SACCT_FIELDS)
    names = ",".join(sorted(bases(jobs)))
    options = ["--noheader", "--parsable2", "--allocations", f"--format={fields}"]
    try:
        text = call("sacct", *options, f"--jobs={names}")
    except (SlurmCommandError, MissingRequirementError):
        return {}
    rows = map(_accounting_row, table(text, len(_SACCT_FIELDS)))
    return {row.job: row for row in rows}


def table(text: str, columns: int) -> list[list[str]]:
    """The rows of what a command of SLURM prints; shorter lines and what follows a row are left out."""
    rows = (line.split("|") for line in text.splitlines())
    return [row[:columns] for row in rows if len(row) >= columns]


def bases(jobs: Collection[str]) -> set[str]:
    """The numbers of the arrays that ``jobs`` belong to."""
    return {job.partition("_")[0] for job in jobs}


def _which(jobs: Collection[str]) -> list[str]:
    arrays = bases(jobs)
    return ["--me"] if len(arrays) > _MOST_IDS else [f"--jobs={','.join(sorted(arrays))}"]


def _queue_row(values: list[str]) -> JobRow:
    job, name, state, code, node, reason, restarts = (value.strip() for value in values)
    number = os.waitstatus_to_exitcode(int(code)) if code.isdecimal() else _exit_code(code)
    again = int(restarts) if restarts.isdecimal() else 0
    return JobRow(job, name, state, number, _node(node), reason, again)


def _accounting_row(values: list[str]) -> JobRow:
    job, name, state, code, node = values
    return JobRow(job, name, state.split(" ")[0], _exit_code(code), _node(node))


def _exit_code(text: str) -> int | None:
    """Of ``CODE:SIGNAL``."""
    code, _, signal = text.partition(":")
    if signal.isdecimal() and signal != "0":
        return -int(signal)
    return int(code) if code.isdecimal() else None


def _node(text: str) -> str | None:
    return text if re.fullmatch(r"[\w.-]+", text) and text not in ("None", "(null)") else None


def end(jobs: Collection[str], *, hard: bool) -> None:
    """Take those that wait out of the queue; ask those that run to checkpoint and end, or end them.

    A suspended job cannot hear: it is ended. Raises ``TryLaterError`` where SLURM does not answer, and
    ``MissingRequirementError`` (after those of this user) for jobs of somebody else.
    """
    names = sorted(jobs)
    if not names:
        return
    if hard:
        commands: list[list[str]] = [["--signal=KILL", "--full", "--state=RUNNING"], []]
    else:
        commands = [["--state=PENDING"], ["--state=SUSPENDED"], ["--signal=TERM", "--state=RUNNING"]]
    if refusals := [refusal for options in commands if (refusal := _scancel(*options, *names))]:
        raise MissingRequirementError(
            f"SLURM does not let you end jobs of somebody else, who can do it: {refusals[0]}"
        )


def _scancel(*arguments: str) -> str | None:
    """What SLURM says of jobs that this user may not end. A job that has ended already is no failure."""
    try:
        call("scancel", *arguments)
    except SlurmCommandError as problem:
        if UNREACHABLE.search(str(problem)):
            raise TryLaterError(f"SLURM does not answer: {problem}") from None
        return str(problem) if DENIED.search(str(problem)) else None
    return None
