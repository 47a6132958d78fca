"""Open jobs that were sent from another runs folder, or from this one before it was mounted again."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from scalevec.orchestrator.progress import counted, note
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory

Job = Mapping[str, Any]
MOST_NAMED = 8


def unreached(directories: Iterable[RunDirectory]) -> list[tuple[RunDirectory, Job]]:
    """The open jobs that nobody may adopt or end from here; none of trials with a result."""
    jobs: list[tuple[RunDirectory, Job]] = []
    for directory in directories:
        if not directory.result_path.exists():
            with suppress(CorruptRecordError):  # told by whoever reads the jobs that are ours
                jobs += [(directory, job) for job in directory.unreached_jobs()]
    return jobs


def unreached_text(jobs: Iterable[Job]) -> str:
    """Which jobs these are, why nobody reaches them from here, and what to do."""
    jobs = list(jobs)
    places = list(dict.fromkeys(_folder_text(job.get("runs")) for job in jobs))
    others = f" and {len(places) - 1} other folders" if len(places) > 1 else ""
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    return (
        f"{counted(len(jobs), 'open job')} sent from {places[0]}{others} cannot be reached: this runs "
        "folder is a copy of it, or was mounted again or restored. They are neither adopted nor ended: "
        f"{', '.join(map(_name, jobs[:MOST_NAMED]))}{more}. "
        "Cancel them where they were sent from, or by hand (scancel, kill)"
    )


def tell_unreached(directories: Iterable[RunDirectory]) -> None:
    """Warn of the jobs that a run or a look leaves alone."""
    if jobs := unreached(directories):
        note(f"warning: {unreached_text(job for _, job in jobs)}")


def _folder_text(made_in: object) -> str:
    if not isinstance(made_in, dict):
        return "an unknown runs folder"
    return f"{made_in.get('path')!s:.200} (inode {made_in.get('inode')!s:.20})"


def _name(job: Job) -> str:
    """The job as its machine or its queue knows it."""
    parts = str(job["job"]).split("/")
    if job["executor"] == "local" and len(parts) > 3:
        return f"process {parts[3]:.20} on {parts[0]:.60}"
    return f"{job['executor']!s:.20} job {parts[0]:.60}"
