"""What a plan says fits into a machine trains there to the end; what it denies dies.

The machine is a cgroup (version 1) of SCALEVEC_CGROUP_GB, made within that of this process by a superuser.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scalevec.model.config import ModelConfig, OptimizerConfig, RunOptions, ScheduleConfig, Shape, Trial
from scalevec.model.data import CorpusConfig
from scalevec.model.data.corpus import open_corpus
from scalevec.model.data.prepare import prepare
from scalevec.model.estimate import memory_of
from scalevec.model.fields import from_dict, to_dict

ROOM = int(float(os.environ.get("SCALEVEC_CGROUP_GB", "2")) * 1e9)
PROMISED = 0.1
"""How far a plan may be from what a trial takes."""
TOO_LARGE = 1.15
OPTIONS = RunOptions(checkpoint_s=1e-9, keep="all")
STEPS = 3
WIDTHS = range(64, 8192, 32)


def own_group() -> Path | None:
    """The folder of this process's cgroup of memory, where another can be made in it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    paths = [line.split(":", 2)[2] for line in lines if line.split(":", 2)[1] == "memory"]
    folders = [Path("/sys/fs/cgroup/memory") / path.lstrip("/") for path in paths]
    return next((folder for folder in folders if os.access(folder / "cgroup.procs", os.W_OK)), None)


pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(own_group() is None, reason="needs a cgroup of memory in which another can be made"),
]


@pytest.fixture
def group() -> Iterator[Path]:
    folder = own_group()
    assert folder is not None
    child = folder / f"scalevec-{os.getpid()}"
    child.mkdir()
    try:
        (child / "memory.limit_in_bytes").write_text(str(ROOM))
        yield child
    finally:
        child.rmdir()


def of_width(width: int) -> Trial:
    """Few tokens, so that weights weigh."""
    model = ModelConfig(Shape(width, 6, width // 32, width // 32, 4 * width), 256)
    tokens, optimizer, schedule = 2 * 128, OptimizerConfig(), ScheduleConfig()
    return Trial(
        model, optimizer, schedule, "c0" * 32, 128, tokens, STEPS * tokens, 0, evaluation_tokens=1024
    )


def needed(trial: Trial) -> int:
    return memory_of(trial, OPTIONS).total


def largest_that_fits() -> Trial:
    """Even where the plan is wrong by as much as it may be."""
    fitting = [of_width(width) for width in WIDTHS if (1 + PROMISED) * needed(of_width(width)) <= ROOM]
    return fitting[-1]


def smallest_that_does_not() -> Trial:
    """By more than the plan may be wrong."""
    return next(of_width(width) for width in WIDTHS if needed(of_width(width)) > TOO_LARGE * ROOM)


def trained_in(group: Path, trial: Trial, corpora: Path, text: Path) -> tuple[int, dict]:
    """The exit code of a process of ``group`` that trains, and what it says."""
    corpus = prepare(CorpusConfig("text", "bytes", 128, (str(text / "*.txt"),)), corpora, lambda _: None)
    asked = json.dumps([to_dict(replace(trial, corpus=corpus.fingerprint)), str(corpora)])
    entered = f"echo $$ > {group}/cgroup.procs && exec {sys.executable} {__file__} '{asked}'"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(["sh", "-c", entered], env=environment, capture_output=True, text=True, check=False)
    return run.returncode, json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else {}


def test_the_largest_trial_that_fits_by_a_plan_and_its_error_trains_to_the_end(group, text_files, tmp_path):
    trial = largest_that_fits()
    code, outcome = trained_in(group, trial, tmp_path / "corpora", text_files)
    most = int((group / "memory.max_usage_in_bytes").read_text())
    print(
        f"{trial.model.shape}: {needed(trial) / 1e9:.2f} GB planned, {outcome}, {most / 1e9:.2f} with files"
    )
    assert code == 0
    assert outcome["status"] == "completed"
    assert len(outcome["checkpoints"]) == 2
    assert outcome["checkpoints"][-1] == STEPS


def test_the_smallest_that_it_denies_beyond_its_error_dies(group, text_files, tmp_path):
    trial = smallest_that_does_not()
    code, _ = trained_in(group, trial, tmp_path / "corpora", text_files)
    print(f"{trial.model.shape}: {needed(trial) / 1e9:.2f} GB planned, exit code {code}")
    assert code == -signal.SIGKILL


def _train(fields: dict, corpora: Path) -> None:
    from scalevec.model.train import checkpoint_steps
    from scalevec.model.train.loop import train
    from support import MemoryRecorder

    trial, folder = from_dict(Trial, fields), corpora.parent / "checkpoints"
    result = train(trial, open_corpus(corpora, trial.corpus), OPTIONS, MemoryRecorder(), folder)
    outcome = {
        "status": result["status"],
        "resident": result["peak_memory_bytes"],
        "wall_s": result["wall_s"],
    }
    print(json.dumps({**outcome, "checkpoints": checkpoint_steps(folder)}))


if __name__ == "__main__":
    _train(json.loads(sys.argv[1])[0], Path(json.loads(sys.argv[1])[1]))
