"""The decorators by which a plugin declares what it brings (docs/plugins.md).

They do nothing: what they say is read from the source text, so that plans, reports and the schema never run a
plugin. Their arguments, and the defaults of options, are therefore literals. Options are the keyword-only
parameters of the function, and fields of the sweep file.

>>> @optimizer("sign-sgd", allowed={"beta": "[0, 1)"}, state=1)
... def sign_sgd(groups, config, *, beta: float = 0.9):
...     return SignSGD(groups, lr=config.learning_rate, beta=beta)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Code = TypeVar("Code", bound=Callable[..., Any])
Allowed = Mapping[str, str | Sequence[str]]


def optimizer(
    name: str, *, allowed: Allowed | None = None, state: float = 2, matrices_only: bool = False
) -> Callable[[Code], Code]:
    """Declare a function (parameter groups, OptimizerConfig, *, options) -> torch optimizer.

    Args:
        name: What a sweep file calls it.
        allowed: Of an option an interval such as ``"[0, 1)"``, or the texts that it may be.
        state: Numbers of state per parameter, for the estimate of memory.
        matrices_only: Whether ``group["kind"]`` tells the blocks' matrices (``matrix``, ``stack``) apart.

    Each group has ``params``, ``weight_decay`` and ``learning_rate_factor``; its ``lr`` is set before a step.
    """
    del name, allowed, state, matrices_only
    return lambda code: code


def schedule(name: str, *, allowed: Allowed | None = None) -> Callable[[Code], Code]:
    """Declare a function (Trial, tokens so far, *, options) -> factor on the peak rate after the warm-up.

    Args:
        name: What a sweep file calls it.
        allowed: As of :func:`optimizer`.
    """
    del name, allowed
    return lambda code: code


def reparameterization(name: str, *, beta: float, alpha: float) -> Callable[[Code], Code]:
    """Declare a function (beta [1], alpha [width]) -> the scale vector in effect [width], of tensors.

    Args:
        name: What ``scale_vectors: {reparameterization: NAME}`` calls it.
        beta: The value that the magnitude starts from; the vector has to be one there.
        alpha: The value that each entry of the direction starts from.
    """
    del name, beta, alpha
    return lambda code: code


def law(name: str, formula: str, *, source: str) -> None:
    """Declare a scaling law, a sum of a constant and power terms in N, D, C or x.

    Args:
        name: What ``compare: {law: NAME}`` calls it.
        formula: Such as ``"E + A/N^alpha + B/D^beta"``.
        source: Where it is published, for tables and reports.
    """
    del name, formula, source
