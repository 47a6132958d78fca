"""The jobs that a scheduler watches: those of its trials not known to have ended, whoever sent them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.attempts.retry_policy import was_called_off
from scalevec.orchestrator.executors.base import Executor
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory


@dataclass(frozen=True)
class WatchedJob:
    """A job that this scheduler watches; ``token`` is what its worker writes into its claim."""

    task: Task
    token: str


class WatchedJobs:
    """By their numbers. A trial may have several jobs: one that was sent while another could not be seen."""

    def __init__(self, runs_dir: Path, executor: Executor) -> None:
        self.runs_dir, self.executor = runs_dir, executor
        self.running: dict[str, WatchedJob] = {}
        self._of_trial: defaultdict[str, set[str]] = defaultdict(set)
        self._gone: set[str] = set()
        """Of which the executor said that they neither wait nor run."""
        self._asked_to_end: set[str] = set()
        self._looks: dict[str, tuple[int, bool]] = {}
        """By trial: the size of its events when they were read, and whether they call it off."""

    def watch(self, jobs: Mapping[str, WatchedJob]) -> None:
        """The executor has these jobs."""
        for number, job in jobs.items():
            self.running[number] = job
            self._of_trial[job.task.trial_id].add(number)

    def adopt(self, tasks: Sequence[Task]) -> list[Task]:
        """Watch the jobs of ``tasks`` that wait or run, whatever the trial's state; the trials that have any.

        One question to the executor for all of them, none where no job is open. Raises
        ``MissingRequirementError`` where it does not answer.
        """
        by_number = {number: job for task in tasks for number, job in self._open(task).items()}
        asked = by_number.keys() - self.running.keys() - self._gone
        alive = self.executor.adopt(asked) if asked else set()
        gone = asked - alive
        self._gone |= gone
        self.watch({number: by_number[number] for number in alive})
        if gone:  # to ask for a job may bring to light under which number it exists
            by_number |= {number: job for task in tasks for number, job in self._open(task).items()}
            if by_number.keys() - self.running.keys() - self._gone:
                return self.adopt(tasks)
        return [task for task in tasks if self.of(task)]

    def _open(self, task: Task) -> dict[str, WatchedJob]:
        try:
            jobs = self._directory(task).open_jobs()
        except CorruptRecordError:  # then its claim must say whether somebody has it
            return {}
        return {
            job["job"]: WatchedJob(task, job["token"])
            for job in jobs
            if job["executor"] == self.executor.name
        }

    def of(self, task: Task) -> set[str]:
        """The numbers of a trial's jobs that are watched."""
        return set(self._of_trial[task.trial_id])

    def ended(self, number: str) -> WatchedJob:
        """A job is over; what it was."""
        self._asked_to_end.discard(number)
        job = self.running.pop(number)
        self._of_trial[job.task.trial_id].discard(number)
        with suppress(CorruptRecordError):  # told of the trial when its events are read
            self._directory(job.task).end_job(number)
        return job

    def tasks(self) -> list[Task]:
        """The trials that have a job."""
        return [job.task for job in self.running.values()]

    def called_off(self) -> set[str]:
        """The jobs of trials that somebody has called off; events are read where they have grown."""
        return {number for number, job in self.running.items() if self._is_called_off(job.task)}

    def _is_called_off(self, task: Task) -> bool:
        directory = self._directory(task)
        with suppress(CorruptRecordError, OSError):  # reported when it has ended
            size = directory.events_path.stat().st_size
            if self._looks.get(task.trial_id, (None,))[0] != size:
                self._looks[task.trial_id] = (size, was_called_off(directory.events()))
            return self._looks[task.trial_id][1]
        return False

    def ask_to_end(self, numbers: Collection[str]) -> None:
        """Ask each of these jobs once to write a checkpoint and end."""
        asked = set(numbers) - self._asked_to_end
        if asked:
            self.executor.cancel(asked)
            self._asked_to_end |= asked

    def _directory(self, task: Task) -> RunDirectory:
        return RunDirectory.of(self.runs_dir, task.trial_id)
