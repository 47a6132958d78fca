"""Who advances a sweep: a claim beside its files, which lives as long as the process that runs the stages."""

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.results.claims import (
    LEASE_S,
    AlreadyClaimedError,
    Claim,
    ClaimObserver,
    acquire,
    claim_record,
    newest_attempt,
)
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder, sweep_names

QUEUE_LOOK_S = 30.0
"""A watch looks every other second; the queue is asked no more often than this."""
_BEAT_S = LEASE_S / 6


@contextmanager
def owned(runs_dir: Path, sweep: str) -> Iterator[None]:
    """Hold the claim on ``sweep`` in the body, or take it over when the process that holds it ends.

    Several schedulers may run one sweep: the claim keeps nobody out, it only tells those who watch that
    somebody advances the sweep.
    """
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(owner_directory(runs_dir, sweep), ended), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _keep(directory: RunDirectory, ended: threading.Event) -> None:
    claim: Claim | None = None
    observer = ClaimObserver()
    while True:
        # A full disk or a file server's bad moment does not end the sweep: the next beat tries again.
        with suppress(OSError, AlreadyClaimedError, CorruptRecordError):
            if claim is None:
                claim = acquire(directory, {}, observer)
            else:
                claim.beat()
        if ended.wait(_BEAT_S):
            break
    if claim is not None:
        with suppress(OSError, CorruptRecordError):
            claim.release()


def owner_directory(runs_dir: Path, sweep: str) -> RunDirectory:
    """Return where the claim on a sweep is kept."""
    return RunDirectory(Path(runs_dir) / "sweeps" / sweep / "scheduler")


def wanted_elsewhere(runs_dir: Path, sweep: str, trials: Collection[str]) -> dict[str, str]:
    """Return those of ``trials`` that another sweep has which somebody advances, with that sweep's name."""
    observer = ClaimObserver()
    wanted: dict[str, str] = {}
    for other in set(sweep_names(runs_dir)) - {sweep}:
        folder = SweepFolder.of(runs_dir, other)
        with suppress(CorruptRecordError):
            common = {member["trial_id"] for member in folder.members() or []} & set(trials)
            if common and not folder.is_called_off() and is_owned(runs_dir, other, observer):
                wanted |= dict.fromkeys(common, other)
    return wanted


def is_owned(runs_dir: Path, sweep: str, observer: ClaimObserver) -> bool:
    """Return whether somebody advances ``sweep``: a living scheduler or a controller queued since."""
    directory = owner_directory(runs_dir, sweep)
    try:
        if observer.is_alive(directory):
            return True
        jobs = RunDirectory(directory.path.with_name("controller")).open_jobs()
        controller = jobs[-1] if jobs else None
        attempt = newest_attempt(directory)
        if controller is None or (attempt and controller["time"] <= claim_record(directory, attempt)["time"]):
            return False
        executor, number = controller["executor"], controller["job"]
    except (CorruptRecordError, OSError, KeyError):  # damaged: nobody can tell, and a status shows the rest
        return False
    return _may_advance(executor, number, controller.get("cluster"), runs_dir, sweep, queue_period())


def queue_period() -> int:
    """The number of the period in which a queue is asked once: what caches its answers has it as a key."""
    return int(time.monotonic() / QUEUE_LOOK_S)


@lru_cache
def _may_advance(
    executor: str, number: str, cluster: str | None, runs_dir: Path, sweep: str, _period: int
) -> bool:
    """Whether a controller may wait or run: one that failed before it claimed its sweep left no other trace.

    Only the queue of the cluster that it was sent to knows that it does not.
    """
    try:
        with closing(EXECUTORS[executor].build(Site(runs_dir, sweep, slots=1))) as queue:
            return bool(queue.adopt([number])) or queue.cluster != cluster
    except Exception:  # noqa: BLE001 (no error says that the job ended, and a status shows the rest)
        return True
