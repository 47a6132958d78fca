"""status: what the queue says of a sweep's jobs, its stage, its controller and the time left."""

import pytest

from recorded_sweep import RESULT, complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.commands.look import queued
from scalevec.orchestrator.commands.look import status as looking
from scalevec.orchestrator.commands.look.screen import may_change, screen
from scalevec.orchestrator.errors import MissingRequirementError
from scalevec.orchestrator.executors.slurm import queue as slurm_queue
from scalevec.orchestrator.executors.slurm.queue import JobRow
from scalevec.orchestrator.sweep.controller import directory_of as controller_of
from scalevec.results.claims import acquire, end_claim
from scalevec.results.sweep_folder import SweepFolder

TOKEN = "20261122T000000-c0ffee00"


@pytest.fixture
def runs_dir(tmp_path, monkeypatch):
    """Seed 0 is completed, seed 1 runs as job 7_1, seeds 2 and 3 wait as 7_2 and 7_3; controller is job 6."""
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")
    runs_dir = tmp_path / "runs"
    work = {"n_params": 1000, "n_tokens": 2560}
    record_sweep(runs_dir, "small", [member_of("none", seed, **work) for seed in range(4)])
    directory_of(runs_dir, "none", 0).append_event("running", attempt=1, step=0)
    directory_of(runs_dir, "none", 0).write_result(RESULT | {"wall_s": 100.0})
    for seed in (1, 2, 3):
        directory = directory_of(runs_dir, "none", seed)
        directory.append_event("queued", executor="slurm", job=f"t{seed}")
        directory.write_job("slurm", f"7_{seed}/0@{TOKEN}", f"t{seed}")
    directory = directory_of(runs_dir, "none", 1)
    acquire(directory, {})
    directory.append_event("running", attempt=1)
    directory.append_metrics({"step": 5})
    controller = controller_of(runs_dir, "small")
    controller.path.mkdir(parents=True)
    controller.write_job("slurm", f"6_0/0@{TOKEN}", "")
    controller.log_path.write_text("[1/4] none a: completed\n")
    return runs_dir


@pytest.fixture
def queue(monkeypatch):
    """What squeue shows; returns how often it was asked."""
    name = f"small.a.{TOKEN}"
    rows = {
        "6_0": JobRow("6_0", f"small.controller.{TOKEN}", "RUNNING", None, "n1"),
        "7_1": JobRow("7_1", name, "RUNNING", None, "n2"),
        "7_2": JobRow("7_2", name, "PENDING", None, None, "Priority"),
        "7_3": JobRow("7_3", "another job by now", "PENDING", None, None, "Resources"),
    }
    asked = []
    monkeypatch.setattr(slurm_queue, "queued", lambda jobs: asked.append(jobs) or rows)
    return asked


@pytest.fixture(autouse=True)
def _one_period_in_which_no_queue_was_asked(monkeypatch):
    monkeypatch.setattr(queued, "queue_period", lambda: 0)
    queued.in_queue.cache_clear()


def facts(text: str) -> str:
    """``text`` on one line: where it is folded is no matter."""
    return " ".join(text.split())


def test_status_shows_jobs_reasons_stage_controller_and_the_time_left(runs_dir, queue):
    text = facts(looking.status("small", runs_dir).shown())
    assert text.startswith("small: comparison, 1 of 4 trials done, 1 running, 2 waiting left about ")
    assert "run by controller, job 6_0: running on n1; it says: [1/4] none a: completed" in text
    assert "1 in the queue: pending (Priority), job 7_2" in text
    assert "1 not in the queue any more, job 7_3" in text
    assert (
        f"running {directory_of(runs_dir, 'none', 1).trial_id[:8]} none a seed 1 step 5/10 job 7_1 on n2"
        in text
    )
    assert len(queue) == 1


def test_where_the_queue_cannot_be_asked_status_says_so_and_shows_the_rest(runs_dir, monkeypatch):
    def silent(_jobs):
        raise MissingRequirementError("no squeue on the PATH")

    monkeypatch.setattr(slurm_queue, "queued", silent)
    text = facts(looking.status("small", runs_dir).shown())
    assert "2 for the queue to answer: no squeue on the PATH, jobs 7_2, 7_3" in text
    assert "controller, job 6_0: no squeue on the PATH; it says" in text
    assert "step 5/10 job 7_1" in text


HELD = JobRow("7_1", f"small.a.{TOKEN}", "PENDING", None, None, "job requeued in held state")


def test_a_trial_whose_job_is_held_after_a_requeue_is_told_how_it_goes_on(runs_dir, monkeypatch):
    monkeypatch.setattr(slurm_queue, "queued", lambda jobs: {"7_1": HELD})
    end_claim(directory_of(runs_dir, "none", 1), 1, "gone")
    status = looking.status("small", runs_dir)
    gone = "its worker is gone, its job 7_1 pending (job requeued in held state)"
    assert f"{gone}; to let it go on: scontrol release 7_1" in facts(status.shown())
    assert gone in facts(screen(status.record, 80, 24).plain)


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin", "launch_failed_requeued_held"])
def test_a_job_that_waits_for_a_person_names_the_command(runs_dir, monkeypatch, reason):
    held = JobRow("7_2", f"small.a.{TOKEN}", "PENDING", None, None, reason)
    monkeypatch.setattr(slurm_queue, "queued", lambda jobs: {"7_2": held})
    words = f"1 in the queue: pending ({reason}), job 7_2; to let it go on: scontrol release 7_2"
    assert words in facts(looking.status("small", runs_dir).shown())


def test_a_watch_of_two_sweeps_asks_once_for_each(runs_dir, queue):
    record_sweep(runs_dir, "other", [member_of("unified", 0)])
    directory = directory_of(runs_dir, "unified", 0)
    directory.append_event("queued", executor="slurm", job="t9")
    directory.write_job("slurm", f"9/0@{TOKEN}", "t9")
    for _ in range(3):
        looking.sweep_statuses(None, runs_dir)
    assert sorted(map(len, queue)) == [1, 4]


def test_a_sweep_without_jobs_in_a_queue_asks_nobody(tmp_path, queue, monkeypatch):
    monkeypatch.setenv("SCALEVEC_STORE", f"sqlite:///{tmp_path}/index.sqlite")
    record_sweep(tmp_path / "runs", "local", [member_of("none", 0)])
    complete(directory_of(tmp_path / "runs", "none", 0))
    (status,) = looking.sweep_statuses("local", tmp_path / "runs")
    assert (status["stage"], status["seconds_left"], status["queue"]["controller"]) == (None, None, None)
    assert not queue


def test_a_trial_that_is_requeued_for_little_is_warned_of(runs_dir, queue):
    directory = directory_of(runs_dir, "none", 1)
    for _ in range(8):
        directory.append_event("pending", cause="timeout", step=1)
    directory.append_event("running", attempt=2)
    text = facts(looking.status("small", runs_dir).shown())
    assert "interrupted 8 times; the last 5 starts brought 0 of 10 steps" in text


def test_queued_jobs_are_shown_while_a_submission_is_unanswered_and_what_is_no_number_is_not_asked(queue):
    numbers = [f"7_1/0@{TOKEN}", f"?0/0@{TOKEN}", f"7,--help/0@{TOKEN}", "x"]
    shown = slurm_queue.look(numbers)
    assert queue == [{"7_1"}]
    expected = {numbers[0]: "RUNNING", numbers[1]: "sent without an answer"}
    assert {number: job.state for number, job in shown.items()} == expected


def test_a_watch_goes_on_while_a_job_of_a_trial_is_in_the_queue(runs_dir, monkeypatch):
    monkeypatch.setattr(slurm_queue, "queued", lambda jobs: {"7_1": HELD})
    end_claim(directory_of(runs_dir, "none", 1), 1, "gone")
    SweepFolder.of(runs_dir, "small").write_members([member_of("none", seed) for seed in (0, 1)])
    controller_of(runs_dir, "small").jobs_path.unlink()
    (status,) = looking.sweep_statuses("small", runs_dir)
    assert not status["owned"]
    assert may_change(status)
