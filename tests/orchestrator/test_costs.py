"""What a trial is expected to cost: a mixture holds all its experts and computes what a token passes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from golden_trial import of_model
from scalevec.model.accounting import flops_per_token
from scalevec.model.config import OPTIMIZERS, Experts, OptimizerConfig, RunOptions, Shape, Trial
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.train.optim import build_optimizer, set_learning_rate
from scalevec.orchestrator.costs import FLOAT_BYTES, Cost, checkpoint_bytes

DENSE = of_model(shape=Shape(width=64, layers=4, heads=4, kv_heads=4, feed_forward=176))


def cost(trial: Trial, evaluated: int = 0, **options: Any) -> Cost:
    return Cost(trial, RunOptions(**options), evaluated)


def mixture(experts: Experts) -> Trial:
    return of_model(shape=DENSE.model.shape, experts=experts)


def test_a_mixture_takes_the_time_of_what_a_token_passes() -> None:
    dense, mixed = cost(DENSE), cost(mixture(Experts(8, 2, 88)))
    router = 6 * 4 * 8 * 64 * DENSE.tokens
    assert mixed.flops == dense.flops + router
    assert mixed.seconds == pytest.approx(dense.seconds, rel=0.05)


def test_a_mixture_takes_the_memory_and_the_disk_of_all_its_experts() -> None:
    few, many = mixture(Experts(4, 2, 88)), mixture(Experts(16, 2, 88))
    added = 4 * 12 * (3 * 88 * 64 + 64)
    less, more = cost(few).memory, cost(many).memory
    assert more.parameters - less.parameters == FLOAT_BYTES * added
    assert more.optimizer - less.optimizer == 2 * FLOAT_BYTES * added
    kept = [cost(trial, keep="weights").disk_bytes for trial in (few, many)]
    assert kept[1] - kept[0] == 4 * added


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_checkpoint_is_the_weights_and_the_state_of_its_optimizer(name: str) -> None:
    trial = replace(DENSE, optimizer=OptimizerConfig(name))
    model = Transformer(trial.model)
    initialise(model, seed=0)
    optimizer = build_optimizer(model, trial)
    set_learning_rate(optimizer, 1e-3)
    tokens = torch.arange(33).unsqueeze(0)
    for _ in range(2):
        model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
    kept = [model.state_dict(), optimizer.state_dict()["state"]]
    assert checkpoint_bytes(trial) == pytest.approx(sum(map(tensor_bytes, kept)), rel=0.02)


def tensor_bytes(kept: Any) -> int:
    if torch.is_tensor(kept):
        return kept.nbytes
    parts = kept.values() if isinstance(kept, dict) else kept if isinstance(kept, list | tuple) else ()
    return sum(map(tensor_bytes, parts))


def test_on_a_gpu_the_plan_counts_the_framework_too() -> None:
    assert cost(DENSE, device="cuda").memory.total > 1e9


def test_flops_are_those_that_are_counted() -> None:
    assert cost(DENSE).flops == flops_per_token(DENSE.model, 128) * DENSE.tokens


def test_the_evaluation_at_the_end_costs_the_forward_pass_of_its_tokens() -> None:
    alone, evaluated = cost(DENSE), cost(DENSE, evaluated=3 * DENSE.tokens)
    assert evaluated.flops == 2 * alone.flops
    assert evaluated.seconds > alone.seconds


def test_balance_over_batches_that_are_cut_costs_a_forward_pass() -> None:
    trial = mixture(Experts(8, 2, 88, per="batch"))
    by_sequence = mixture(Experts(8, 2, 88))
    for options, further in (({}, 0), ({"micro_batch": 2}, 1 / 3), ({"processes": 2}, 1 / 3)):
        once, counted = (cost(each, **options).assumed_s for each in (by_sequence, trial))
        assert counted == pytest.approx((1 + further) * once)


def test_two_processes_compute_in_half_the_time() -> None:
    assert cost(DENSE, processes=2).assumed_s == pytest.approx(cost(DENSE).assumed_s / 2)
