"""A trial whose training is a Python function, called in the worker."""

import os
import sys
from itertools import count

import pytest

from scalevec.model.config import RunOptions
from scalevec.orchestrator.attempts.jobs import WorkerExit
from scalevec.orchestrator.attempts.retry_policy import decide
from scalevec.sweeps.trainers.any_trial import Protocol

BODY = """
def learn(trial, context):
    for step in range(context.last_step + 1, 11):
        context.record({"step": step, "loss": 4 - step / trial["width"], "tokens": 100 * step})
        (context.folder / "state").write_text(str(step))
        if step == 4 and not context.last_step and trial["stops"]:
            os.kill(os.getpid(), signal.SIGTERM)
        if context.stop_requested():
            return None
    return {"loss": 2.5}
"""
NUMBERS = count()


@pytest.fixture
def function(lab, monkeypatch):
    """Makes a trial of the function ``learn`` in a module of its own, which no other test has imported."""

    def make(body: str, *arguments, **options):
        monkeypatch.setattr(sys, "path", list(sys.path))
        module = f"lab_{next(NUMBERS)}"
        trials = lab("", *arguments, function=f"{module}:learn", **options)
        (trials.folder / f"{module}.py").write_text("import os, signal, time\n" + body)
        return trials

    return make


def test_its_rows_and_what_it_returns_become_the_result(function):
    trials = function(BODY.replace('trial["stops"]', "False"))
    assert trials.run() == WorkerExit.RESULT
    result = trials.result()
    assert (result["status"], result["loss"], result["steps"]) == ("completed", 2.5, 10)
    assert trials.steps() == list(range(1, 11))


def test_it_is_asked_to_stop_and_goes_on_from_what_it_kept(function):
    trials = function(BODY.replace('trial["stops"]', "True"), protocol=Protocol(checkpoint="state"))
    assert trials.run() == WorkerExit.STOPPED
    assert (trials.last()["cause"], trials.last()["step"]) == ("preempted", 4)
    assert trials.run() == WorkerExit.RESULT
    assert trials.steps() == list(range(1, 11))
    assert trials.result()["resumes"] == 1


def test_a_loss_that_is_not_finite_is_diverged_even_if_the_function_goes_on(function):
    body = """
def learn(trial, context):
    try:
        context.record({"step": 1, "loss": float("nan")})
    except Exception:
        return {"loss": 1.0, "tokens": 1000}
"""
    trials = function(body)
    assert trials.run() == WorkerExit.RESULT
    assert trials.result()["status"] == "diverged"


def test_what_it_raises_is_on_record_and_the_same_twice_is_not_tried_again(function):
    trials = function("def learn(trial, context): raise ValueError('no such width')")
    assert trials.run() == WorkerExit.ERROR
    assert trials.last()["error"] == "ValueError: no such width"
    assert decide(trials.directory.events(), 1).again
    trials.run()
    assert not decide(trials.directory.events(), 1).again


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("teach = 1", "has no function 'learn'"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def learn(trial, context): return 3.0", "returned float; a mapping is expected"),
        ("def learn(trial, context): return {'tokens': 1000}", "has no 'loss'; keys: tokens"),
        ("def learn(trial, context): pass", "ended without a row of metrics"),
    ],
)
def test_what_cannot_be_a_trainer_is_said_and_not_tried_again(function, body, message):
    trials = function(body)
    assert trials.run() == WorkerExit.ERROR
    assert message in trials.last()["error"]
    assert not decide(trials.directory.events(), 1).again


def test_several_processes_are_refused(function):
    trials = function(BODY, options=RunOptions(processes=2))
    assert trials.run() == WorkerExit.ERROR
    assert "trains in one process" in trials.last()["error"]


def test_one_that_does_not_stop_is_ended_after_the_grace_period_and_on_record_as_stopped(function):
    body = """
def learn(trial, context):
    os.kill(os.getpid(), signal.SIGTERM)
    while True: time.sleep(0.01)
"""
    trials = function(body, protocol=Protocol(grace_s=0.1))
    _, status = os.waitpid(trials.fork().pid, 0)
    assert os.waitstatus_to_exitcode(status) == WorkerExit.STOPPED
    notes = [event.get("note") for event in trials.directory.events()]
    assert "the function did not end within 0.1 s of a request to stop; it is killed" in notes
    assert (trials.last()["state"], trials.last()["cause"]) == ("pending", "preempted")
    assert (trials.directory.claims_path / "0001.done").exists()
