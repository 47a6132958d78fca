"""A submission whose answer never came: ``sbatch`` timed out, or who called it died meanwhile.

Whether SLURM has the job is found out by its name, which is kept before ``sbatch`` is called, in the folder
of the submission and as an open job of each of its trials.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from submitit.core.utils import DelayedSubmission, JobPaths

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.by_hand import PLACES
from scalevec.results.files import CorruptRecordError, read_json, write_json
from scalevec.results.run_directory import RunDirectory

SENDING = "sending.json"
EXECUTOR = "slurm"
_UNANSWERED = re.compile(r"\?(?P<position>\d+)/\d+@(?P<token>[0-9T]+-[0-9a-f]+)")
_SCRIPTS = ".submission_file_*.sh"


def unanswered_number(position: int, index: int, token: str) -> str:
    """Return what stands for the number of trial ``index`` of job ``position`` until SLURM has given one."""
    return f"?{position}/{index}@{token}"


def note_sending(folder: Path, name: str, bundles: Sequence[Sequence[Job]]) -> None:
    """Keep what is about to be sent under ``name``, for whoever has to find it."""
    directories = [[str(job.directory) for job in bundle] for bundle in bundles]
    tokens = [[job.token for job in bundle] for bundle in bundles]
    write_json(folder / SENDING, {"name": name, "directories": directories, "tokens": tokens})
    for position, bundle in enumerate(bundles):
        for index, job in enumerate(bundle):
            number = unanswered_number(position, index, folder.name)
            RunDirectory(job.directory).write_job(EXECUTOR, number, job.token, sync=False)


def note_refused(folder: Path, bundles: Sequence[Sequence[Job]]) -> None:
    """SLURM has said that there is no such job."""
    for position, bundle in enumerate(bundles):
        for index, job in enumerate(bundle):
            RunDirectory(job.directory).end_job(unanswered_number(position, index, folder.name))


def note_sent(folder: Path, jobs: Sequence[str]) -> None:
    """Keep the numbers that SLURM gave to the jobs of a submission, in their order."""
    sending = read_json(folder / SENDING, dict)
    directories = sending["directories"]
    write_json(folder / PLACES, {"name": sending["name"], "jobs": dict(zip(jobs, directories, strict=True))})
    for position, (job, paths, tokens) in enumerate(zip(jobs, directories, sending["tokens"], strict=True)):
        for index, (path, token) in enumerate(zip(paths, tokens, strict=True)):
            stands_for = unanswered_number(position, index, folder.name)
            number = f"{job}/{index}@{folder.name}"
            RunDirectory(Path(path)).write_job(EXECUTOR, number, token, replaces=stands_for)


def settle(runs_dir: Path, numbers: Collection[str]) -> None:
    """Look for the jobs behind the unanswered ones of ``numbers``; what is found is kept as if answered.

    Raises ``TryLaterError`` where SLURM does not answer.
    """
    tokens = {match["token"] for number in numbers if (match := _UNANSWERED.fullmatch(number))}
    for folder in (path for token in tokens for path in (runs_dir / "sweeps").glob(f"*/slurm/{token}")):
        with suppress(FileNotFoundError, CorruptRecordError):
            look_for(folder)


def look_for(folder: Path) -> list[str]:
    """Return the jobs of a submission if SLURM has them under its name, else nothing; they are kept.

    Raises ``TryLaterError`` where SLURM does not answer.
    """
    if (folder / PLACES).exists():
        return list(read_json(folder / PLACES, dict)["jobs"])
    sending = read_json(folder / SENDING, dict)
    base = slurm_queue.number_of(sending["name"])
    if base is None:
        return []
    positions = range(len(sending["directories"]))
    jobs = [base] if len(positions) == 1 else [f"{base}_{position}" for position in positions]
    _give_payloads(folder, jobs, sending["directories"])
    note_sent(folder, jobs)
    return jobs


def _give_payloads(folder: Path, jobs: Sequence[str], directories: Sequence[Sequence[str]]) -> None:
    """What submitit does after an answer: each job finds what it is to run under its own number."""
    by_first = {str(Path(paths[0]).resolve()): job for job, paths in zip(jobs, directories, strict=True)}
    for path in folder.glob("*.pkl"):
        if not path.name.endswith("_submitted.pkl"):
            payload: Any = DelayedSubmission.load(path).function
            path.rename(JobPaths(folder, by_first[payload.entries[0].directory]).submitted_pickle)
    for script in folder.glob(_SCRIPTS):
        if not script.is_symlink():
            JobPaths(folder, jobs[0]).submission_file.write_text(script.read_text())
