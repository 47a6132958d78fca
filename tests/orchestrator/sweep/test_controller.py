"""The controller: what it is sent as, what it waits out, and how its end is kept."""

import errno
from types import SimpleNamespace

import pytest

from scalevec.orchestrator.attempts.jobs import ResourceRequest
from scalevec.orchestrator.cli.options import Placement
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.run import controller_job
from scalevec.orchestrator.errors import Exit, InvalidInputError, TryLaterError
from scalevec.orchestrator.executors.base import Site
from scalevec.orchestrator.executors.profiles import Profile, RungProfile
from scalevec.orchestrator.sweep import controller
from scalevec.results.sweep_folder import SweepFolder

COMMAND = ["--executor", "slurm", "--profile", "site", "small"]


@pytest.fixture
def sweep(tmp_path) -> SweepFolder:
    """The folder of a sweep that was sent; its controller is job 17."""
    folder = SweepFolder.of(tmp_path, "small")
    folder.write_members([])
    directory = controller.directory_of(tmp_path, "small")
    directory.path.mkdir()
    directory.write_job("slurm", "17", token="")
    return folder


@pytest.fixture
def runs(monkeypatch):
    """What each call of ``run`` meets with, in turn; the waits between them are counted, not slept."""
    met, waits, interactive = [], [], []

    def run_sweep(*_, **options):
        interactive.append(options["interactive"])
        problem = met.pop(0)
        if isinstance(problem, Exception):
            raise problem
        return Result({}, "", problem)

    monkeypatch.setattr(controller_job, "run_sweep", run_sweep)
    monkeypatch.setattr(controller_job, "time", SimpleNamespace(sleep=waits.append))
    return SimpleNamespace(met=met, waits=waits, interactive=interactive)


@pytest.mark.parametrize(
    "problem",
    [TryLaterError("SLURM does not answer: timed out"), OSError(errno.ENOSPC, "No space left on device")],
)
def test_what_passes_is_waited_out_with_longer_waits_and_said_once(sweep, runs, tmp_path, capsys, problem):
    runs.met.extend([problem, problem, Exit.DONE])
    assert controller_job.run_patiently("small", tmp_path, Placement("slurm"), "again") is Exit.DONE
    assert len(runs.waits) == 2
    assert runs.waits[0] < runs.waits[1]
    assert capsys.readouterr().err.count("tried again in") == 1


def test_it_asks_for_nothing_that_was_cancelled(sweep, runs, tmp_path):
    runs.met.append(Exit.DONE)
    controller_job.run_patiently("small", tmp_path, Placement("slurm"), "again")
    assert runs.interactive == [False]
    sweep.call_off()
    assert controller_job.run_patiently("small", tmp_path, Placement("slurm"), "again") is Exit.SOME_FAILED
    assert runs.interactive == [False]


def test_what_does_not_pass_ends_it_and_its_end_is_kept(sweep, runs, tmp_path, capsys):
    runs.met.append(InvalidInputError("partition nowhere"))
    assert controller_job.main(["--runs", str(tmp_path), *COMMAND]) == Exit.INVALID_INPUT
    assert "partition nowhere" in capsys.readouterr().err
    end = controller.end_of(controller.directory_of(tmp_path, "small").events(), "17")
    assert (end["exit_code"], end["note"]) == (2, "partition nowhere")


def test_a_controller_that_its_queue_starts_again_has_not_ended(sweep, runs, tmp_path):
    runs.met.append(Exit.INTERRUPTED)
    controller_job.main(["--runs", str(tmp_path), *COMMAND])
    assert controller.end_of(controller.directory_of(tmp_path, "small").events(), "17") is None


class Queue:
    """Keeps what it is sent."""

    name = "slurm"
    cluster = "here"

    def submit(self, jobs):
        (self.job,) = jobs
        return ["17"]


def sent_to(tmp_path, profile: Profile):
    queue = Queue()
    actual = controller.submit(queue, Site(tmp_path, "small", 1, profile), "small", "site", executor="slurm")
    assert actual == "17"
    return queue.job


def test_it_asks_for_little_whatever_the_trials_ask_for(tmp_path):
    assert sent_to(tmp_path, Profile(gpus=1, cpus=16, memory_gb=64)).request == controller.REQUEST


def test_its_own_section_of_the_profile_counts(tmp_path):
    job = sent_to(tmp_path, Profile(gpus=1, rungs={"controller": RungProfile(memory_gb=1.5, cpus=2)}))
    assert job.request == ResourceRequest(2, 0.0, 1.5, controller.REQUEST.time_s)


def test_it_is_scalevec_run_and_its_number_is_on_record(tmp_path):
    command = sent_to(tmp_path, Profile()).command
    expected = ("small", "--runs", str(tmp_path), "--executor", "slurm", "--profile", "site")
    assert command[command.index("small") :] == expected
    record = controller.directory_of(tmp_path, "small").job()
    assert (record["executor"], record["job"], record["cluster"]) == ("slurm", "17", "here")
