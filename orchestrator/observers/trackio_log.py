"""``--log trackio``: a run of Trackio for each trial, in its own folder or where its variables point."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import trackio
from trackio import context_vars

from scalevec.orchestrator.observers.trial_logs import LoggedTrial


class TrackioLog:
    """Runs in the project of the sweep's name, named by their trials: one that goes on is continued."""

    def __init__(self, sweep: str, _folder: Path) -> None:
        self.sweep = sweep
        self._runs: dict[str, Any] = {}

    def begin(self, trial: LoggedTrial) -> None:
        """Begin or continue the run; several are open at a time."""
        # Beginning a run would end the one before it.
        context_vars.current_run.set(None)
        with redirect_stdout(sys.stderr):
            self._runs[trial.trial_id] = trackio.init(
                project=self.sweep,
                name=f"{trial.label} {trial.trial_id[:8]}",
                group=str(trial.fields["arm"]),
                config=dict(trial.fields),
                resume="allow",
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def add(self, trial: LoggedTrial, step: int, values: Mapping[str, float]) -> None:
        """Log the values at their step."""
        self._runs[trial.trial_id].log(dict(values), step=step)

    def end(self, trial: LoggedTrial, status: str, result: Mapping[str, float]) -> None:
        """Log the result at the last step and finish the run."""
        values = {"status": status} | {f"result/{name}": value for name, value in result.items()}
        self._runs[trial.trial_id].log(values, step=int(result.get("steps", 0)))
        self._finish(trial.trial_id)

    def close(self) -> None:
        """Finish the runs of trials that go on later."""
        for trial_id in list(self._runs):
            self._finish(trial_id)

    def _finish(self, trial_id: str) -> None:
        with redirect_stdout(sys.stderr):
            self._runs.pop(trial_id).finish()
