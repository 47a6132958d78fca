"""Trials as jobs of a SLURM cluster, in arrays, through submitit."""

import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import Lacking
from orchestrator.executors import slurm_limits, slurm_queue, slurm_submission
from orchestrator.executors.base import Ended, Site
from orchestrator.executors.slurm_payload import Records
from orchestrator.executors.slurm_queue import Row
from orchestrator.executors.slurm_submission import Place, Submission, Submitter
from orchestrator.jobs import Job

CONFIRM_S = 5.0
"""Seconds until a job that ended without a word is looked at again: shared file systems lag."""
LOOKS_WITHOUT_RECORD = 2
_LOG_TAIL = 4000


class SlurmExecutor:
    """Hands trials to SLURM and asks for all of them at once, every ``poll_s`` seconds.

    What became of a trial is said by its run directory and by the job's own records in
    ``RUNS_DIR/sweeps/NAME/slurm/``; SLURM says why a job is gone that left no record.
    """

    name = "slurm"
    keeps_jobs = True
    sends_away = True

    def __init__(self, site: Site) -> None:
        if shutil.which("sbatch") is None:
            raise Lacking(
                "no sbatch on the PATH: SLURM's commands are needed; give the command on a login node of the "
                "cluster, or choose another executor"
            )
        self.site = site
        settings = slurm_queue.configuration()
        self.most_jobs = slurm_limits.most_submitted(settings, site.profile)
        self._submitter = Submitter(site, min(slurm_limits.largest_array(settings), self.most_jobs))
        self._places: dict[str, Place] = {}
        self._submissions: dict[str, Submission] = {}
        self._silent: Counter[str] = Counter()
        self._next_look = 0.0

    @property
    def free_slots(self) -> int:
        """Trials that fit into the jobs that may still be submitted."""
        jobs = {place.job for place in self._places.values()}
        return max(0, self.most_jobs - len(jobs)) * self.site.profile.trials_per_job

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Queue ``jobs`` in arrays; a number names the trial's place in them.

        Raises ``Refused`` with SLURM's own message, ``Lacking`` where SLURM does not answer.
        """
        numbers: dict[Path, str] = {}
        for submission in self._submitter.submit(jobs):
            places = [place for found in submission.jobs.values() for place in found]
            self._watch(submission, places)
            numbers |= {place.directory: place.number for place in places}
        return [numbers[job.directory] for job in jobs]

    def _watch(self, submission: Submission, places: Iterable[Place]) -> None:
        self._submissions[submission.token] = submission
        self._places |= {place.number: place for place in places}

    def adopt(self, numbers: Collection[str]) -> set[str]:
        """Those of ``numbers`` whose job SLURM still has, and whose place in it is not over."""
        found = {place.number: place for number in numbers if (place := self._find(number)) is not None}
        alive = self._active(found.values())
        adopted = {
            number for number, place in found.items() if place.job in alive and not self._is_final(place)
        }
        self._places |= {number: found[number] for number in adopted}
        return adopted

    def _find(self, number: str) -> Place | None:
        parts = slurm_submission.read_number(number)
        if parts is None:
            return None
        job, place, token = parts
        if token not in self._submissions:
            submission = slurm_submission.load(self.site.runs_dir, token)
            if submission is None:
                return None
            self._submissions[token] = submission
        places = self._submissions[token].jobs.get(job, ())
        return places[place] if place < len(places) else None

    def _active(self, places: Collection[Place]) -> set[str]:
        """The jobs of ``places`` that wait or run. Raises ``Lacking`` where SLURM does not answer."""
        if not places:
            return set()
        rows = slurm_queue.queued({place.job for place in places})
        if rows is None:
            raise Lacking("SLURM does not answer, so nobody knows which jobs still run; try again later")
        return {
            place.job for place in places if (row := self._own(rows, place)) is not None and row.is_active
        }

    def _own(self, rows: dict[str, Row], place: Place) -> Row | None:
        """The row of the job, unless another cluster or another time gave its number to another job."""
        row = rows.get(place.job)
        return row if row is not None and row.name.endswith(place.token) else None

    def _is_final(self, place: Place) -> bool:
        record = self._records(place).read(place.job, place.place)
        return record is not None and bool(record["final"])

    def _records(self, place: Place) -> Records:
        return Records(self._submissions[place.token].folder)

    def wait(self, timeout_s: float) -> list[Ended]:
        """The trials that ended; asks SLURM at most once every ``poll_s`` seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            now = time.monotonic()
            if self._places and now >= self._next_look:
                self._next_look = now + self.site.profile.poll_s
                if ended := self._look():
                    return ended
            if now >= deadline:
                return []
            time.sleep(max(0.0, min(deadline, max(self._next_look, now + 0.05)) - now))

    def _look(self) -> list[Ended]:
        """One question to the queue for all jobs, one to the accounting for those that it has forgotten."""
        jobs = {place.job for place in self._places.values()}
        rows = slurm_queue.queued(jobs)
        if rows is None:
            return []
        forgotten = {place.job for place in self._places.values() if self._own(rows, place) is None}
        past = slurm_queue.accounted(forgotten) if forgotten else {}
        noted = {token: Records(self._submissions[token].folder).places() for token in self._tokens()}
        ended = []
        for place in list(self._places.values()):
            row = self._own(rows, place) or self._own(past, place)
            has_record = f"{place.job}.{place.place}" in noted[place.token]
            one = self._end_of(place, row, has_record=has_record)
            if one is not None:
                del self._places[place.number]
                ended.append(one)
        return ended

    def _tokens(self) -> set[str]:
        return {place.token for place in self._places.values()}

    def _end_of(self, place: Place, row: Row | None, *, has_record: bool) -> Ended | None:
        """How the trial ended, None where it has not, or where its last word may still be on its way."""
        record = self._records(place).read(place.job, place.place) if has_record else None
        if record is not None and record["final"]:
            return _as_recorded(place, record)
        if row is not None and row.is_stuck:
            with suppress(Lacking):  # where it cannot be ended now, it is held all the same
                slurm_queue.end([place.job], hard=True)
            return self._without_record(place, row, record)
        if row is not None and row.is_active:
            self._silent.pop(place.number, None)
            return None
        self._silent[place.number] += 1
        if self._silent[place.number] < LOOKS_WITHOUT_RECORD:
            self._next_look = min(
                self._next_look, time.monotonic() + min(CONFIRM_S, self.site.profile.poll_s)
            )
            return None
        del self._silent[place.number]
        return self._without_record(place, row, record)

    def _without_record(self, place: Place, row: Row | None, record: dict[str, object] | None) -> Ended:
        """What SLURM says of a job that was ended from outside, and what the trial had come to by then."""
        said = self._last_words(place)
        cause = row.cause if row is not None else None
        if self._records(place).is_cancelled(place.job, place.place):
            cause = "cancelled"
        elif "exceeded memory limit" in said or "oom_kill" in said or "oom-kill" in said:
            cause = "out_of_memory"
        node = str(record["node"]) if record else row.node if row else None
        state = f"SLURM: {row.state} {row.reason}" if row else "SLURM knows nothing of the job any more"
        if record is None and place.place > 0 and cause != "cancelled":
            return Ended(place.number, None, "not_started", node, f"{state}, before the trial's turn")
        if cause is None and record is not None and record["cause"] is not None:
            return _as_recorded(place, record)
        exit_code = None
        if record is not None:
            cause = cause or "killed"  # the trial had begun, and nobody was left to say how it ended
        elif row is not None and row.state == "FAILED":
            exit_code = row.exit_code
        return Ended(place.number, exit_code, cause, node, "; ".join(filter(None, (state, said[-200:]))))

    def _last_words(self, place: Place) -> str:
        """The end of what the job itself printed, not its trials."""
        path = self._submissions[place.token].folder / f"{place.job}_0_log.err"
        try:
            return path.read_bytes()[-_LOG_TAIL:].decode(errors="replace").strip()
        except OSError:
            return ""

    def cancel(self, numbers: Collection[str]) -> None:
        """Trials that run checkpoint and end; jobs all of whose trials are cancelled leave the queue."""
        cancelled = [self._places[number] for number in numbers if number in self._places]
        for place in cancelled:
            self._records(place).cancel(place.job, place.place)
        open_places = Counter(place.job for place in self._places.values())
        marked = Counter(
            place.job
            for place in self._places.values()
            if self._records(place).is_cancelled(place.job, place.place)
        )
        asked = {place.job for place in cancelled}
        slurm_queue.end([job for job in asked if marked[job] == open_places[job]], hard=False)
        self._next_look = 0.0

    def stop(self, *, hard: bool = False) -> None:
        """Cancel all its jobs; with ``hard`` without a checkpoint."""
        if hard:
            slurm_queue.end({place.job for place in self._places.values()}, hard=True)
            self._next_look = 0.0
        else:
            self.cancel(set(self._places))

    def close(self) -> None:
        """Nothing is held; the jobs go on."""


def _as_recorded(place: Place, record: dict[str, object]) -> Ended:
    exit_code, cause = record["exit_code"], record["cause"]
    return Ended(
        place.number,
        exit_code if isinstance(exit_code, int) else None,
        str(cause) if cause is not None else None,
        str(record["node"]),
        str(record.get("message", "")),
    )
