"""The controller: a small job in the cluster's queue that runs a sweep's stages one after the other.

It is ``scalevec run`` in a job, so whatever becomes of it the next one goes on where it was. It waits out
what passes (``orchestrator.commands.run.controller_job``), and never brings back what a person has cancelled.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, Job, ResourceRequest
from scalevec.orchestrator.cli.output import command
from scalevec.orchestrator.errors import Exit
from scalevec.orchestrator.executors.base import Executor, Site
from scalevec.results.opening import make_folder
from scalevec.results.run_directory import RunDirectory
from scalevec.results.trial_state import Event

RUNG = "controller"
"""The name under which a profile's ``rungs`` may give it another partition, time or memory."""
REQUEST = ResourceRequest(cpus=1, gpus=0.0, memory_gb=4.0, time_s=4 * 3600.0)
"""At its time limit it is started again."""


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
