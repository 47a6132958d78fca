"""A sweep as its run directories and folder record it, made without training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from scalevec.model.config import ModelConfig, OptimizerConfig, ScheduleConfig, Shape
from scalevec.model.identity import semantic_fields, trial_id
from scalevec.model.strategies import PRESETS
from scalevec.results.run_directory import RunDirectory, trial_ids
from scalevec.results.sweep_folder import SweepFolder
from scalevec.sweeps.trainers.any_trial import OwnTrial

RESULT = {"status": "completed", "loss": 3.25, "loss_validation": 3.5, "loss_initial": 6.9, "resumes": 0}
TEMPLATE = OwnTrial(
    model=ModelConfig(Shape(16, 1, 2, 2, 48), 64),
    optimizer=OptimizerConfig("adamw", 0.02),
    schedule=ScheduleConfig("cosine"),
    corpus="c" * 64,
    sequence_length=32,
    batch_tokens=256,
    tokens=2560,
    seed=0,
)


def trial_of(arm: str, seed: int) -> OwnTrial:
    return replace(TEMPLATE, model=replace(TEMPLATE.model, scale_vectors=PRESETS[arm]), seed=seed)


def member_of(arm: str, seed: int, **changes: Any) -> dict[str, Any]:
    setting = {"optimizer": "adamw", "schedule": "cosine", "tokens_per_parameter": 4}
    return {
        "trial_id": trial_id(trial_of(arm, seed)),
        "arm": arm,
        "stage": "comparison",
        "rung": "a",
        "seed": seed,
        "lr_status": "tuned",
        "learning_rate": 0.02,
        **setting,
        "setting": {},
        **changes,
    }


def directory_of(runs_dir: Path, arm: str, seed: int) -> RunDirectory:
    """The run directory of a trial, made with its trial.json."""
    trial = trial_of(arm, seed)
    directory = RunDirectory.of(runs_dir, trial_id(trial))
    directory.create(semantic_fields(trial), {"first_sweep": "small"})
    return directory


def directories_in(runs_dir: Path) -> list[RunDirectory]:
    """The run directories of all trials."""
    return [RunDirectory.of(runs_dir, name) for name in trial_ids(runs_dir)]


def complete(directory: RunDirectory) -> None:
    directory.append_event("running", attempt=1, step=0)
    directory.write_result(RESULT)
    directory.append_event("completed")


def record_sweep(runs_dir: Path, name: str, members: list[dict[str, Any]]) -> SweepFolder:
    folder = SweepFolder.of(runs_dir, name)
    folder.write_members(members)
    return folder


def choice_of(arm: str, rung: str = "25k", **changes: object) -> dict[str, object]:
    """One entry of tuning.json."""
    entry: dict[str, object] = {
        "key": "0" * 64,
        "arm": arm,
        "rung": rung,
        "n_params": 25_088,
        "setting": {"optimizer": "adamw", "schedule": "cosine", "tokens_per_parameter": 16},
        "field": "learning_rate",
        "grid": [8e-3, 1.6e-2, 3.2e-2],
        "losses": [3.95, 3.90, 3.93],
        "seeds": [100],
        "vertex": 1.75e-2,
        "chosen": 1.6e-2,
        "status": "tuned",
        "extensions": 0,
    }
    return {**entry, **changes}
