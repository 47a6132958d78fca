"""The preflight job on a real cluster."""

from dataclasses import replace

import pytest

from cluster.slurm_daemons import until
from scalevec.orchestrator.attempts.jobs import Job, ResourceRequest
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.sweep.behind_checks import ExecutorBehindChecks
from scalevec.orchestrator.sweep.machine_checks import Machine, preflight, send_checks
from scalevec.results.run_directory import RunDirectory

ASKED = ResourceRequest(memory_gb=1.5)


@pytest.fixture
def site(slurm_commands, tmp_path) -> Site:
    return Site(tmp_path / "runs", "small", 1, Profile(poll_s=0.2))


def test_a_cluster_like_this_machine_is_ready(site):
    executor = EXECUTORS["slurm"].build(site)
    preflight(executor, site, [Machine("", ASKED)])
    assert executor.free_slots == EXECUTORS["slurm"].build(site).free_slots


def test_nodes_without_the_gpu_that_trials_need_and_without_the_corpus_are_told(site):
    with pytest.raises(MissingRequirementError) as lacking:
        preflight(
            EXECUTORS["slurm"].build(site), site, [Machine("", replace(ASKED, gpus=1))], corpora=["f" * 64]
        )
    lines = str(lacking.value).splitlines()
    assert lines[0] == "the machines of slurm are not ready for the trials:"
    assert [line.split(":")[0] for line in lines[1:]] == ["- CUDA", "- corpus"]


def test_a_job_that_cannot_even_start_is_told_with_its_last_words(site):
    broken = replace(
        site, profile=site.profile.model_copy(update={"setup": ("echo no such module >&2; exit 3",)})
    )
    with pytest.raises(MissingRequirementError, match="no such module"):
        preflight(EXECUTORS["slurm"].build(broken), broken, [Machine("", ASKED)])


def behind(site) -> tuple[ExecutorBehindChecks, list]:
    executor = EXECUTORS["slurm"].build(site)
    checks = send_checks(executor, site, [Machine("a", ASKED)])
    return ExecutorBehindChecks(executor, checks, {"a": "a"}), checks


def a_trial(site) -> Job:
    directory = RunDirectory.of(site.runs_dir, "a" * 64)
    directory.path.mkdir(parents=True)
    return Job(directory.trial_id, ("echo", "hello"), directory.path, rung="a", request=ASKED)


def ends_of(executor) -> list:
    ends = []
    until(lambda: bool(ends.extend(executor.wait(0.5)) or ends), "the trial has ended")
    return ends


def test_a_trial_that_waits_behind_its_preflight_starts_when_that_found_the_machine_good(site, slurm):
    other = slurm.run("sbatch", "--hold", "--output=/dev/null", "--wrap", "true").split()[-1]
    site = replace(site, profile=site.profile.model_copy(update={"dependency": f"afterany:{other}"}))
    executor, checks = behind(site)
    job = a_trial(site)
    (number,) = executor.submit([job])
    preflight_job = checks[0].number.partition("/")[0]
    shown = slurm.run("scontrol", "show", "job", number.partition("/")[0])
    assert f"afterok:{preflight_job.partition('_')[0]}" in shown
    assert f"afterany:{other}" in shown
    slurm.run("scancel", other)
    (end,) = ends_of(executor)
    assert (end.number, end.exit_code) == (number, 0)


def test_a_trial_never_starts_where_its_preflight_failed_and_leaves_the_queue(site, slurm):
    site = replace(site, profile=site.profile.model_copy(update={"setup": ("no_such_module",)}))
    executor, _ = behind(site)
    job = a_trial(site)
    executor.submit([job])
    with pytest.raises(MissingRequirementError, match="no_such_module: command not found"):
        ends_of(executor)
    until(lambda: "small.a." not in slurm.run("squeue", "-h", "-o", "%j"), "the trial left the queue")
    assert not job.log.exists()
    assert RunDirectory(job.directory).events()[-1]["cause"] == "not_started"


def test_a_second_run_waits_behind_the_preflight_that_a_first_has_in_the_queue(site, slurm):
    site = replace(site, profile=site.profile.model_copy(update={"flags": {"begin": "now+1hour"}}))
    first, (sent,) = behind(site)
    second, (same,) = behind(site)
    assert (same.number, same.is_shared) == (sent.number, True)
    job = sent.number.partition("/")[0]
    second.close()
    assert slurm.run("squeue", "-h", "-o", "%T", "-j", job).strip() == "PENDING"
    first.close()
    until(lambda: "PENDING" not in slurm.run("squeue", "-h", "-o", "%T"), "it left the queue")
