"""The operations of a decoder between its matrix products: norm, rotary embedding, gated unit, loss."""

import math
from functools import cache, lru_cache, partial
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
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # Needs no copy of squares.
        scale = norm.square_().div_(width).add_(epsilon).rsqrt_()
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
            along = (gradient * y).sum(-1, keepdim=True) / ctx.width
            result = torch.addcmul(gradient, y, along, value=-1).mul_(scale)
        if of_scale is not None:
            # d scale / d x = -scale^3 x / width, and scale x = y.
            through_scale = y * of_scale * scale.square() / -ctx.width
            result = through_scale if result is None else result + through_scale
        return result, None, None


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

    The logits of a slice are used up before the next: the whole [n, classes] array never exists. The backward
    pass only scales what the forward pass has reckoned.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, grad: bool, fused: bool) -> Tensor:
        wide = _wide_type(hidden)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        of_hidden = torch.empty_like(hidden)
        # Summed over slices, so in the wide type: bfloat16 would lose small contributions.
        of_weight = torch.zeros_like(weight, dtype=wide)
        for rows in _slices(hidden, weight):
            part, logits = hidden[rows], linear(hidden[rows], weight)
            losses, of_logits, divisor = (fused_softmax if fused else _softmax)(logits, targets[rows])
            total += losses.sum()
            if grad:
                of_logits = of_logits.to(part.dtype)
                _add_head_gradients(of_logits, divisor, part, weight, of_hidden[rows], of_weight)
            del logits, of_logits  # else they would stand beside those of the next slice
        if grad:
            ctx.save_for_backward(of_hidden, of_weight.to(weight.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # What the forward pass has reckoned would count as constant.
            raise RuntimeError("head_loss can be differentiated once; take cross_entropy of the logits")
        return *(kept * gradient.to(kept.dtype) for kept in ctx.saved_tensors), None, None, None


def _slices(hidden: Tensor, weight: Tensor) -> list[slice]:
    rows = rows_of_a_slice(len(weight), hidden.device.type)
    return [slice(start, start + rows) for start in range(0, len(hidden), rows)]


def _softmax(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The losses [n, 1] of the rows of ``logits`` [n, classes], which are used up.

    Also their gradient [n, classes] by the logits times a divisor [n, 1], and that: the products that follow
    are cheaper to divide. None stands for one.
    """
    wide = logits.to(_wide_type(logits))
    # Shifted by the largest logit, no exponential overflows.
    largest = wide.amax(-1, keepdim=True)
    of_target = wide.gather(1, targets[:, None])
    exponentials = wide.sub_(largest).exp_()
    normalizer = exponentials.sum(-1, keepdim=True)  # At least 1: its logarithm never underflows.
    exponentials.scatter_add_(1, targets[:, None], -normalizer)
    return largest + normalizer.log() - of_target, exponentials, normalizer


def fused_softmax(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, None]:
    """What ``_softmax`` gives, for a GPU: one compiled kernel that replaces ``logits`` by their gradient.

    In bfloat16 it moves 6 bytes a logit (read for the sums, then read and written), where operations one by
    one in float32 move about 36.
    """
    of_target = logits.gather(1, targets[:, None])
    for tensor in (logits, targets):
        # One kernel for any number of rows: the last slice of a batch has fewer.
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return _compiled(_replace_by_gradient)(logits, targets) - of_target, logits, None


# When it is first needed: to import the compiler takes seconds.
_compiled = cache(partial(torch.compile, dynamic=False, fullgraph=True))


def _replace_by_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    wide = logits.to(_wide_type(logits))
    # In these words the compiler knows a softmax, whose largest entry and sum then take one pass.
    largest = wide.amax(-1, keepdim=True)
    normalizer = largest + (wide - largest).exp().sum(-1, keepdim=True).log()
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
    logits.copy_((wide - normalizer).exp() - is_target.to(wide.dtype))
    return normalizer


def _add_head_gradients(
    gradient: Tensor, divisor: Tensor | None, part: Tensor, weight: Tensor, of_part: Tensor, of_weight: Tensor
) -> None:
    """From the logits' gradient times ``divisor`` [n, 1]: write ``part``'s [n, width], add ``weight``'s."""
    torch.mm(gradient, weight, out=of_part)
    if divisor is not None:
        of_part.div_(divisor)
        part = (part / divisor).to(part.dtype)
    # addmm adds in place, but only where all types agree.
    if of_weight.dtype == part.dtype:
        torch.addmm(of_weight, gradient.T, part, out=of_weight)
    else:
        of_weight += gradient.T @ part


def rows_of_a_slice(classes: int, device_type: str) -> int:
    """Rows whose logits fill a processor's cache (1 MiB), or in bfloat16 512 MiB of an accelerator.

    There each slice moves 10 bytes for each entry of the head to add its gradient: with 50,304 classes and
    5,336 rows a fourteenth of the time of its products (at 3 TB/s and 700 TFLOP/s).
    """
    entries, fewest = (2**18, 128) if device_type == "cpu" else (2**28, 1024)
    return max(fewest, entries // classes)


def head_loss(hidden: Tensor, weight: Tensor, targets: Tensor, *, fused: bool = False) -> Tensor:
    """Mean cross-entropy in nats of ``targets`` under the logits ``hidden @ weight.T``, in float32 or wider.

    Can be differentiated once; for second derivatives take torch's cross-entropy of the logits.

    Args:
        hidden: [n, width].
        weight: [classes, width].
        targets: [n], each below classes.
        fused: Whether what stands between the products is compiled, for a GPU.

    Returns:
        A scalar.
    """
    hidden, weight = as_autocast(hidden, weight)
    grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    total: Tensor = _HeadLoss.apply(hidden, weight, targets, grad, fused)  # type: ignore[no-untyped-call]
    return total / targets.numel()


@torch.no_grad()
def head_losses(hidden: Tensor, weight: Tensor, targets: Tensor, *, fused: bool = False) -> Tensor:
    """What :func:`head_loss` is the mean of, [n], without a gradient."""
    hidden, weight = as_autocast(hidden, weight)
    softmax, slices = fused_softmax if fused else _softmax, _slices(hidden, weight)
    return torch.cat([softmax(linear(hidden[rows], weight), targets[rows])[0] for rows in slices])[:, 0]


def as_autocast(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the type of autocast, which leaves products with an ``out`` as they are; cast here, once."""
    device = hidden.device.type
    if not torch.is_autocast_enabled(device):
        return hidden, weight
    narrow = torch.get_autocast_dtype(device)
    return hidden.to(narrow), weight.to(narrow)


def _wide_type(x: Tensor) -> torch.dtype:
    """The type of ``x``, float32 where that is narrower."""
    return x.dtype if x.dtype.itemsize >= 4 else torch.float32
