"""Lets trials stand in mid-training: Python imports this module first where its folder is on PYTHONPATH.

While a file ``hold`` lies beside the runs directory, a worker writes a checkpoint after ten steps and goes no
further until the file is gone or somebody asks it to stop. So a test can strike in mid-training, however fast
the machine trains and however slow the test is.
"""

import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

LOOP = "scalevec.model.train.loop"
STEPS = 10
POLL_S = 0.02


class HeldRecorder:
    """``recorder``, whose rows wait; all else is its own."""

    def __init__(self, recorder, checkpoint_s: float, hold: Path) -> None:
        self.recorder, self.checkpoint_s, self.hold = recorder, checkpoint_s, hold
        self.rows = 0

    def __getattr__(self, name):
        return getattr(self.recorder, name)

    def record(self, row) -> None:
        self.rows += 1
        if self.hold.exists():
            self._stand()
        self.recorder.record(row)

    def _stand(self) -> None:
        if self.rows == STEPS:
            time.sleep(self.checkpoint_s)  # after that a checkpoint is due
        while self.rows > STEPS and self.hold.exists() and not self.recorder.stop_requested():
            time.sleep(POLL_S)


def let_trials_stand(loop) -> None:
    """Make ``train`` of the module ``loop`` give its recorder a :class:`HeldRecorder`'s place."""
    train = loop.train

    def held(trial, corpus, options, recorder, checkpoints, trunk, world):
        if world.leads:  # who trains along waits for it
            hold = checkpoints.parents[4] / "hold"
            recorder = HeldRecorder(recorder, options.checkpoint_s, hold)
        return train(trial, corpus, options, recorder, checkpoints, trunk, world)

    loop.train = held


class Finder(MetaPathFinder):
    """Finds the loop's module as Python would, and changes it once it is loaded."""

    def find_spec(self, name, path, target=None):
        if name != LOOP:
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), let_trials_stand(module))[0]
        return spec


sys.meta_path.insert(0, Finder())
