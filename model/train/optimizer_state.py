"""An optimizer's state as named tensors; what is no tensor is described in JSON, which is kept as one.

Nothing in it is ever executed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

PREFIX = "optimizer."
"""What the names of an optimizer's tensors begin with; the number of the parameter follows."""
LAYOUT = f"{PREFIX}layout"
"""The name of the description: one byte for each character, UTF-8."""

Tensors = dict[str, torch.Tensor]
Share = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Makes of a kept tensor what this process holds of it, given the parameter it belongs to."""
_PLAIN = (bool, int, float, str, type(None))


def pack_state(optimizer: torch.optim.Optimizer) -> Tensors:
    """The tensors of ``optimizer`` by name, and the description of what else it knows.

    Raises ``TypeError`` for a state that is no tensor, number, text, None, or list or mapping of these.
    """
    tensors: Tensors = {}
    states = {
        index: _described(dict(optimizer.state[parameter]), f"{PREFIX}{index}", parameter.device, tensors)
        for index, parameter in enumerate(_parameters(optimizer))
        if optimizer.state.get(parameter)
    }
    groups = [
        {name: value for name, value in group.items() if isinstance(value, _PLAIN)}
        for group in optimizer.param_groups
    ]
    return {**tensors, LAYOUT: _as_tensor({"states": states, "groups": groups})}


def _as_tensor(layout: dict[str, Any]) -> torch.Tensor:
    # A bytearray, since frombuffer warns of memory that cannot be written.
    return torch.frombuffer(bytearray(json.dumps(layout).encode()), dtype=torch.uint8)


def merged_layout(layouts: Sequence[str]) -> torch.Tensor:
    """The description of states that several processes hold: of each the first that has it."""
    descriptions = [json.loads(text) for text in layouts]
    states = {index: state for text in reversed(descriptions) for index, state in text["states"].items()}
    in_order = {index: states[index] for index in sorted(states, key=int)}
    return _as_tensor({"states": in_order, "groups": descriptions[0]["groups"]})


def entire(kept: torch.Tensor, _beside: torch.Tensor) -> torch.Tensor:
    """The :data:`Share` of a process that holds everything."""
    return kept


def unpack_state(
    tensors: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer, share: Share = entire
) -> None:
    """Give ``optimizer`` the state that :func:`pack_state` described; ``ValueError`` if it does not fit."""
    if LAYOUT not in tensors:  # a run that has taken its last step keeps weights alone
        return
    parameters = list(_parameters(optimizer))
    layout = json.loads(tensors[LAYOUT].numpy().tobytes())
    groups = layout["groups"]
    numbers = [int(index) for index in layout["states"]]
    if len(groups) != len(optimizer.param_groups) or max(numbers, default=0) >= len(parameters):
        raise ValueError("the checkpoint was made for another optimizer")
    # In place: the members of Together share this mapping.
    optimizer.state.clear()
    for index, described in zip(numbers, layout["states"].values(), strict=True):
        parameter = parameters[index]
        optimizer.state[parameter] = _restored(described, tensors, parameter, share)
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        group.update(values)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _described(value: Any, name: str, device: torch.device, tensors: Tensors) -> dict[str, Any]:
    """``value`` as JSON; its tensors are put into ``tensors`` under names that begin with ``name``."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        # Some state stays on the CPU whatever its parameter's device, as a count of steps may.
        description: dict[str, Any] = {"tensor": name, "beside": value.device == device}
        # A product reads a transposed matrix in another order, which may give other bits.
        return description if value.is_contiguous() else {**description, "strides": list(value.stride())}
    if isinstance(value, _PLAIN):
        return {"value": value}
    if isinstance(value, list | tuple):
        items = [_described(item, f"{name}.{i}", device, tensors) for i, item in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {
            "mapping": {
                key: _described(item, f"{name}.{key}", device, tensors) for key, item in value.items()
            }
        }
    kept_as, kind = name.removeprefix(PREFIX), type(value).__name__
    raise TypeError(f"a checkpoint cannot keep the optimizer's state {kept_as}, a {kind}")


def _restored(
    described: dict[str, Any], tensors: Mapping[str, torch.Tensor], parameter: torch.Tensor, share: Share
) -> Any:
    """What :func:`_described` described, of a state of ``parameter``."""
    if "tensor" in described:
        kept = share(tensors[described["tensor"]], parameter)
        kept = kept.to(parameter.device if described["beside"] else "cpu", copy=True)
        if "strides" not in described or type(kept) is not torch.Tensor:  # a share has an order of its own
            return kept
        size, strides = tuple(kept.shape), tuple(described["strides"])
        return torch.empty_strided(size, strides, dtype=kept.dtype, device=kept.device).copy_(kept)
    if "value" in described:
        return described["value"]

    def restored(item: dict[str, Any]) -> Any:
        return _restored(item, tensors, parameter, share)

    if "mapping" in described:
        return {key: restored(item) for key, item in described["mapping"].items()}
    if "list" in described:
        return [restored(item) for item in described["list"]]
    return tuple(restored(item) for item in described["tuple"])
