"""A sweep that goes on in a runs folder where somebody has put links in place of what workers write."""

import shutil
from pathlib import Path

import pytest

from simulations import simulated


@pytest.fixture
def private(tmp_path) -> Path:
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    (folder / "step-000000100.safetensors").write_text("a checkpoint of mine")
    return folder


@pytest.mark.parametrize(
    ("name", "is_done"),
    [
        *((name, False) for name in ("log.txt", "checkpoints", "out", "claims", "events.jsonl", ".")),
        *((name, True) for name in ("out", "events.jsonl", ".")),
    ],
)
def test_the_trial_fails_by_name_others_go_on_and_nothing_outside_changes(tmp_path, private, name, is_done):
    trials = simulated(tmp_path / "runs").directories()
    linked = trials[0].path / name
    if not is_done:
        for path in (trials[0].result_path, trials[0].events_path, trials[1].result_path):
            path.unlink()
        trials[1].events_path.unlink()
    shutil.rmtree(linked) if linked.is_dir() else linked.unlink(missing_ok=True)
    linked.symlink_to(private / "thesis.txt" if linked.suffix else private)
    again = simulated(tmp_path / "runs")
    assert [path.name for path in sorted(private.iterdir())] == ["step-000000100.safetensors", "thesis.txt"]
    assert (private / "thesis.txt").read_text() == "mine"
    problems = list(again.outcome.failed.values())
    if is_done and name == "events.jsonl":  # its result says all
        assert problems == []
    else:
        assert f"{linked}: is a link" in problems[0]
        assert len(problems) == 1
    assert all(trial.result() for trial in trials[1:])
