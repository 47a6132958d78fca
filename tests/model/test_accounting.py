"""N, FLOPs and scale vectors in closed form against the real model, the documentation and the paper."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from any_strategy import any_strategy
from scalevec.model.accounting import active_matrices, count_parameters, flops_per_token
from scalevec.model.config import ARCHITECTURES, Experts, ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise, parameter_roles
from scalevec.model.strategies import PRESETS, ScaleVectorStrategy
from support import CHECKOUT, run_python, succeeded

SHAPES = {
    "full heads": Shape(16, 3, 4, 4, 42),
    "grouped queries": Shape(24, 2, 6, 2, 50),
    "one head": Shape(10, 1, 1, 1, 7),
}
EXPERTS = Experts(8, 2, 24, shared_experts=1)


@pytest.mark.parametrize("dense_layers", [0, 1])
def test_n_is_what_a_token_passes_of_a_mixtures_matrices(dense_layers):
    config = ModelConfig(Shape(24, 3, 6, 2, 72), 31, experts=replace(EXPERTS, dense_layers=dense_layers))
    assert active_matrices(config) == count_parameters(config).matrices


@settings(max_examples=30, deadline=None)
@given(any_strategy, st.sampled_from(list(SHAPES.values())), st.sampled_from(ARCHITECTURES))
def test_n_does_not_depend_on_scale_vectors(strategy, shape, architecture):
    config = ModelConfig(shape, 31, strategy, architecture)
    assert active_matrices(config) == count_parameters(config).matrices


def test_a_gemma_has_output_vectors_on_four_maps_of_a_layer():
    counts = count_parameters(ModelConfig(SHAPES["grouped queries"], 31, architecture="gemma"))
    assert counts.scale_vectors_output == 2 * (2 * 24 + 2 * 4)
    assert counts.scale_vectors_input == 2 * 2 * 24 + 24


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize(
    ("name", "architecture"),
    [("none", "llama"), ("unified", "llama"), ("unified-dp", "llama"), ("dp", "gemma")],
)
def test_counted_flops_are_those_that_torch_counts(name, architecture, shape, tied):
    assert_flops_of(ModelConfig(shape, 31, PRESETS[name], architecture, tied_embeddings=tied))


@pytest.mark.parametrize("name", ["baseline", "unified"])
def test_counted_flops_of_a_mixture_are_those_that_torch_counts(name):
    assert_flops_of(ModelConfig(Shape(24, 2, 6, 2, 72), 31, PRESETS[name], experts=EXPERTS))


def assert_flops_of(config: ModelConfig) -> None:
    model = Transformer(config)
    initialise(model, seed=0)
    tokens = torch.zeros(2, 12, dtype=torch.long)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    assert flops_per_token(config, 12) * tokens.numel() == counter.get_total_flops()


def test_n_and_flops_need_no_torch():
    code = (
        "import sys; from scalevec.model import config; from scalevec.model import accounting; "
        "of = config.ModelConfig(config.Shape(16, 3, 4, 4, 42), 31); "
        "accounting.active_matrices(of) + accounting.flops_per_token(of, 8); sys.exit('torch' in sys.modules)"
    )
    succeeded(run_python(code))


OF_THE_PAPER = (Shape(768, 6, 12, 12, 2048), Shape(1792, 22, 28, 28, 4778))
"""Of the paper's Llama-0.12B and Llama-1B (table 4)."""
VOCABULARY = 50_304


def counts(shape: Shape, strategy: ScaleVectorStrategy) -> tuple[int, int]:
    """All parameters, and those of scale vectors."""
    with torch.device("meta"):
        model = Transformer(ModelConfig(shape, VOCABULARY, strategy))
    roles = parameter_roles(model)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    vectors = [size for name, size in sizes.items() if roles[name].startswith("scale_vector")]
    return sum(sizes.values()), sum(vectors)


def row(strategy: ScaleVectorStrategy) -> list[str]:
    """The cells of a strategy: at each shape its vectors and what the model has beyond the baseline."""
    cells = []
    for shape in OF_THE_PAPER:
        (total, vectors), (of_baseline, _) = counts(shape, strategy), counts(shape, PRESETS["baseline"])
        share = f"{(total - of_baseline) / of_baseline:+.2e}".replace("e-0", "e-").replace("-", "−")
        cells += [f"{vectors:,}", "0" if total == of_baseline else share]
    return cells


def test_the_table_of_the_page_has_every_preset_with_the_counts_of_its_model():
    text = (CHECKOUT / "docs" / "models.md").read_text(encoding="utf-8")
    section = text.split("### How many parameters")[1].split("\n## ")[0]
    written = {}
    for line in re.findall(r"^\| (`.*) \|$", section, flags=re.MULTILINE):
        names, *cells = line.split(" | ")
        written |= dict.fromkeys(re.findall(r"`([\w-]+)`", names), cells)
    assert written == {name: row(strategy) for name, strategy in PRESETS.items()}
