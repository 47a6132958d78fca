"""What runs inside a SLURM job: trials one after the other, each as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from submitit.core.utils import DelayedSubmission

from model.identity import trial_from_fields
from orchestrator.executors import bound
from orchestrator.executors.environment import worker_environment
from orchestrator.history import was_called_off
from orchestrator.policy import Decision, decide
from results.claims import claim_record, end_claim, newest_attempt
from results.files import CorruptRecord, names_in, read_json, utc_now, write_json
from results.run_directory import RunDirectory

POLL_S = 0.1
LOOK_S = 5.0
"""Seconds between two looks whether the running trial was cancelled."""
STOPPED = 75
BOUND = (sys.executable, "-I", "-S", bound.__file__)
"""Starts a process that does not outlive this one, wherever SLURM itself does not see to that."""


@dataclass(frozen=True)
class Entry:
    """One trial of a job; ``token`` is what its worker writes into its claim."""

    trial_id: str
    command: tuple[str, ...]
    directory: str
    token: str
    cpus: int = 1


@dataclass(frozen=True)
class Records:
    """What a job notes of its places in the folder of the submission, and what is asked of them there.

    A record that is not ``final`` says how far an attempt came; it counts only once the job is gone.
    """

    folder: Path

    def read(self, job: str, place: int) -> dict[str, Any] | None:
        """The record of one place, None before it was started."""
        try:
            found: dict[str, Any] = read_json(self._path("ended", job, place))
        except (FileNotFoundError, CorruptRecord):
            return None
        return found

    def write(self, job: str, place: int, exit_code: int | None, cause: str | None, **more: Any) -> None:
        """Note how an attempt ended (or, not final, that it began).

        A job that lives on where a lost node was has no say once SLURM started it again elsewhere.
        """
        path = self._path("ended", job, place)
        path.parent.mkdir(exist_ok=True)
        earlier = self.read(job, place)
        if earlier is not None and earlier["start"] > restarts():
            return
        record = {
            "final": True,
            "exit_code": exit_code,
            "cause": cause,
            "node": node_name(),
            "start": restarts(),
            "time": utc_now(),
        }
        write_json(path, record | more)

    def places(self) -> set[str]:
        """``JOB.PLACE`` of those that have a record."""
        return {name.removesuffix(".json") for name in names_in(self.folder / "ended")}

    def cancel(self, job: str, place: int) -> None:
        """Ask that a place be left, or not begun."""
        path = self._path("cancelled", job, place)
        path.parent.mkdir(exist_ok=True)
        path.touch()

    def is_cancelled(self, job: str, place: int) -> bool:
        """Whether somebody asked for it."""
        return self._path("cancelled", job, place).exists()

    def _path(self, kind: str, job: str, place: int) -> Path:
        return self.folder / kind / f"{job}.{place}.json"


@dataclass
class Bundle:
    """The trials of one job, to be called by submitit on the node.

    It may be called again: after a requeue by whomever, those that are over are passed by.
    """

    folder: str
    entries: tuple[Entry, ...]
    requeue: bool = True
    """Whether SLURM starts the job again after its time limit; else the scheduler asks for a new one."""
    _stop: str | None = field(default=None, init=False)
    _at: int = field(default=0, init=False)
    _child: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __call__(self) -> None:
        """Run the trials; ends with the exit code of the last one that failed."""
        signal.signal(signal.SIGTERM, self._on_stop)
        codes = []
        for place in range(len(self.entries)):
            self._at = place
            codes.append(self._run(place))
            if self._stop:
                break
        failed = [code for code in codes if code]
        if failed:
            raise SystemExit(failed[-1] if failed[-1] > 0 else 128 - failed[-1])

    def checkpoint(self) -> DelayedSubmission | None:
        """Called by submitit's signal handler before the time limit: let the trial checkpoint.

        What is returned is started again in the same job; None ends it.
        """
        self._stop = "timeout"
        if self._child is not None:
            self._pass_on(signal.SIGUSR2)
            _wait_for(self._child)
        _say(self.entries[self._at], "the time limit is near; the trial has written its checkpoint")
        if self.requeue:
            return DelayedSubmission(Bundle(self.folder, self.entries, self.requeue))
        self._note_stop()
        return None

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self._stop = self._stop or "preempted"
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def _run(self, place: int) -> int | None:
        """The exit code of one trial; None where nothing was to be done."""
        entry, records, job = self.entries[place], Records(Path(self.folder)), job_number()
        earlier = records.read(job, place)
        if earlier is not None and earlier["final"]:
            return None
        directory = RunDirectory(Path(entry.directory))
        if _has_result(directory):
            records.write(job, place, 0, None)
            return None
        if records.is_cancelled(job, place) or _is_called_off(directory):
            records.write(job, place, None, "cancelled")
            return None
        refusal = _look_back(directory, entry)
        if refusal is not None:
            records.write(job, place, None, refusal.cause, message=refusal.reason)
            return None
        records.write(job, place, None, None, final=False)
        return self._attempt(place, entry, records)

    def _attempt(self, place: int, entry: Entry, records: Records) -> int | None:
        job, kills = job_number(), out_of_memory_kills()
        _say(entry, f"job {job} on {node_name()}, start {restarts()}")
        if self._stop:
            return None
        with (Path(entry.directory) / "log.txt").open("ab") as log:
            self._child = subprocess.Popen(
                (*BOUND, str(os.getpid()), *entry.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=worker_environment(entry.cpus),
            )
        if self._stop:  # the signal came before there was anybody to pass it on to
            self._pass_on(signal.SIGTERM)
        cancelled = self._watch(records, job, place)
        code, self._child = self._child.wait(), None
        cancelled = cancelled or records.is_cancelled(job, place)
        _say(entry, f"the process ended with {code}")
        if cancelled:
            records.write(job, place, code, "cancelled")
        elif self._stop:
            self._note_stop(code)
        else:
            lacked = code == -signal.SIGKILL and out_of_memory_kills() > kills
            records.write(job, place, code, "out_of_memory" if lacked else None)
        return code

    def _watch(self, records: Records, job: str, place: int) -> bool:
        """Wait until the process has ended; whether it was asked to because it was cancelled."""
        assert self._child is not None
        cancelled, looked = False, time.monotonic()
        while not _has_ended(self._child):
            time.sleep(POLL_S)
            if not cancelled and time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                cancelled = records.is_cancelled(job, place)
                if cancelled:
                    self._pass_on(signal.SIGTERM)
        return cancelled

    def _note_stop(self, code: int | None = STOPPED) -> None:
        """What became of the place counts only if SLURM does not start the job again."""
        Records(Path(self.folder)).write(job_number(), self._at, code, self._stop, final=False)


def _look_back(directory: RunDirectory, entry: Entry) -> Decision | None:
    """After a restart: whether the trial must not be tried again.

    SLURM started this job again, so whatever it ran before is gone: its claim is ended, and if the worker
    had no time to say so, the attempt is on record as interrupted.
    """
    if not restarts() or not directory.trial_path.exists():
        return None
    attempt = newest_attempt(directory)
    if not attempt or claim_record(directory, attempt).get("job") != entry.token:
        return None
    end_claim(directory, attempt, "SLURM started its job again")
    if directory.events()[-1]["state"] == "running":
        directory.append_event(
            "pending", cause="preempted", node=node_name(), note="SLURM started the job again"
        )
    trial = trial_from_fields(directory.trial()["semantic"])
    decision = decide(directory.events(), trial.batch_sequences)
    return None if decision.again else decision


def _has_result(directory: RunDirectory) -> bool:
    """A result that cannot be read is the worker's to refuse and the scheduler's to set aside."""
    try:
        return directory.result() is not None
    except CorruptRecord:
        return False


def _is_called_off(directory: RunDirectory) -> bool:
    """Whoever cancelled the trial may not have known of this job. Events that nobody can read say nothing."""
    try:
        return was_called_off(directory.events())
    except CorruptRecord:
        return False


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Looks without reaping and without a lock, so that a signal handler may look at any moment too."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def _wait_for(process: "subprocess.Popen[bytes]") -> None:
    while not _has_ended(process):
        time.sleep(POLL_S)


def _say(entry: Entry, text: str) -> None:
    with (Path(entry.directory) / "log.txt").open("a") as log:
        log.write(f"[slurm] {utc_now()} {text}\n")


def job_number() -> str:
    """The job that this process is part of, as SLURM writes it: ``12_3`` for a task of an array."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ["SLURM_JOB_ID"]


def node_name() -> str:
    """The node as SLURM names it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def restarts() -> int:
    """How often SLURM started this job again."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def out_of_memory_kills() -> int:
    """How many processes of this control group were killed for memory; 0 where the system does not say."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        path = next(line.split(":", 2)[2] for line in groups if line.startswith("0::"))
        text = Path(f"/sys/fs/cgroup{path}/memory.events").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError):
        return 0
