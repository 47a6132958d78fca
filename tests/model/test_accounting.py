"""Closed forms against the real model: its parameters on the meta device, its FLOPs as torch counts them."""

import subprocess
import sys
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from any_strategy import any_strategy
from scalevec.model.accounting import (
    ParameterCounts,
    count_parameters,
    flops_per_token,
)
from scalevec.model.config import ARCHITECTURES, ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise, parameter_roles
from scalevec.model.strategies import (
    PRESETS,
)

SHAPES = {
    "full heads": Shape(16, 3, 4, 4, 42),
    "grouped queries": Shape(24, 2, 6, 2, 50),
    "one head": Shape(10, 1, 1, 1, 7),
}
LLAMA_1B = ModelConfig(Shape(1792, 22, 14, 14, 4778), 50_304)


def counted_from_the_model(config: ModelConfig) -> ParameterCounts:
    with torch.device("meta"):
        model = Transformer(config)
    roles, sizes = parameter_roles(model), Counter[str]()
    for name, parameter in model.named_parameters():
        sizes[roles[name]] += parameter.numel()
    groups = ("matrix", "embedding", "head", "scale_vector_input", "scale_vector_output")
    return ParameterCounts(*(sizes[group] for group in groups))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("name", PRESETS)
def test_parameters_of_every_preset_are_those_of_the_model(name, shape, tied):
    config = ModelConfig(shape, 31, PRESETS[name], tied_embeddings=tied)
    assert count_parameters(config) == counted_from_the_model(config)


@settings(max_examples=60, deadline=None)
@given(
    any_strategy,
    st.sampled_from(list(SHAPES.values())),
    st.sampled_from(ARCHITECTURES),
)
def test_parameters_of_any_strategy_are_those_of_the_model(strategy, shape, architecture):
    config = ModelConfig(shape, 31, strategy, architecture)
    assert count_parameters(config) == counted_from_the_model(config)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_of_every_preset_are_those_of_a_gemma(name):
    config = ModelConfig(SHAPES["grouped queries"], 31, PRESETS[name], "gemma")
    assert count_parameters(config) == counted_from_the_model(config)


def test_a_gemma_has_output_vectors_on_four_maps_of_a_layer():
    counts = count_parameters(ModelConfig(SHAPES["grouped queries"], 31, architecture="gemma"))
    assert counts.scale_vectors_output == 2 * (2 * 24 + 2 * 4)
    assert counts.scale_vectors_input == 2 * 2 * 24 + 24


def test_the_papers_llama_1b_is_met_exactly():
    counts = count_parameters(LLAMA_1B)
    assert counts.scale_vectors == 80_640
    assert counts.total == 1_028_065_024
    assert counts == counted_from_the_model(LLAMA_1B)


def test_groups_add_up():
    counts = count_parameters(ModelConfig(SHAPES["grouped queries"], 31, PRESETS["unified"]))
    assert counts.embedding == counts.token_embedding + counts.head == 2 * 31 * 24
    assert counts.scale_vectors == counts.scale_vectors_input + counts.scale_vectors_output
    assert counts.total == counts.matrices + counts.embedding + counts.scale_vectors


def test_arms_share_their_count_of_matrix_parameters():
    shape = SHAPES["full heads"]
    assert len({count_parameters(ModelConfig(shape, 31, s)).matrices for s in PRESETS.values()}) == 1


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("none", "llama"),
        ("baseline", "llama"),
        ("unified", "llama"),
        ("unified-dp", "llama"),
        ("dp", "gemma"),
    ],
)
def test_counted_flops_are_those_that_torch_counts(name, architecture, shape, tied):
    config = ModelConfig(shape, 31, PRESETS[name], architecture, tied_embeddings=tied)
    model = Transformer(config)
    initialise(model, seed=0)
    tokens = torch.zeros(2, 12, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    assert flops_per_token(config, 12) * tokens.numel() == counter.get_total_flops()


def test_n_leaves_embeddings_head_and_vectors_out():
    config = ModelConfig(SHAPES["full heads"], 31)
    assert count_parameters(config).matrices == 3 * (4 * 16 * 16 + 3 * 16 * 42)


def test_accounting_needs_no_torch():
    code = "import sys, scalevec.model.accounting; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
