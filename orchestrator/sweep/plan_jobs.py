"""What a cluster's queue is given for a sweep: jobs, arrays and time limits by rung."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalevec.orchestrator.costs.estimates import FRESH_START_S
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.progress import duration
from scalevec.orchestrator.sweep.planning import Row, gpu_hours, not_done

if TYPE_CHECKING:
    from scalevec.orchestrator.sweep.sweep_run import SweepRun

ARRAY_SIZE = 1000
"""The most tasks of one array where SLURM's configuration does not change it."""
EARLY_S = 60.0
"""How much earlier than asked for SLURM may say that a job's time is nearly up."""
LEAST_SHARE = 0.5
"""Of a time limit, that should be left to train."""


@dataclass(frozen=True)
class QueuedRung:
    """The jobs of one rung in one stage; all of them ask for the same."""

    stage: str
    rung: str
    rows: Sequence[Row]
    profile: Profile
    time_s: float | None
    """What the sweep file asks for; None leaves it to the estimate."""

    @property
    def jobs(self) -> int:
        """Trials that share a job count once."""
        return math.ceil(len(self.rows) / self.profile.bundle_size(self._longest_first))

    @property
    def _longest_first(self) -> list[float]:
        return sorted((float(row["seconds"]) for row in self.rows), reverse=True)

    @property
    def _fullest_job(self) -> list[float]:
        """The estimated seconds of the trials that could share a job and take longest."""
        longest = self._longest_first
        return longest[: self.profile.bundle_size(longest)]

    @property
    def arrays(self) -> int:
        """How many arrays it takes to send them."""
        return math.ceil(self.jobs / min(ARRAY_SIZE, self.profile.max_submitted or ARRAY_SIZE))

    @property
    def at_a_time(self) -> int:
        """Jobs that the profile lets run at a time."""
        return min(self.jobs, self.profile.max_parallel or self.jobs, self.profile.max_submitted or self.jobs)

    @property
    def longest_job_s(self) -> float:
        """Estimated seconds of the longest job."""
        return sum(self._fullest_job)

    @property
    def minutes(self) -> int:
        """The time limit of each job."""
        return self.profile.limit_minutes(self.time_s, self._fullest_job)

    @property
    def most_gpu_hours(self) -> float:
        """What the jobs use if each of them takes its time limit at every start."""
        return float(self.starts * self.jobs * math.ceil(self.rows[0]["gpus"]) * self.minutes / 60)

    @property
    def starts(self) -> int:
        """How often the longest job is started: at its time limit it goes on from a checkpoint."""
        limit = 60.0 * self.minutes
        if self.longest_job_s <= limit:
            return 1
        return math.ceil(self.longest_job_s / max(self.seconds_to_train, 1.0))

    @property
    def seconds(self) -> float:
        """Estimated seconds until all have run, if the cluster runs as many at a time as it may."""
        work = float(sum(row["seconds"] - row["seconds_from_trunk"] for row in self.rows))
        return max(work / self.at_a_time, self.longest_job_s)

    @property
    def seconds_to_train(self) -> float:
        """What a job has between its start and the signal before its time limit, at worst."""
        limit = 60.0 * self.minutes
        return max(0.0, limit - min(self.profile.notice_s, limit / 2) - EARLY_S - FRESH_START_S)


def queued_rungs(run: "SweepRun", trials: Sequence[Row]) -> list[QueuedRung]:
    """Return what is not done yet as the queue gets it, tuning first."""
    groups: dict[tuple[bool, str], list[Row]] = {}
    for row in not_done(trials):
        groups.setdefault((row["stage"] != "tuning", row["rung"]), []).append(row)
    return [
        QueuedRung(rows[0]["stage"], rung, rows, run.profile.for_rung(rung), run.request(rung).time_s)
        for (_, rung), rows in sorted(groups.items(), key=lambda group: group[0][0])
    ]


def seconds_left(rungs: Sequence[QueuedRung]) -> float:
    """Stage after stage; the rungs of one run side by side."""
    stages = {rung.stage for rung in rungs}
    return sum(max(rung.seconds for rung in rungs if rung.stage == stage) for stage in stages)


def most_at_a_time(rungs: Sequence[QueuedRung]) -> int:
    """Return how many jobs the profile lets run at a time."""
    stages = {rung.stage for rung in rungs}
    most = max((sum(rung.at_a_time for rung in rungs if rung.stage == stage) for stage in stages), default=0)
    limits = [rung.profile.max_submitted for rung in rungs if rung.profile.max_submitted]
    return min([most, *limits])


def _times(starts: int) -> str:
    return f", {starts} starts" if starts > 1 else ""


def jobs_table(rungs: Sequence[QueuedRung]) -> list[list[str]]:
    """Return the rows of a table, the names of its columns first."""
    names = ["stage", "rung", "trials", "jobs", "arrays", "at a time", "limit", "GPU-hours", "at most"]
    return [
        names,
        *(
            [
                *(rung.stage, rung.rung, str(len(rung.rows)), str(rung.jobs), str(rung.arrays)),
                *(str(rung.at_a_time), f"{duration(60 * rung.minutes)}{_times(rung.starts)}"),
                *(f"{gpu_hours(rung.rows):.3g}", f"{rung.most_gpu_hours:.3g}"),
            ]
            for rung in rungs
        ),
    ]


def limit_warnings(rungs: Sequence[QueuedRung]) -> list[str]:
    """Return a warning for each time limit that start-up and notice nearly use up."""
    return [
        f"rung {rung.rung}: a time limit of {duration(60 * rung.minutes)} may leave a job only "
        f"{duration(rung.seconds_to_train)} to train (notice_s, SLURM's signal up to a minute early, and the "
        f"start take the rest), and its trials need {duration(rung.longest_job_s)}: they would be requeued "
        "again and again; raise time, or lower notice_s"
        for rung in rungs
        if rung.seconds_to_train < min(rung.longest_job_s, LEAST_SHARE * 60 * rung.minutes)
    ]
