"""The operations of a decoder between its matrix products: norm, rotary embedding, gated unit, loss."""

import math
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, silu


class _RMSNorm(torch.autograd.Function):
    """``x / rms(x)`` in two passes over the data each way, half the time of what autograd derives.

    The reciprocal root is returned beside the result so that the backward pass can itself be differentiated.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float, width: int) -> tuple[Tensor, Tensor]:
        # An output without a gradient then gives None in backward, not zeros to multiply.
        ctx.set_materialize_grads(False)
        scale = _mean_of_squares(x, epsilon, width).rsqrt_()
        y = x * scale
        # The gradient is scale (g - y mean(g y)), epsilon included: x need not be kept.
        ctx.save_for_backward(y, scale)
        ctx.width = width
        return y, scale

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        gradient, of_scale = gradients
        y, scale = ctx.saved_tensors
        result: Tensor | None = None
        if gradient is not None:
            along = _mean(gradient * y, ctx.width)
            result = torch.addcmul(gradient, y, along, value=-1).mul_(scale)
        if of_scale is not None:
            # d scale / d x = -scale^3 x / width, and scale x = y.
            through_scale = y * of_scale * scale.square() / -ctx.width
            result = through_scale if result is None else result + through_scale
        return result, None, None


NARROW = 64
"""Up to this width a processor sums rows faster as a product with a vector than as a reduction."""


@lru_cache(maxsize=64)
def _constant(value: float, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor on the CPU that is kept; a plain one even when first asked for in inference mode."""
    with torch.inference_mode(False):
        return torch.full(shape, value, dtype=dtype, device="cpu")


def _is_narrow(x: Tensor, width: int) -> bool:
    return x.shape[-1] == width <= NARROW and x.device.type == "cpu"


def _mean(x: Tensor, width: int) -> Tensor:
    """The sum over the last axis, which is kept, over ``width``."""
    if _is_narrow(x, width):
        return _narrow_mean(x, 0.0)
    return x.mean(-1, keepdim=True) if x.shape[-1] == width else x.sum(-1, keepdim=True) / width


def _narrow_mean(x: Tensor, plus: float) -> Tensor:
    """The mean over the last axis, which is kept, and ``plus``, as a product with a vector."""
    width = x.shape[-1]
    weights, start = _constant(1 / width, (width,), x.dtype), _constant(plus, (), x.dtype)
    mean: Tensor = torch.addmv(start, x.reshape(-1, width), weights).view(*x.shape[:-1], 1)
    return mean


def _mean_of_squares(x: Tensor, plus: float, width: int) -> Tensor:
    """The sum of squares over the last axis, which is kept, over ``width``, and ``plus``."""
    if _is_narrow(x, width):
        return _narrow_mean(x * x, plus)
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # Needs no copy of squares.
    mean: Tensor = norm.square_().div_(width).add_(plus)
    return mean


def rms_norm(x: Tensor, epsilon: float, width: int | None = None) -> Tensor:
    """``x / sqrt(mean(x^2) + epsilon)`` over the last axis, reckoned in float32 or wider; no scale vector.

    ``width`` is the number of entries of which the mean is taken, where others were padded with zeros.
    """
    wide, width = x.to(_wide_type(x)), x.shape[-1] if width is None else width
    if torch.compiler.is_compiling():
        # One kernel each way, whose parts are derived: what saves an uncompiled pass keeps it from fusing.
        mean = wide.square().sum(-1, keepdim=True) / width
        return (wide * torch.rsqrt(mean + epsilon)).to(x.dtype)
    y, _ = _RMSNorm.apply(wide, epsilon, width)  # type: ignore[no-untyped-call]
    return cast(Tensor, y.to(x.dtype))


@lru_cache(maxsize=16)
def rotary_table(
    length: int, head_width: int, base: float, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Cosine and sine of ``p base^(-2k/head_width)`` for positions p and pairs of channels k.

    [length, head_width / 2, 2] of the real ``dtype``; kept, so a plain tensor even when first asked for in
    inference mode, and made outside of compiled functions.
    """
    with torch.inference_mode(False):
        # In float64: float32 loses digits of an angle as the position grows.
        pairs = torch.arange(head_width // 2, dtype=torch.float64, device=device)
        positions = torch.arange(length, dtype=torch.float64, device=device)
        angles = torch.outer(positions, torch.exp(-math.log(base) * 2 / head_width * pairs))
        return torch.view_as_real(torch.polar(torch.ones_like(angles), angles)).to(dtype)


def table_for(x: Tensor, head_width: int, base: float) -> Tensor:
    """The :func:`rotary_table` for activations ``x`` [batch, length, ...], in float32 or wider."""
    return rotary_table(x.shape[1], head_width, base, x.device, _wide_type(x))


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotary position embedding (Su et al., arXiv 2104.09864) of x [batch, length, heads, head_width].

    Neighbouring channels (2k, 2k + 1) form a pair, as in the paper; reckoned in the type of ``table``.
    """
    pairs = x.to(table.dtype).reshape(*x.shape[:-1], -1, 2)
    table = table[:, None]
    if torch.compiler.is_compiling():  # which fuses neither complex products nor interleaved channels
        cosine, sine = table[..., :1], table[..., 1:]
        turned = pairs * cosine + pairs.flip(-1) * torch.cat((-sine, sine), -1)
    else:
        # One complex product turns a pair of channels by its angle.
        turned = torch.view_as_real(torch.view_as_complex(pairs) * torch.view_as_complex(table))
    return turned.flatten(-2).to(x.dtype)


def added(x: Tensor, change: Tensor) -> Tensor:
    """The residual stream ``x`` and what a sublayer adds to it, in the stream's own type."""
    return (x + change).to(x.dtype)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up`` (Shazeer, arXiv 2002.05202)."""
    return silu(gate) * up


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """``gelu(gate) * up`` with GELU by its tanh formula (Shazeer, arXiv 2002.05202; so Gemma has it)."""
    return gelu(gate, approximate="tanh") * up


GATED = {"swiglu": swiglu, "geglu": geglu}
"""By the model's ``activation``, what a gated unit makes of gate and up."""


class _HeadLoss(torch.autograd.Function):
    """Summed cross-entropy of a linear head, a slice of rows at a time.

    The logits of a slice stay in the cache, and their gradient is used up while they are there: the whole
    [n, classes] array never exists. The backward pass only scales what the forward pass has reckoned.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, wants_gradient: bool) -> Tensor:
        wide = _wide_type(hidden)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        of_hidden = torch.empty_like(hidden)
        # Summed over slices, so in the wide type: bfloat16 would lose small contributions.
        of_weight = torch.zeros_like(weight, dtype=wide)
        rows = rows_of_a_slice(weight.shape[0], hidden.device.type)
        slices = zip(*(torch.split(tensor, rows) for tensor in (hidden, targets, of_hidden)), strict=True)
        for part, target, of_part in slices:
            losses, exponentials, normalizer = _losses_in_place(linear(part, weight).to(wide), target)
            total += losses.sum()
            if wants_gradient:
                # The gradient by the logits is this over the normalizer; its products are cheaper to divide.
                exponentials.scatter_add_(1, target[:, None], -normalizer)
                _spread(exponentials.to(part.dtype), normalizer, part, weight, of_part, of_weight)
        if wants_gradient:
            ctx.save_for_backward(of_hidden, of_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        if torch.is_grad_enabled():  # What the forward pass has reckoned would count as constant.
            raise RuntimeError(
                "head_loss can be differentiated once; take torch's cross_entropy of the logits"
            )
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * gradient.to(of_hidden.dtype), of_weight * gradient.to(of_weight.dtype), None, None


def _losses_in_place(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The losses [n, 1] of the rows of ``logits`` [n, classes], which are used up.

    Also ``exponentials`` [n, classes] and their sums ``normalizer`` [n, 1]: the softmax is their quotient.
    """
    # Shifted by the largest logit, no exponential overflows.
    largest = logits.amax(-1, keepdim=True)
    of_target = logits.gather(1, targets[:, None])
    exponentials = logits.sub_(largest).exp_()
    normalizer = exponentials.sum(-1, keepdim=True)  # At least 1: its logarithm never underflows.
    return largest + normalizer.log() - of_target, exponentials, normalizer


def _spread(
    gradient: Tensor, divisor: Tensor, part: Tensor, weight: Tensor, of_part: Tensor, of_weight: Tensor
) -> None:
    """From the logits' gradient times ``divisor`` [n, 1]: write ``part``'s [n, width], add ``weight``'s."""
    torch.mm(gradient, weight, out=of_part).div_(divisor)
    scaled = (part / divisor).to(part.dtype)
    # addmm adds in place, but only where all types agree.
    if of_weight.dtype == part.dtype:
        torch.addmm(of_weight, gradient.T, scaled, out=of_weight)
    else:
        of_weight += gradient.T @ scaled


def rows_of_a_slice(classes: int, device_type: str) -> int:
    """Rows whose logits fill a processor's cache (1 MiB), or keep an accelerator busy (256 MiB)."""
    entries, fewest = (2**18, 128) if device_type == "cpu" else (2**26, 1024)
    return max(fewest, entries // classes)


def head_loss(hidden: Tensor, weight: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Cross-entropy in nats of ``targets`` [n] under the logits ``hidden @ weight.T``, in float32 or wider.

    ``hidden`` is [n, width], ``weight`` [classes, width]; ``reduction`` is ``mean`` or ``sum``. Can be
    differentiated once; for second derivatives take torch's cross-entropy of the logits.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; allowed: mean, sum")
    hidden, weight = _as_autocast(hidden, weight)
    wants_gradient = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    total = cast(Tensor, _HeadLoss.apply(hidden, weight, targets, wants_gradient))  # type: ignore[no-untyped-call]
    return total / targets.numel() if reduction == "mean" else total


@torch.no_grad()
def head_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """What :func:`head_loss` sums, [n], without a gradient."""
    hidden, weight = _as_autocast(hidden, weight)
    rows = rows_of_a_slice(weight.shape[0], hidden.device.type)
    slices = zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True)
    wide = _wide_type(hidden)
    losses = [_losses_in_place(linear(part, weight).to(wide), target)[0] for part, target in slices]
    return torch.cat(losses)[:, 0]


def _as_autocast(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the type of autocast, which leaves products with an ``out`` as they are; cast here, once."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return hidden, weight
    narrow = torch.get_autocast_dtype(device)
    return hidden.to(narrow), weight.to(narrow)


def _wide_type(x: Tensor) -> torch.dtype:
    """The type of ``x``, float32 where that is narrower."""
    return x.dtype if x.dtype.itemsize >= 4 else torch.float32
