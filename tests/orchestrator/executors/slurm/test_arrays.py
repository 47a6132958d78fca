"""Arrays as they are sent to SLURM and ended there, without a SLURM."""

import os
import shlex
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import submitit

from scalevec.orchestrator.attempts.jobs import WORKER, Job, ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.payload import read_payload
from scalevec.orchestrator.executors.slurm.submission import Submitter, job_script
from scalevec.orchestrator.snapshots.snapshot import taken
from scalevec.orchestrator.sweep import controller
from scalevec.results.run_directory import RunDirectory
from support import umask

TOKEN = "20260101T000000-0011aabb"


def test_jobs_that_one_may_not_end_are_said_after_ones_own_were_ended(monkeypatch):
    message = "scancel: error: Kill job error on job id 7: Access/permission denied"
    call = Mock(side_effect=slurm_queue.SlurmCommandError(message))
    monkeypatch.setattr(slurm_queue, "call", call)
    with pytest.raises(MissingRequirementError, match=r"somebody else.*job id 7: Access/permission denied"):
        slurm_queue.end(["6", "7"], hard=False)
    assert [asked.args for asked in call.call_args_list] == [
        ("scancel", "--state=PENDING", "6", "7"),
        ("scancel", "--state=SUSPENDED", "6", "7"),
        ("scancel", "--signal=TERM", "--state=RUNNING", "6", "7"),
    ]


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """The commands that were handed to sbatch, in a SLURM that gives each array the next number."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").touch(0o755)  # which submitit looks for
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    commands: list[str] = []

    def submit(_self, command):
        commands.append(command)
        return SimpleNamespace(job_id=f"{len(commands)}")

    monkeypatch.setattr(submitit.SlurmExecutor, "_submit_command", submit)
    return commands


def trials(tmp_path: Path, letters: str) -> list[Job]:
    directories = [RunDirectory.of(tmp_path / "runs", letter * 64) for letter in letters]
    for directory in directories:
        directory.path.mkdir(parents=True)
    return [
        Job(directory.trial_id, ("run", "a b"), directory.path, token=f"t{index}")
        for index, directory in enumerate(directories)
    ]


def site(tmp_path: Path, **profile) -> Site:
    return Site(tmp_path / "runs", "small", 1, Profile(**profile))


def test_each_array_can_be_found_again_before_it_is_sent(tmp_path, sent, monkeypatch):
    jobs, seen = trials(tmp_path, "abc"), []
    submit = submitit.SlurmExecutor._submit_command

    def look(self, command):
        actual = [RunDirectory(job.directory).job() for job in jobs]
        seen.append([job["token"] for job in actual if job])
        return submit(self, command)

    monkeypatch.setattr(submitit.SlurmExecutor, "_submit_command", look)
    numbers = [trial.number for trial in Submitter(site(tmp_path)).submit(jobs, 1)]
    assert seen == [["t0"], ["t0", "t1"], ["t0", "t1", "t2"]]
    assert [RunDirectory(job.directory).job()["job"] for job in jobs] == numbers


def test_what_jobs_run_lies_in_the_private_folder_and_their_records_in_the_runs_folder(tmp_path, sent):
    jobs, here = trials(tmp_path, "ab"), site(tmp_path, trials_per_gpu=2)
    with umask(0):
        [first, _] = Submitter(here).submit(jobs, 1000)
    private = here.private / "slurm" / first.token
    payload = read_payload(private)
    assert [[entry.command for entry in entries] for entries in payload.jobs] == [[("run", "a b")] * 2]
    assert (Path(payload.records), payload.at_a_time) == (first.folder, 2)
    assert [shlex.split(command)[-1] for command in sent] == [str(private)]
    assert private.stat().st_mode & 0o077 == 0
    assert {path.name for path in first.folder.iterdir()} == {"sending.json", "places.json"}
    assert first.folder.stat().st_mode & stat.S_IWGRP  # another member's scheduler adds to them


def asked_of_sbatch(tmp_path: Path, jobs: list[Job] | None = None, **profile) -> dict[str, object]:
    """What submitit is told of trials of which each takes 2 GB and a GPU."""
    request = ResourceRequest(memory_gb=2.0, gpus=1.0)
    jobs = jobs or [replace(job, request=request) for job in trials(tmp_path, "a")]
    return Submitter(site(tmp_path, **profile)).parameters(TOKEN, [jobs])


def test_a_script_is_shown_as_sbatch_would_get_it_and_nothing_is_sent(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEVEC_PRIVATE_DIR", str(tmp_path / "private"))
    here = site(tmp_path, partition="gpu", max_time="20:00:00", setup=("module load cuda",))
    job = Job("0" * 64, (), tmp_path / "runs", rung="1b", estimate_s=1e6)
    script = job_script(here, job).splitlines()
    assert script[0] == "#!/bin/bash"
    assert {"#SBATCH --partition=gpu", "#SBATCH --time=1200", "module load cuda"} <= set(script)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_memory_is_asked_for_in_one_way_or_not_at_all(tmp_path):
    assert asked_of_sbatch(tmp_path)["mem"] == "2048M"
    assert "mem" not in asked_of_sbatch(tmp_path / "null", memory_gb=None)
    by_cpu = asked_of_sbatch(tmp_path / "by cpu", flags={"mem-per-cpu": "4G"})
    assert "mem" not in by_cpu
    assert by_cpu["additional_parameters"]["mem-per-cpu"] == "4G"


def test_gpus_are_asked_for_in_one_way(tmp_path):
    assert asked_of_sbatch(tmp_path)["gpus_per_node"] == 1
    assert asked_of_sbatch(tmp_path / "mig", gpus="1g.10gb:1")["gpus_per_node"] == "1g.10gb:1"
    assert "gpus_per_node" not in asked_of_sbatch(tmp_path / "gres", flags={"gres": "gpu:a100:1"})


def test_a_controller_asks_for_a_cpu_and_nothing_by_which_trials_find_gpus(tmp_path):
    of_trials = {
        "partition": "gpu",
        "constraint": "a100|h100",
        "qos": "long",
        "exclude": ("n13",),
        "dependency": "afterok:1",
        "gpus": "h100:8",
        "memory_gb": 64.0,
        "flags": {"gres": "gpu:8", "nice": 100},
        "account": "lab",
        "setup": ("module load python",),
    }
    here = controller.site_of_controller(site(tmp_path, **of_trials))
    request = here.profile.request(controller.RUNG, controller.REQUEST)
    (job,) = trials(tmp_path, "a")
    asked = Submitter(here).parameters(TOKEN, [[replace(job, rung=controller.RUNG, request=request)]])
    assert asked.keys().isdisjoint({"partition", "constraint", "qos", "exclude", "gpus_per_node"})
    assert (asked["account"], asked["mem"], asked["cpus_per_task"]) == ("lab", "4096M", 1)
    assert asked["additional_parameters"] == {"requeue": True}
    assert "module load python" in asked["setup"]


def test_nothing_that_is_sent_or_kept_is_a_pickle(tmp_path, sent):
    here = site(tmp_path)
    Submitter(here).submit(trials(tmp_path, "ab"), 1000)
    assert not [path for folder in (here.private, tmp_path) for path in folder.rglob("*.pkl")]


def test_a_job_starts_from_the_snapshot(tmp_path, sent):
    here = site(tmp_path)
    worker = Job("a" * 64, (*WORKER, "--job", "t0"), trials(tmp_path, "a")[0].directory, token="t0")
    [trial] = Submitter(here).submit([worker], 1)
    start = taken(here.private).start
    expected = ["-P", start, "-m", "scalevec.orchestrator.executors.slurm.job_script"]
    assert shlex.split(sent[0])[1:5] == expected
    [[entry]] = read_payload(here.private / "slurm" / trial.token).jobs
    assert entry.command[1:5] == ("-P", start, "-m", WORKER[-1])


def test_a_job_looks_who_could_have_changed_what_it_runs_before_anything_else(tmp_path, sent, monkeypatch):
    here = site(tmp_path, setup=["echo loaded"])
    scripts: list[list[str]] = []

    def submit(self, _command):
        scripts.append(self.parameters["setup"])
        return SimpleNamespace(job_id="1")

    monkeypatch.setattr(submitit.SlurmExecutor, "_submit_command", submit)
    [trial] = Submitter(here).submit(trials(tmp_path, "a"), 1)
    setup = ["bash", "-c", "\n".join(scripts[0])]
    assert subprocess.run(setup, capture_output=True, text=True).stdout == "loaded\n"
    private = here.private / "slurm" / trial.token
    private.chmod(0o770)
    done = subprocess.run(setup, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"others could change the code of this job, or it is gone: {private}" in done.stderr


def test_jobs_are_named_by_sweep_and_what_they_are_for_and_found_by_the_token(tmp_path):
    submitter = Submitter(site(tmp_path))
    for rung, role in (("a", "a"), ("", "trials")):
        job = Job("a" * 64, ("run",), tmp_path, rung=rung)
        assert submitter.parameters(TOKEN, [[job]])["job_name"] == f"small.{role}.{TOKEN}"


def test_a_line_of_setup_that_fails_ends_the_job_with_its_own_words(tmp_path):
    submitter = Submitter(site(tmp_path, setup=["x='a b'", "no_such 'thing'"]))
    setup = submitter.parameters(TOKEN, [[Job("a" * 64, ("run",), tmp_path)]])["setup"]
    script = "\n".join([*setup[1:], "echo went on"])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    assert "no_such: command not found" in done.stderr
    assert done.stderr.endswith("scalevec: this line of setup failed: no_such 'thing'\n")


def test_a_command_of_setup_may_go_on_over_lines(tmp_path):
    text = "if true; then\n echo yes\nelse\n echo no\nfi\ncat <<EOF\ntext\nEOF\necho a \\\nb"
    setup = Submitter(site(tmp_path, setup=text)).parameters(TOKEN, [[Job("a" * 64, ("run",), tmp_path)]])
    done = subprocess.run(["bash", "-c", "\n".join(setup["setup"][1:])], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "yes\ntext\na b\n", "")
    with pytest.raises(InvalidInputError, match="setup: bash cannot read"):
        asked_of_sbatch(tmp_path, setup=text[:30])


def test_a_job_waits_for_the_users_own_dependency(tmp_path):
    job = Job("a" * 64, ("run",), tmp_path)
    further = asked_of_sbatch(tmp_path, [job], dependency="afterany:3")["additional_parameters"]
    assert further["dependency"] == "afterany:3"
    assert further["kill-on-invalid-dep"] == "yes"
