"""The memory of a trial from the real model on tensors that hold nothing: nothing is allocated or computed.

Torch's fake tensors are taken for those of a CPU; what the code does on a GPU alone is patched in where a
plan is for one. Compiled functions are stood in for.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from scalevec.model import experts, feed_forward, ops
from scalevec.model.accounting import Passes
from scalevec.model.config import Trial
from scalevec.model.decoder import Transformer
from scalevec.model.estimate.hollow import Hollow, stand_in, tensors
from scalevec.model.scale_vectors import ScaleVector
from scalevec.model.strategies import PRESETS
from scalevec.model.train import optim
from scalevec.model.train.optim import build_optimizer, set_learning_rate
from scalevec.model.train.step import Storages, compile_blocks, fold_once


@dataclass
class _Marks:
    """At the moments of a pass, the most bytes since the moment before, and those that are held."""

    storages: Storages
    at: list[tuple[int, int]] = field(default_factory=list)

    def mark(self, _: object = None) -> None:
        """One more moment."""
        self.at.append((self.storages.most, self.storages.now))
        self.storages.most = self.storages.now

    def block_passed(self, _block: nn.Module, _args: Any, results: Any) -> None:
        """Behind a block, and when the backward pass comes to it."""
        self.mark()
        x = tensors(results)[0]
        if x.requires_grad:
            x.register_hook(self.mark)  # type: ignore[no-untyped-call]


def passes(of: Passes, measured: int = 2) -> dict[str, int]:
    """The most bytes beside the parameters in three parts of a training pass, and in an evaluating one.

    ``head``: until the backward pass reaches the blocks; ``last``: while it is in the last block; ``first``:
    in the first block, with all gradients. Each is linear in the layers: ``measured`` equal ones are run.
    """
    layers, dense = of.model.shape.layers, of.model.experts.dense_layers if of.model.experts else 0
    few = min(dense + measured, layers)
    with Hollow() as hollow, _branches_of(of):
        model = Transformer(replace(of.model, shape=replace(of.model.shape, layers=few)))
        model.residual_type = torch.bfloat16 if of.precision == "bfloat16-residual" else None
        if of.compiled:
            with patch.object(nn.Module, "compile", stand_in(hollow)):
                compile_blocks(model)
        model.recomputes = of.recomputes
        weights = [sum(p.nbytes for p in block.parameters()) for block in model.blocks]
        outside = sum(p.nbytes for p in model.parameters()) - sum(weights)
        storages = hollow.count(model.parameters())
        marks = _Marks(storages)
        for block in model.blocks:
            block.register_forward_hook(marks.block_passed)
        held = storages.now
        # Made once, and no gradient: it is kept from the first pass on.
        outside += ops.table_for(
            torch.empty(1, of.length), of.model.shape.head_width, of.model.rope_base
        ).nbytes
        start = _forward_and_backward(of, model, marks) - held
        most, now = zip(*marks.at, strict=True)
        head, last, first = max(most[: few + 1]), most[few + 1], max(most[2 * few :])
        # What all blocks hold from one micro-batch to the next: gradients, and weights that are folded.
        kept, sums = now[few - 1] - now[few - 2], 0
        if of.accumulates:
            sums = (start - outside) * weights[-1] // sum(weights)
        evaluation = _evaluation(of, model, marks)
        most_evaluated, now = zip(*marks.at, strict=True)
        cast = now[few - 1] - now[few - 2]
    further = layers - few
    return {
        "head": head - held + further * (kept + sums),
        "last": last - held + further * (kept + sums),
        "first": first - held + further * (sums or weights[-1]),
        "evaluation": max(most_evaluated) - evaluation + further * cast,
    }


def _evaluation(of: Passes, model: Transformer, marks: _Marks) -> int:
    """Evaluate once; returns the bytes before that."""
    model.zero_grad(set_to_none=True)
    before = marks.storages.most = marks.storages.now
    marks.at.clear()
    tokens = torch.zeros(of.evaluated, of.length, dtype=torch.long)
    with torch.inference_mode(), _autocast(of):
        model.token_losses(tokens, tokens)
    marks.mark()
    return before


def _forward_and_backward(of: Passes, model: Transformer, marks: _Marks) -> int:
    """The passes of a step, of which the second is like all later ones; returns the bytes before the last."""
    narrow, slices = None if of.precision == "float32" else torch.bfloat16, ops._slices
    with (
        # On a CPU the head takes hundreds of slices, of which all but the last are alike.
        patch.object(ops, "_slices", lambda *sides: slices(*sides)[-3:]),
        fold_once(model, narrow) if of.folds_once else nullcontext(),
    ):
        for _ in range(1 + of.accumulates):
            marks.at.clear()
            start = marks.storages.most = marks.storages.now
            tokens = torch.zeros(of.sequences, of.length, dtype=torch.long)
            with _autocast(of):
                loss, penalty = model.training_loss(tokens, tokens)
            (loss if penalty is None else loss + penalty).backward()  # type: ignore[no-untyped-call]
            del loss, penalty
    marks.mark()
    return start


def _autocast(of: Passes) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=of.precision != "float32")


def optimizer(trial: Trial, device: str) -> dict[str, int]:
    """Bytes of the optimizer's state of ``matrices`` and ``others``, and the most of a ``step`` beside it.

    Linear in the layers, but where matrices are stepped together: then all layers are measured.
    """
    layers, experts_of = trial.model.shape.layers, trial.model.experts
    few = 1 + (experts_of.dense_layers if experts_of else 0)
    takes_matrices = trial.optimizer.registered.matrices_only
    less, more = (_optimizer_over(n, trial, "" if takes_matrices else device) for n in (few, few + 1))
    sizes = {name: more[name] + (layers - few - 1) * (more[name] - less[name]) for name in more}
    if takes_matrices:
        # Once for all arms: a scale vector is no matrix.
        bare = replace(trial, model=replace(trial.model, scale_vectors=PRESETS["none"]))
        sizes |= {**_optimizer_over(layers, bare, device), "others": sizes["others"]}
    return sizes


@lru_cache
def _optimizer_over(layers: int, trial: Trial, device: str) -> dict[str, int]:
    """On no device, but for what is not the matrices'."""
    steps = {"": lambda _: None, "cuda": _step_together}
    with Hollow() as hollow, patch.object(ScaleVector, "reset", lambda _: None):
        model = Transformer(replace(trial.model, shape=replace(trial.model.shape, layers=layers)))
        optimizer = build_optimizer(model, trial)
        set_learning_rate(optimizer, trial.optimizer.learning_rate)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        storages = hollow.count(tensors([(p, p.grad) for p in model.parameters()]))
        with patch.object(optim._Muon, "step", steps[device]) if device in steps else nullcontext():
            optimizer.step()
            storages.most = storages.now
            optimizer.step()
        step = storages.most - storages.now
    sizes = {"matrices": 0, "others": 0, "step": step}
    for group in optimizer.param_groups:
        state = tensors([optimizer.state[parameter] for parameter in group["params"]])
        sizes["others" if group["kind"] == "other" else "matrices"] += sum(each.nbytes for each in state)
    return sizes


@torch.no_grad()
def _step_together(self: Any) -> None:
    for group in self.param_groups:
        self.step_together(group)


@contextmanager
def _branches_of(of: Passes) -> Iterator[None]:
    """What the model does on the device of the plan, and where torch would look into a tensor."""
    rows_of_a_slice = ops.rows_of_a_slice
    changes: dict[Any, dict[str, Any]] = {
        # It checks by value that vectors start at one.
        ScaleVector: {"reset": lambda _: None},
        experts: {"looped_products": _even_products},
        # Its own cache outlives the plan: kernels that are given a table without content crash.
        ops: {"rotary_table": cache(ops.rotary_table.__wrapped__)},
    }
    with ExitStack() as stack:
        if of.device == "cuda":
            changes[experts]["can_group"] = _can_group
            changes[ops]["rows_of_a_slice"] = lambda classes, _: rows_of_a_slice(classes, "cuda")
            if of.compiled:
                changes[ops]["_softmax"] = _fused_softmax
            stack.enter_context(patch.dict(feed_forward.PADDED_TO, cpu=feed_forward.PADDED_TO["cuda"]))
            if of.precision == "float32" and of.model.shape.kv_heads != of.model.shape.heads:
                # No kernel of a GPU takes grouped heads in float32.
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        for owner, names in changes.items():
            stack.enter_context(patch.multiple(owner, **names))
        yield


def _fused_softmax(logits: Tensor, _targets: Tensor) -> tuple[Tensor, Tensor, None]:
    """As ``ops.fused_softmax``: the gradient takes the place of the logits."""
    return logits.new_empty(len(logits), 1, dtype=torch.float32), logits, None


def _can_group(rows: Tensor, weights: Tensor) -> bool:
    return rows.dtype == torch.bfloat16 and all(side % experts.ALIGNED == 0 for side in weights.shape[1:])


def _even_products(rows: Tensor, weights: Tensor, load: Tensor) -> Tensor:  # noqa: ARG001
    """As ``experts.looped_products`` where each expert has as many rows."""
    parts = zip(torch.tensor_split(rows, len(weights)), weights, strict=True)
    return torch.cat([nn.functional.linear(part, weight) for part, weight in parts])
