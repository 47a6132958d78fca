"""What a checkpoint keeps of an optimizer: everything that the next step depends on."""

import pytest
import torch

from scalevec.model.train.checkpoint import Checkpoint, load_newest, save_checkpoint
from scalevec.model.train.optimizer_state import pack_state, unpack_state


class Peculiar(torch.optim.Optimizer):
    """Keeps state of every kind that a checkpoint can hold."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for parameter in group["params"]:
                self.state[parameter] = STATE


STATE = {
    "count": 3,
    "flag": True,
    "rate": 0.1,
    "name": "text",
    "absent": None,
    "whole": torch.arange(3),
    "list": [torch.ones(2, dtype=torch.float64), [], None, {"inner": torch.zeros(())}],
    "pair": (1, torch.tensor([True, False])),
    "turned": torch.arange(6.0).view(2, 3).T,
}


def same(state, other):
    """Equality through containers, of types, and of the order in which a tensor lies in memory."""
    if type(state) is not type(other):
        return False
    if isinstance(state, torch.Tensor):
        return state.dtype == other.dtype and state.stride() == other.stride() and torch.equal(state, other)
    if isinstance(state, dict):
        return state.keys() == other.keys() and all(same(state[key], other[key]) for key in state)
    if isinstance(state, list | tuple):
        return len(state) == len(other) and all(map(same, state, other))
    return state == other


def test_state_of_every_kind_survives_the_file(tmp_path):
    original, loaded = (Peculiar([torch.nn.Parameter(torch.ones(2))]) for _ in range(2))
    original.step()
    original.step()
    save_checkpoint(tmp_path, Checkpoint(2, pack_state(original), {}))
    checkpoint = load_newest(tmp_path, pytest.fail)
    unpack_state(checkpoint.tensors, loaded)
    assert same(next(iter(loaded.state.values())), STATE)
    assert loaded.param_groups[0]["step"] == 2


def test_state_that_a_file_cannot_hold_is_refused():
    optimizer = Peculiar([torch.nn.Parameter(torch.ones(2))])
    optimizer.state[optimizer.param_groups[0]["params"][0]] = {"draws": {"made": torch.Generator()}}
    with pytest.raises(TypeError, match=r"cannot keep the optimizer's state 0\.draws\.made, a Generator"):
        pack_state(optimizer)


def test_the_state_of_another_optimizer_is_refused():
    item = Peculiar([torch.nn.Parameter(torch.ones(2)) for _ in range(2)])
    item.step()
    with pytest.raises(ValueError, match="another optimizer"):
        unpack_state(pack_state(item), Peculiar([torch.nn.Parameter(torch.ones(2))]))
