"""What of the SLURM executor needs no SLURM: what is asked for, and what is read of its answers."""

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from scalevec.orchestrator.attempts.jobs import Job, ResourceRequest
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm import unanswered
from scalevec.orchestrator.executors.slurm.queue import JobRow
from scalevec.orchestrator.executors.slurm.submission import Submitter, _as_ours, minutes_of, queued_trials
from scalevec.results.run_directory import RunDirectory

TOKEN = "20260101T000000-0011aabb"


def submitter(tmp_path: Path, **profile) -> Submitter:
    return Submitter(Site(tmp_path / "runs", "small", 1, Profile(**profile)))


def job(tmp_path: Path, rung: str = "a", **fields) -> Job:
    return Job("a" * 64, ("true",), tmp_path, rung=rung, **fields)


def parameters(tmp_path: Path, given: Job, **profile):
    sender = submitter(tmp_path, **profile)
    asked = replace(given, request=sender.site.profile.request(given.rung, given.request))
    return sender.parameters(TOKEN, [[asked]])


def test_the_profile_says_what_the_request_leaves_open_and_more(tmp_path):
    given = job(tmp_path, request=ResourceRequest(cpus=3, gpus=0.3, memory_gb=1.5, time_s=3600))
    asked = parameters(tmp_path, given, partition="main", rungs={"b": RungProfile(partition="other")})
    expected = (3, 1, "1536M", 60)
    assert (asked["cpus_per_task"], asked["gpus_per_node"], asked["mem"], asked["time"]) == expected
    assert asked["partition"] == "main"


def test_a_rungs_fields_stand_over_the_request(tmp_path):
    given = job(tmp_path, request=ResourceRequest(cpus=3, gpus=1, memory_gb=1.5, time_s=3600))
    rung = RungProfile(cpus=8, gpus="h100:1", memory_gb=64, time=90, partition="gpu", qos="long")
    asked = parameters(tmp_path, given, partition="main", rungs={"a": rung})
    expected = (8, "h100:1", "65536M", 90)
    assert (asked["cpus_per_task"], asked["gpus_per_node"], asked["mem"], asked["time"]) == expected
    assert (asked["partition"], asked["qos"]) == ("gpu", "long")


def test_a_trial_on_several_machines_has_a_task_on_each(tmp_path):
    given = job(tmp_path, request=ResourceRequest(cpus=3, gpus=4, memory_gb=2, nodes=2))
    asked = parameters(tmp_path, given, gpus="h100:4")
    assert (asked["nodes"], asked["ntasks_per_node"], asked["gpus_per_node"]) == (2, 1, "h100:4")
    assert (asked["cpus_per_task"], asked["mem"]) == (12, "8192M")
    assert asked["srun_args"] == ["--cpus-per-task=12", "--kill-on-bad-exit=1"]


def test_no_gpus_are_asked_for_where_none_are_needed(tmp_path):
    assert "gpus_per_node" not in parameters(tmp_path, job(tmp_path))
    assert "mem" not in parameters(tmp_path, job(tmp_path))


@pytest.mark.parametrize(
    ("profile", "estimates", "minutes"),
    [
        ({}, [3600.0], 120),
        ({"time_factor": 1.0}, [3600.0], 60),
        ({}, [1.0], 5),
        ({}, [600.0, 600.0, 600.0], 60),
        ({"time": 7}, [3600.0, 3600.0], 7),
        ({"time": 0.5}, [3600.0], 1),
    ],
)
def test_the_time_limit_follows_from_the_estimates_or_the_profile(tmp_path, profile, estimates, minutes):
    bundle = [job(tmp_path, estimate_s=seconds) for seconds in estimates]
    assert minutes_of(Profile(**profile), bundle) == minutes


def test_the_warning_before_the_time_limit_leaves_half_of_the_time(tmp_path):
    assert parameters(tmp_path, job(tmp_path), time=1)["signal_delay_s"] == 30
    assert parameters(tmp_path, job(tmp_path), time=60)["signal_delay_s"] == 120


def test_who_starts_again_is_in_the_script(tmp_path):
    assert parameters(tmp_path, job(tmp_path))["additional_parameters"] == {"requeue": True}
    asked = parameters(tmp_path, job(tmp_path), preempt="cancel", flags={"nice": 3, "exclusive": False})
    assert asked["additional_parameters"] == {"nice": 3, "no-requeue": True}


def test_only_nodes_that_slurm_knows_are_avoided_and_never_all(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_queue, "node_names", lambda partition: {"n1", "n2"})
    bad = job(tmp_path, avoid_nodes=("n1.cluster.org", "n7", "x; reboot"))
    assert parameters(tmp_path, bad)["exclude"] == "n1"
    assert "exclude" not in parameters(tmp_path, job(tmp_path, avoid_nodes=("n1", "n2")))
    assert parameters(tmp_path, bad, exclude=["n[4-5]"])["exclude"] == "n[4-5],n1"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", InvalidInputError),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller",
            MissingRequirementError,
        ),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", MissingRequirementError),
    ],
)
def test_slurms_own_message_is_passed_on(message, kind):
    problem = _as_ours(message)
    assert isinstance(problem, kind)
    assert message in str(problem)


FIRST, SECOND = (f"trials/{letter * 2}/{letter * 64}" for letter in "ab")


@pytest.fixture
def places(tmp_path) -> Path:
    """The file that says which trials the jobs of a submission hold, two of them in job 12_3."""
    folder = tmp_path / "sweeps" / "any" / "slurm" / TOKEN
    folder.mkdir(parents=True)
    (folder / "places.json").write_text(json.dumps({"jobs": {"12_3": [FIRST, SECOND]}}))
    return folder / "places.json"


@pytest.mark.parametrize(
    "number",
    ["", "12", "12_3/0", "x/0@" + TOKEN, f"12_3/0@{TOKEN};x", f"12_3/0@{TOKEN}\n", f"12_3/2@{TOKEN}"],
)
def test_what_is_not_a_number_of_ours_names_no_trial(tmp_path, places, number):
    assert queued_trials(tmp_path, [number]) == []


def test_a_number_is_job_place_and_token(tmp_path, places):
    (trial,) = queued_trials(tmp_path, [f"12_3/1@{TOKEN}"])
    assert (trial.job, trial.index, trial.token, trial.directory) == ("12_3", 1, TOKEN, tmp_path / SECOND)
    assert trial.number == f"12_3/1@{TOKEN}"


@pytest.mark.parametrize(
    "jobs",
    [
        {"12_3": ["/first", "/second"]},
        {"12_3": ["trials/../../first", SECOND]},
        {"12_3": [f"{FIRST}\n", SECOND]},
        {"--user=me": [FIRST], "12_3": [FIRST, SECOND]},
        {"12_3": {"0": FIRST}},
        {"12_3": [1, 2]},
        [],
    ],
)
def test_places_that_are_no_run_directories_of_this_folder_name_no_trial(tmp_path, places, jobs):
    places.write_text(json.dumps({"jobs": jobs}))
    assert queued_trials(tmp_path, [f"12_3/1@{TOKEN}"]) == []


def test_a_submission_that_was_never_complete_or_is_gone_has_no_trials(tmp_path, places):
    places.write_text('{"jobs": {"1')
    assert queued_trials(tmp_path, [f"12_3/1@{TOKEN}"]) == []
    places.unlink()
    assert queued_trials(tmp_path, [f"12_3/1@{TOKEN}"]) == []


@pytest.fixture
def in_the_queue(monkeypatch) -> list[str]:
    """Which names were asked for in a queue that has a job, 12, of every name."""
    asked: list[str] = []
    monkeypatch.setattr(slurm_queue, "number_of", lambda name: asked.append(name) or "12")
    return asked


def test_a_job_whose_submission_was_not_answered_is_found_by_its_name(tmp_path, places, in_the_queue):
    places.unlink()
    RunDirectory(tmp_path / FIRST).path.mkdir(parents=True)
    sending = {"name": f"any.a.{TOKEN}", "directories": [[FIRST]], "tokens": [["t"]]}
    places.with_name("sending.json").write_text(json.dumps(sending))
    unanswered.settle(tmp_path, [f"?0/0@{TOKEN}"])
    assert in_the_queue == [f"any.a.{TOKEN}"]
    assert RunDirectory(tmp_path / FIRST).job()["job"] == f"12/0@{TOKEN}"


@pytest.mark.parametrize(
    "change",
    [
        {"name": "interactive,bash,sh,wrap"},
        {"name": f"bash,any.{TOKEN}"},
        {"name": 1},
        {"directories": [["/somewhere/else"]]},
        {"directories": [["sweeps/any/../../else/controller"]]},
        {"directories": "/"},
        {"tokens": [[]]},
        {"tokens": None},
    ],
)
def test_a_record_that_nobody_here_can_have_written_leads_to_no_job(tmp_path, places, in_the_queue, change):
    places.unlink()
    sending = {"name": f"any.a.{TOKEN}", "directories": [[FIRST]], "tokens": [["t"]]}
    places.with_name("sending.json").write_text(json.dumps(sending | change))
    before = sorted(tmp_path.rglob("*"))
    unanswered.settle(tmp_path, [f"?0/0@{TOKEN}"])
    assert in_the_queue == []
    assert sorted(tmp_path.rglob("*")) == before


def test_a_signal_in_the_queue_is_a_negative_exit_code(monkeypatch):
    codes = {"5_1": 3 << 8, "5_2": 9, "5_3": "3:0", "5_4": "0:9"}  # newer versions print two numbers
    printed = "".join(f"{job}|name|FAILED|{code}|n1|None|\n" for job, code in codes.items())
    monkeypatch.setattr(slurm_queue, "call", lambda *command: printed)
    rows = slurm_queue.queued(list(codes))
    assert [row.exit_code for row in rows.values()] == [3, -9, 3, -9]
    assert not any(row.is_active for row in rows.values())


def test_a_reason_may_hold_the_sign_between_columns(monkeypatch):
    monkeypatch.setattr(slurm_queue, "call", lambda *_: "5_1|name|PENDING|0||(a|b)|\nslurm: a remark\n")
    (row,) = slurm_queue.queued(["5_1"]).values()
    assert (row.job, row.state, row.reason, row.is_active) == ("5_1", "PENDING", "(a", True)


def test_the_accounting_is_read_without_the_name_of_who_cancelled(monkeypatch):
    printed = "5_1|name|CANCELLED by 1000|0:15|n1\n5_2|name|TIMEOUT|0:0|None assigned\n"
    monkeypatch.setattr(slurm_queue, "call", lambda *command: printed)
    first, second = slurm_queue.accounted(["5_1"]).values()
    assert (first.cause, first.exit_code, first.node) == ("cancelled", -15, "n1")
    assert (second.cause, second.exit_code, second.node) == ("timeout", 0, None)


def test_a_queue_that_does_not_answer_is_told_from_one_that_has_forgotten(monkeypatch):
    call = Mock(side_effect=slurm_queue.SlurmCommandError("slurm_load_jobs error: Invalid job id specified"))
    monkeypatch.setattr(slurm_queue, "call", call)
    assert slurm_queue.queued(["5"]) == {}
    call.side_effect = slurm_queue.SlurmCommandError("Unable to contact slurm controller")
    assert slurm_queue.queued(["5"]) is None
    assert slurm_queue.accounted(["5"]) == {}


@pytest.mark.parametrize(("exit_code", "cause"), [(140, "timeout"), (-12, "timeout"), (1, None)])
def test_a_job_that_died_of_the_signal_before_its_limit_has_come_to_its_limit(exit_code, cause):
    assert JobRow("5", "name", "FAILED", exit_code).cause == cause


def test_a_job_that_slurm_could_not_start_and_holds_is_a_fault_of_the_node():
    row = JobRow("5", "name", "PENDING", None, None, "launch_failed_requeued_held")
    assert (row.is_stuck, row.cause) == (True, "node_failure")
    assert not JobRow("5", "name", "PENDING", None, None, "Resources").is_stuck


def test_commands_do_not_inherit_the_job_they_are_given_in(monkeypatch):
    of_job = ("SLURM_MEM_PER_CPU", "SQUEUE_PARTITION", "SCANCEL_INTERACTIVE")
    for name in (*of_job, "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    kept = slurm_queue.clean_environment()
    assert {name for name in kept if kept[name] == "x"} == {"SLURM_CONF", "SBATCH_ACCOUNT"}
    with slurm_queue.outside_any_job():
        assert "SLURM_MEM_PER_CPU" not in os.environ
    assert os.environ["SLURM_MEM_PER_CPU"] == "x"


def test_many_arrays_are_asked_for_by_their_owner(monkeypatch):
    asked = []
    monkeypatch.setattr(slurm_queue, "call", lambda *command: asked.append(command) or "")
    slurm_queue.queued([f"{number}_0" for number in range(10_000)])
    assert "--me" in asked[0]
    assert sum(map(len, asked[0])) < 1000


def test_a_cluster_has_the_name_that_slurm_gives_it(tmp_path, monkeypatch):
    printed = "Configuration data as of 2026\nClusterName             = north\nMaxJobCount             = 9\n"
    monkeypatch.setattr(slurm_queue, "call", lambda *command: printed)
    monkeypatch.setattr("shutil.which", lambda command: f"/usr/bin/{command}")
    assert EXECUTORS["slurm"].build(Site(tmp_path, "small", 1)).cluster == "north"


@pytest.mark.parametrize("name", ["it's", 'a"b', "a%jb", "a\\b"])
def test_a_folder_whose_name_slurm_reads_otherwise_is_refused(tmp_path, name):
    with pytest.raises(InvalidInputError, match="SLURM takes no folder"):
        submitter(tmp_path, private_dir=str(tmp_path / name)).submit([job(tmp_path)], 1)


def test_trials_that_share_a_gpu_are_one_job_with_the_processors_and_memory_of_all(tmp_path):
    sender = submitter(tmp_path, gpus=1, trials_per_gpu=4)
    asked = sender.site.profile.request("a", ResourceRequest(cpus=2, gpus=1, memory_gb=3))
    assert asked.gpus == 0.25
    bundle = [job(tmp_path, request=asked, estimate_s=600.0) for _ in range(4)]
    given = sender.parameters(TOKEN, [bundle])
    assert (given["gpus_per_node"], given["cpus_per_task"], given["mem"]) == (1, 8, "12288M")
    assert given["time"] == 20  # as for one of them
