"""Checkpoints written behind the training: of the state when they were asked for, none lost in silence."""

import threading
from pathlib import Path

import pytest
import torch

from scalevec.model.train import checkpoint as checkpoints
from scalevec.model.train.checkpoint import BackgroundWriter, Checkpoint, load_newest


def checkpoint(step: int, tensor: torch.Tensor) -> Checkpoint:
    return Checkpoint(step, {"model.weight": tensor}, {})


def test_the_training_goes_on_while_it_writes_the_state_as_it_was(tmp_path, monkeypatch):
    changed, save = threading.Event(), checkpoints.save_checkpoint

    def wait_and_save(folder: Path, kept: Checkpoint) -> Path:
        assert changed.wait(30)
        return save(folder, kept)

    monkeypatch.setattr(checkpoints, "save_checkpoint", wait_and_save)
    weight = torch.zeros(3)
    with BackgroundWriter(tmp_path) as writer:
        writer.write(checkpoint(1, weight))
        weight += 1
        changed.set()
    kept = load_newest(tmp_path, pytest.fail)
    assert kept is not None
    assert kept.tensors["model.weight"].tolist() == [0, 0, 0]


def test_a_second_one_waits_for_the_first(tmp_path: Path) -> None:
    with BackgroundWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write(checkpoint(step, torch.zeros(3)))
    expected = ["step-000000002.safetensors", "step-000000003.safetensors"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == expected


def test_an_error_is_raised_where_the_run_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_checkpoint", full)
    writer = BackgroundWriter(tmp_path)
    writer.write(checkpoint(1, torch.zeros(3)))
    with pytest.raises(OSError, match="No space left"):
        writer.write(checkpoint(2, torch.zeros(3)))
    with pytest.raises(OSError, match="No space left"), BackgroundWriter(tmp_path) as writer:
        writer.write(checkpoint(1, torch.zeros(3)))


@pytest.mark.parametrize(
    ("held_up_s", "write_cpu_s", "interval_s"),
    [(0.5, 0, 180), (0.5, 0.2, 180), (3.0, 0, 180), (12.0, 0, 600), (2.0, 5.0, 600)],
)
def test_the_interval_keeps_their_cost_within_2_percent(held_up_s, write_cpu_s, interval_s, tmp_path):
    writer = BackgroundWriter(tmp_path)
    writer.last_s, writer.write_cpu_s = held_up_s, write_cpu_s
    assert writer.interval(180) == pytest.approx(interval_s)
