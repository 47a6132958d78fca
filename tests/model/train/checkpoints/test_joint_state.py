"""Checkpoints that processes write together: read by any number of them, whole or absent, nothing beside."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scalevec.model.train.checkpoints import joint_state
from scalevec.model.train.checkpoints.folder import (
    checkpoint_steps,
    drop_leftovers,
    drop_old,
    newest_step,
    prune,
    shards_path,
)
from scalevec.model.train.checkpoints.joint_state import KeptTensor, Part, complete, write_shard
from scalevec.model.train.checkpoints.state import Checkpoint, load_newest, save_checkpoint

WEIGHT = torch.arange(20.0).view(5, 4)
COUNT = torch.tensor(7.0)


def written(folder: Path, step: int, spans: tuple[tuple[int, int], ...] = ((0, 3), (3, 5))) -> Path:
    """A checkpoint of a matrix whose rows two processes share out, and of a number that the first has."""
    temporary = folder / f".step-{step:09d}.shards.ab.tmp"
    temporary.mkdir(parents=True)
    of_all = []
    for rank, (start, stop) in enumerate(spans):
        tensors = {"model.weight": WEIGHT[start:stop] + step, **({} if rank else {"optimizer.0.step": COUNT})}
        parts = {"model.weight": Part(start, (5, 4))}
        of_all.append(write_shard(temporary, rank, len(spans), tensors, parts, step))
    path = shards_path(folder, step)
    complete(temporary, path, of_all, json.dumps({"step": step, "x": 1}))
    return path


def silent(message: str) -> None:
    pytest.fail(message)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_processes_have_written_is_read_as_one_state(tmp_path: Path) -> None:
    written(tmp_path, 3)
    kept = load_newest(tmp_path, silent)
    assert kept is not None
    assert (kept.step, kept.facts) == (3, {"x": 1})
    assert torch.equal(joint_state.whole(kept.tensors["model.weight"]), WEIGHT + 3)
    assert torch.equal(joint_state.whole(kept.tensors["optimizer.0.step"]), COUNT)


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (2, 4), (3, 5), (4, 5), (5, 5), (0, 5)])
def test_of_a_tensor_any_rows_are_read(start: int, stop: int, tmp_path: Path) -> None:
    written(tmp_path, 3)
    kept = load_newest(tmp_path, silent)
    assert kept is not None
    weight = kept.tensors["model.weight"]
    assert isinstance(weight, KeptTensor)
    assert torch.equal(weight.rows(start, stop), (WEIGHT + 3)[start:stop])


def test_the_index_says_where_everything_is(tmp_path: Path) -> None:
    index = json.loads((written(tmp_path, 3) / "index.json").read_text())
    first, second = (f"shard-0000{n}-of-00002.safetensors" for n in (1, 2))
    assert index["world_size"] == 2
    assert index["files"].keys() == {first, second}
    assert index["tensors"]["model.weight"] == {"shape": [5, 4], "rows": {first: [0, 3], second: [3, 5]}}
    assert index["tensors"]["optimizer.0.step"] == {"shape": [], "rows": {first: [0, 1]}}


def _changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def _of_another_step(path: Path) -> None:
    """A file that is whole in itself."""
    shutil.copy(path.parents[1] / "step-000000001.shards" / path.name, path)


FIRST, SECOND, INDEX = "shard-00001-of-00002.safetensors", "shard-00002-of-00002.safetensors", "index.json"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (FIRST, _changed),
        (SECOND, _changed),
        (INDEX, _changed),
        (SECOND, _of_another_step),
        (SECOND, Path.unlink),
        (INDEX, Path.unlink),
        (INDEX, lambda path: path.write_text("[]")),
    ],
)
def test_a_damaged_one_is_set_aside_for_the_one_before(
    name: str, damage: Callable[[Path], Any], tmp_path: Path
) -> None:
    written(tmp_path, 1)
    damage(written(tmp_path, 2) / name)
    messages: list[str] = []
    kept = load_newest(tmp_path, messages.append)
    assert kept is not None
    assert kept.step == 1
    assert [message[:42] for message in messages] == ["checkpoint step-000000002.shards is damage"]
    assert names(tmp_path) == ["step-000000001.shards", "step-000000002.shards.aside"]


@pytest.mark.parametrize("spans", [((0, 2), (3, 5)), ((0, 3), (3, 4)), ((0, 3), (2, 5))])
def test_rows_that_are_missing_or_there_twice_are_damage(
    spans: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    written(tmp_path, 1, spans)
    messages: list[str] = []
    assert load_newest(tmp_path, messages.append) is None
    assert "of model.weight is in no file" in messages[0]


def test_an_index_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, 1) / INDEX
    index = json.loads(path.read_text().replace(SECOND, f"../{SECOND}"))
    del index["digest"]
    path.write_text(json.dumps({**index, "digest": joint_state._digest(index)}))
    messages: list[str] = []
    assert load_newest(tmp_path, messages.append) is None
    assert f"names ../{SECOND}, which is not in its folder" in messages[0]


def test_the_newest_two_stay_of_either_kind(tmp_path: Path) -> None:
    written(tmp_path, 1)
    save_checkpoint(tmp_path, Checkpoint(2, {"model.weight": WEIGHT}, {}))
    written(tmp_path, 3)
    written(tmp_path, 4)
    drop_old(tmp_path)
    assert names(tmp_path) == ["step-000000003.shards", "step-000000004.shards"]
    save_checkpoint(tmp_path, Checkpoint(5, {"model.weight": WEIGHT}, {}))
    assert names(tmp_path) == ["step-000000004.shards", "step-000000005.safetensors"]


@pytest.mark.parametrize(("keep", "left"), [("none", []), ("weights", [2]), ("all", [2])])
def test_prune_leaves_what_keep_says(keep: str, left: list[int], tmp_path: Path) -> None:
    for step in (1, 2):
        written(tmp_path, step)
    (tmp_path / "step-000000009.shards (1)").mkdir()  # as a tool that synchronises folders makes it
    prune(tmp_path, keep)
    assert checkpoint_steps(tmp_path) == left
    assert "step-000000009.shards (1)" in names(tmp_path)


def test_one_that_was_never_completed_is_none_and_goes(tmp_path: Path) -> None:
    written(tmp_path, 1)
    half = tmp_path / ".step-000000002.shards.ab.tmp"
    half.mkdir()
    write_shard(half, 0, 2, {"model.weight": WEIGHT[:3]}, {"model.weight": Part(0, (5, 4))}, 2)
    assert newest_step(tmp_path) == 1
    drop_leftovers(tmp_path)
    assert names(tmp_path) == ["step-000000001.shards"]


def test_one_of_the_same_step_takes_the_place_of_the_other(tmp_path: Path) -> None:
    written(tmp_path, 1)
    path = written(tmp_path, 1, ((0, 4), (4, 5)))
    drop_old(tmp_path)
    assert names(tmp_path) == [path.name]
    assert json.loads((path / INDEX).read_text())["tensors"]["model.weight"]["rows"][FIRST] == [0, 4]
