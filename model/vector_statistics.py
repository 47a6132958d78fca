"""Statistics of the scale vectors in effect, by kind and by layer."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from scalevec.model.scale_vectors import ScaleVector

NEAR_ZERO = 0.1
"""An entry of a scale vector below this magnitude counts as near zero."""


@torch.no_grad()
def vector_statistics(
    model: nn.Module, in_effect: Callable[[ScaleVector], Tensor] = ScaleVector.__call__
) -> dict[str, float | list[float]]:
    """Mean, standard deviation and share near zero of the scale vectors in effect, by kind.

    Keys are ``sv/KIND/mean``, ``sv/KIND/deviation`` and ``sv/KIND/near_zero`` (share with
    |g| < NEAR_ZERO) over all layers, KIND one of ``query_input``, ``query_output``, ...,
    ``attention_shared``, ``feed_forward_shared``, ``final``. A kind of several layers has the same by
    layer, in the order of the layers: ``sv/KIND/mean/layers``. Empty for a model without vectors.
    ``in_effect`` is how a vector is had where a process does not hold all of it.
    """
    kinds: dict[str, list[Tensor]] = {}
    for name, module in model.named_modules():
        if isinstance(module, ScaleVector):
            kinds.setdefault(_kind(name), []).append(in_effect(module).flatten().double())
    statistics: dict[str, float | list[float]] = {}
    for kind, vectors in kinds.items():
        for name, value in _of(vectors).items():
            statistics[f"sv/{kind}/{name}"] = value
        if len(vectors) > 1:
            layers = [_of([vector]) for vector in vectors]
            for name in layers[0]:
                statistics[f"sv/{kind}/{name}/layers"] = [shortened(layer[name]) for layer in layers]
    return statistics


def _of(vectors: Sequence[Tensor]) -> dict[str, float]:
    entries = torch.cat(list(vectors))
    return {
        "mean": entries.mean().item(),
        "deviation": entries.std(correction=0).item(),
        "near_zero": (entries.abs() < NEAR_ZERO).double().mean().item(),
    }


def shortened(value: float) -> float:
    """Five significant digits: there is one for every layer in a row."""
    return float(f"{value:.5g}")


def _kind(module_name: str) -> str:
    """Its kind, from a vector's module name: ``blocks.3.attention.query.input_vector`` is query_input."""
    *owners, vector = module_name.split(".")
    names = owners[-1:]
    if "experts" in owners:
        names = ["expert", *(name for name in names if name != "experts")]
    return "_".join([*names, vector.removesuffix("_vector")])
