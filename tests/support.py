"""Helpers that tests of several folders share."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.config import Trial
from model.strategies import PRESETS

SCALEVEC = Path(sysconfig.get_path("scripts")) / "scalevec"

STEPS = 24
BATCH_TOKENS = 128
SEQUENCE = 32


def finished(folder: Path, sweep: str) -> Path:
    """``folder`` with the sweep as small.yaml and its runs, trained to the end."""
    (folder / "small.yaml").write_text(sweep)
    environment = os.environ | {"SCALEVEC_CACHE_DIR": str(folder / "cache")}
    command = [str(SCALEVEC), "run", "small.yaml"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """``code`` in a fresh interpreter."""
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)


class MemoryRecorder:
    """Keeps rows as a run directory would, and asks for a stop after ``stop_after`` rows in all."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.stop_after = stop_after
        self.details: list[dict[str, Any]] = []
        self.synced = 0

    def record(self, row: dict[str, Any]) -> None:
        self.rows.append(dict(row))

    def cut_back(self, step: int) -> None:
        self.rows = [row for row in self.rows if row["step"] <= step]

    def recorded(self) -> list[dict[str, Any]]:
        return self.rows

    def replace_rows(self, rows: list[dict[str, Any]]) -> None:
        self.rows = [dict(row) for row in rows]

    def sync(self) -> None:
        self.synced = len(self.rows)

    def say(self, message: str, **details: Any) -> None:
        self.said.append(message)
        self.details.append(details)

    def origin(self) -> dict[str, Any]:
        return {"trial_id": "ab12" * 16, "commit": "c0ffee" * 6}

    def require_ownership(self) -> None:
        """Nobody else wants the trial."""

    def stop_requested(self) -> bool:
        return self.stop_after is not None and len(self.rows) >= self.stop_after


def with_strategy(trial: Trial, name: str) -> Trial:
    return replace(trial, model=replace(trial.model, scale_vectors=PRESETS[name]))
