"""From jobs to what SLURM is given: arrays of jobs that ask for the same, in a fresh folder each."""

import math
import os
import re
import secrets
import shlex
import subprocess
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import submitit
from submitit.core.utils import FailedSubmissionError, UncompletedJobError

from scalevec.orchestrator.attempts.jobs import PYTHON_MODULE, Job
from scalevec.orchestrator.errors import InvalidInputError, TryLaterError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.forked_workers import arguments_to_fork
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm import unanswered
from scalevec.orchestrator.executors.slurm.payload import Entry, JobRecord, Payload, is_final
from scalevec.orchestrator.private import drop_unused, make_private, shell_check
from scalevec.orchestrator.snapshots.snapshot import Snapshot, taken
from scalevec.results.opening import make_folder
from scalevec.sweeps.errors import shown

T = TypeVar("T")
JOB = (*PYTHON_MODULE, "scalevec.orchestrator.executors.slurm.job_script")

LOOKS_AFTER_S = (1.0, 4.0, 10.0)
"""Seconds before each look for a job whose sbatch gave no answer. Later looks are those of ``adopt``."""
SUBMISSIONS = "slurm"
"""In the private folder: what the jobs of each submission run, by its token."""
_UNSAFE_PATH = re.compile(r"[%\\'\"\x00-\x1f\x7f]")


@dataclass(frozen=True)
class QueuedTrial(JobRecord):
    """A trial in the queue, with its run directory."""

    directory: Path

    @property
    def token(self) -> str:
        """Tells the submission from every other one; it is in the name of its jobs."""
        return self.folder.name

    @property
    def number(self) -> str:
        """The trial's number; the token tells it from the same one after a cluster restarted its counter."""
        return f"{self.job}/{self.index}@{self.token}"


def job_name(sweep: str, role: str, token: str) -> str:
    """Return what the jobs of a submission are called in SLURM; they are found again by the token."""
    return f"{sweep}.{role}.{token}"


def queued_trials(runs_dir: Path, numbers: Collection[str]) -> list[QueuedTrial]:
    """Return the trials that ``numbers`` name, of whichever sweep.

    Those are left out whose submission's folder is gone or was never complete.
    """
    folders = unanswered.folders_of(runs_dir, numbers, answered=True)
    known = [trial for folder in folders for trial in _trials_of(folder, unanswered.placed_jobs(folder))]
    return [trial for trial in known if trial.number in numbers]


def _trials_of(folder: Path, jobs: Mapping[str, Sequence[Path]]) -> list[QueuedTrial]:
    """The trials of a submission, from the run directories of each job."""
    numbered = ((job, index, path) for job, paths in jobs.items() for index, path in enumerate(paths))
    return [QueuedTrial(folder, *fields) for fields in numbered]


def still_wanted(folders: Collection[Path], jobs: Collection[str]) -> set[str]:
    """Return those of ``jobs`` in which a trial of whichever sweep is neither over nor cancelled."""
    known = (trial for folder in folders for trial in _trials_of(folder, unanswered.placed_jobs(folder)))
    asked = (trial for trial in known if trial.job in jobs)
    return {trial.job for trial in asked if not (trial.is_cancelled() or is_final(trial.read()))}


class Submitter:
    """Hands jobs to SLURM through submitit."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.home = site.runs_dir.resolve() / "sweeps" / site.sweep / "slurm"

    def submit(self, jobs: Sequence[Job], largest_array: int) -> list[QueuedTrial]:
        """Send ``jobs`` in arrays: all or, where one array is refused for good, none.

        Raises ``InvalidInputError``, or ``TryLaterError`` with what was sent before.
        """
        self._refuse_shared_machines(jobs)
        sent: list[QueuedTrial] = []
        try:
            for group in _groups(jobs):
                estimates = [job.estimate_s for job in group]
                profile, nodes = self.site.profile.for_rung(group[0].rung), group[0].request.nodes
                size = profile.bundle_size(estimates, nodes)
                for array in _batched(_batched(group, size), largest_array):
                    sent += self._send(array)
        except TryLaterError as refusal:
            numbers = {trial.directory: trial.number for trial in sent}
            taken = {job.token: numbers[job.directory] for job in jobs if job.directory in numbers}
            raise TryLaterError(str(refusal), taken) from None
        except BaseException:
            slurm_queue.end({trial.job for trial in sent}, hard=True)
            raise
        return sent

    def _refuse_shared_machines(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            at_once = self.site.profile.for_rung(job.rung).trials_per_job
            if job.request.nodes > 1 and at_once not in (1, "auto"):
                raise InvalidInputError(
                    f"{job.rung}: nodes is {job.request.nodes} and trials_per_job {at_once}; allowed: one "
                    "trial for each job of several machines"
                )

    def _send(self, bundles: Sequence[Sequence[Job]]) -> list[QueuedTrial]:
        """Send one array: its records lie in RUNS_DIR, what it runs in the private folder."""
        # Which tells the submission from every other one.
        token = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        folder, private = self.home / token, self._private_folder(token)
        make_folder(folder)
        code = taken(private.parents[1])
        jobs = tuple(tuple(self._entry(job, code) for job in bundle) for bundle in bundles)
        profile = self.site.profile.for_rung(bundles[0][0].rung)
        Payload(str(folder), jobs, profile.preempt == "requeue", profile.trials_per_gpu).write(private)
        executor = submitit.SlurmExecutor(private)
        executor.update_parameters(**self.parameters(token, bundles, (private, code.root)))
        executor.parameters["map_count"] = len(bundles) if len(bundles) > 1 else None
        unanswered.note_sending(folder, self._name(bundles[0][0], token), bundles)
        numbers = self._given_numbers(
            folder, bundles, executor, shlex.join((*code.command(JOB), str(private)))
        )
        paths = ([job.directory for job in bundle] for bundle in bundles)
        return _trials_of(folder, dict(zip(numbers, paths, strict=True)))

    def _private_folder(self, token: str) -> Path:
        """A new folder for what the submission runs."""
        submissions = self.site.private / SUBMISSIONS
        if _UNSAFE_PATH.search(str(submissions)):
            raise InvalidInputError(
                f"{submissions}: SLURM takes no folder with quotes, backslashes or % in its name; "
                "name another one with private_dir in the profile"
            )
        drop_unused(submissions)
        make_private(submissions / token)
        return submissions / token

    def _given_numbers(
        self, folder: Path, bundles: Sequence[Sequence[Job]], executor: submitit.SlurmExecutor, command: str
    ) -> list[str]:
        """Send ``command``; the numbers that SLURM gives to the jobs, which are kept."""
        try:
            with slurm_queue.outside_any_job():
                # Not submit_array, whose jobs would run what lies in a pickle.
                first = executor._submit_command(command).job_id
        except (UncompletedJobError, FailedSubmissionError) as problem:
            return self._after_failure(folder, bundles, str(problem).strip())
        several = [f"{first}_{position}" for position in range(len(bundles))]
        numbers = several if len(bundles) > 1 else [first]
        unanswered.note_sent(folder, numbers)
        return numbers

    def _after_failure(self, folder: Path, bundles: Sequence[Sequence[Job]], message: str) -> list[str]:
        """The jobs that SLURM has all the same: a call that timed out may have been heard."""
        problem = _as_ours(message)
        if not slurm_queue.UNREACHABLE.search(message):
            unanswered.note_refused(folder, bundles)
            raise problem from None
        for wait_s in LOOKS_AFTER_S:
            time.sleep(wait_s)
            with suppress(TryLaterError):
                if numbers := unanswered.look_for(folder):
                    return numbers
        raise problem from None

    def _name(self, job: Job, token: str) -> str:
        return job_name(self.site.sweep, job.rung or "trials", token)

    @staticmethod
    def _entry(job: Job, code: Snapshot) -> Entry:
        command, directory = code.command(job.command), str(job.directory.resolve())
        return Entry(
            *(job.trial_id, command, directory, job.token, job.request.cpus),
            arguments_to_fork(job),
            job.request.nodes,
        )

    def parameters(
        self, token: str, bundles: Sequence[Sequence[Job]], code: Sequence[Path] = ()
    ) -> dict[str, Any]:
        """Return what submitit is told of one array, whose jobs all ask for the same.

        A fraction of a GPU is rounded up. The folders ``code`` hold what the jobs run.
        """
        job = bundles[0][0]
        request, profile = job.request, self.site.profile.for_rung(job.rung)
        places = min(profile.trials_per_gpu, max(map(len, bundles)))  # trials of a job that run side by side
        memory_gb = request.memory_gb_of_node
        minutes = max(minutes_of(profile, bundle) for bundle in bundles)
        further: dict[str, Any] = {name: value for name, value in profile.flags.items() if value is not False}
        further["requeue" if profile.preempt == "requeue" else "no-requeue"] = True
        if profile.dependency:  # a job for which it can never happen is to end
            further |= {"dependency": profile.dependency, "kill-on-invalid-dep": "yes"}
        named = {
            "partition": profile.partition,
            "account": profile.account,
            "qos": profile.qos,
            "constraint": profile.constraint,
            "mem": f"{math.ceil(places * memory_gb * 1024)}M"
            if memory_gb and not profile.says_no_memory
            else None,
            "gpus_per_node": _gpus(profile, request.gpus),
            "nodes": request.nodes if request.nodes > 1 else None,
            "ntasks_per_node": 1 if request.nodes > 1 else None,
            "exclude": ",".join(_excluded(profile, job.avoid_nodes)) or None,
            "setup": [shell_check(code), *_checked(profile.setup)],
        }
        return {
            "job_name": self._name(job, token),
            "time": minutes,
            "cpus_per_task": places * request.cpus_of_node,
            "srun_args": _srun_arguments(places * request.cpus_of_node, request.nodes),
            "signal_delay_s": min(profile.notice_s, minutes * 30),
            "array_parallelism": profile.max_parallel or len(bundles),
            "wckey": None,
            "additional_parameters": further,
            **{name: value for name, value in named.items() if value is not None},
        }


def job_script(site: Site, job: Job) -> str:
    """Return the script with which sbatch would get ``job``, with a word in place of its token."""
    from submitit.slurm.slurm import _make_sbatch_string

    folder = site.private / SUBMISSIONS / "TOKEN"
    parameters = Submitter(site).parameters("TOKEN", [[job]], (folder,))
    return str(_make_sbatch_string(command=shlex.join((*JOB, str(folder))), folder=folder, **parameters))


def _gpus(profile: Profile, gpus: float) -> str | int | None:
    """Those of each machine; None where there are none, or where a flag asks for them in another way."""
    if {"gres", "gpus", "gpus-per-task"} & {name for name, value in profile.flags.items() if value}:
        return None
    return profile.gpus if isinstance(profile.gpus, str) else math.ceil(gpus) or None


def _groups(jobs: Iterable[Job]) -> Iterable[list[Job]]:
    """``jobs`` by what they ask for."""
    groups: defaultdict[Any, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[job.rung, job.request, job.avoid_nodes].append(job)
    return groups.values()


def _batched(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _excluded(profile: Profile, avoid_nodes: Sequence[str]) -> list[str]:
    """The profile's nodes, and those to be avoided that SLURM knows; never all of a partition."""
    if not avoid_nodes:
        return list(profile.exclude)
    try:
        known = slurm_queue.node_names(profile.partition)
    except slurm_queue.SlurmCommandError:
        known = set()
    avoided = {name for host in avoid_nodes for name in (host, host.partition(".")[0])} & known
    return [*profile.exclude, *sorted(avoided if avoided < known else ())]


def minutes_of(profile: Profile, bundle: Sequence[Job]) -> int:
    """The time limit of one job in whole minutes: the profile's, else what its trials need one by one."""
    return profile.limit_minutes(bundle[0].request.time_s, [job.estimate_s for job in bundle])


def _srun_arguments(cpus: int, nodes: int) -> list[str]:
    """For the step of a job; srun does not inherit cpus-per-task since SLURM 22.05."""
    # A task that was lost ends the others, which might wait for it on a device without end.
    return [f"--cpus-per-task={cpus}", *(["--kill-on-bad-exit=1"] if nodes > 1 else [])]


def _checked(setup: Sequence[str]) -> list[str]:
    """The commands, of one line or several, each followed by what ends the job where it failed."""
    lines, command = [], ""
    for line in setup:
        command = f"{command}\n{line}" if command else line
        if problem := _unfinished(command):
            continue
        message = shlex.quote(f"scalevec: this line of setup failed: {command}")
        lines += [command, f"code=$?; [ $code = 0 ] || {{ echo {message} >&2; exit $code; }}"]
        command = ""
    if command:
        raise InvalidInputError(f"setup: bash cannot read {shown(command)}: {problem}")
    return lines


def _unfinished(command: str) -> str:
    """What bash misses in ``command``; a text between quotes and a document may go on in the next line."""
    if re.search(r"(?<!\\)(\\\\)*\\$", command):
        return "it ends with a backslash"
    parsed = subprocess.run(
        ["bash", "-n", "-c", command], env=os.environ | {"LC_ALL": "C"}, capture_output=True, text=True
    )
    return " ".join(parsed.stderr.split())


def _as_ours(message: str) -> Exception:
    """SLURM's own message, without submitit's traceback."""
    if slurm_queue.UNREACHABLE.search(message):
        return TryLaterError(f"SLURM does not answer: {message}")
    if slurm_queue.FULL.search(message):
        return TryLaterError(f"the queue takes no more jobs of yours for now: {message}")
    return InvalidInputError(f"SLURM refuses the job: {message}")
