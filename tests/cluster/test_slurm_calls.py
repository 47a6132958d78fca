# ruff: noqa: F811 (fixtures of another module)
"""How often SLURM is asked something: its controller serves everybody."""

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from cluster.slurm_daemons import until
from cluster.test_slurm_training import start, sweep  # noqa: F401 (fixtures)
from support import two_arms

pytestmark = pytest.mark.slow

COMMANDS = ("sbatch", "squeue", "scontrol", "sacct", "sacctmgr", "scancel", "sinfo")
MOST_BEFORE = 6
"""Calls beside one for each array until all is sent."""
POLL_S = 2.0
WAITING = f"waiting: {{poll_s: {POLL_S}, memory_gb: 1.5, time: 60, flags: {{begin: now+1hour}}}}\n"


@pytest.fixture(autouse=True)
def profiles(tmp_path, monkeypatch):
    """The profile is the person's own."""
    monkeypatch.setenv("SCALEVEC_PROFILES", str(tmp_path / "profiles.yaml"))


@pytest.fixture
def calls(slurm_commands, tmp_path, monkeypatch):
    """SLURM's commands are counted: what was called so far."""
    folder, log = tmp_path / "counted", tmp_path / "calls"
    folder.mkdir()
    log.touch()
    for name in COMMANDS:
        script = folder / name
        script.write_text(f'#!/bin/sh\necho {name} >> "{log}"\nexec {shutil.which(name)} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return lambda: Counter(log.read_text().split())


def arrays(folder: Path) -> int:
    return len(list(folder.glob("runs/sweeps/small/slurm/*/places.json")))


def test_a_sweep_is_sent_with_a_call_for_each_array_and_few_more_and_a_poll_is_one(
    start, calls, tmp_path, text_files
):
    (tmp_path / "small.yaml").write_text(two_arms("small", text_files, 3, seeds=range(60)))
    (tmp_path / "profiles.yaml").write_text(WAITING)
    process = start("waiting")
    # Of the 120 trials an array as large as the cluster takes, and the rest.
    until(lambda: arrays(tmp_path) == 2 and calls()["squeue"] >= 1, "all is sent")
    sent, began = calls(), time.monotonic()
    assert sent["sbatch"] == 2
    assert sent.total() <= MOST_BEFORE + 2
    time.sleep(2 * POLL_S)
    process.kill()
    later = calls() - sent
    assert set(later) <= {"squeue"}
    assert later.total() <= 1 + (time.monotonic() - began) / POLL_S
