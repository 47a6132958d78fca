"""Every optimizer against its formulas in float64; who decays or has a rate of its own; Muon on stacks."""

from dataclasses import dataclass, replace

import pytest
import torch

import reference_optimizers as reference
from reference_optimizers import Course
from scalevec.model.config import OPTIMIZERS, OptimizerConfig
from scalevec.model.decoder import Transformer
from scalevec.model.train import optim

STEPS = 10
SHAPES = {"wide": (4, 7), "tall": (6, 3), "vector": (5,), "experts": (3, 4, 6)}
SQUARE = {"wide": (5, 5), "tall": (3, 3), "vector": (5,), "experts": (3, 4, 4)}
"""For SOAP: of a matrix that is not square the first gradient leaves a part of the basis open."""
KINDS = {"wide": "matrix", "tall": "matrix", "vector": "other", "experts": "stack"}
DECAYS = {"wide": 0.3, "tall": 0.3, "vector": 0.0, "experts": 0.1}
FACTORS = {"wide": 1.0, "tall": 1.0, "vector": 2.0, "experts": 1.0}
RATES = [0.02 * (1 + step) / STEPS for step in range(STEPS)]

CASES = {
    "adamw": OptimizerConfig("adamw", epsilon=1e-3),
    "sgd": OptimizerConfig("sgd"),
    "sgd with momentum": OptimizerConfig("sgd", momentum=0.9),
    "sgd with nesterov": OptimizerConfig("sgd", momentum=0.9, nesterov=True),
    "muon": OptimizerConfig("muon", adamw_rate_factor=0.5),
    "muon as published": OptimizerConfig(
        "muon", update_scale="original", nesterov=False, newton_schulz_steps=3, momentum=0.8
    ),
    "soap": OptimizerConfig("soap", preconditioner_steps=3, adamw_rate_factor=0.5, epsilon=1e-3),
    "lion": OptimizerConfig("lion", beta2=0.9),
    "adafactor": OptimizerConfig("adafactor", decay_exponent=0.7, beta2=0.7, update_clip=0.5),
    "ademamix": OptimizerConfig("ademamix", beta3=0.99),
    "ademamix with a warm-up": OptimizerConfig("ademamix", beta3=0.99, slow_warmup_steps=6),
    "adopt": OptimizerConfig("adopt", beta2=0.9),
}
TOLERANCES = {"soap": 1e-6}
"""SOAP's basis comes from a decomposition in float32; all else is float64."""


@dataclass
class Trained:
    """Parameters by name, before and after ten steps, and the gradients they were given."""

    start: dict[str, torch.Tensor]
    gradients: dict[str, list[torch.Tensor]]
    end: dict[str, torch.Tensor]


def trained(config: OptimizerConfig) -> Trained:
    generator = torch.Generator().manual_seed(5)
    shapes = SQUARE if config.name == "soap" else SHAPES
    draw = {n: torch.randn(STEPS + 1, *s, generator=generator).double() for n, s in shapes.items()}
    parameters = {name: torch.nn.Parameter(drawn[0].clone()) for name, drawn in draw.items()}
    groups = [
        {
            "params": [parameter],
            "weight_decay": DECAYS[name],
            "learning_rate_factor": FACTORS[name],
            "kind": KINDS[name] if OPTIMIZERS[config.name].matrices_only else "other",
        }
        for name, parameter in parameters.items()
    ]
    optimizer = optim.optimizer_over(groups, config)
    for step, rate in enumerate(RATES, start=1):
        optimizer.zero_grad()
        for name, parameter in parameters.items():
            parameter.grad = draw[name][step].clone()
        optim.set_learning_rate(optimizer, rate)
        optimizer.step()
    start = {name: drawn[0] for name, drawn in draw.items()}
    gradients = {name: list(drawn[1:]) for name, drawn in draw.items()}
    return Trained(start, gradients, {name: p.detach() for name, p in parameters.items()})


def expected(name: str, config: OptimizerConfig, run: Trained) -> torch.Tensor:
    """Where the parameter ``name`` ends by the formulas."""
    formula = getattr(reference, config.name)
    factor, matrices_only = FACTORS[name], OPTIMIZERS[config.name].matrices_only
    if matrices_only and KINDS[name] == "other":
        formula, factor = reference.adamw, factor * (config.adamw_rate_factor or 1.0)
    rates = [rate * factor for rate in RATES]
    if matrices_only and KINDS[name] == "stack":
        parts = [
            formula(
                Course(run.start[name][i], [g[i] for g in run.gradients[name]], rates, DECAYS[name], config)
            )
            for i in range(len(run.start[name]))
        ]
        return torch.stack(parts)
    return formula(Course(run.start[name], run.gradients[name], rates, DECAYS[name], config))


def test_every_optimizer_has_a_case():
    assert {config.name for config in CASES.values()} == set(OPTIMIZERS)


@pytest.mark.parametrize("case", CASES)
def test_ten_steps_are_those_of_the_formulas(case):
    run = trained(CASES[case])
    for name in SHAPES:
        close = TOLERANCES.get(case, 1e-12)
        torch.testing.assert_close(run.end[name], expected(name, CASES[case], run), rtol=0, atol=close)
        assert not torch.equal(run.end[name], run.start[name])


def test_every_parameter_is_in_exactly_one_group(trial):
    model = Transformer(trial.model)
    grouped = [id(p) for group in optim.parameter_groups(model, trial) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())


def test_vectors_take_their_factor_of_the_learning_rate(trial):
    strategy = replace(trial.model.scale_vectors, learning_rate_factor=4.0)
    trial = replace(trial, model=replace(trial.model, scale_vectors=strategy))
    optimizer = optim.build_optimizer(Transformer(trial.model), trial)
    optim.set_learning_rate(optimizer, 0.5)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5, 2.0}


RATE = 0.1


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("most", [2**26, 100])
def test_steps_together_are_torchs_steps_to_the_rounding_of_bfloat16(most, nesterov, monkeypatch):
    monkeypatch.setattr(optim, "MOST_TOGETHER", most)
    random = torch.Generator().manual_seed(1)
    shapes = [(8, 8), (6, 16), (8, 8), (16, 6), (6, 16), (8, 8)]
    start = [torch.randn(shape, generator=random) for shape in shapes]
    alone, together = ([torch.nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    optimizers = [optim._Muon(of, lr=RATE, nesterov=nesterov) for of in (alone, together)]
    for _ in range(3):
        for matrix, other in zip(alone[:-1], together[:-1], strict=True):  # the last one has no gradient
            matrix.grad = torch.randn(matrix.shape, generator=random)
            other.grad = matrix.grad.clone()
        optimizers[0].step()
        with torch.no_grad():
            optimizers[1].step_together(optimizers[1].param_groups[0])
    torch.testing.assert_close(together, alone, rtol=0, atol=0.05 * RATE)
    assert torch.equal(together[-1], start[-1])
    assert all(not torch.equal(other, begun) for other, begun in zip(together[:-1], start[:-1], strict=True))
