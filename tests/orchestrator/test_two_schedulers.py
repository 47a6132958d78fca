"""Two schedulers on one sweep: no trial runs twice, and none is lost."""

from pathlib import Path

import pytest
from two_schedulers import TRIALS, compete

from results.files import names_in
from results.run_directory import RunDirectory, trial_ids

pytestmark = pytest.mark.slow

SIMULATED = [
    ((8, 8), False),  # both want the same trials first
    ((TRIALS, TRIALS), False),  # both want all of them at once
    ((16, 16), True),  # they meet in the middle
    ((TRIALS, TRIALS), True),
    ((1, 32), True),
]
PROCESSES = [((8, 8), False)]  # each trial a process: slow


@pytest.mark.parametrize(("executor", "repetitions"), [("simulate", SIMULATED), ("local", PROCESSES)])
def test_no_trial_runs_twice_and_none_is_lost(executor, repetitions, tmp_path):
    contested = 0
    for number, (slots, reverse) in enumerate(repetitions):
        runs_dir = tmp_path / str(number)
        compete(executor, runs_dir, slots, reverse=reverse)
        directories = [RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir)]
        assert len(directories) == TRIALS
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
