"""``--log tensorboard``: an event file for each trial, in a folder of its name."""

import re
from collections.abc import Mapping
from pathlib import Path

from tensorboard.summary import Writer

from scalevec.orchestrator.observers.trial_logs import LoggedTrial


class TensorBoardLog:
    """To be read with ``tensorboard --logdir RUNS_DIR/sweeps/NAME/tensorboard``."""

    def __init__(self, sweep: str, folder: Path) -> None:  # noqa: ARG002 (the folder is the sweep's)
        self.folder = folder
        self._writers: dict[str, Writer] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Open a file in the folder of the trial."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", trial.label)
        self._writers[trial.trial_id] = Writer(str(self.folder / f"{name}-{trial.trial_id[:8]}"))

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Add a scalar for each value."""
        for name, value in values.items():
            self._writers[trial.trial_id].add_scalar(name, value, step)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:  # noqa: ARG002
        """Add the losses of the result at the last step, and close the file."""
        writer, step = self._writers.pop(trial.trial_id), int(result.get("steps", 0))
        for name in ("loss", "loss_validation"):
            if name in result:
                writer.add_scalar(f"result/{name}", result[name], step)
        writer.close()

    def close(self) -> None:
        """Close the files of trials that go on later."""
        for writer in self._writers.values():
            writer.close()
