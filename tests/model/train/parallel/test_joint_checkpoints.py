"""Ranks that shard a trial write its checkpoints together, and read what each needs."""

import errno
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parallel_worlds import losses, small_trial, together, trained, world_of
from scalevec.model.config import ScheduleConfig
from scalevec.model.train.checkpoints import joint_state, tensor_file
from scalevec.model.train.checkpoints.folder import checkpoint_steps, newest_first
from scalevec.model.train.checkpoints.joint_state import KeptTensor
from scalevec.model.train.checkpoints.state import read_checkpoint
from scalevec.model.train.parallel.world import World


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_rank_writes_what_it_holds_and_nothing_twice(corpus, tmp_path):
    trial, kept = small_trial(corpus, "muon", "bias"), tmp_path / "kept"
    alone = trained(trial, corpus, tmp_path / "alone", stop_after=3, double=False)
    together(2, trial, corpus, kept, shard=True, stop_after=3, checkpoint_s=1e-9, double=False)
    assert alone["result"] is None
    assert names(kept) == ["step-000000002.shards", "step-000000003.shards"]
    of_one, of_two = (read_checkpoint(newest_first(folder)[0]) for folder in (tmp_path / "alone", kept))
    assert of_two.tensors.keys() == of_one.tensors.keys()
    assert all(of_two.tensors[name].shape == of_one.tensors[name].shape for name in of_one.tensors)
    sizes = [path.stat().st_size for path in sorted((kept / "step-000000003.shards").glob("*.safetensors"))]
    whole = next((tmp_path / "alone").iterdir()).stat().st_size
    assert max(sizes) < 0.65 * whole
    assert sum(sizes) < 1.1 * whole


def _counting_what_is_read(trial, corpus, checkpoints, world: World, **options) -> dict[str, Any]:
    """As ``trained``; with the entries of tensors that this rank has read, those of checks left out."""
    entries = [0]

    def counted(method):
        def read(self, *arguments):
            tensor = method(self, *arguments)
            entries[0] += tensor.numel()
            return tensor

        return read

    rows, whole = KeptTensor.rows, KeptTensor.whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptTensor, "rows", counted(rows))
        patch.setattr(KeptTensor, "whole", counted(whole))
        run = trained(trial, corpus, checkpoints, world, **options)
    return {**run, "read": entries[0]}


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_a_rank_of_another_world_reads_its_share_alone(before, after, corpus, tmp_path):
    trial, kept = small_trial(corpus), tmp_path / "kept"
    rows = together(before, trial, corpus, kept, shard=True, stop_after=2)[0]["rows"]
    state = read_checkpoint(newest_first(kept)[0]).tensors
    entries = sum(tensor.shape.numel() for tensor in state.values())
    work = partial(_counting_what_is_read, trial, corpus, kept, shard=True, rows=rows, stop_after=3)
    for run in world_of(after, work, tmp_path / "world", shard=True):
        # The counts of steps, and the description of the optimizer's state, are read by all.
        small = sum(tensor.shape.numel() for name, tensor in state.items() if "step" in name)
        described = state["optimizer.layout"].shape.numel()
        assert run["read"] <= (entries - described) / after * 1.1 + small + described


def _lacking_space_at_rank_1(trial, corpus, checkpoints, world: World) -> dict[str, Any]:
    write = tensor_file.save_file

    def full(tensors, path, metadata):
        if world.rank == 1 and "step-000000003" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(tensors, path, metadata=metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_file, "save_file", full)
        try:
            trained(trial, corpus, checkpoints, world, shard=True, checkpoint_s=1e-9)
        except OSError as problem:
            return {"errno": problem.errno}
    return {}


def test_a_full_disk_of_one_rank_ends_all_and_leaves_the_one_before(corpus, tmp_path):
    work = partial(_lacking_space_at_rank_1, small_trial(corpus), corpus, tmp_path / "kept")
    assert world_of(2, work, tmp_path / "world", shard=True) == [{"errno": errno.ENOSPC}] * 2
    assert names(tmp_path / "kept") == ["step-000000001.shards", "step-000000002.shards"]


def test_a_damaged_shard_costs_the_steps_since_the_checkpoint_before(corpus, tmp_path):
    trial, kept = small_trial(corpus), tmp_path / "kept"
    undisturbed = trained(trial, corpus, tmp_path / "alone")
    rows = together(2, trial, corpus, kept, shard=True, stop_after=3, checkpoint_s=1e-9)[0]["rows"]
    path = sorted(newest_first(kept)[0].glob("*.safetensors"))[1]
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    last = together(2, trial, corpus, kept, shard=True, rows=rows)[0]
    assert [row["step"] for row in last["rows"]] == [1, 2, 3, 4, 5]
    assert losses(last) == pytest.approx(losses(undisturbed), rel=1e-10)


def test_of_a_trial_that_is_done_the_weights_alone_stay(corpus, tmp_path):
    trial, kept = small_trial(corpus, "muon"), tmp_path / "kept"
    ranks = together(2, trial, corpus, kept, shard=True, keep="weights", double=False)
    assert checkpoint_steps(kept) == [5]
    tensors = read_checkpoint(newest_first(kept)[0]).tensors
    assert not any(name.startswith("optimizer.") for name in tensors)
    parameters = ranks[0]["parameters"]
    assert {name: joint_state.whole(tensors[name]).tolist() for name in parameters} == parameters


@pytest.mark.parametrize("goes_on", [2, 1])
def test_another_trial_goes_on_from_the_state_of_a_sharded_trunk_as_it_is_trained(goes_on, corpus, tmp_path):
    schedule = ScheduleConfig("wsd", warmup_tokens=128, cooldown_fraction=0.4)
    trial, trunk = small_trial(corpus, steps=5, schedule=schedule), tmp_path / "trunk"
    together(2, trial, corpus, tmp_path / "first", shard=True, trunk=trunk, branch_steps=(3,))
    assert names(trunk) == ["step-000000003.shards"]
    if goes_on == 1:
        second = trained(trial, corpus, tmp_path / "second", trunk=trunk)
    else:
        second = together(2, trial, corpus, tmp_path / "second", shard=True, trunk=trunk)[0]
    assert second["result"]["trunk_step"] == (3 if goes_on == 2 else 0)
    assert losses(second) == pytest.approx(losses(trained(trial, corpus, tmp_path / "alone")), rel=1e-10)
