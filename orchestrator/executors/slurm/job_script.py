"""What runs inside a SLURM job: its trials, one after the other or side by side, each as a process.

A job starts ``python -P -m scalevec.orchestrator.executors.slurm.job_script FOLDER``. FOLDER, of the private
folder, holds what its jobs are to run (:mod:`payload`).
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from scalevec.orchestrator.attempts import retry_policy
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.retry_policy import Retry
from scalevec.orchestrator.errors import NO_SPACE, read_or_else
from scalevec.orchestrator.executors.forked_workers import Forked, ForkServers, Fresh, start_bound, tell
from scalevec.orchestrator.executors.slurm.payload import (
    LOG,
    Entry,
    JobRecord,
    MachinesMeeting,
    is_final,
    job_number,
    node_name,
    read_payload,
    restarts,
    task_number,
)
from scalevec.orchestrator.snapshots.snapshot import from_the_same_code
from scalevec.results.claims import end_claim
from scalevec.results.files import CorruptRecordError, utc_now
from scalevec.results.opening import open_log
from scalevec.results.run_directory import RunDirectory
from scalevec.sweeps.trainers.any_trial import trial_from_fields

POLL_S = 0.1
LOOK_S = 5.0
"""Seconds between two looks whether the running trial was cancelled."""
STOPPED = 75
LOST = -signal.SIGKILL
"""The exit code of a process whose server was killed, and it with it."""
LAST_WORD_S = 10.0
"""How long a task that failed lets the first one say why: SLURM ends them all when one ends badly."""


@dataclass
class _Attempt:
    """A trial's process; ``kills`` is what the system had killed for memory when it began."""

    process: Fresh | Forked
    record: JobRecord
    kills: int
    cancelled: bool = False
    """Whether it was asked to end because the trial was cancelled."""
    looked: float = field(default_factory=time.monotonic)

    def look_for_cancellation(self) -> None:
        """Ask it once to end, if the trial was cancelled."""
        if not self.cancelled and time.monotonic() - self.looked > LOOK_S:
            self.looked = time.monotonic()
            self.cancelled = self.record.is_cancelled()
            if self.cancelled:
                tell(self.process.identity, signal.SIGTERM)


@dataclass
class Bundle:
    """The trials of one job. After a requeue by whomever, those that are over are passed by."""

    folder: Path
    """Of the records of the submission."""
    private: Path
    """Of what the submission runs: the machines of a trial meet there, out of other users' reach."""
    entries: tuple[Entry, ...]
    requeue: bool = True
    """Whether SLURM starts the job again after its time limit; else the scheduler asks for a new one."""
    at_a_time: int = 1
    """Trials that run side by side."""
    _stop: str | None = field(default=None, init=False)
    _attempts: dict[int, _Attempt] = field(default_factory=dict, init=False)
    """What runs now, by its place among the entries."""
    _servers: ForkServers | None = field(default=None, init=False)

    def __call__(self) -> None:
        """Run the trials; end with the exit code of the last one that failed."""
        if task_number():
            self._follow(self.entries[0])
            return
        if len(self.entries) > 1:
            self._servers = ForkServers(from_the_same_code, bound=True)
        try:
            self._run()
        finally:
            if self._servers:
                self._servers.close()

    def _run(self) -> None:
        signal.signal(signal.SIGTERM, self._on_stop)
        codes: list[int | None] = []
        waiting, has_space = deque(range(len(self.entries))), True
        while self._attempts or (waiting and has_space and not self._stop):
            while waiting and has_space and not self._stop and len(self._attempts) < self.at_a_time:
                has_space = self._began(index := waiting.popleft())
                if index not in self._attempts:
                    self._meeting(index).call_off()
            codes += self._ended()
        failed = [code for code in codes if code] + ([] if has_space else [int(WorkerExit.NO_SPACE)])
        if failed:
            raise SystemExit(failed[-1] if failed[-1] > 0 else 128 - failed[-1])

    def checkpoint(self) -> bool:
        """Before the time limit: let the trials checkpoint; whether SLURM is to start this job again."""
        self._stop = "timeout"
        self._pass_on(signal.SIGUSR2)
        for index, attempt in self._attempts.items():
            while not attempt.process.ended():
                time.sleep(POLL_S)
            wrote = attempt.process.exit_code == STOPPED
            did = "has written its checkpoint" if wrote else "had not begun to train"
            _say(self.entries[index], f"the time limit is near; the trial {did}")
            if not self.requeue:
                attempt.record.write(STOPPED, self._stop, final=False)
        return self.requeue

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        self._stop = self._stop or "preempted"
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        for attempt in self._attempts.values():
            tell(attempt.process.identity, number)

    def _record(self, index: int) -> JobRecord:
        return JobRecord(self.folder, job_number(), index)

    def _began(self, index: int) -> bool:
        """Begin with a trial; False where the disk has no space for the record of it."""
        try:
            self._begin(index)
        except OSError as problem:
            if problem.errno not in NO_SPACE:
                raise
            return False
        except CorruptRecordError as problem:  # such as a link in place of its log
            self._record(index).write(WorkerExit.ERROR, None, message=str(problem))
        return True

    def _begin(self, index: int) -> None:
        """Start a trial, if there is anything to be done for it."""
        entry, record = self.entries[index], self._record(index)
        if is_final(record.read()):
            return
        directory = RunDirectory(Path(entry.directory))
        if _has_result(directory):
            record.write(0, None)
        elif record.is_cancelled() or _is_called_off(directory):
            record.write(None, "cancelled")
            _note_cancelled(entry)
        elif refusal := _look_back(directory, entry):
            record.write(None, refusal.cause, message=refusal.reason)
        else:
            record.write(None, None, final=False)
            self._start(index, entry, record)

    def _start(self, index: int, entry: Entry, record: JobRecord) -> None:
        kills = out_of_memory_kills()
        _say(entry, f"job {record.job} on {node_name()}, start {restarts()}")
        if self._stop:
            return
        log = Path(entry.directory) / "log.txt"
        command = self._meeting(index).command(entry.command)
        process: Fresh | Forked | None = None
        if self._servers is not None and entry.arguments is not None:
            with open_log(log) as stream:
                process = self._servers.fork(entry.arguments, entry.cpus, stream)
        process = process or Fresh(start_bound(command, log, entry.cpus))
        self._attempts[index] = _Attempt(process, record, kills)
        if self._stop:  # the signal came before there was anybody to pass it on to
            tell(process.identity, signal.SIGTERM)

    def _meeting(self, index: int) -> MachinesMeeting:
        path = self.private / "meetings" / f"{job_number()}.{index}.{restarts()}.json"
        return MachinesMeeting(path, self.entries[index].nodes)

    def _follow(self, entry: Entry) -> None:
        """What the tasks on the other machines do: run their part of the trial; the first has the records."""
        signal.signal(signal.SIGTERM, self._on_stop)
        command, log = self._meeting(0).command(entry.command), Path(entry.directory) / "log.txt"
        process = Fresh(start_bound(command, log, entry.cpus))
        self._attempts[0] = _Attempt(process, self._record(0), 0)
        if self._stop:
            tell(process.identity, signal.SIGTERM)
        while not process.ended():
            time.sleep(POLL_S)
        if process.exit_code:
            time.sleep(LAST_WORD_S)
            raise SystemExit(1)

    def _ended(self) -> list[int | None]:
        """Look after what runs, a moment later; return the exit codes of what has ended."""
        if self._attempts and not any(attempt.process.ended() for attempt in self._attempts.values()):
            time.sleep(POLL_S)
        for attempt in self._attempts.values():
            attempt.look_for_cancellation()
        over = [index for index, attempt in self._attempts.items() if attempt.process.ended()]
        return [self._end(index) for index in over]

    def _end(self, index: int) -> int:
        attempt = self._attempts[index]
        code = attempt.process.exit_code
        code = LOST if code is None else code
        attempt.process.reap()
        with suppress(OSError):  # a full disk: then the job's own exit code says how it ended
            self._record_end(index, attempt, code)
        del self._attempts[index]
        self._meeting(index).call_off()
        return code

    def _record_end(self, index: int, attempt: _Attempt, code: int) -> None:
        # Before the record: whoever sees that the trial is over finds the log whole.
        _say(self.entries[index], f"the process ended with {code}")
        if attempt.cancelled or attempt.record.is_cancelled():
            attempt.record.write(code, "cancelled")
            _note_cancelled(self.entries[index])
        elif self._stop:  # it counts only if SLURM does not start the job again
            attempt.record.write(code, self._stop, final=False)
        else:
            lacked = code == -signal.SIGKILL and out_of_memory_kills() > attempt.kills
            attempt.record.write(code, "out_of_memory" if lacked else None)


def _look_back(directory: RunDirectory, entry: Entry) -> Retry | None:
    """After a restart: whether the trial must not be tried again.

    SLURM started this job again, so whatever it ran before is gone: its claim is ended, and if the worker
    had no time to say so, the attempt is on record as interrupted.
    """
    if not restarts() or not directory.trial_path.exists():
        return None
    attempt = retry_policy.attempt_of(directory, entry.token)
    if not attempt:
        return None
    end_claim(directory, attempt, "SLURM started its job again")
    if directory.events()[-1]["state"] == "running":
        directory.append_event(
            "pending", cause="preempted", node=node_name(), note="SLURM started the job again"
        )
    trial = trial_from_fields(directory.trial()["semantic"])
    if warning := retry_policy.little_progress(directory.events(), trial.steps):
        _say(entry, warning)
    decision = retry_policy.decide(directory.events(), trial.batch_sequences)
    return None if decision.again else decision


def _has_result(directory: RunDirectory) -> bool:
    """A result that cannot be read is the worker's to refuse and the scheduler's to set aside."""
    return read_or_else(directory.result, None) is not None


def _is_called_off(directory: RunDirectory) -> bool:
    """Whoever cancelled the trial may not have known of this job. Events that nobody can read say nothing."""
    return retry_policy.was_called_off(read_or_else(directory.events, []))


def _note_cancelled(entry: Entry) -> None:
    """A cancel that could not wait for the end of this trial left it as one that is being cancelled."""
    directory = RunDirectory(Path(entry.directory))
    with suppress(CorruptRecordError, OSError):
        if directory.state().state == "cancelling":
            directory.append_event("cancelled", cause="cancelled", node=node_name())


def _say(entry: Entry, text: str) -> None:
    with suppress(OSError, CorruptRecordError), open_log(Path(entry.directory) / "log.txt") as log:
        log.write(f"[slurm] {utc_now()} {text}\n".encode())


def out_of_memory_kills() -> int:
    """How many processes of this control group were killed for memory; 0 where the system does not say."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        path = next(line.split(":", 2)[2] for line in groups if line.startswith("0::"))
        text = Path(f"/sys/fs/cgroup{path}/memory.events").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError):
        return 0


def main(arguments: list[str] | None = None) -> int:
    """The entry point of each task of a job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    os.utime(folder)  # it is in use: private.drop_unused
    payload, position = read_payload(folder), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    bundle = Bundle(Path(payload.records), folder, payload.jobs[position], payload.requeue, payload.at_a_time)
    signal.signal(signal.SIGUSR2, lambda _number, _frame: _near_the_limit(bundle))
    try:
        bundle()
    except Exception:
        with (
            suppress(OSError, CorruptRecordError),
            open_log(bundle.folder / LOG.format(job=job_number())) as log,
        ):
            log.write(traceback.format_exc().encode(errors="replace"))
        raise
    return 0


def _near_the_limit(bundle: Bundle) -> None:
    """Checkpoint, and ask SLURM to start this job again; the first task does so for all."""
    if not task_number():
        again = bundle.checkpoint() and _is_requeued()
        sys.exit(STOPPED if again else 1)


def _is_requeued() -> bool:
    """Ask SLURM to start this job again; whether it will."""
    return subprocess.run(("scontrol", "requeue", job_number()), check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
