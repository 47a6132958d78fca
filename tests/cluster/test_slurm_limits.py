"""A limit that a real SLURM enforces: a sweep goes on below it."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.slurm_daemons import (
    ACCOUNTING_PROGRAMS,
    PROGRAMS,
    SlurmCluster,
    require_programs,
    running,
    until,
)
from cluster.test_slurm_jobs import trials
from support import SCALEVEC, two_arms

pytestmark = pytest.mark.slow

PROFILES = "lab: {poll_s: 0.2, memory_gb: 1, time: 60, account: lab}\n"


@pytest.fixture(scope="module")
def enforcing() -> Iterator[SlurmCluster]:
    """A cluster that enforces limits, in a folder that other users can reach."""
    require_programs(*PROGRAMS, *ACCOUNTING_PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="scalevec-limits-") as name:
        Path(name).chmod(0o755)
        cluster = SlurmCluster(Path(name), port=19000, settings="AccountingStorageEnforce=limits")
        for started in running(cluster):
            for who in ("account lab", "user root account=lab"):
                cluster.run("sacctmgr", "--immediate", "add", *who.split())
            yield started


@pytest.fixture
def limited(enforcing, monkeypatch, tmp_path):
    """Sets a limit of this user; afterwards there is none, and no job."""
    monkeypatch.setenv("SLURM_CONF", enforcing.environment["SLURM_CONF"])
    (tmp_path / "profiles.yaml").write_text(PROFILES)

    def limit(*what: str) -> SlurmCluster:
        enforcing.run("sacctmgr", "--immediate", "modify", *what)
        known = ("scontrol", "show", "assoc_mgr", "flags=assoc")
        until(lambda: what[-1] in enforcing.run(*known), "slurmctld knows it", lambda: enforcing.run(*known))
        return enforcing

    yield limit
    enforcing.run("sacctmgr", "--immediate", "modify", "user", "root", "set", "MaxSubmitJobs=-1")
    enforcing.run("scancel", "--account=lab")
    until(lambda: not enforcing.run("squeue", "-h").strip(), "the queue is empty")


def held(slurm: SlurmCluster, count: int) -> str:
    """Jobs that wait in the queue as long as they are left alone."""
    words = ["sbatch", "--parsable", "--account=lab", "--hold", f"--array=1-{count}", "--chdir=/"]
    done = subprocess.run(
        [*words, "--output=/dev/null", "--wrap", "true"],
        env=os.environ | slurm.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def start(folder: Path, text: Path, seeds: range) -> "subprocess.Popen[bytes]":
    (folder / "small.yaml").write_text(two_arms("small", text, 1, seeds=seeds, width=16, layers=1))
    variables = os.environ | {"SCALEVEC_CACHE_DIR": str(folder / "cache")}
    command = [str(SCALEVEC), "run", "small.yaml", "--executor", "slurm", "--profile", "lab"]
    log = (folder / "log.txt").open("wb")
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)


def log_of(folder: Path) -> str:
    return (folder / "log.txt").read_text()


def ended(process, folder: Path) -> list[str]:
    until(lambda: process.poll() is not None, "the sweep has ended", lambda: log_of(folder))
    assert process.returncode == 0, log_of(folder)
    return [trial.state().state for trial in trials(folder)]


@pytest.mark.nightly
def test_a_sweep_above_the_limit_of_its_user_goes_on_beside_jobs_of_that_user(limited, tmp_path, text_files):
    slurm = limited("user", "root", "where", "account=lab", "set", "MaxSubmitJobs=6")
    others = held(slurm, 3)
    with pytest.raises(AssertionError, match="MaxSubmit"):
        held(slurm, 4)
    process = start(tmp_path, text_files, range(4))
    assert ended(process, tmp_path) == ["completed"] * 8
    assert slurm.run("squeue", "-h", "-r", "-o", "%F").split() == [others] * 3
