"""When a trial that is interrupted again and again is warned of."""

import pytest

from scalevec.orchestrator.attempts.retry_policy import little_progress


def stops(*steps: int, cause: str = "timeout") -> list[dict]:
    events = []
    for step in steps:
        events += [{"state": "running", "attempt": 1}, {"state": "pending", "cause": cause, "step": step}]
    return events


@pytest.mark.parametrize("cause", ["timeout", "preempted"])
def test_many_starts_that_bring_little_are_told_with_what_to_do(cause):
    warning = little_progress(stops(*range(1, 22), cause=cause), 1000)
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
    assert little_progress(events, steps) is None
