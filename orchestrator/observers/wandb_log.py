"""``--log wandb``: a run of Weights & Biases for each trial; ``WANDB_MODE=offline`` keeps them on disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from scalevec.orchestrator.observers.trial_logs import LoggedTrial
from scalevec.orchestrator.private import private_folder


class WandbLog:
    """Runs in the project of the sweep's name, under ids of the trials: one that goes on is continued."""

    def __init__(self, sweep: str, _folder: Path) -> None:
        # W&B takes settings, such as the server that gets the key, from a file beside what it writes.
        self.sweep, self.folder = sweep, private_folder()
        self._runs: dict[str, Any] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Begin or continue the run; several are open at a time."""
        self._runs[trial.trial_id] = wandb.init(
            project=self.sweep,
            id=trial.trial_id[:16],
            name=trial.label,
            group=str(trial.fields["arm"]),
            config=dict(trial.fields),
            dir=self.folder,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the values at their step."""
        self._runs[trial.trial_id].log(dict(values), step=step)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """Put the result into the summary and finish the run."""
        run = self._runs.pop(trial.trial_id)
        run.summary.update({"status": status} | {f"result/{name}": value for name, value in result.items()})
        run.finish(exit_code=0 if status in ("completed", "diverged") else 1)

    def close(self) -> None:
        """Finish the runs of trials that go on later."""
        for run in self._runs.values():
            run.finish()
