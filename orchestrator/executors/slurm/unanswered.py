"""A submission whose answer never came: ``sbatch`` timed out, or who called it died meanwhile.

Whether SLURM has the job is found out by its name, which is kept before ``sbatch`` is called, in the folder
of the submission's records and as an open job of each of its trials. Members of a group read one another's
records: they hold trials by their place in RUNS_DIR, and a name, number or place that is none is passed by.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.results.files import CorruptRecordError, read_json, write_json
from scalevec.results.run_directory import RunDirectory

SENDING = "sending.json"
PLACES = "places.json"
EXECUTOR = "slurm"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_JOB = re.compile(r"\d+(_\d+)?")
_PLACE = re.compile(r"trials/[0-9a-f]{2}/[0-9a-f]{64}|sweeps/[A-Za-z0-9][A-Za-z0-9._-]*/controller")

Directories = list[list[Path]]
"""The run directories of each job of a submission."""


def folders_of(runs_dir: Path, numbers: Collection[str], *, answered: bool) -> Iterator[Path]:
    """Yield the folder of records of each submission that one of ``numbers`` names, once."""
    pattern = slurm_queue.ANSWERED if answered else slurm_queue.UNANSWERED
    tokens = {match["token"] for number in numbers if (match := pattern.fullmatch(number))}
    for token in sorted(tokens):
        yield from (runs_dir / "sweeps").glob(f"*/slurm/{token}")


def placed_jobs(folder: Path) -> dict[str, list[Path]]:
    """Return the run directories of each job of a submission, by its number; empty before it has any."""
    with suppress(FileNotFoundError, CorruptRecordError):
        record = read_json(folder / PLACES, dict)
        jobs = record.get("jobs")
        if isinstance(jobs, dict) and all(map(_JOB.fullmatch, jobs)):
            return dict(zip(jobs, _directories(folder / PLACES, list(jobs.values())), strict=True))
    return {}


def _directories(path: Path, places: Any) -> Directories:
    """The run directories at ``places`` in RUNS_DIR. Raises ``CorruptRecordError`` for any other place."""
    runs_dir = path.parents[4]
    are_lists = isinstance(places, list) and all(isinstance(of_job, list) for of_job in places)
    if not are_lists or not all(_PLACE.fullmatch(str(path)) for of_job in places for path in of_job):
        raise CorruptRecordError(path, "names a place that is no run directory")
    return [[runs_dir / path for path in of_job] for of_job in places]


def _places(folder: Path, bundles: Sequence[Sequence[Job]]) -> list[list[str]]:
    runs_dir = folder.parents[3]
    return [[job.directory.relative_to(runs_dir).as_posix() for job in bundle] for bundle in bundles]


def unanswered_number(position: int, index: int, token: str) -> str:
    """Return what stands for the number of trial ``index`` of job ``position`` until SLURM has given one."""
    return f"?{position}/{index}@{token}"


def note_sending(folder: Path, name: str, bundles: Sequence[Sequence[Job]]) -> None:
    """Keep what is about to be sent under ``name``, for whoever has to find it."""
    tokens = [[job.token for job in bundle] for bundle in bundles]
    write_json(folder / SENDING, {"name": name, "directories": _places(folder, bundles), "tokens": tokens})
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
    sending = _sending(folder)
    places = dict(zip(jobs, sending["directories"], strict=True))
    write_json(folder / PLACES, {"name": sending["name"], "jobs": places})
    directories = _directories(folder / SENDING, sending["directories"])
    for position, (job, paths, tokens) in enumerate(zip(jobs, directories, sending["tokens"], strict=True)):
        for index, (path, token) in enumerate(zip(paths, tokens, strict=True)):
            stands_for = unanswered_number(position, index, folder.name)
            number = f"{job}/{index}@{folder.name}"
            RunDirectory(path).write_job(EXECUTOR, number, token, replaces=stands_for)


def _sending(folder: Path) -> dict[str, Any]:
    """What :func:`note_sending` has kept. Raises ``CorruptRecordError`` for what it cannot have written."""
    path = folder / SENDING
    sending = read_json(path, dict)
    name, tokens = sending.get("name"), sending.get("tokens")
    directories = _directories(path, sending.get("directories"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not name.endswith(f".{folder.name}"):
        raise CorruptRecordError(path, f"has the name {name!r:.80}, which is not that of its jobs")
    sizes = [len(of_job) for of_job in directories]
    if not isinstance(tokens, list) or [len(of_job) for of_job in tokens] != sizes:
        raise CorruptRecordError(path, "has not one token per trial")
    return sending


def settle(runs_dir: Path, numbers: Collection[str]) -> None:
    """Look for the jobs behind the unanswered ones of ``numbers``; what is found is kept as if answered.

    Raises ``TryLaterError`` where SLURM does not answer.
    """
    for folder in folders_of(runs_dir, numbers, answered=False):
        with suppress(FileNotFoundError, CorruptRecordError):
            look_for(folder)


def look_for(folder: Path) -> list[str]:
    """Return the jobs of a submission if SLURM has them under its name, else nothing; they are kept.

    Raises ``TryLaterError`` where SLURM does not answer.
    """
    if jobs := placed_jobs(folder):
        return list(jobs)
    sending = _sending(folder)
    base = slurm_queue.number_of(sending["name"])
    if base is None:
        return []
    positions = range(len(sending["directories"]))
    numbers = [base] if len(positions) == 1 else [f"{base}_{position}" for position in positions]
    note_sent(folder, numbers)
    return numbers
