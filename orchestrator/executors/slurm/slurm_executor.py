"""Trials as jobs of a SLURM cluster, in arrays, through submitit."""

import math
import shutil
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from scalevec.orchestrator.attempts.jobs import Job, WorkerExit
from scalevec.orchestrator.errors import MissingRequirementError, TryLaterError
from scalevec.orchestrator.executors.base import Ended, Executor, Site
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm import unanswered
from scalevec.orchestrator.executors.slurm.partitions import QueueRoom, largest_array, most_submitted
from scalevec.orchestrator.executors.slurm.payload import LOG, is_final, records_in
from scalevec.orchestrator.executors.slurm.queue import JobRow
from scalevec.orchestrator.executors.slurm.submission import (
    SUBMISSIONS,
    QueuedTrial,
    Submitter,
    queued_trials,
    still_wanted,
)
from scalevec.results.opening import end_of_log

CONFIRM_S = 5.0
"""Seconds until a job that ended without a word is looked at again: shared file systems lag."""
LOOKS_WITHOUT_RECORD = 2
LOST_S = 60.0
"""So long the accounting alone may have a job as active; a controller that was killed knows it no more."""
FEW = 10
"""Trials whose end is looked for more often than ``poll_s`` says."""
QUICK_S = 2.0
"""Seconds between two looks for so few, at first; they grow to ``poll_s`` while nothing happens."""
_TAIL_BYTES = 4000


class SlurmExecutor(Executor):
    """Hands trials to SLURM and asks for all of them at once, every ``poll_s`` seconds.

    What became of a trial is said by its run directory and by the job's own records in
    ``RUNS_DIR/sweeps/NAME/slurm/``; SLURM says why a job is gone that left no record.
    """

    name = "slurm"

    def __init__(self, site: Site) -> None:
        if shutil.which("sbatch") is None:
            raise slurm_queue.absent("sbatch")
        self.site = site
        self._submitter = Submitter(site)
        self._trials: dict[str, QueuedTrial] = {}
        self._silent: Counter[str] = Counter()
        self._lost_since: dict[str, float] = {}
        """Since when the accounting alone has a job as active, by the trial's number."""
        self._starts: dict[str, int] = {}
        """How often SLURM had started each job again at the last look."""
        self._interruptions: list[tuple[str | None, str]] = []
        self._silence = Silence()
        self._to_leave: set[str] = set()
        """Jobs that were asked to end."""
        self._next_look = 0.0
        self._changed = time.monotonic()
        """When a trial was last sent or ended."""

    @cached_property
    def _settings(self) -> Mapping[str, str]:
        return slurm_queue.configuration()

    @property
    def cluster(self) -> str:
        """SLURM's name of the cluster: several may share the runs directory, each with a queue of its own."""
        return self._settings.get("ClusterName", "")

    @cached_property
    def _room(self) -> QueueRoom:
        return QueueRoom(most_submitted(self._settings, self.site.profile))

    @property
    def _jobs(self) -> set[str]:
        return {trial.job for trial in self._trials.values()}

    @property
    def _trials_per_job(self) -> int:
        """Where jobs are filled by estimates, the next ones are as full as those that are sent."""
        filled = math.ceil(len(self._trials) / len(self._jobs)) if self._trials else 1
        return max(filled, self.site.profile.bundle_size(()))

    @property
    def free_slots(self) -> int:
        """Trials that fit into the jobs that may still be submitted.

        With no job of its own in the queue it is one job at least: SLURM says why it does not take that.
        """
        in_queue = len(self._jobs)
        return max(0 if in_queue else 1, self._room.free(in_queue)) * self._trials_per_job

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Queue ``jobs`` in arrays; a number names the trial's job and its turn in it.

        Raises ``InvalidInputError`` with SLURM's own message, ``TryLaterError`` where SLURM does not answer
        or takes no more for now.
        """
        before = len(self._trials)
        try:
            sent = self._submitter.submit(jobs, min(largest_array(self._settings), self._room.most))
        except TryLaterError as refusal:
            taken = queued_trials(self.site.runs_dir, refusal.sent.values())
            self._trials |= {trial.number: trial for trial in taken}
            if slurm_queue.FULL.search(str(refusal)):
                left = len(jobs) - (len(self._trials) - before)
                self._room.refused(math.ceil(left / self._trials_per_job), len(self._jobs))
            raise
        self._trials |= {trial.number: trial for trial in sent}
        self._changed = time.monotonic()
        self._next_look = min(self._next_look, self._changed + self._until_next_look(self._changed))
        numbers = {trial.directory: trial.number for trial in sent}
        return [numbers[job.directory] for job in jobs]

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those of ``numbers`` whose job SLURM still has, and whose turn in it is not over.

        A job whose submission was never answered is looked for by its name, and kept under its number.
        """
        unanswered.settle(self.site.runs_dir, numbers)
        known = queued_trials(self.site.runs_dir, numbers)
        alive = self._active(known)
        adopted = {
            trial.number: trial for trial in known if trial.job in alive and not is_final(trial.read())
        }
        self._trials |= adopted
        return set(adopted)

    def _active(self, trials: Collection[QueuedTrial]) -> set[str]:
        """The jobs of ``trials`` that wait or run.

        Raises ``TryLaterError`` where SLURM does not answer.
        """
        if not trials:
            return set()
        rows = slurm_queue.queued({trial.job for trial in trials})
        if rows is None:
            raise TryLaterError(
                "SLURM does not answer, so nobody knows which jobs still run; try again later"
            )
        return {
            trial.job for trial in trials if (row := self._row_of(rows, trial)) is not None and row.is_active
        }

    def _row_of(self, rows: dict[str, JobRow], trial: QueuedTrial) -> JobRow | None:
        """The row of the job, unless another cluster or another time gave its number to another job."""
        row = rows.get(trial.job)
        return row if row is not None and row.name.endswith(trial.token) else None

    def _as_accounted(self, trial: QueuedTrial, row: JobRow | None) -> JobRow | None:
        """What the accounting says of a job that the queue does not have.

        A job that goes on there alone is lost: the controller was killed before it had saved that it started
        the job, its node has ended what it does not know, and the accounting waits for an end for ever.
        """
        if row is None or not row.is_active:
            return row
        since = self._lost_since.setdefault(trial.number, time.monotonic())
        if time.monotonic() - since < LOST_S:
            return row
        return replace(
            row, state="NODE_FAIL", reason=f"(the queue has no such job; accounted as {row.state})"
        )

    def wait(self, timeout_s: float) -> list[Ended]:
        """The trials that ended; asks SLURM at most once every ``poll_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            if self._trials and now >= self._next_look:
                self._next_look = now + self._until_next_look(now)
                if ended := self._look():
                    self._changed = time.monotonic()
                    return ended
            if now >= deadline:
                return []
            time.sleep(max(0.0, min(deadline, max(self._next_look, now + 0.05)) - now))

    def _until_next_look(self, now: float) -> float:
        """Seconds: few while few trials are awaited and something happened lately, ``poll_s`` at most."""
        poll_s = self.site.profile.poll_s
        if len(self._trials) > FEW:
            return poll_s
        return min(poll_s, max(QUICK_S, (now - self._changed) / 10))

    def _look(self) -> list[Ended]:
        """One question to the queue for all jobs, one to the accounting for those that it has forgotten."""
        asked_at = time.monotonic()
        rows = slurm_queue.queued(self._jobs)
        self._silence.heard(asked_at=asked_at, answered=rows is not None)
        if rows is None:
            return []
        forgotten = {trial.job for trial in self._trials.values() if self._row_of(rows, trial) is None}
        past = slurm_queue.accounted(forgotten) if forgotten else {}
        noted = {folder: records_in(folder) for folder in {trial.folder for trial in self._trials.values()}}
        self._end_again(rows)
        ended, over = [], []
        for trial in list(self._trials.values()):
            if row := self._row_of(rows, trial):
                self._lost_since.pop(trial.number, None)
            else:
                row = self._as_accounted(trial, self._row_of(past, trial))
            has_record = trial.file_name in noted[trial.folder]
            self._note_restart(trial, row)
            end = self._end_of(trial, row, has_record=has_record)
            if end is not None:
                del self._trials[trial.number]
                ended.append(end)
                over.append(trial)
        self._end_what_waits(over, rows)
        return ended

    def _end_what_waits(self, over: Sequence[QueuedTrial], rows: dict[str, JobRow]) -> None:
        """Take jobs out of the queue that wait there although all their trials are over.

        A SLURM that was killed may have forgotten that it started a job, and holds it once it notices.
        """
        waiting = {
            trial.job for trial in over if (row := self._row_of(rows, trial)) and row.state == "PENDING"
        }
        with suppress(MissingRequirementError):
            slurm_queue.end(waiting - still_wanted({trial.folder for trial in over}, waiting), hard=False)

    def _end_again(self, rows: Mapping[str, JobRow]) -> None:
        """A job that was on its way back into the queue when it was asked to end waits there now."""
        active = {job for job in self._to_leave if job in rows and rows[job].is_active}
        self._to_leave = active
        with suppress(MissingRequirementError):  # the next look tries again
            slurm_queue.end({job for job in active if rows[job].state != "RUNNING"}, hard=False)

    def _note_restart(self, trial: QueuedTrial, row: JobRow | None) -> None:
        if row is None:
            return
        before = self._starts.setdefault(trial.number, row.restarts)
        self._starts[trial.number] = row.restarts
        if row.restarts > before and not is_final(record := trial.read()):
            cause, node = (record["cause"], record["node"]) if record else (None, None)
            why = f"{cause or 'interrupted'}{f' on {node}' if node else ''}"
            self._interruptions.append(
                (trial.number, f"{why}; SLURM starts job {trial.job} again, for the {row.restarts}. time")
            )

    def notices(self) -> list[tuple[str | None, str]]:
        """The trials whose job SLURM has put back into the queue, and for how long SLURM has not answered."""
        noted, self._interruptions = self._interruptions, []
        silence, self._silence.news = self._silence.news, []
        return [*noted, *((None, words) for words in silence)]

    def _end_of(self, trial: QueuedTrial, row: JobRow | None, *, has_record: bool) -> Ended | None:
        """How the trial ended, None where it has not, or where its last word may still be on its way."""
        record = trial.read() if has_record else None
        if record is not None and record["final"]:
            return _as_recorded(trial, record)
        if row is not None and row.is_stuck:
            with suppress(MissingRequirementError):  # where it cannot be ended now, it is held all the same
                slurm_queue.end([trial.job], hard=True)
            return self._without_record(trial, row, record)
        if row is not None and row.is_active:
            self._silent.pop(trial.number, None)
            return None
        # The queue forgets a job before its record is visible here (NFS), and sacct writes a row piece by
        # piece: only the second silent look counts.
        self._silent[trial.number] += 1
        if self._silent[trial.number] < LOOKS_WITHOUT_RECORD:
            self._next_look = min(
                self._next_look, time.monotonic() + min(CONFIRM_S, self.site.profile.poll_s)
            )
            return None
        del self._silent[trial.number]
        return self._without_record(trial, row, record)

    def _without_record(
        self, trial: QueuedTrial, row: JobRow | None, record: dict[str, object] | None
    ) -> Ended:
        """What SLURM says of a job that was ended from outside, and what the trial had come to by then."""
        printed = self._last_words(trial)
        cause = row.cause if row is not None else None
        node = str(record["node"]) if record else row.node if row else None
        if trial.is_cancelled():
            cause = "cancelled"
        elif "exceeded memory limit" in printed or "oom_kill" in printed or "oom-kill" in printed:
            cause = "out_of_memory"
        state = f"SLURM: {row.state} {row.reason}" if row else "SLURM knows nothing of the job any more"
        if record is None and trial.index > 0 and cause != "cancelled":
            return Ended(trial.number, None, "not_started", node, f"{state}, before the trial's turn")
        if cause is None and record is not None and record["cause"] is not None:
            return _as_recorded(trial, record)
        exit_code = row.exit_code if row is not None and row.state == "FAILED" else None
        if record is not None and exit_code != WorkerExit.NO_SPACE:  # which left none for the record either
            cause = cause or "killed"  # the trial had begun, and nobody was left to say how it ended
            exit_code = None
        elif record is None and exit_code is not None and exit_code != WorkerExit.NO_SPACE:
            # What comes before the first trial: a line of the profile's setup, the private folder.
            exit_code = WorkerExit.MACHINE_LACKS
        return Ended(trial.number, exit_code, cause, node, "; ".join(filter(None, (state, printed[-200:]))))

    def _last_words(self, trial: QueuedTrial) -> str:
        """The end of what the job itself printed, not its trials."""
        private = self.site.private / SUBMISSIONS / trial.token
        paths = (private / f"{trial.job}_0_log.err", trial.folder / LOG.format(job=trial.job))
        return "\n".join(filter(None, (end_of_log(path, _TAIL_BYTES).strip() for path in paths)))

    def cancel(self, numbers: Collection[str]) -> None:
        """Trials that run checkpoint and end; jobs all of whose trials are cancelled leave the queue."""
        cancelled = [self._trials[number] for number in numbers if number in self._trials]
        for trial in cancelled:
            trial.cancel()
        jobs = {trial.job for trial in cancelled}
        jobs -= still_wanted({trial.folder for trial in cancelled}, jobs)
        self._to_leave |= jobs
        self._next_look = 0.0
        slurm_queue.end(jobs, hard=False)

    def stop(self, *, hard: bool = False) -> None:
        """Cancel all its jobs; with ``hard`` without a checkpoint."""
        if hard:
            slurm_queue.end(self._jobs, hard=True)
            self._next_look = 0.0
        else:
            self.cancel(set(self._trials))


def _as_recorded(trial: QueuedTrial, record: dict[str, object]) -> Ended:
    exit_code, cause = record["exit_code"], record["cause"]
    return Ended(
        trial.number,
        exit_code if isinstance(exit_code, int) else None,
        str(cause) if cause is not None else None,
        str(record["node"]),
        str(record.get("message", "")),
    )


TOLD_AFTER_S = 60.0
"""A shorter silence is no news: a controller that is started again takes as long."""


@dataclass
class Silence:
    """From the first question that had no answer to the next that has one."""

    news: list[str] = field(default_factory=list)
    """What has not been told yet."""
    _since: float | None = None
    _told: bool = False

    def heard(self, *, asked_at: float, answered: bool) -> None:
        """Take in whether a question had an answer; ``asked_at`` is by the clock ``time.monotonic``."""
        if answered:
            if self._told:
                self.news.append(
                    f"SLURM answers again, after {_minutes(asked_at - (self._since or asked_at))}"
                )
            self._since, self._told = None, False
            return
        self._since = asked_at if self._since is None else self._since
        lasts_s = time.monotonic() - self._since
        if not self._told and lasts_s >= TOLD_AFTER_S:
            self._told = True
            self.news.append(
                f"SLURM has not answered for {_minutes(lasts_s)}; its jobs are left alone meanwhile"
            )


def _minutes(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min"
