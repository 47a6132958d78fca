"""From jobs to what SLURM is given: arrays of jobs that ask for the same, in a fresh folder each."""

import math
import re
import secrets
import shlex
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import FailedSubmissionError, UncompletedJobError

from orchestrator.errors import Lacking, Refused
from orchestrator.executors import slurm_queue
from orchestrator.executors.base import Site
from orchestrator.executors.slurm_payload import Bundle, Entry
from orchestrator.jobs import Job
from orchestrator.profiles import LEAST_MINUTES, Profile
from results.files import CorruptRecord, read_json, write_json
from results.run_directory import RunDirectory

MANY_TIMEOUTS = 1_000_000
"""How often a job may reach its time limit: the policy decides, by the checkpoints."""
PLACES = "places.json"
_NUMBER = re.compile(r"(?P<job>\d+(_\d+)?)/(?P<place>\d+)@(?P<token>[0-9T]+-[0-9a-f]+)")
_UNSAFE_PATH = re.compile(r"[%\\'\"\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Ask:
    """What the jobs of one array have in common."""

    rung: str
    cpus: int
    gpus: int
    memory_gb: float | None
    avoid_nodes: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where one trial stands: a place in a job of a submission."""

    job: str
    place: int
    token: str
    directory: Path

    @property
    def number(self) -> str:
        """The trial's number; the token tells it from the same one of a cluster that counts anew."""
        return f"{self.job}/{self.place}@{self.token}"


@dataclass(frozen=True)
class Submission:
    """One array: its token names its folder and is in the name of its jobs."""

    folder: Path
    jobs: dict[str, tuple[Place, ...]]

    @property
    def token(self) -> str:
        """Tells it from every other submission."""
        return self.folder.name


def job_name(sweep: str, token: str) -> str:
    """How the jobs of a submission are called in SLURM."""
    return f"scalevec-{sweep}-{token}"


def read_number(number: str) -> tuple[str, int, str] | None:
    """The job, the place and the token of ``number``, None where it is not one of ours."""
    match = _NUMBER.fullmatch(number)
    return (match["job"], int(match["place"]), match["token"]) if match else None


def load(runs_dir: Path, token: str) -> Submission | None:
    """An earlier submission, of whichever sweep; None where its folder is gone or was never complete."""
    for folder in (runs_dir / "sweeps").glob(f"*/slurm/{token}"):
        try:
            record = read_json(folder / PLACES)
        except (FileNotFoundError, CorruptRecord):
            continue
        return Submission(folder, {job: _places(job, token, paths) for job, paths in record["jobs"].items()})
    return None


def _places(job: str, token: str, directories: Sequence[str | Path]) -> tuple[Place, ...]:
    return tuple(Place(job, place, token, Path(path)) for place, path in enumerate(directories))


class Submitter:
    """Hands jobs to SLURM through submitit."""

    def __init__(self, site: Site, largest_array: int) -> None:
        self.site, self.largest_array = site, largest_array
        self.home = (site.runs_dir / "sweeps" / site.sweep / "slurm").resolve()
        if _UNSAFE_PATH.search(str(self.home)):
            raise Refused(f"{self.home}: SLURM takes no folder with quotes, backslashes or % in its name")

    def submit(self, jobs: Sequence[Job]) -> list[Submission]:
        """Send ``jobs``: all or, where one array is refused, none. Raises ``Refused`` or ``Lacking``."""
        sent: list[Submission] = []
        try:
            for ask, group in self._groups(jobs).items():
                size = self.site.profile.for_rung(ask.rung).trials_per_job
                bundles = [group[start : start + size] for start in range(0, len(group), size)]
                for start in range(0, len(bundles), self.largest_array):
                    sent.append(self._send(ask, bundles[start : start + self.largest_array]))
        except BaseException:
            slurm_queue.end([job for submission in sent for job in submission.jobs], hard=True)
            raise
        return sent

    def _groups(self, jobs: Sequence[Job]) -> dict[Ask, list[Job]]:
        groups: defaultdict[Ask, list[Job]] = defaultdict(list)
        for job in jobs:
            groups[self.ask(job)].append(job)
        return dict(groups)

    def ask(self, job: Job) -> Ask:
        """What ``job`` asks for; a fraction of a GPU is rounded up."""
        request = self.site.profile.request(job.rung, job.request)
        return Ask(job.rung, request.cpus, math.ceil(request.gpus), request.memory_gb, job.avoid_nodes)

    def _send(self, ask: Ask, bundles: Sequence[Sequence[Job]]) -> Submission:
        token = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        folder = self.home / token
        self.home.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o755)  # the node will unpickle what lies here: nobody else may put it there
        payloads = [self._payload(folder, ask, bundle) for bundle in bundles]
        executor = self._submitit(folder, ask, bundles)
        try:
            with slurm_queue.outside_any_job():
                sent = executor.submit_array(payloads)
        except (UncompletedJobError, FailedSubmissionError) as problem:
            raise _as_ours(str(problem).strip()) from None
        numbers = [job.job_id for job in sent]
        places = {
            number: _places(number, token, [job.directory for job in bundle])
            for number, bundle in zip(numbers, bundles, strict=True)
        }
        record = {number: [str(place.directory) for place in found] for number, found in places.items()}
        write_json(folder / PLACES, {"name": job_name(self.site.sweep, token), "jobs": record})
        script = sent[0].paths.submission_file.read_text()
        for number, bundle in zip(numbers, bundles, strict=True):
            for job, place in zip(bundle, places[number], strict=True):
                # Now, not when all arrays are out: who dies before that leaves no job that nobody can find.
                RunDirectory(job.directory).write_job("slurm", place.number, job.token)
                _keep_script(job, number, script)
        return Submission(folder, places)

    def _payload(self, folder: Path, ask: Ask, bundle: Sequence[Job]) -> Bundle:
        entries = (
            Entry(job.trial_id, job.command, str(job.directory.resolve()), job.token, ask.cpus)
            for job in bundle
        )
        return Bundle(str(folder), tuple(entries), self.site.profile.preempt == "requeue")

    def _submitit(self, folder: Path, ask: Ask, bundles: Sequence[Sequence[Job]]) -> submitit.SlurmExecutor:
        # -P keeps what lies in the working directory from standing before our packages.
        executor = submitit.SlurmExecutor(
            folder, max_num_timeout=MANY_TIMEOUTS, python=f"{shlex.quote(sys.executable)} -P"
        )
        executor.update_parameters(**self.parameters(folder.name, ask, bundles))
        return executor

    def parameters(self, token: str, ask: Ask, bundles: Sequence[Sequence[Job]]) -> dict[str, Any]:
        """What submitit is told of one array."""
        profile = self.site.profile.for_rung(ask.rung)
        minutes = max(minutes_of(profile, bundle) for bundle in bundles)
        further: dict[str, Any] = {name: value for name, value in profile.flags.items() if value is not False}
        further["requeue" if profile.preempt == "requeue" else "no-requeue"] = True
        named = {
            "partition": profile.partition,
            "account": profile.account,
            "qos": profile.qos,
            "constraint": profile.constraint,
            "mem": f"{math.ceil(ask.memory_gb * 1024)}M" if ask.memory_gb else None,
            "gpus_per_node": ask.gpus or None,
            "exclude": ",".join(self._excluded(profile, ask)) or None,
            "setup": list(profile.setup) or None,
        }
        return {
            "job_name": job_name(self.site.sweep, token),
            "time": minutes,
            "cpus_per_task": ask.cpus,
            "srun_args": [f"--cpus-per-task={ask.cpus}"],  # srun does not inherit it since SLURM 22.05
            "signal_delay_s": min(profile.notice_s, minutes * 30),
            "array_parallelism": profile.max_parallel or len(bundles),
            "wckey": None,
            "additional_parameters": further,
            **{name: value for name, value in named.items() if value is not None},
        }

    def _excluded(self, profile: Profile, ask: Ask) -> list[str]:
        """The profile's nodes, and those to be avoided that SLURM knows; never all of a partition."""
        if not ask.avoid_nodes:
            return list(profile.exclude)
        try:
            known = slurm_queue.node_names(profile.partition)
        except slurm_queue.SlurmFailed:
            known = set()
        avoided = {name for host in ask.avoid_nodes for name in (host, host.partition(".")[0])} & known
        return [*profile.exclude, *sorted(avoided if avoided < known else ())]


def minutes_of(profile: Profile, bundle: Sequence[Job]) -> int:
    """The time limit of one job in whole minutes: the profile's, else what its trials need one by one."""
    if profile.time != "auto":
        return math.ceil(profile.time)
    needed = (job.request.time_s or job.estimate_s * profile.time_factor for job in bundle)
    return max(LEAST_MINUTES, math.ceil(sum(needed) / 60))


def _keep_script(job: Job, number: str, script: str) -> None:
    """What was sent, with a word on how one trial of it is run by hand."""
    where = f"# This trial was in job {number} of this array. To run it alone, give this command:"
    note = f"\n{where}\n# {shlex.join(job.command)}\n"
    (job.directory / "submit.sh").write_text(script + note)


def _as_ours(message: str) -> Exception:
    """SLURM's own message, without submitit's traceback."""
    if slurm_queue.UNREACHABLE.search(message):
        return Lacking(f"SLURM does not answer: {message}")
    if "MaxSubmit" in message:
        return Lacking(
            f"the queue takes no more jobs; set max_submitted in the profile below its limit: {message}"
        )
    return Refused(f"SLURM refuses the job: {message}")
