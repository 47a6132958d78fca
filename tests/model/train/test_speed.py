"""Timed steps: they are those of the training loop, and nothing of them stays."""

from scalevec.model.config import RunOptions
from scalevec.model.train.devices import devices_here, precisions_of
from scalevec.model.train.speed import FEWEST_STEPS, steps_timed


def test_three_steps_are_taken_however_little_time_there_is(trial, corpus):
    steps = steps_timed(trial, corpus, RunOptions(), seconds=0.0)
    assert len(steps) == FEWEST_STEPS - 1
    assert all(seconds > 0 for seconds in steps)


def test_this_machine_has_a_device_that_computes_in_float32():
    for device in devices_here():
        assert device.memory_bytes > 10**8
        assert device.kind in ("cpu", "cuda")
        assert "float32" in precisions_of(device.device)
