"""Jobs and daemons of a SLURM that come and go: nothing is lost, nothing trained twice, no bit changes."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from campaign import Campaign, kill_the_scheduler, killed
from cluster.slurm_daemons import SlurmCluster, until
from cluster.test_slurm_training import workers_of, workers_with_attempt
from hold import hold, release
from scalevec.orchestrator.executors.slurm.slurm_executor import TOLD_AFTER_S
from scalevec.results.run_directory import RunDirectory
from support import two_arms

pytestmark = pytest.mark.slow

SEEDS = 7
"""Of each of two arms."""
OF_THE_STORM = 2
REQUEUES = 3
PROFILES = """\
plain: {poll_s: 0.2, memory_gb: 1.5, time: 60, rungs: {controller: {memory_gb: 1}}}
one: {poll_s: 0.2, memory_gb: 1.5, time: 60, max_submitted: 1}
"""
OUTAGE_S = float(os.environ.get("SCALEVEC_OUTAGE_S", "5"))
"""How long each outage lasts at least; the environment may ask for a longer one."""
TIMED_OUT = "Batch job submission failed: Socket timed out on send/recv operation"
COMMANDS = ("squeue", "sbatch", "sacct", "sacctmgr")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, text_files) -> Campaign:
    """The sweep on this machine, without a fault."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"), text_files, SEEDS, [], {}, seed=0)
    campaign.run()
    return campaign


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One of all outages: the machines need to be looked at only once."""
    return tmp_path_factory.mktemp("disturbed")


def resume_nodes(slurm: SlurmCluster) -> None:
    """A SLURM that finds a job on a node where it does not expect it takes the node out of service."""
    for node in slurm.nodes_in("drained") | slurm.nodes_in("draining"):
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")


@contextmanager
def sent_to(
    slurm: SlurmCluster, folder: Path, text: Path, profile: str, seeds: list[int]
) -> Iterator[Campaign]:
    """The sweep with ``seeds``, to be run on SLURM; nothing of it is left there afterwards."""
    (folder / "profiles.yaml").write_text(PROFILES)
    campaign = Campaign(folder, text, 0, ["--executor", "slurm", "--profile", profile], {}, seed=0)
    (folder / "campaign.yaml").write_text(two_arms("campaign", text, tokens_per_parameter=3, seeds=seeds))
    (folder / "scheduler.log").unlink(missing_ok=True)
    try:
        yield campaign
    finally:
        if campaign.scheduler:
            kill_the_scheduler(campaign)
        slurm.run("scancel", "--user=root")
        resume_nodes(slurm)


class Terminal:
    """``scalevec run`` from a terminal."""

    def __init__(self, campaign: Campaign, slurm: SlurmCluster) -> None:
        self.campaign, self.slurm = campaign, slurm

    def start(self) -> None:
        self.campaign.start()

    def kill(self) -> None:
        kill_the_scheduler(self.campaign)


class ControllerJob(Terminal):
    """The controller that ``scalevec submit`` sends."""

    def start(self) -> None:
        # One that was killed is not known to be gone before SLURM has cleaned up after it.
        until(lambda: "COMPLETING" not in self._states(), "the last controller is gone", self.slurm.logs)
        command = self.campaign.scalevec("submit", "campaign.yaml", *self.campaign.options)
        folder, environment = self.campaign.folder, self.campaign.environment
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)

    def kill(self) -> None:
        """Where it was requeued, SLURM does it."""
        until(lambda: bool(self._processes()) or "PENDING" in self._states(), "it has begun", self.slurm.logs)
        for process in self._processes():
            killed(process)

    def _processes(self) -> list[psutil.Process]:
        words = {"scalevec.orchestrator.commands.run.controller_job", str(self.campaign.folder / "runs")}
        return [row for row in psutil.process_iter(["cmdline"]) if words <= set(row.info["cmdline"] or [])]

    def _states(self) -> list[str]:
        rows = (row.split() for row in self.slurm.run("squeue", "-h", "-o", "%T %j").splitlines())
        return [state for state, name in rows if name.startswith("campaign.controller.")]


def running_jobs(slurm: SlurmCluster) -> list[str]:
    rows = slurm.run("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i %j").splitlines()
    return [job for job, name in map(str.split, rows) if name.startswith("campaign.")]


def until_all_train(campaign: Campaign, attempt: int, count: int) -> None:
    until(
        lambda: workers_with_attempt(campaign.folder, attempt) == count,
        f"{count} train, attempt {attempt}",
        campaign.log,
    )


def until_done(campaign: Campaign, slurm: SlurmCluster) -> None:
    def as_it_stands() -> str:
        jobs = slurm.run("squeue", "-h", "-r", "-o", "%i %j %T %r %N %M")
        nodes = slurm.run("sinfo", "-h", "-N", "-o", "%N %T %E")
        return f"{campaign.log()}\nqueue:\n{jobs}\nnodes:\n{nodes}\n{slurm.logs()}"

    until(lambda: campaign.scheduler.poll() is not None, "the sweep has ended", as_it_stands)
    assert campaign.scheduler.returncode == 0, campaign.log()


def known_jobs(trial: RunDirectory) -> list[str]:
    """The numbers that SLURM has given to jobs of a trial; not those of an sbatch that nobody heard."""
    return [job["job"] for job in trial.jobs() if not job["job"].startswith("?")]


def starts(trial: RunDirectory) -> int:
    return [event["state"] for event in trial.events()].count("running")


def records(campaign: Campaign) -> dict[Path, str]:
    paths = (path for trial in campaign.trials() for path in (trial.events_path, trial.jobs_path))
    return {path: path.read_text() for path in paths}


def assert_whole(campaign: Campaign, undisturbed: Campaign, slurm: SlurmCluster) -> None:
    """Nothing lost, run twice or changed; nothing of ours in the queue."""
    until(
        lambda: not slurm.run("squeue", "-h", "-r").strip(), "the queue is empty", lambda: slurm.run("squeue")
    )
    losses = undisturbed.losses()
    campaign.assert_whole({trial.trial_id: losses[trial.trial_id] for trial in campaign.trials()})


def drop_what_only_slurm_believes(campaign: Campaign, slurm: SlurmCluster) -> None:
    """End what a slurmctld that was killed takes for running, though nothing of it is left on its node.

    It saves its state every few seconds, and asks the nodes for their jobs every few minutes.
    """
    until(lambda: not workers_of(campaign.folder), "no worker is left", campaign.log)
    slurm.run("scancel", "--state=RUNNING", "--user=root")


@pytest.mark.nightly
def test_each_job_is_requeued_three_times_while_the_scheduler_is_killed_five_times(
    slurm_commands, tmp_path, text_files, undisturbed
):
    """The scheduler is a run and a controller by turns; the controller's own job is requeued too."""
    slurm, count = slurm_commands, 2 * OF_THE_STORM
    with sent_to(slurm, tmp_path, text_files, "plain", list(range(OF_THE_STORM))) as campaign:
        terminal, controller = Terminal(campaign, slurm), ControllerJob(campaign, slurm)
        hold(tmp_path)
        terminal.start()
        until(lambda: bool(running_jobs(slurm)), "the first job runs", campaign.log)
        terminal.kill()
        for attempt, scheduler in enumerate((terminal, controller, terminal)[:REQUEUES], 1):
            scheduler.start()
            until_all_train(campaign, attempt, count)
            for job in running_jobs(slurm):
                slurm.run("scontrol", "requeue", job)
            scheduler.kill()
        controller.start()
        until_all_train(campaign, REQUEUES + 1, count)
        controller.kill()
        release(tmp_path)
        terminal.start()
        until_done(campaign, slurm)
        assert_whole(campaign, undisturbed, slurm)
        assert {len(known_jobs(trial)) for trial in campaign.trials()} == {1}
        assert {result["resumes"] for result in campaign.results().values()} == {REQUEUES}
        before = records(campaign)
        terminal.start()
        until_done(campaign, slurm)
        assert records(campaign) == before  # nothing comes back


Outage = Callable[[SlurmCluster, Path], AbstractContextManager[None]]


@contextmanager
def failing(_slurm: SlurmCluster, commands: Path, modes: list[tuple[str, str]]) -> Iterator[None]:
    """These commands fail as where SLURM does not answer; one that is ``heard`` does its work."""
    for name, mode in modes:
        (commands / f"{name}.{mode}").touch()
    yield
    if ("sbatch", "heard") in modes or ("sbatch", "unheard") in modes:
        until((commands / "sbatch.struck").exists, "a trial is sent")
    for path in [*commands.glob("*.heard"), *commands.glob("*.unheard")]:
        path.unlink()


@contextmanager
def stopped(slurm: SlurmCluster, _commands: Path, daemon: str) -> Iterator[None]:
    """kill -9 of a daemon; then it is started again."""
    slurm.stop_daemon(daemon, signal.SIGKILL)
    yield
    slurm.start_daemon(daemon, "-D")
    if daemon == "slurmctld":
        until(lambda: bool(slurm.nodes_in("idle")), "its nodes are known", slurm.logs)


OUTAGES: dict[str, Outage] = {
    "squeue": partial(failing, modes=[("squeue", "unheard")]),
    "sbatch": partial(failing, modes=[("sbatch", "unheard")]),
    "an sbatch that is heard, then squeue": partial(failing, modes=[("sbatch", "heard")]),
    "sacct": partial(failing, modes=[("sacct", "unheard"), ("sacctmgr", "unheard")]),
    "slurmctld": partial(stopped, daemon="slurmctld"),
    "slurmdbd": partial(stopped, daemon="slurmdbd"),
}
EVERY_CHANGE = ("slurmctld",)
"""The outage that loses most; the others are alike, and waited for at night."""
WATCHED = ("squeue", "slurmctld")
"""Outages in which the scheduler has nothing to send, and looks at the queue alone."""


@pytest.fixture
def commands(tmp_path, monkeypatch) -> Path:
    """Commands of SLURM that fail while a file beside them says so."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in COMMANDS:
        real = shutil.which(name)
        fails = f'echo "{name}: error: {TIMED_OUT}" >&2; exit 1'
        script = folder / name
        script.write_text(
            f'#!/bin/sh\n[ -e "{script}.unheard" ] && {{ touch "{script}.struck"; {fails}; }}\n'
            f'[ -e "{script}.heard" ] && {{ "{real}" "$@" >/dev/null; touch "{script}.struck" '
            f'"{folder}/squeue.unheard"; {fails}; }}\nexec "{real}" "$@"\n'
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        pytest.param(seed, what, marks=() if what in EVERY_CHANGE else pytest.mark.nightly)
        for seed, what in enumerate(OUTAGES)
    ],
)
def test_an_outage_is_waited_out(slurm_commands, folder, commands, text_files, undisturbed, seed, what):
    """One of two trials trains as it begins, ends meanwhile, and makes room for the other."""
    with sent_to(slurm_commands, folder, text_files, "one", [seed]) as campaign:
        hold(folder)
        campaign.start()
        until_all_train(campaign, 1, 1)
        with OUTAGES[what](slurm_commands, commands):
            release(folder)
            time.sleep(OUTAGE_S)
        until_done(campaign, slurm_commands)
        if what == "slurmctld":
            drop_what_only_slurm_believes(campaign, slurm_commands)
        assert_whole(campaign, undisturbed, slurm_commands)
        watched_too_long = what in WATCHED and OUTAGE_S > TOLD_AFTER_S
        assert ("SLURM has not answered for 1 min" in campaign.log()) == watched_too_long, campaign.log()
        assert {starts(trial) for trial in campaign.trials()} == {1}


@pytest.mark.nightly
def test_a_slurm_that_forgets_what_it_started_is_outlived(slurm_commands, folder, text_files, undisturbed):
    """Killed before it has saved that a job runs, it starts the job again, finds it there, and holds it.

    Or it knows nothing of a job that was just sent, which the accounting then has as running for ever.
    """
    with sent_to(slurm_commands, folder, text_files, "one", [SEEDS - 1]) as campaign:
        campaign.start()
        until(lambda: bool(running_jobs(slurm_commands)), "the first job runs", campaign.log)
        with stopped(slurm_commands, folder, "slurmctld"):
            pass
        until_done(campaign, slurm_commands)
        drop_what_only_slurm_believes(campaign, slurm_commands)
        assert_whole(campaign, undisturbed, slurm_commands)
