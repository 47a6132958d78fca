# ruff: noqa: F811 (fixtures of another module)
"""What a job runs is what was sent, however long it waited."""

import subprocess
import sys

import pytest

from cluster.slurm_daemons import until
from cluster.test_slurm_jobs import killed, ours, trials
from cluster.test_slurm_training import losses, sweep, undisturbed  # noqa: F401 (fixtures)
from plugin_copy import PACKAGES, copied_packages

pytestmark = pytest.mark.slow

PROFILES = 'behind: {{poll_s: 0.2, memory_gb: 1.5, time: 60, dependency: "afterany:{other}"}}'


@pytest.fixture
def waiting_and_edited(slurm, slurm_commands, tmp_path, sweep):
    """Both trials wait in the queue, sent from a copy of our packages each of which now refuses to be run.

    What is returned is the job that they wait for.
    """
    other = slurm.run("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap", "true").strip()
    (tmp_path / "small.yaml").write_text(sweep)
    (tmp_path / "profiles.yaml").write_text(PROFILES.format(other=other))
    copy = tmp_path / "copy"
    environment = copied_packages(copy) | {"SCALEVEC_PRIVATE_DIR": str(tmp_path / "private")}
    command = [sys.executable, "-P", "-m", "scalevec.orchestrator.cli.main", "run", "small.yaml"]
    with (tmp_path / "log.txt").open("wb") as log:
        options = ["--executor", "slurm", "--profile", "behind"]
        process = subprocess.Popen(
            [*command, *options], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    until(lambda: len(ours(slurm)) == 3, "both trials wait", slurm.logs)
    killed(process)
    for name in PACKAGES:
        (copy / name / "__init__.py").write_text('raise SystemExit("the edited code was run")\n')
    yield other
    slurm.run("scancel", "--user=root")


def test_jobs_that_wait_run_the_code_that_was_sent(waiting_and_edited, slurm, tmp_path, undisturbed):
    slurm.run("scancel", waiting_and_edited)
    both = trials(tmp_path)
    until(lambda: all(trial.result() for trial in both), "both have their result", slurm.logs)
    assert losses(tmp_path) == undisturbed
    (snapshot,) = (tmp_path / "private/snapshots").glob("*")
    assert {event["code"] for trial in both for event in trial.events() if "code" in event} == {snapshot.name}
