"""Parameter groups: who decays, who has a rate of its own, and what a step does."""

from dataclasses import replace

import pytest
import torch
from support import with_strategy

from model.config import OptimizerConfig
from model.training.optimizers import build_optimizer, parameter_groups, set_learning_rate
from model.transformer import Transformer, initialise, parameter_roles


def decay_of(trial):
    """Role -> set of weight decays of its parameters."""
    model = Transformer(trial.model)
    groups = parameter_groups(model, trial)
    by_id = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    roles = parameter_roles(model)
    found: dict[str, set[float]] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(roles[name], set()).add(by_id[id(parameter)])
    return found


def test_every_parameter_is_in_exactly_one_group(trial):
    model = Transformer(trial.model)
    grouped = [id(p) for group in parameter_groups(model, trial) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_the_baseline_decays_its_vectors_like_the_matrices(trial):
    assert decay_of(with_strategy(trial, "baseline"))["scale_vector_input"] == {0.1}


def test_without_decay_only_the_vectors_are_spared(trial):
    found = decay_of(with_strategy(trial, "baseline-no-decay"))
    assert found["scale_vector_input"] == {0.0}
    assert found["matrix"] == found["embedding"] == found["head"] == {0.1}


def test_the_unified_strategy_decays_input_vectors_only(trial):
    found = decay_of(trial)
    assert found["scale_vector_input"] == {0.1}
    assert found["scale_vector_output"] == {0.0}


def test_vectors_take_their_factor_of_the_learning_rate(trial):
    strategy = replace(trial.model.scale_vectors, learning_rate_factor=4.0)
    trial = replace(trial, model=replace(trial.model, scale_vectors=strategy))
    optimizer = build_optimizer(Transformer(trial.model), trial)
    set_learning_rate(optimizer, 0.5)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5, 2.0}


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_decay_without_a_gradient_multiplies_by_one_minus_rate_times_decay(decay, trial):
    trial = replace(trial, optimizer=OptimizerConfig(weight_decay=decay))
    model = Transformer(trial.model)
    initialise(model, 0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = build_optimizer(model, trial)
    set_learning_rate(optimizer, 0.01)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    roles = parameter_roles(model)
    for name, parameter in model.named_parameters():
        factor = 1 - 0.01 * (0.0 if roles[name] == "scale_vector_output" else decay)
        torch.testing.assert_close(parameter.detach(), before[name] * factor)
