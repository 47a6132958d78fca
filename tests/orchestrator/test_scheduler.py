"""What the scheduler asks of its executor."""

import pytest
from simulations import simulated

from orchestrator import scheduler as scheduling
from orchestrator.executors.simulate import SimulateExecutor


class Slow(SimulateExecutor):
    """Ends nothing while its trials are called off, and keeps what it was asked to cancel."""

    def __init__(self, site):
        super().__init__(site)
        self.looks, self.asked = 0, []

    def wait(self, timeout_s):
        self.looks += 1
        if self.looks == 1:
            for run in self._running.values():
                run.directory.append_event("cancelled", cause="cancelled")
        return [] if self.looks < 5 else super().wait(timeout_s)

    def cancel(self, numbers):
        self.asked.extend(numbers)


@pytest.fixture
def slow(monkeypatch):
    made = []

    def make(site):
        made.append(Slow(site))
        return made[-1]

    monkeypatch.setattr("simulations.SimulateExecutor", make)
    monkeypatch.setattr(scheduling, "CANCEL_POLL_S", 0.0)
    return made


def test_a_trial_that_was_called_off_is_asked_once_to_end(slow, tmp_path):
    simulated(tmp_path / "runs", slots=8)
    assert len(slow[0].asked) == len(set(slow[0].asked)) == 8
