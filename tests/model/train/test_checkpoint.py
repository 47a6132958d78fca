"""Checkpoints: whole or absent, checked before use, data only, and written behind the training."""

import errno
import os
import pickle
import resource
import subprocess
import threading
from pathlib import Path

import pytest
import torch

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.train import checkpoint as checkpoints
from scalevec.model.train import newest_step, prune_finished
from scalevec.model.train.checkpoint import (
    BackgroundWriter,
    Checkpoint,
    load_newest,
    pack,
    read_checkpoint,
    save_checkpoint,
)
from support import umask


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(step, {"model.a": torch.full((4, 3), float(step)), "model.b": torch.ones(2)}, {"x": 1})


@pytest.mark.parametrize(("mask", "mode"), [(0o002, 0o664), (0o027, 0o640)])
def test_a_checkpoint_is_for_whom_the_umask_says(tmp_path, mask, mode):
    with umask(mask):
        path = save_checkpoint(tmp_path, checkpoint(7))
    assert path.stat().st_mode & 0o777 == mode
    assert load_newest(tmp_path, pytest.fail).step == 7


def test_an_empty_folder_has_no_checkpoint(tmp_path):
    assert load_newest(tmp_path / "absent", pytest.fail) is None
    assert newest_step(tmp_path / "absent") == 0


def test_files_of_other_programs_beside_checkpoints_are_left_alone(tmp_path):
    """A tool that synchronises folders makes such names."""
    save_checkpoint(tmp_path, checkpoint(3))
    foreign = ["step-x.safetensors", "step-000000009 (1).safetensors", "step-000000009.safetensors.part"]
    for name in foreign:
        (tmp_path / name).write_text("foreign")
    assert newest_step(tmp_path) == 3
    assert load_newest(tmp_path, pytest.fail).step == 3
    save_checkpoint(tmp_path, checkpoint(4))
    assert {path.name for path in tmp_path.iterdir()} > set(foreign)


def test_the_newest_two_stay(tmp_path):
    for step in (1, 9, 10, 1000):
        save_checkpoint(tmp_path, checkpoint(step))
    expected = ["step-000000010.safetensors", "step-000001000.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == expected
    assert newest_step(tmp_path) == 1000


def changed(content, position):
    return content[:position] + bytes([content[position] ^ 0x10]) + content[position:][1:]


@pytest.mark.parametrize(
    ("damaged", "where"),
    [
        *((changed, position) for position in (0, 3, 9, 40, 150, -1, -8)),
        *((lambda content, length: content[:length], length) for length in (0, 1, 7, 8, 100)),
    ],
)
def test_a_single_changed_byte_or_missing_end_is_noticed(damaged, where, tmp_path):
    save_checkpoint(tmp_path, checkpoint(1))
    path = save_checkpoint(tmp_path, checkpoint(2))
    path.write_bytes(damaged(path.read_bytes(), where))
    messages: list[str] = []
    assert load_newest(tmp_path, messages.append).step == 1
    assert len(messages) == 1
    assert path.name in messages[0]


def test_a_checkpoint_from_an_untrusted_hand_executes_nothing(tmp_path):
    class Payload:
        def __reduce__(self):
            return (subprocess.check_call, (["touch", str(tmp_path / "executed")],))

    (tmp_path / "step-000000005.safetensors").write_bytes(pickle.dumps(Payload()))
    messages: list[str] = []
    assert load_newest(tmp_path, messages.append) is None
    assert messages
    assert not (tmp_path / "executed").exists()


def test_a_full_disk_is_reported_as_such_and_leaves_the_folder_as_it_was(tmp_path, small_device):
    save_checkpoint(small_device, checkpoint(1))
    large = Checkpoint(2, {"model.a": torch.zeros(100_000)}, {})
    with pytest.raises(OSError) as caught:
        save_checkpoint(small_device, large)
    assert caught.value.errno == errno.ENOSPC
    assert "step-000000002.safetensors" in caught.value.filename
    assert [path.name for path in small_device.iterdir()] == ["step-000000001.safetensors"]


def test_a_machine_out_of_file_descriptors_is_not_taken_for_damage(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, checkpoint(7))

    def refused(path):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
        try:
            return read_checkpoint(path)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    monkeypatch.setattr(checkpoints, "read_checkpoint", refused)
    with pytest.raises(OSError) as caught:
        load_newest(tmp_path, pytest.fail)
    assert caught.value.errno == errno.EMFILE
    assert newest_step(tmp_path) == 7


def test_tied_weights_are_kept_once(tmp_path):
    model = Transformer(ModelConfig(Shape(16, 1, 2, 2, 48), 64, tied_embeddings=True))
    initialise(model, 0)
    tensors = pack(model, None)
    assert sum(t.numel() for t in tensors.values()) == sum(p.numel() for p in model.parameters())
    save_checkpoint(tmp_path, Checkpoint(1, tensors, {}))


def test_a_checkpoint_of_another_model_is_refused():
    model, other = (Transformer(ModelConfig(Shape(16, n, 2, 2, 48), 64)) for n in (1, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(ValueError, match="another model"):
        checkpoints.unpack(pack(other, None), model, optimizer)


@pytest.mark.parametrize(("keep", "left"), [("none", 0), ("weights", 1), ("all", 1)])
def test_prune_leaves_what_keep_says(keep, left, tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, checkpoint(step))
    (tmp_path / ".step-000000004.safetensors.4711.tmp").write_bytes(b"half")  # of a writer that was killed
    prune_finished(tmp_path, {"keep": keep})
    assert len(list(tmp_path.iterdir())) == left
    assert newest_step(tmp_path) == 2 * left


def test_what_a_killed_writer_left_goes_with_the_next_checkpoint(tmp_path):
    (tmp_path / ".step-000000002.safetensors.4711.tmp").write_bytes(b"half")
    save_checkpoint(tmp_path, checkpoint(3))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003.safetensors"]


def test_writers_of_one_process_number_on_two_machines_do_not_share_a_file(monkeypatch, tmp_path):
    names: list[str] = []
    write = checkpoints.save_file

    def noting(tensors, path, metadata):
        names.append(path.name)
        write(tensors, path, metadata=metadata)

    monkeypatch.setattr(checkpoints, "save_file", noting)
    for _ in range(2):
        save_checkpoint(tmp_path, checkpoint(3))
    assert len(set(names)) == 2


def test_the_training_goes_on_while_it_writes_the_state_as_it_was(tmp_path, monkeypatch):
    changed, save = threading.Event(), checkpoints.save_checkpoint

    def wait_and_save(folder: Path, kept: Checkpoint) -> Path:
        assert changed.wait(30)
        return save(folder, kept)

    monkeypatch.setattr(checkpoints, "save_checkpoint", wait_and_save)
    weight = torch.zeros(3)
    with BackgroundWriter(tmp_path) as writer:
        writer.write(Checkpoint(1, {"model.weight": weight}, {}))
        weight += 1
        changed.set()
    assert load_newest(tmp_path, pytest.fail).tensors["model.weight"].tolist() == [0, 0, 0]


def test_a_second_one_waits_for_the_first(tmp_path: Path) -> None:
    with BackgroundWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write(checkpoint(step))
    expected = ["step-000000002.safetensors", "step-000000003.safetensors"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == expected


def test_an_error_is_raised_where_the_run_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_checkpoint", full)
    writer = BackgroundWriter(tmp_path)
    writer.write(checkpoint(1))
    with pytest.raises(OSError, match="No space left"):
        writer.write(checkpoint(2))
    with pytest.raises(OSError, match="No space left"), BackgroundWriter(tmp_path) as writer:
        writer.write(checkpoint(1))


@pytest.mark.parametrize(
    ("held_up_s", "write_cpu_s", "interval_s"),
    [(0.5, 0, 180), (0.5, 0.2, 180), (3.0, 0, 180), (12.0, 0, 600), (2.0, 5.0, 600)],
)
def test_the_interval_keeps_their_cost_within_2_percent(held_up_s, write_cpu_s, interval_s, tmp_path):
    writer = BackgroundWriter(tmp_path)
    writer.last_s, writer.write_cpu_s = held_up_s, write_cpu_s
    assert writer.interval(180) == pytest.approx(interval_s)
