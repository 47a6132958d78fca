"""``--log tensorboard`` and the like: trials as runs of a tracker that people already use.

Each library is imported by the log that needs it, when that is built.
"""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalevec.orchestrator.observers.trial_logs import LoggedTrial
from scalevec.orchestrator.private import private_folder

TAG = "scalevec.trial_id"
_MLFLOW_STATUS = {"completed": "FINISHED", "diverged": "FINISHED", "cancelled": "KILLED"}


class TensorBoardLog:
    """An event file for each trial; ``tensorboard --logdir RUNS_DIR/sweeps/NAME/tensorboard`` reads them."""

    def __init__(self, _sweep: str, folder: Path) -> None:
        from tensorboard.summary import Writer

        self._writer, self.folder = Writer, folder
        self._writers: dict[str, Any] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Open a file in the folder of the trial."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", trial.label)
        self._writers[trial.trial_id] = self._writer(str(self.folder / f"{name}-{trial.trial_id[:8]}"))

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Add a scalar for each value."""
        for name, value in values.items():
            self._writers[trial.trial_id].add_scalar(name, value, step)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:  # noqa: ARG002
        """Add the losses of the result at the last step, and close the file."""
        losses = {f"result/{name}": result[name] for name in ("loss", "loss_validation") if name in result}
        self.add(trial, int(result.get("steps", 0)), losses)
        self._writers.pop(trial.trial_id).close()

    def close(self) -> None:
        """Close the files of trials that go on later."""
        for writer in self._writers.values():
            writer.close()


class WandbLog:
    """Runs in the project of the sweep's name, under ids of the trials: one that goes on is continued.

    ``WANDB_MODE=offline`` keeps them on disk.
    """

    def __init__(self, sweep: str, _folder: Path) -> None:
        import wandb

        # W&B takes settings, such as the server that gets the key, from a file beside what it writes.
        self.wandb, self.sweep, self.folder = wandb, sweep, private_folder()
        self._runs: dict[str, Any] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Begin or continue the run; several are open at a time."""
        self._runs[trial.trial_id] = self.wandb.init(
            project=self.sweep,
            id=trial.trial_id[:16],
            name=trial.label,
            group=str(trial.fields["arm"]),
            config=dict(trial.fields),
            dir=self.folder,
            resume="allow",
            reinit="create_new",
            settings=self.wandb.Settings(silent=True, console="off"),
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


class MlflowLog:
    """Runs in the experiment of the sweep's name, at MLflow's tracking URI; else in the folder, as SQLite."""

    def __init__(self, sweep: str, folder: Path) -> None:
        from mlflow import MlflowClient

        local = f"sqlite:///{folder.resolve() / 'mlflow.db'}"
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or local)
        known = self.client.get_experiment_by_name(sweep)
        self.experiment = known.experiment_id if known else self.client.create_experiment(sweep)
        self._runs: dict[str, str] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Find the run of a trial that goes on, else make one."""
        runs = self.client.search_runs([self.experiment], f"tags.`{TAG}` = '{trial.trial_id}'", max_results=1)
        if not runs:
            tags = {TAG: trial.trial_id}
            runs = [self.client.create_run(self.experiment, tags=tags, run_name=trial.label)]
            for name, value in trial.fields.items():
                self.client.log_param(runs[0].info.run_id, name, value)
        self._runs[trial.trial_id] = runs[0].info.run_id

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the values at their step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self._runs[trial.trial_id], metrics)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """Log the result as metrics and end the run."""
        self.add(trial, int(result.get("steps", 0)), {f"result.{name}": v for name, v in result.items()})
        self.client.set_terminated(self._runs.pop(trial.trial_id), _MLFLOW_STATUS.get(status, "FAILED"))

    def close(self) -> None:
        """Runs of trials that go on later stay open."""
