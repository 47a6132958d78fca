"""Statistics of the scale vectors in effect, by kind and by layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scalevec.model.scale_vectors import ScaleVector

NEAR_ZERO = 0.1
"""An entry of a scale vector below this magnitude counts as near zero."""
NAMES = ("mean", "deviation", "near_zero")


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
    # Of each kind all layers together, then each: read in one go, as every reading waits for the device.
    entries = [part for vectors in kinds.values() for part in (torch.cat(vectors), *vectors)]
    numbers = iter(torch.stack([_statistics(part) for part in entries]).tolist() if entries else ())
    statistics: dict[str, float | list[float]] = {}
    for kind, vectors in kinds.items():
        statistics |= {f"sv/{kind}/{name}": value for name, value in zip(NAMES, next(numbers), strict=True)}
        by_layer = zip(*(map(shortened, next(numbers)) for _ in vectors), strict=True)
        if len(vectors) > 1:
            statistics |= {
                f"sv/{kind}/{name}/layers": [*of] for name, of in zip(NAMES, by_layer, strict=True)
            }
    return statistics


def _statistics(entries: Tensor) -> Tensor:
    """Those of NAMES, [3], of ``entries`` [n]."""
    near_zero = (entries.abs() < NEAR_ZERO).double().mean()
    return torch.stack([entries.mean(), entries.std(correction=0), near_zero])


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
