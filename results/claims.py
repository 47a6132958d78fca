"""Who runs a trial: attempt k is claimed by exclusive creation, and a claim lives while its owner does."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from results.files import AlreadyWritten, names_in, read_json, to_json, utc_now, write_once
from results.run_directory import RunDirectory

LEASE_S = 180.0
_BEAT_DIGITS = 20
_DEAD_STATES = ("Z", "X")


class AlreadyClaimed(RuntimeError):  # noqa: N818
    """Another process runs the trial, as far as anyone can tell."""

    def __init__(self, run_directory: RunDirectory, record: dict[str, Any]) -> None:
        super().__init__(
            f"trial {run_directory.trial_id[:12]}: attempt {record.get('attempt')} belongs to process "
            f"{record.get('pid')} on {record.get('host')} since {record.get('time')}"
        )
        self.record = record


@dataclass(frozen=True)
class Claim:
    """Attempt ``attempt`` of a trial, held by this process."""

    run_directory: RunDirectory
    attempt: int

    def beat(self) -> None:
        """Move the counter, to be called well within every lease, by one thread at a time.

        The counter has a fixed width and is written in place: a full device cannot make a claim stale.
        """
        path = _beat_path(self.run_directory, self.attempt)
        descriptor = os.open(path, os.O_RDWR)
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
        ended = _done_path(self.run_directory, self.attempt).exists()
        return newest_attempt(self.run_directory) == self.attempt and not ended

    def release(self) -> None:
        """Say that this attempt is over; doing so again changes nothing."""
        end_claim(self.run_directory, self.attempt, "released")


def _claim_path(run_directory: RunDirectory, attempt: int) -> Path:
    return run_directory.claims_path / f"{attempt:04d}.json"


def _beat_path(run_directory: RunDirectory, attempt: int) -> Path:
    return run_directory.claims_path / f"{attempt:04d}.beat"


def _done_path(run_directory: RunDirectory, attempt: int) -> Path:
    return run_directory.claims_path / f"{attempt:04d}.done"


def _beat_content(beats: int) -> bytes:
    return f"{beats:0{_BEAT_DIGITS}d}\n".encode()


def newest_attempt(run_directory: RunDirectory) -> int:
    """The number of the newest claim, 0 where the trial was never claimed."""
    names = names_in(run_directory.claims_path)
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return max((int(stem) for stem in stems if stem.isdecimal()), default=0)


def claim_record(run_directory: RunDirectory, attempt: int) -> dict[str, Any]:
    """What the claim of ``attempt`` says. Raises ``FileNotFoundError`` or ``CorruptRecord``."""
    record: dict[str, Any] = read_json(_claim_path(run_directory, attempt))
    return record


def end_claim(run_directory: RunDirectory, attempt: int, reason: str) -> None:
    """Mark an attempt as over, so that the next may be claimed at once.

    Its owner does so on release; an observer that found the claim stale, or an executor that knows the
    job to be gone, does so in its place. The first mark stays.
    """
    path = _done_path(run_directory, attempt)
    if path.exists():
        return
    content = to_json({"reason": reason, "time": utc_now(), "host": socket.gethostname(), "pid": os.getpid()})
    try:
        write_once(path, content + b"\n")
    except AlreadyWritten:
        return


def acquire(
    run_directory: RunDirectory, details: dict[str, Any], observer: "ClaimObserver | None" = None
) -> Claim:
    """Claim the next attempt of a trial for this process; of several that try, one succeeds.

    ``details`` are kept in the claim beside what identifies the process. Without an ``observer`` that has
    watched it for a lease, a claim of another machine counts as alive. Raises ``AlreadyClaimed``.
    """
    observer = observer or ClaimObserver()
    newest = newest_attempt(run_directory)
    if newest and observer.is_alive(run_directory):
        raise AlreadyClaimed(run_directory, claim_record(run_directory, newest))
    return _create_claim(run_directory, newest + 1, details)


def _create_claim(run_directory: RunDirectory, attempt: int, details: dict[str, Any]) -> Claim:
    run_directory.claims_path.mkdir(parents=True, exist_ok=True)
    record = {**details, "attempt": attempt, **_own_identity(), "time": utc_now()}
    _create_counter(_beat_path(run_directory, attempt))
    try:
        write_once(_claim_path(run_directory, attempt), to_json(record, indent=1) + b"\n")
    except AlreadyWritten:
        raise AlreadyClaimed(run_directory, claim_record(run_directory, attempt)) from None
    return Claim(run_directory, attempt)


def _create_counter(path: Path) -> None:
    """Before the claim, so that every claim has its counter; whoever was first made the same one."""
    try:
        with path.open("xb") as stream:
            stream.write(_beat_content(0))
    except FileExistsError:
        return


def process_identity(pid: int) -> dict[str, Any]:
    """What tells a process from all others: host, boot, process namespace, number and start."""
    status = _process_status(pid)
    return {**_machine(), "pid": pid, "process_start": status[1] if status else None}


def _own_identity() -> dict[str, Any]:
    pid = os.getpid()
    return {**_machine(), "pid": pid, "process_start": _own_start(pid)}


@cache
def _own_start(pid: int) -> str | None:
    """The kernel takes its time to describe a process, and this one's start does not change."""
    status = _process_status(pid)
    return status[1] if status else None


def _machine() -> dict[str, Any]:
    return {"host": socket.gethostname(), "boot_id": _boot_id(), "pid_namespace": _pid_namespace()}


@cache
def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


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
    return state not in _DEAD_STATES and start == record.get("process_start", start)


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass
class ClaimObserver:
    """Tells living claims from dead ones; keep one for as long as trials are watched.

    A claim of this machine and boot is judged by its process. Any other (another host, another container,
    an earlier boot) is stale once its counter has not moved for ``lease_s`` seconds between this observer's
    own looks, by its own monotonic ``clock``: clocks of two machines are never compared.
    """

    lease_s: float = LEASE_S
    clock: Callable[[], float] = time.monotonic
    _seen: dict[Path, tuple[bytes, float]] = field(default_factory=dict)

    def is_alive(self, run_directory: RunDirectory) -> bool:
        """Whether the newest claim of a trial has a living owner; False where there is no claim."""
        attempt = newest_attempt(run_directory)
        if attempt == 0 or _done_path(run_directory, attempt).exists():
            return False
        record = claim_record(run_directory, attempt)
        if all(record.get(name) == value for name, value in _machine().items()):
            return process_lives(record)
        return self._beats(_beat_path(run_directory, attempt))

    def _beats(self, path: Path) -> bool:
        try:
            content = path.read_bytes()
        except OSError:  # lost with a machine's power, or a file server's bad moment: not a beat that counts
            content = b""
        now = self.clock()
        last, since = self._seen.get(path, (None, now))
        if content != last:
            self._seen[path] = (content, now)
            return True
        return now - since < self.lease_s
