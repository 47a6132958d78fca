"""What befalls the jobs of a campaign on a SLURM cluster."""

import signal
import subprocess

import psutil

from campaign import BREATH_S, FAULTS_EVERYWHERE, Campaign, Fault, kill_the_parent_of_a_worker, killed
from cluster.slurm_daemons import SlurmCluster
from scalevec.results.run_directory import RunDirectory

AGAIN_S = 60.0
"""Within so long a trial that SLURM has stopped trains again."""


class SlurmFaults:
    """The faults that need to know ``cluster``, and the others, by name."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    def by_name(self) -> dict[str, Fault]:
        return FAULTS_EVERYWHERE | {
            "kill -9 of a step": kill_the_parent_of_a_worker,
            "scontrol requeue": self.requeue,
            "preemption from the high partition": self.preempt,
            "a time limit that strikes twice": self.strike_twice,
            "loss of a node": self.lose_a_node,
        }

    def requeue(self, campaign: Campaign) -> bool:
        job = self._running_job(campaign)
        return job is not None and self._done("scontrol", "requeue", job)

    def preempt(self, campaign: Campaign) -> bool:
        """By a job that wants the whole of the node on which another runs, of a lower partition."""
        job = self._running_job(campaign)
        node = self._node_of(job) if job else None
        where = ("-p", "high", "-w", str(node), "--exclusive", "--output=/dev/null")
        return node is not None and self._done("sbatch", *where, "--wrap", "sleep 1")

    def strike_twice(self, campaign: Campaign) -> bool:
        """The signal that SLURM sends before the limit, to one trial, and again once that trains again."""
        trial = self._running_trial(campaign)
        if trial is None:
            return False
        first = self._worker_of(campaign, trial)
        if not self._strike(trial):
            return False

        def trains_again() -> bool:
            campaign.is_done()  # a scheduler that went meanwhile is started again
            return trial.result() is not None or self._worker_of(campaign, trial) not in (None, first)

        campaign.holds(trains_again, AGAIN_S)
        campaign.holds(campaign.is_done, campaign.random.uniform(0.0, BREATH_S))
        return trial.result() is None and self._strike(trial)

    def lose_a_node(self, campaign: Campaign) -> bool:
        """kill -9 of the daemon of a node and of all that it had started; then the node comes back."""
        job = self._running_job(campaign)
        node = self._node_of(job) if job else None
        if node is None:
            return False
        numbers = self.cluster.run("squeue", "-h", "-w", node, "-t", "RUNNING", "-o", "%A").split()
        self.cluster.stop_daemon(node, signal.SIGKILL)
        for step in psutil.process_iter(["cmdline"]):
            command = " ".join(step.info["cmdline"] or [])
            if any(command.startswith(f"slurmstepd: [{number}.") for number in numbers):
                _kill_with_children(step)
        # A job that began in the second in which the daemon starts again would count as running for ever.
        self.cluster.run("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
        self.cluster.start_node(node)
        return True

    def _running_trial(self, campaign: Campaign) -> RunDirectory | None:
        """A trial that a worker trains in a job of SLURM."""
        trials = [trial for trial in campaign.trials() if self._worker_of(campaign, trial) and trial.job()]
        return campaign.random.choice(trials) if trials else None

    def _running_job(self, campaign: Campaign) -> str | None:
        trial = self._running_trial(campaign)
        return _job_of(trial) if trial else None

    def _worker_of(self, campaign: Campaign, trial: RunDirectory) -> int | None:
        actual = (worker for worker in campaign.workers() if trial.trial_id in worker.info["cmdline"])
        return next((worker.pid for worker in actual), None)

    def _node_of(self, job: str) -> str | None:
        """None where the job does not run (any more)."""
        return (
            self.cluster.run("squeue", "-h", "-j", job, "-t", "RUNNING", "-o", "%N", check=False).strip()
            or None
        )

    def _strike(self, trial: RunDirectory) -> bool:
        job = _job_of(trial)
        return self._node_of(job) is not None and self._done("scancel", "--signal=USR2", job)

    def _done(self, *command: str) -> bool:
        """False where SLURM refuses, for the job has just ended, or is not yet gone from where it was."""
        try:
            self.cluster.run(*command)
        except (RuntimeError, subprocess.TimeoutExpired):  # scancel tries for a minute
            return False
        return True


def _job_of(trial: RunDirectory) -> str:
    """As SLURM writes it."""
    return str(trial.job()["job"]).partition("/")[0]


def _kill_with_children(process: psutil.Process) -> None:
    try:
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        killed(member)
