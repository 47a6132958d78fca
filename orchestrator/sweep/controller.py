"""Who advances a sweep: a process that holds the claim beside its files, and the controller.

The claim lives as long as the process that runs the stages. The controller is a small job in the cluster's
queue that runs them one after the other: it is ``scalevec run`` in a job, so whatever becomes of it the next
one goes on where it was. It waits out what passes (``orchestrator.commands.run.controller_job``), and never
brings back what a person has cancelled.
"""

import hashlib
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, Job, ResourceRequest
from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.results import claims
from scalevec.results.files import CorruptRecordError
from scalevec.results.opening import make_folder
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder, sweep_names
from scalevec.results.trial_state import Event

RUNG = "controller"
"""The name under which a profile's ``rungs`` may give it another partition, time or memory."""
REQUEST = ResourceRequest(cpus=1, gpus=0.0, memory_gb=4.0, time_s=4 * 3600.0)
"""At its time limit it is started again."""
QUEUE_LOOK_S = 30.0
"""A watch looks every other second; the queue is asked no more often than this."""
_BEAT_S = claims.LEASE_S / 6


def directory_of(runs_dir: Path, sweep: str) -> RunDirectory:
    """Where the log and the job of a sweep's controller are kept."""
    return RunDirectory(runs_dir.resolve() / "sweeps" / sweep / RUNG)


def site_of_controller(site: Site) -> Site:
    """``site`` with a profile that asks for one CPU, unless its rung says more.

    It has the account, setup, Python and launcher of the trials, and nothing by which these find GPUs.
    """
    from scalevec.orchestrator.executors.profiles import RungProfile  # loads pydantic, which help does not

    kept = {"account", "setup", "python", "launcher"}
    defaults = RungProfile()
    small = {name: getattr(defaults, name) for name in RungProfile.model_fields if name not in kept}
    profile = site.profile.model_copy(update={**small, "gpus": 0.0})
    if not site.profile.says_no_memory:
        profile.model_fields_set.discard("memory_gb")
    return replace(site, profile=profile)


def submitted(executor: Executor, site: Site) -> str | None:
    """The number of a controller that still waits or runs."""
    numbers = [job["job"] for job in directory_of(site.runs_dir, site.sweep).open_jobs()]
    return next(iter(sorted(executor.adopt(numbers), key=numbers.index)), None) if numbers else None


def submit(
    keeper: Executor,
    site: Site,
    sweep: str,
    profile: str | None,
    *,
    executor: str,
    trusted: Sequence[str] = (),
) -> str:
    """Queue the controller of the sweep with the file or name ``sweep``; return the job's number.

    ``keeper`` runs it, and it sends the trials to ``executor``. ``trusted`` has the digests of what a
    person agreed to. Raises what ``Executor.submit`` raises.
    """
    directory = directory_of(site.runs_dir, site.sweep)
    make_folder(directory.path)
    words = command_of(executor, site, sweep, profile, trusted)
    name = hashlib.sha256(str(directory.path).encode()).hexdigest()
    request = site_of_controller(site).profile.request(RUNG, REQUEST)
    job = Job(name, words, directory.path, f"controller of {site.sweep}", rung=RUNG, request=request)
    (number,) = keeper.submit([job])
    directory.write_job(keeper.name, number, token="", cluster=keeper.cluster)
    again = command("submit", _resolved(sweep), site.runs_dir, profile=profile)
    directory.append_event("queued", job=number, again=again)
    return number


def again(events: Sequence[Event]) -> str | None:
    """The command that sends a controller with these ``events`` once more; None where none was kept."""
    commands = (event.get("again") for event in reversed(events))
    return next((str(given) for given in commands if given), None)


def _resolved(sweep: str) -> str:
    return str(Path(sweep).resolve()) if Path(sweep).is_file() else sweep


def note_end(runs_dir: Path, sweep: str, code: Exit, words: str) -> None:
    """Keep how the newest controller of a sweep ended: ``words`` of an error, else those of its log count."""
    directory = directory_of(runs_dir, sweep)
    job = directory.job()
    state = "completed" if code is Exit.DONE else "failed"
    number = job["job"] if job else None
    with suppress(OSError):  # a full disk: the log has it, or nothing has
        directory.append_event(state, code.name.lower(), note=words, exit_code=int(code), job=number)


def end_of(events: Sequence[Event], number: str) -> Event | None:
    """Return the event with which the controller that is the job ``number`` ended; None without a word."""
    ends = (event for event in reversed(events) if event.get("job") == number)
    return next((event for event in ends if event["state"] in ("completed", "failed")), None)


def command_of(
    executor: str, site: Site, sweep: str, profile: str | None, trusted: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return what the controller runs; a file is named by its absolute path."""
    words = (*PYTHON_MODULE, "scalevec.orchestrator.commands.run.controller_job", _resolved(sweep))
    options = ("--runs", str(site.runs_dir.resolve()), "--executor", executor)
    named = ("--profile", profile) if profile else ()
    agreed = (word for digest in (*trusted, site.profile.trusted) if digest for word in ("--trusted", digest))
    return (*words, *options, *named, *agreed)


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
    claim: claims.Claim | None = None
    observer = claims.ClaimObserver()
    while True:
        # A full disk or a file server's bad moment does not end the sweep: the next beat tries again.
        with suppress(OSError, claims.AlreadyClaimedError, CorruptRecordError):
            if claim is None:
                claim = claims.acquire(directory, {}, observer)
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
    observer = claims.ClaimObserver()
    wanted: dict[str, str] = {}
    for other in set(sweep_names(runs_dir)) - {sweep}:
        folder = SweepFolder.of(runs_dir, other)
        with suppress(CorruptRecordError):
            common = {member["trial_id"] for member in folder.members() or []} & set(trials)
            if common and not folder.is_called_off() and is_owned(runs_dir, other, observer):
                wanted |= dict.fromkeys(common, other)
    return wanted


def is_owned(runs_dir: Path, sweep: str, observer: claims.ClaimObserver) -> bool:
    """Return whether somebody advances ``sweep``: a living scheduler or a controller queued since."""
    directory = owner_directory(runs_dir, sweep)
    try:
        if observer.is_alive(directory):
            return True
        jobs = RunDirectory(directory.path.with_name(RUNG)).open_jobs()
        controller = jobs[-1] if jobs else None
        attempt = claims.newest_attempt(directory)
        if controller is None or (
            attempt and controller["time"] <= claims.claim_record(directory, attempt)["time"]
        ):
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
