"""Who runs a trial: attempt k is claimed by exclusive creation, and a claim lives while its owner does."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from scalevec.results import files
from scalevec.results.files import CorruptRecordError, utc_now
from scalevec.results.opening import make_folder, open_file, open_to_read
from scalevec.results.run_directory import RunDirectory
from scalevec.results.runs_identity import boot_id, is_of, runs_around

LEASE_S = 180.0
# Room for any 64-bit count.
_BEAT_DIGITS = 20
# Letters of /proc/PID/stat, see proc(5): a zombie, and dead.
_DEAD_STATES = ("Z", "X")


class AlreadyClaimedError(RuntimeError):
    """Another process runs the trial, as far as anyone can tell."""

    def __init__(self, run_directory: RunDirectory, record: dict[str, Any]) -> None:
        super().__init__(
            f"trial {run_directory.trial_id[:12]}: attempt {record.get('attempt')} belongs to process "
            f"{record.get('pid')} on {record.get('host')} since {record.get('time')}"
        )
        self.record = record


@dataclass(frozen=True)
class Claim:
    """One attempt of a trial, held by this process; :func:`acquire` gives it.

    The owner calls :meth:`beat` well within every lease, asks :meth:`is_current` before it writes a
    checkpoint or the result, and ends with :meth:`release`.

    Args:
        run_directory: The trial.
        attempt: The number of the attempt, from 1.
    """

    run_directory: RunDirectory
    attempt: int

    def beat(self) -> None:
        """Move the counter, to be called well within every lease, by one thread at a time.

        The counter has a fixed width and is written in place: a full device cannot make a claim stale.
        """
        path = _path(self.run_directory, self.attempt, "beat")
        descriptor = open_file(path, os.O_RDWR)
        try:
            beats = os.pread(descriptor, _BEAT_DIGITS, 0)
            # A loss of power may have left anything there; every change of it is a beat.
            os.pwrite(descriptor, _beat_content(int(beats) + 1 if beats.isdigit() else 1), 0)
        finally:
            os.close(descriptor)

    def is_current(self) -> bool:
        """Whether this attempt is still the newest and nobody has ended it.

        To be asked before each checkpoint and before the result: a process that was stopped past its
        lease finds here that it has a successor.
        """
        ended = _is_ended(self.run_directory, self.attempt)
        return newest_attempt(self.run_directory) == self.attempt and not ended

    def release(self) -> None:
        """Say that this attempt is over; doing so again changes nothing."""
        end_claim(self.run_directory, self.attempt, "released")


def _path(run_directory: RunDirectory, attempt: int, suffix: Literal["json", "beat", "done"]) -> Path:
    """The file of an attempt's claim, of its counter, or of its end."""
    return run_directory.claims_path / f"{attempt:04d}.{suffix}"


def _is_ended(run_directory: RunDirectory, attempt: int) -> bool:
    return os.path.lexists(_path(run_directory, attempt, "done"))  # whatever it is


def _beat_content(beats: int) -> bytes:
    return f"{beats:0{_BEAT_DIGITS}d}\n".encode()


def newest_attempt(run_directory: RunDirectory) -> int:
    """The number of the newest claim, 0 where the trial was never claimed."""
    names = files.names_in(run_directory.claims_path)
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return max((int(stem) for stem in stems if stem.isdecimal()), default=0)


def claim_record(run_directory: RunDirectory, attempt: int) -> dict[str, Any]:
    """What the claim of ``attempt`` says. Raises ``FileNotFoundError`` or ``CorruptRecordError``."""
    return files.read_json(_path(run_directory, attempt, "json"), dict)


def end_claim(run_directory: RunDirectory, attempt: int, reason: str) -> None:
    """Mark an attempt as over, so that the next may be claimed at once.

    Its owner does so on release; an observer that found the claim stale, or an executor that knows the
    job to be gone, does so in its place. The first mark stays.
    """
    path = _path(run_directory, attempt, "done")
    if _is_ended(run_directory, attempt):
        return
    content = files.to_json(
        {"reason": reason, "time": utc_now(), "host": socket.gethostname(), "pid": os.getpid()}
    )
    with suppress(files.AlreadyWrittenError):
        files.write_once(path, content + b"\n")


def acquire(
    run_directory: RunDirectory, details: dict[str, Any], observer: "ClaimObserver | None" = None
) -> Claim:
    """Claim the next attempt of a trial for this process; of several that try, one succeeds.

    Args:
        run_directory: The trial.
        details: Plain values that are kept in the claim beside what identifies the process.
        observer: Who has watched the trial. Without one that has done so for a lease, a claim of another
            machine counts as alive.

    Returns:
        The claim, until it is released or somebody ends it.

    Raises:
        AlreadyClaimedError: The newest claim is alive, or another process was first.
    """
    observer = observer or ClaimObserver()
    # Another may claim between this look and the creation, where write_once decides.
    newest = newest_attempt(run_directory)
    if newest and observer.is_alive(run_directory):
        raise AlreadyClaimedError(run_directory, claim_record(run_directory, newest))
    attempt = newest + 1
    make_folder(run_directory.claims_path)
    runs = runs_around(run_directory.path, make=True)
    record = {**details, "attempt": attempt, "runs": runs, **process_identity(os.getpid()), "time": utc_now()}
    _create_counter(_path(run_directory, attempt, "beat"))
    try:
        files.write_once(_path(run_directory, attempt, "json"), files.to_json(record, indent=1) + b"\n")
    except files.AlreadyWrittenError:
        raise AlreadyClaimedError(run_directory, claim_record(run_directory, attempt)) from None
    return Claim(run_directory, attempt)


def _create_counter(path: Path) -> None:
    """Before the claim, so that every claim has its counter; whoever was first made the same one."""
    with (
        suppress(FileExistsError),
        os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream,
    ):
        stream.write(_beat_content(0))


def process_identity(pid: int) -> dict[str, Any]:
    """What tells a process from all others: host, boot, process namespace, number and start."""
    status = _process_status(pid)
    return {**_machine(), "pid": pid, "process_start": status[1] if status else None}


def _machine() -> dict[str, Any]:
    return {"host": socket.gethostname(), "boot_id": boot_id(), "pid_namespace": _pid_namespace()}


@cache
def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _process_status(pid: int) -> tuple[str, str] | None:
    """The state letter of a process and its start in clock ticks since boot, where /proc shows them."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The name of the program, in parentheses, may hold anything; fields 3 and 22 follow the last one.
    fields = status.rpartition(")")[2].split()
    return fields[0], fields[19]


def process_lives(record: Mapping[str, Any]) -> bool:
    """Whether a process of this machine and boot, as :func:`process_identity` described it, still runs."""
    status = _process_status(record["pid"])
    if status is None:  # gone, or a system that hides or lacks /proc
        return _pid_exists(record["pid"])
    state, start = status
    # A system gives numbers again: the start tells a later process from the owner.
    return state not in _DEAD_STATES and start == record.get("process_start", start)


def _pid_exists(pid: int) -> bool:
    try:
        with suppress(PermissionError):  # it is another user's
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@dataclass
class ClaimObserver:
    """Tells living claims from dead ones; keep one for as long as trials are watched.

    A claim of this machine and boot is judged by its process. Any other (another host, another container,
    an earlier boot) is stale once its counter has not moved for ``lease_s`` seconds between this observer's
    own looks, by its own monotonic ``clock``: clocks of two machines are never compared. So is one that was
    made in another runs folder, of which this one is a copy: its owner beats there.
    """

    lease_s: float = LEASE_S
    clock: Callable[[], float] = time.monotonic
    _seen: dict[Path, tuple[bytes, float]] = field(default_factory=dict)

    def is_alive(self, run_directory: RunDirectory) -> bool:
        """Whether the newest claim of a trial has a living owner; False where there is no claim."""
        attempt = newest_attempt(run_directory)
        if attempt == 0 or _is_ended(run_directory, attempt):
            return False
        record = claim_record(run_directory, attempt)
        if self._is_of_here(record, run_directory):
            return process_lives(record)
        return self._beats(_path(run_directory, attempt, "beat"))

    def _is_of_here(self, record: Mapping[str, Any], run_directory: RunDirectory) -> bool:
        """Whether a process number in the claim means something: only within one boot and one namespace."""
        is_here = all(record.get(name) == value for name, value in _machine().items())
        return is_here and is_of(record, runs_around(run_directory.path))

    def _beats(self, path: Path) -> bool:
        now = self.clock()
        last, since = self._seen.get(path, (None, now))
        try:
            with open_to_read(path) as stream:
                content = stream.read(_BEAT_DIGITS)
        except (OSError, CorruptRecordError):  # lost with a machine's power, or a bad moment: no beat
            content = last or b""
        if content != last:
            self._seen[path] = (content, now)
            return True
        return now - since < self.lease_s
