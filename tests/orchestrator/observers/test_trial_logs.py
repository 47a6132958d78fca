"""``run --log``: what trackers get, and that what fails there fails no trial."""

import json
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from recorded_sweep import TEMPLATE
from scalevec.model.config import RunOptions
from scalevec.orchestrator.attempts.jobs import Task
from scalevec.orchestrator.errors import InvalidInputError, MissingRequirementError
from scalevec.orchestrator.observers import trial_logs as module
from scalevec.orchestrator.observers.trial_logs import LoggedTrial, TrialLogs, log_named
from scalevec.results.run_directory import RunDirectory
from support import succeeded

TRIAL = LoggedTrial("ab" * 32, "baseline a seed 0", "small", {"arm": "baseline", "model.shape.width": 16})


def logged_scalars(folder):
    """Yield run, step, tag and value of each scalar in the event files below ``folder``."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    for run in {path.parent for path in folder.rglob("*tfevents*")}:
        events = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        for tag in events.Tags()["scalars"]:
            yield from ((run.name, point.step, tag, point.value) for point in events.Scalars(tag))
        for tag in events.Tags()["tensors"]:
            for point in events.Tensors(tag):
                yield run.name, point.step, tag, make_ndarray(point.tensor_proto).item()


class KeepingLog:
    """Keeps what it gets; ``fault`` is called at each row."""

    def __init__(self, fault=lambda: None) -> None:
        self.rows, self.ends, self.fault = [], [], fault

    def begin(self, trial):
        self.fields = trial.fields

    def add(self, trial, step, values):
        self.fault()
        self.rows.append((step, values))

    def end(self, trial, status, result):
        self.ends.append((status, result))

    def close(self):
        self.closed = True


@pytest.fixture
def followed(tmp_path, monkeypatch):
    """A log, and what follows one trial and passes its metrics on to it."""

    def follow(log: KeepingLog) -> tuple[TrialLogs, Task, RunDirectory, list[str]]:
        monkeypatch.setitem(sys.modules, "kept_log", SimpleNamespace(make=lambda *_: log))
        monkeypatch.setitem(module.LOGS, "kept", "kept_log:make")
        task = Task("ab" * 32, TEMPLATE, "baseline a seed 0", RunOptions(), 1.0, arm="baseline", rung="a")
        directory = RunDirectory.of(tmp_path, task.trial_id)
        directory.path.mkdir(parents=True, exist_ok=True)
        warnings: list[str] = []
        return TrialLogs("kept", "small", tmp_path, warnings.append), task, directory, warnings

    return follow


def rows(*steps: int) -> str:
    return "".join(
        json.dumps({"step": step, "loss": step / 2, "vectors": {"attention": {"mean": 1.0, "layers": [1]}}})
        + "\n"
        for step in steps
    )


def test_a_trial_is_passed_on_with_its_rows_and_its_result(followed):
    log = KeepingLog()
    logs, task, directory, warnings = followed(log)
    directory.metrics_path.write_text(rows(1, 2) + '{"step": 3, "lo')
    logs.started(task)
    logs.ended(task, "completed")
    logs.finished()
    assert log.rows == [(step, {"loss": step / 2, "vectors.attention.mean": 1.0}) for step in (1, 2)]
    assert (log.ends, log.closed, warnings) == ([("completed", {})], True, [])
    assert log.fields["arm"] == "baseline"
    assert log.fields["model.shape.width"] == task.trial.model.shape.width


def test_a_trial_that_was_called_off_before_it_began_is_not_passed_on(followed):
    log = KeepingLog()
    logs, task, _, warnings = followed(log)
    logs.ended(task, "cancelled")
    logs.finished()
    assert (log.ends, log.closed, warnings) == ([], True, [])


def test_a_step_is_passed_on_once_though_the_trial_goes_back_and_the_run_begins_again(followed):
    first, second = KeepingLog(), KeepingLog()
    for log, steps in ((first, (1, 2, 3)), (second, (1, 2, 3, 4))):
        logs, task, directory, _ = followed(log)
        directory.metrics_path.unlink(missing_ok=True)
        directory.metrics_path.write_text(rows(*steps))
        logs.started(task)
        logs.finished()
    assert [step for step, _ in first.rows] == [1, 2, 3]
    assert [step for step, _ in second.rows] == [4]


def test_a_log_that_fails_is_told_once_and_stopped(followed):
    log = KeepingLog(Mock(side_effect=ConnectionError("no route")))
    logs, task, directory, warnings = followed(log)
    directory.metrics_path.write_text(rows(1, 2))
    logs.started(task)
    logs.finished()
    logs.tick()
    [warning] = warnings
    assert warning.startswith("warning: --log kept: ConnectionError: no route; nothing more is logged")


def test_a_log_that_hangs_is_left_behind(followed, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    never = threading.Event()
    logs, task, directory, warnings = followed(KeepingLog(never.wait))
    directory.metrics_path.write_text(rows(1))
    logs.started(task)
    logs.finished()
    never.set()
    assert "did not end within 0.05 s" in warnings[0]


def test_another_name_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(InvalidInputError, match="did you mean tensorboard"):
        log_named("tensorbord", "small", tmp_path)


def test_without_its_library_the_line_that_installs_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    sys.modules.pop("scalevec.orchestrator.observers.wandb_log", None)
    with pytest.raises(MissingRequirementError, match=r"pip install .*wandb"):
        log_named("wandb", "small", tmp_path)


def test_tensorboard_reads_what_was_logged(tmp_path):
    log = log_named("tensorboard", "small", tmp_path)
    log.begin(TRIAL)
    log.add(TRIAL, 1, {"loss": 4.5})
    log.add(TRIAL, 2, {"loss": 3.5})
    log.end(TRIAL, "completed", {"loss": 3.25, "steps": 2})
    log.close()
    run = f"baseline-a-seed-0-{'ab' * 4}"
    expected = {(run, 1, "loss", 4.5), (run, 2, "loss", 3.5), (run, 2, "result/loss", 3.25)}
    assert set(logged_scalars(tmp_path)) == expected


def test_wandb_keeps_an_offline_run_on_disk(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed (extra wandb)")
    monkeypatch.setenv("WANDB_MODE", "offline")
    log = log_named("wandb", "small", tmp_path)
    log.begin(TRIAL)
    log.add(TRIAL, 1, {"loss": 4.5})
    log.end(TRIAL, "completed", {"loss": 3.25})
    log.close()
    wandb.teardown()  # as at the end of a process: its service has written all
    [kept] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert TRIAL.trial_id[:16] in kept.name
    assert b"result/loss" in kept.read_bytes()


def test_mlflow_keeps_one_run_of_a_trial_that_goes_on(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (extra mlflow)")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for steps, status in ((1, None), (2, "completed")):
        log = log_named("mlflow", "small", tmp_path)
        log.begin(TRIAL)
        log.add(TRIAL, steps, {"loss": 4.5 / steps})
        if status:
            log.end(TRIAL, status, {"loss": 2.25, "steps": 2})
        log.close()
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    [run] = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert (run.info.status, run.data.params["arm"]) == ("FINISHED", "baseline")
    assert run.data.metrics == {"loss": 2.25, "result.loss": 2.25, "result.steps": 2.0}


@pytest.mark.slow
def test_a_sweep_ends_as_well_with_a_log_that_fails(scalevec, tmp_path, sweep_file, monkeypatch):
    log = KeepingLog(Mock(side_effect=ConnectionError("no route")))
    monkeypatch.setitem(sys.modules, "kept_log", SimpleNamespace(make=lambda *_: log))
    monkeypatch.setitem(module.LOGS, "kept", "kept_log:make")
    text = sweep_file.read_text().replace("  - {name: b, width: 32, layers: 1}\n", "")
    sweep_file.write_text(text.replace("tune:", "# tune:").replace("seeds: [0, 1]", "seeds: [0]"))
    done = succeeded(scalevec("run", "small.yaml", "--log", "kept", "--log", "tensorboard"))
    assert done.stderr.count("--log kept: ConnectionError") == 1
    logged = {run for run, *_ in logged_scalars(tmp_path / "runs" / "sweeps" / "small" / "tensorboard")}
    assert len(logged) == 2
