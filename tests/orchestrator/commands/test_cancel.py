"""``cancel``: which trials it calls off, and what it says of them."""

import errno
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from recorded_sweep import complete, directory_of, member_of, record_sweep
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.commands.run.cancel import cancel
from scalevec.orchestrator.errors import Exit, TryLaterError
from scalevec.orchestrator.executors.base import Ended
from scalevec.orchestrator.executors.registry import EXECUTORS
from scalevec.orchestrator.sweep import job_ending
from scalevec.orchestrator.sweep.controller import owned, owner_directory
from scalevec.results.claims import newest_attempt
from scalevec.results.files import CorruptRecordError
from scalevec.results.run_directory import RunDirectory
from scalevec.results.sweep_folder import SweepFolder


@pytest.fixture
def sent(tmp_path):
    """A runs directory with a trial in each state: completed, failed, waiting, twice queued and running."""
    runs_dir = tmp_path / "runs"
    record_sweep(runs_dir, "small", [member_of("none", seed) for seed in range(6)])
    done, failed, _waiting, *queued, running = (directory_of(runs_dir, "none", seed) for seed in range(6))
    complete(done)
    failed.append_event("failed", cause="error")
    for directory in (*queued, running):
        directory.append_event("queued", executor="elsewhere")
    running.append_event("running", attempt=1, step=0)
    return runs_dir


def test_it_counts_what_it_cancelled_and_what_of_that_had_been_sent(sent):
    result = cancel("small", sent)
    assert result.code is Exit.DONE
    assert str(result.text).startswith("4 trials cancelled, 3 of them had been sent\n")
    assert result.record["cancelled"] == sorted(member_of("none", seed)["trial_id"] for seed in (2, 3, 4, 5))
    assert (result.record["sent"], result.record["jobs_left"]) == (3, [])
    assert SweepFolder.of(sent, "small").is_called_off()  # and sends nothing more


def test_what_has_ended_stays_as_it_is_and_a_second_time_nothing_is_left_to_cancel(sent):
    cancel("small", sent)
    assert str(cancel("small", sent).text).startswith("0 trials cancelled, 0 of them had been sent\n")
    assert states(sent) == ["completed", "failed", *["cancelled"] * 4]


class Machine:
    """Stands for an executor: each call of ``wait`` ends the next of ``ending``, and is one of ``waited``.

    The clock, at ``seconds``, moves on while it waits.
    """

    def __init__(self, *ending: str) -> None:
        self.ending = list(ending)
        self.cancelled: set[str] = set()
        self.waited = 0
        self.seconds = 0.0

    def adopt(self, numbers):
        return set(numbers)

    def cancel(self, numbers):
        self.cancelled |= set(numbers)

    def wait(self, timeout):
        self.waited += 1
        self.seconds += timeout
        return [Ended(self.ending.pop(0), None, "cancelled")] if self.ending else []

    def close(self):
        pass


def cancel_on(machine: Machine, sent, monkeypatch) -> Result:
    """Cancel the sweep, whose two queued trials are the jobs 1 and 2 of ``machine``."""
    for number, seed in (("1", 3), ("2", 4)):
        directory_of(sent, "none", seed).write_job("elsewhere", number, "token")
    monkeypatch.setitem(EXECUTORS, "elsewhere", SimpleNamespace(build=lambda _site: machine))
    monkeypatch.setattr(job_ending, "time", SimpleNamespace(monotonic=lambda: machine.seconds))
    return cancel("small", sent)


def test_it_asks_the_jobs_to_end_and_waits_until_the_last_has(sent, monkeypatch):
    machine = Machine("2", "1")
    result = cancel_on(machine, sent, monkeypatch)
    assert machine.cancelled == {"1", "2"}
    assert machine.waited == 2
    assert result.record["jobs_left"] == []
    assert "still ending" not in result.text


def test_a_job_that_does_not_end_in_time_is_left_and_said_with_how_to_follow_it(sent, monkeypatch):
    result = cancel_on(Machine("2"), sent, monkeypatch)
    assert result.record["jobs_left"] == ["1"]
    assert f"1 job still ending; to follow: scalevec status small --runs {sent}" in result.text


class Unreachable(Machine):
    """An executor whose cluster does not answer."""

    def adopt(self, numbers):
        raise TryLaterError("SLURM does not answer")


def states(sent) -> list[str]:
    return [directory_of(sent, "none", seed).state().state for seed in range(6)]


def test_without_an_answer_trials_with_jobs_are_cancelling_until_it_is_repeated(sent, monkeypatch, capsys):
    result = cancel_on(Unreachable(), sent, monkeypatch)
    assert result.code is Exit.MISSING_REQUIREMENT
    assert "SLURM does not answer" in capsys.readouterr().err
    assert "2 trials cancelling: nothing more is sent, but jobs may still run" in result.text
    assert states(sent)[2:] == ["cancelled", "cancelling", "cancelling", "cancelled"]
    assert cancel_on(Machine("1", "2"), sent, monkeypatch).code is Exit.DONE
    assert states(sent)[2:] == ["cancelled"] * 4


def test_the_jobs_of_a_trial_are_ended_whatever_its_state(sent, monkeypatch):
    """The first is in the queue again, so that its trial is pending; the second was forgotten by a cancel.

    The first has an earlier job too.
    """
    directory_of(sent, "none", 3).append_event("pending", cause="preempted")
    directory_of(sent, "none", 4).append_event("cancelled", cause="cancelled")
    directory_of(sent, "none", 3).write_job("elsewhere", "0", "earlier")
    machine = Machine("0", "1", "2")
    result = cancel_on(machine, sent, monkeypatch)
    assert machine.cancelled == {"0", "1", "2"}
    assert result.record["jobs_left"] == []
    assert all(not directory_of(sent, "none", seed).open_jobs() for seed in (3, 4))


def test_what_a_job_says_that_ends_afterwards_brings_no_trial_back(sent):
    cancel("small", sent)
    directory_of(sent, "none", 3).append_event("pending", cause="timeout", step=7)
    assert states(sent)[3] == "cancelled"
    assert cancel("small", sent).record["cancelled"] == []


def test_a_trial_that_another_sweep_under_way_has_too_is_left_and_said(sent):
    record_sweep(sent, "other", [member_of("none", 4)])
    with owned(sent, "other"):
        while not newest_attempt(owner_directory(sent, "other")):
            pass
        result = cancel("small", sent)
    assert states(sent)[4] == "queued"
    assert "1 trial left alone: sweep other, which is being run, has it too" in result.text


@pytest.mark.parametrize(
    ("problem", "alive"),
    [
        (OSError(errno.ESTALE, "Stale file handle"), True),
        (CorruptRecordError(Path("x"), "is damaged"), False),
    ],
)
def test_a_worker_that_cannot_be_looked_for_is_not_taken_for_gone(problem, alive, tmp_path):
    directory = RunDirectory.of(tmp_path, "a" * 64)
    directory.create({}, {})
    assert job_ending._has_worker(directory, Mock(is_alive=Mock(side_effect=problem))) is alive
