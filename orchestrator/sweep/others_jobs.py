"""Jobs of another user of the same runs folder: nobody but that user (and root) may end them."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.results.claims import ClaimObserver
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory, user_name

if TYPE_CHECKING:
    from scalevec.orchestrator.executors.profiles import Profile

Job = Mapping[str, Any]


def refuse_others_jobs(
    sweep: str, runs_dir: Path, directories: Iterable[RunDirectory], profile: "Profile"
) -> None:
    """Raise ``InvalidInputError`` where a job of ``directories`` that waits or runs is another user's.

    To be asked before anything is written: what a cancel leaves on record, that user's scheduler would obey.
    """
    of_others = list(_jobs_of_others(directories))
    if not of_others or os.geteuid() == 0:
        return
    waiting_or_running = _alive(of_others, Site(runs_dir, sweep, 1, profile))
    if waiting_or_running:
        directory, job = waiting_or_running[0]
        raise InvalidInputError(
            f"{directory.path}: its job {job['job']} belongs to {job['user']}, and you are {user_name()}; "
            f"nothing was cancelled. To cancel it, {job['user']} gives the same command"
        )


def _jobs_of_others(directories: Iterable[RunDirectory]) -> Iterable[tuple[RunDirectory, Job]]:
    for directory in directories:
        with suppress(CorruptRecordError):  # told by whoever is to end the job
            for job in directory.open_jobs():
                if job.get("user", user_name()) != user_name():
                    yield directory, job


def _alive(of_others: Iterable[tuple[RunDirectory, Job]], site: Site) -> list[tuple[RunDirectory, Job]]:
    by_executor: defaultdict[str, list[tuple[RunDirectory, Job]]] = defaultdict(list)
    for directory, job in of_others:
        by_executor[job["executor"]].append((directory, job))
    alive, observer = [], ClaimObserver()
    for name, jobs in by_executor.items():
        with closing(EXECUTORS[name].build(site)) as executor:
            adopted = executor.adopt({job["job"] for _, job in jobs})
        alive += [pair for pair in jobs if pair[1]["job"] in adopted or observer.is_alive(pair[0])]
    return alive
