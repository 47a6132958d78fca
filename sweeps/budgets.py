"""Token budgets of a sweep: in tokens per parameter, in tokens, or in FLOPs (an isoFLOP grid)."""

from collections.abc import Callable

TOKENS_PER_PARAMETER, TOKENS = "tokens_per_parameter", "tokens"
DEFAULT_BUDGETS = (20.0,)
"""Tokens per parameter, where a sweep names no budget (arXiv 2203.15556)."""

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""C = 6 N D: two for a multiply and an add, once forward and twice backward (arXiv 2001.08361)."""

BUDGETS: dict[str, Callable[[float, int], float]] = {
    TOKENS_PER_PARAMETER: lambda amount, n_params: amount,  # noqa: ARG005 (one signature)
    TOKENS: lambda amount, n_params: amount / n_params,
    "flops": lambda amount, n_params: amount / (FLOPS_PER_PARAMETER_AND_TOKEN * n_params) / n_params,
}
"""Kind, as the sweep file calls it -> tokens over N of an amount at N. Trials take whole batches of it."""


def setting_name(kind: str) -> str:
    """What a setting calls the budget; ``flops`` of a tidy row are those of its trial, in whole batches."""
    return kind if kind == TOKENS_PER_PARAMETER else f"{kind}_budget"
