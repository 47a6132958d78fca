"""Two schedulers on one sweep: no trial runs twice, and none is lost."""

from pathlib import Path

import pytest

from scalevec.results.files import names_in
from scalevec.results.run_directory import RunDirectory, trial_ids
from two_schedulers import compete

pytestmark = pytest.mark.slow

BOTH_WANT_THE_SAME_FIRST = ((8, 8), False)
BOTH_WANT_ALL_AT_ONCE = ((200, 200), False)
MEETING_IN_THE_MIDDLE = [((16, 16), True), ((200, 200), True), ((1, 32), True)]


@pytest.mark.parametrize(
    ("executor", "trials", "repetitions"),
    [
        ("simulate", 200, [BOTH_WANT_THE_SAME_FIRST, BOTH_WANT_ALL_AT_ONCE]),
        ("local", 24, [BOTH_WANT_THE_SAME_FIRST]),
        pytest.param("simulate", 200, MEETING_IN_THE_MIDDLE, marks=pytest.mark.nightly),
        pytest.param("local", 200, [BOTH_WANT_THE_SAME_FIRST], marks=pytest.mark.nightly),
    ],
)
def test_no_trial_runs_twice_and_none_is_lost(executor, trials, repetitions, tmp_path):
    contested = 0
    for number, (slots, reverse) in enumerate(repetitions):
        runs_dir = tmp_path / str(number)
        compete(executor, runs_dir, slots, trials, reverse=reverse)
        directories = [RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir)]
        assert len(directories) == trials
        for directory in directories:
            assert_ran_once(directory)
        contested += sum(map(was_contested, directories))
    assert contested > 0, "the two schedulers never wanted the same trial: nothing was tested"


def assert_ran_once(directory: RunDirectory) -> None:
    """One attempt ran, the first, and it alone made the result; nobody holds a claim any more."""
    events, claims = directory.events(), set(names_in(directory.claims_path))
    states = [event["state"] for event in events]
    assert [event["attempt"] for event in events if event["state"] == "running"] == [1], events
    assert states.count("completed") == 1, events
    assert not {"pending", "failed", "cancelled"} & set(states), events
    result = directory.result()
    assert result is not None
    assert result["status"] == "completed"
    claimed = {Path(name).stem for name in claims if name.endswith(".json")}
    assert claimed == {Path(name).stem for name in claims if name.endswith(".done")}


def was_contested(directory: RunDirectory) -> bool:
    """Whether both schedulers gave the trial to their executors."""
    return len({event["pid"] for event in directory.events() if event["state"] == "queued"}) == 2
