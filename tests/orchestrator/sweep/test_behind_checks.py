"""Trials that wait in the queue behind the preflight of their machines."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from scalevec.orchestrator.attempts.jobs import Job
from scalevec.orchestrator.errors import CheckInterruptedError, MissingRequirementError
from scalevec.orchestrator.executors.base import Ended, Site
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.sweep import machine_checks
from scalevec.orchestrator.sweep.behind_checks import ExecutorBehindChecks
from scalevec.orchestrator.sweep.machine_checks import Machine, send_checks
from scalevec.results.run_directory import RunDirectory

MACHINES = [Machine("small"), Machine("large")]


class Queue:
    """Numbers jobs; what ``ends`` holds is over at the next look."""

    name, cluster, free_slots = "slurm", "here", 7

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.ends: list[Ended] = []
        self.cancelled: list[str] = []

    def submit(self, jobs):
        self.jobs += jobs
        numbers = [str(len(self.jobs) - len(jobs) + position) for position, _ in enumerate(jobs)]
        for job, number in zip(jobs, numbers, strict=True):
            RunDirectory(job.directory).write_job(self.name, number, job.token)
        return numbers

    def adopt(self, numbers):
        return set(numbers) - {ended.number for ended in self.ends}

    def wait(self, timeout_s):
        ended, self.ends = self.ends, []
        return ended

    def cancel(self, numbers):
        self.cancelled += numbers


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def site(tmp_path) -> Site:
    profile = Profile(rungs={"large": RungProfile(partition="gpu")})
    return Site(tmp_path / "runs", "any", 1, profile)


def trial(tmp_path: Path, rung: str, letter: str = "a") -> Job:
    directory = RunDirectory.of(tmp_path / "runs", letter * 64)
    directory.path.mkdir(parents=True, exist_ok=True)
    return Job(directory.trial_id, ("run",), directory.path, rung=rung, token=f"t{letter}")


def behind(queue, site) -> tuple[ExecutorBehindChecks, list]:
    checks = send_checks(queue, site, MACHINES)
    return ExecutorBehindChecks(queue, checks, {"small": "small", "large": "large", "more": "small"}), checks


def report(check, **fields) -> Ended:
    check.report.write_text(json.dumps({"ok": True, "free_bytes": 0, "checks": []} | fields))
    return Ended(check.number, 0)


BAD = {"ok": False, "checks": [{"name": "CUDA", "problem": "sees no GPU"}]}


def test_all_kinds_of_machine_are_looked_at_at_once_and_trials_wait_for_their_own(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    assert [job.role for job in queue.jobs] == ["preflight", "preflight"]
    executor.submit([trial(tmp_path, rung) for rung in ("small", "large", "more", "unknown")])
    small, large = (check.number for check in checks)
    assert [job.after for job in queue.jobs[2:]] == [(small,), (large,), (small,), ()]


def test_a_trial_that_is_sent_after_a_good_preflight_waits_for_nobody(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    queue.ends = [report(checks[0]), Ended("9", 0)]
    assert executor.wait(0.0) == [Ended("9", 0)]
    executor.submit([trial(tmp_path, "small"), trial(tmp_path, "large")])
    assert [job.after for job in queue.jobs[2:]] == [(), (checks[1].number,)]


def test_a_machine_that_is_not_ready_is_told_and_what_waits_is_called_off(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    job = trial(tmp_path, "small")
    RunDirectory(job.directory).append_event("queued", job=job.token)
    (number,) = executor.submit([job])
    queue.ends = [report(checks[1], **BAD)]
    with pytest.raises(
        MissingRequirementError, match=r"not ready for the trials:\n- rung large: CUDA: sees no"
    ):
        executor.wait(0.0)
    assert set(queue.cancelled) == {number, checks[0].number}
    last = RunDirectory(job.directory).events()[-1]
    assert (last["state"], last["cause"], last["job"]) == ("pending", "not_started", job.token)


def test_what_a_preflight_found_wrong_is_told_where_the_records_of_a_trial_cannot_be_read(
    queue, site, tmp_path
):
    executor, checks = behind(queue, site)
    job = trial(tmp_path, "small")
    executor.submit([job])
    RunDirectory(job.directory).events_path.symlink_to(tmp_path / "elsewhere")
    queue.ends = [report(checks[0], **BAD)]
    with pytest.raises(MissingRequirementError, match="sees no GPU"):
        executor.wait(0.0)


def test_a_preflight_job_that_is_interrupted_says_nothing_of_its_machine(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    job = trial(tmp_path, "small")
    (number,) = executor.submit([job])
    queue.ends = [Ended(checks[0].number, None, "node_failure", "n1", "SLURM: NODE_FAIL")]
    with pytest.raises(CheckInterruptedError, match="NODE_FAIL"):
        executor.wait(0.0)
    assert set(queue.cancelled) == {number, checks[1].number}
    assert RunDirectory(job.directory).events()[-1]["cause"] == "not_started"


def test_a_preflight_job_that_was_interrupted_after_its_report_is_believed(queue, site):
    executor, checks = behind(queue, site)
    queue.ends = [replace(report(checks[0], **BAD), exit_code=None, cause="preempted")]
    with pytest.raises(MissingRequirementError, match="sees no GPU"):
        executor.wait(0.0)


def test_a_trial_that_ended_before_its_preflight_is_told_only_after_that(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    (number,) = executor.submit([trial(tmp_path, "small")])
    cancelled = Ended(number, None, "cancelled")
    queue.ends = [cancelled]
    assert executor.wait(0.0) == []
    queue.ends = [report(checks[0])]
    assert executor.wait(0.0) == [cancelled]
    assert executor.wait(0.0) == []


def test_a_trial_that_the_queue_ended_although_its_preflight_was_good_is_sent_again(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    (number,) = executor.submit([trial(tmp_path, "small")])
    forgotten = Ended(number, None, "cancelled", None, "SLURM: CANCELLED DependencyNeverSatisfied")
    queue.ends = [report(checks[0]), forgotten]
    assert executor.wait(0.0) == [replace(forgotten, cause="not_started")]


def test_a_trial_that_ended_with_its_preflight_is_as_if_it_had_not_been_sent(queue, site, tmp_path):
    executor, checks = behind(queue, site)
    job = trial(tmp_path, "small")
    (number,) = executor.submit([job])
    queue.ends = [Ended(number, None, "cancelled"), report(checks[0], **BAD)]
    with pytest.raises(MissingRequirementError, match="not ready"):
        executor.wait(0.0)
    assert RunDirectory(job.directory).events()[-1]["cause"] == "not_started"
    assert queue.cancelled == [checks[1].number]


def test_preflight_jobs_that_nobody_waits_for_are_called_off_at_the_end(queue, site):
    executor, checks = behind(queue, site)
    executor.close()
    assert queue.cancelled == [check.number for check in checks]


def test_preflight_jobs_stay_while_trials_wait_behind_them(queue, site, tmp_path):
    executor, _ = behind(queue, site)
    executor.submit([trial(tmp_path, "small")])
    executor.close()
    assert queue.cancelled == []


def test_a_preflight_job_that_an_earlier_run_has_in_the_queue_is_waited_for(queue, site, tmp_path):
    _, sent = behind(queue, site)
    executor, checks = behind(queue, replace(site, sweep="another"))
    assert [check.number for check in checks] == [check.number for check in sent]
    executor.submit([trial(tmp_path, "large")])
    assert [job.after for job in queue.jobs[2:]] == [(sent[1].number,)]
    queue.ends = [report(sent[1], **BAD)]
    with pytest.raises(MissingRequirementError, match="rung large: CUDA: sees no"):
        executor.wait(0.0)
    assert queue.cancelled == ["2"]


def test_a_preflight_job_of_an_earlier_run_is_not_called_off(queue, site):
    behind(queue, site)
    executor, _ = behind(queue, site)
    executor.close()
    assert queue.cancelled == []


def test_a_preflight_job_that_is_over_or_looks_for_less_space_is_sent_again(queue, site):
    (ended, small) = send_checks(queue, site, MACHINES, free_bytes=1)
    queue.ends = [Ended(ended.number, 1)]
    assert [check.number for check in send_checks(queue, site, MACHINES, free_bytes=1)] == [small.number, "2"]
    queue.ends = []
    assert [check.number for check in send_checks(queue, site, MACHINES[1:], free_bytes=2)] == ["3"]


def test_an_answer_counts_for_every_sweep_for_a_day(queue, site):
    _, checks = behind(queue, site)
    for check in checks:
        report(check)
    assert send_checks(queue, replace(site, sweep="another"), MACHINES) == []
    yesterday = checks[0].report.stat().st_mtime - machine_checks.DAY_S - 1
    os.utime(checks[0].report, (yesterday, yesterday))
    assert [check.machine.rung for check in send_checks(queue, site, MACHINES)] == ["small"]


@pytest.mark.parametrize(
    "profile",
    [
        {"partition": "other"},
        {"setup": ("module load cuda",)},
        {"python": "/opt/python"},
        {"launcher": ("apptainer", "exec")},
        {"qos": "long"},
    ],
)
def test_an_answer_counts_for_its_partition_interpreter_and_setup_alone(queue, site, profile):
    (check,) = send_checks(queue, site, MACHINES[:1])
    report(check)
    assert send_checks(queue, site, MACHINES[:1]) == []
    other = replace(site, profile=site.profile.model_copy(update=profile))
    assert len(send_checks(queue, other, MACHINES[:1])) == 1


def test_an_answer_counts_for_its_code_alone(queue, site, monkeypatch):
    (check,) = send_checks(queue, site, MACHINES[:1])
    report(check)
    monkeypatch.setattr(machine_checks, "code_here", lambda: {"torch": "another"})
    assert len(send_checks(queue, site, MACHINES[:1])) == 1


def test_another_interpreter_may_have_another_torch(queue, site):
    profile = Profile(launcher=["apptainer", "exec", "image.sif"], python="/usr/bin/python3")
    (check,) = send_checks(queue, replace(site, profile=profile), MACHINES[:1])
    assert check.job.command[:4] == ("apptainer", "exec", "image.sif", "/usr/bin/python3")
    expected = json.loads(check.job.command[check.job.command.index("--expect") + 1])
    assert not {"Python", "torch"} & set(expected["code"])
