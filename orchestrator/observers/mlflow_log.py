"""``--log mlflow``: a run of MLflow for each trial, in the experiment of the sweep's name."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric

from scalevec.orchestrator.observers.trial_logs import LoggedTrial

TAG = "scalevec.trial_id"
_STATUS = {"completed": "FINISHED", "diverged": "FINISHED", "cancelled": "KILLED"}


class MlflowLog:
    """At the tracking URI that MLflow's variable names; else in the folder, as SQLite."""

    def __init__(self, sweep: str, folder: Path) -> None:
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
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values.items()]
        self.client.log_batch(self._runs[trial.trial_id], metrics)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """Log the result as metrics and end the run."""
        self.add(trial, int(result.get("steps", 0)), {f"result.{name}": v for name, v in result.items()})
        self.client.set_terminated(self._runs.pop(trial.trial_id), _STATUS.get(status, "FAILED"))

    def close(self) -> None:
        """Runs of trials that go on later stay open."""
