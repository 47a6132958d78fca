"""What follows the end of an attempt, by its cause: another one, a warning, a machine to avoid."""

import pytest

from scalevec.orchestrator.attempts import retry_policy
from scalevec.results.run_directory import RunDirectory

SEQUENCES = 8


def running(step=0, micro_batch=0):
    return {"state": "running", "attempt": 1, "step": step, "micro_batch": micro_batch}


def fault(cause, **details):
    return {"state": "pending", "cause": cause, **details}


KILLED = [running(), fault("killed")]
ADVANCED = [running(), fault("preempted", step=59), running(59), fault("killed"), fault("killed")]


@pytest.mark.parametrize(
    ("events", "again", "cause"),
    [
        pytest.param(KILLED, True, None, id="an interruption"),
        pytest.param(KILLED * 3, False, "killed", id="three without progress"),
        pytest.param(
            [event for step in range(50) for event in (running(step), fault("preempted"))],
            True, None, id="any number while checkpoints advance",
        ),
        pytest.param(ADVANCED, True, None, id="one of three wrote a checkpoint"),
        pytest.param([*ADVANCED, fault("killed")], False, "killed", id="three since a checkpoint"),
        pytest.param([fault("error")] * 3, False, "error", id="a worker that never starts"),
        pytest.param([running(), fault("error", traceback="x")], True, None, id="an error"),
        pytest.param(
            [running(), fault("error", exit_code=3), running(), fault("error", exit_code=4)],
            True, None, id="two early deaths without a traceback",
        ),
        pytest.param(
            [*KILLED * 3, {"state": "failed"}, fault("retry"), *KILLED], True, None, id="a person's retry"
        ),
    ],
)  # fmt: skip
def test_an_attempt_is_followed_by_another_as_long_as_there_is_hope(events, again, cause):
    decision = retry_policy.decide(events, SEQUENCES)
    assert (decision.again, decision.cause) == (again, cause)


def test_a_new_checkpoint_is_progress_where_no_steps_are_known():
    events = [event for time in range(50) for event in (running() | {"checkpoint": time}, fault("killed"))]
    assert retry_policy.decide(events, SEQUENCES).again
    assert not retry_policy.decide([*events, *events[-2:] * 3], SEQUENCES).again


def test_the_same_traceback_twice_is_the_end():
    events = [running(), fault("error", traceback="x", error="KeyError: 'y'")] * 2
    decision = retry_policy.decide(events, SEQUENCES)
    assert (decision.again, decision.cause) == (False, "error")
    assert "KeyError" in decision.reason


def test_out_of_memory_halves_what_each_of_several_processes_had_of_the_batch():
    events = [running() | {"world_size": 4}, fault("out_of_memory")]
    assert retry_policy.decide(events, 16).micro_batch == 2
    assert not retry_policy.decide(events, 4).again


def test_a_halved_micro_batch_stays_after_a_later_interruption():
    events = [running(), fault("out_of_memory"), running(micro_batch=4), fault("killed")]
    assert retry_policy.decide(events, SEQUENCES).micro_batch == 4


MEMORY = [running(), fault("out_of_memory")]


@pytest.mark.parametrize(
    ("events", "asked", "left"),
    [
        ([], 8, 8),
        ([running(micro_batch=4), fault("killed")], 0, 0),
        (MEMORY, 0, 4),
        ([*MEMORY, running(micro_batch=4), fault("preempted")], 0, 4),
        ([*MEMORY, running(micro_batch=4), fault("cancelled")], 8, 4),
        ([*MEMORY, running(micro_batch=4), fault("out_of_memory")], 0, 2),
        (MEMORY, 2, 2),
        ([*MEMORY, fault("retry")], 0, 0),
    ],
)
def test_whoever_sends_a_trial_again_knows_the_micro_batch_that_fits(events, asked, left):
    assert retry_policy.micro_batch_left(events, SEQUENCES, asked) == left


def ran(host):
    return {"state": "running", "host": host, "attempt": 1}


DIED, WELL = [ran("a"), fault("killed")], [ran("b")]
OF_THE_TRIAL = [ran("a"), fault("out_of_memory"), ran("a"), fault("error", error="KeyError: 'x'")]
GPU = [ran("a"), fault("error", error="AcceleratorError: CUDA error: uncorrectable ECC error")]
CUDA_MEMORY = [ran("a"), fault("out_of_memory", error="AcceleratorError: CUDA error: out of memory")]
NAMED = [fault("node_failure", node="a")]


@pytest.mark.parametrize(
    ("histories", "bad"),
    [
        pytest.param([DIED, [ran("a"), fault("node_failure")], WELL], ("a",), id="two trials died there"),
        pytest.param([DIED * 2, WELL], (), id="one trial that dies often"),
        pytest.param([OF_THE_TRIAL] * 3 + [WELL], (), id="faults of the trials"),
        pytest.param([GPU, GPU, WELL], ("a",), id="a broken GPU"),
        pytest.param([CUDA_MEMORY, CUDA_MEMORY, WELL], (), id="memory that CUDA lacks"),
        pytest.param([NAMED, NAMED, WELL], ("a",), id="named by the executor"),
    ],
)
def test_a_machine_is_bad_where_several_trials_failed_by_its_fault(histories, bad):
    watch = retry_policy.NodeWatch()
    for _ in range(2):  # to learn the same again changes nothing
        for position, events in enumerate(histories):
            watch.learn(f"trial {position}", events)
    assert watch.bad == bad


def test_never_more_than_half_of_the_machines_are_avoided():
    watch = retry_policy.NodeWatch()
    for position, host in enumerate("aabbcc"):
        watch.learn(f"trial {position}", [ran(host), fault("killed")])
    assert len(watch.bad) == 1


def stops(*steps: int, cause: str = "timeout") -> list[dict]:
    events = []
    for step in steps:
        events += [{"state": "running", "attempt": 1}, {"state": "pending", "cause": cause, "step": step}]
    return events


@pytest.mark.parametrize("cause", ["timeout", "preempted"])
def test_many_starts_that_bring_little_are_told_with_what_to_do(cause):
    warning = retry_policy.little_progress(stops(*range(1, 22), cause=cause), 1000)
    assert warning.startswith("interrupted 21 times; the last 5 starts brought 5 of 1000 steps: raise time")


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        (stops(1, 2, 3), 1000),  # few of them
        (stops(0, 100, 200, 300, 400, 500), 1000),  # each brought much
        (stops(*range(1, 22), cause="error"), 1000),  # not interrupted
        ([{"state": "pending", "cause": "timeout"}] * 10, 1000),  # nobody knows the step
    ],
)
def test_a_trial_that_advances_is_not_warned_of(events, steps):
    assert retry_policy.little_progress(events, steps) is None


LAST = "ConfigurationError: schedule is 'wave'"


@pytest.mark.parametrize(
    ("log", "reason", "why"),
    [
        (
            f"Traceback ...\n{LAST}\n\n",
            "3 attempts without a new checkpoint",
            f"3 attempts without a new checkpoint: {LAST}",
        ),
        (f"{LAST}\n", f"the same error twice: {LAST}", f"the same error twice: {LAST}"),
        (None, "killed", "killed"),
    ],
)
def test_the_last_line_of_the_log_is_told_once(tmp_path, log, reason, why):
    directory = RunDirectory(tmp_path)
    if log is not None:
        directory.log_path.write_text(log)
    text = retry_policy.failure_text("light a", reason, directory)
    assert text == f"light a: {why}; see {directory.log_path}"
