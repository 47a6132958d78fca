"""What a sweep file means by the name of an architecture, and how each part of it is set back."""

from typing import Any

import pytest

from scalevec import sweeps
from scalevec.model.config import OF_ARCHITECTURE, ModelConfig
from scalevec.sweeps.expansion.expand import CorpusFacts, expand
from scalevec.sweeps.expansion.trials import Cell

CORPUS = CorpusFacts("c0" * 32, 1024, 10**9)
SET_BACK = {"embedding_scale": "none", "norm_gain": "g", "activation": "swiglu"}


def cells_of(text: str) -> list[Cell]:
    return expand(sweeps.loads(f"name: x\nladder: [tiny-25k]\narms: {{a: {{}}}}\n{text}"), CORPUS)


def models_of(text: str) -> list[ModelConfig]:
    return [cell.template.model for cell in cells_of(text)]


def parts(model: ModelConfig) -> dict[str, Any]:
    return {name: getattr(model, name) for name in SET_BACK}


def test_gemma_means_its_embedding_scale_its_gains_and_its_activation() -> None:
    (model,) = models_of("trial: {architecture: gemma}")
    assert parts(model) == OF_ARCHITECTURE["gemma"]


@pytest.mark.parametrize("field", SET_BACK)
def test_each_can_be_set_back(field: str) -> None:
    (model,) = models_of(f"trial: {{architecture: gemma, {field}: {SET_BACK[field]}}}")
    assert parts(model) == OF_ARCHITECTURE["gemma"] | {field: SET_BACK[field]}


@pytest.mark.parametrize("field", SET_BACK)
def test_a_llama_can_have_each(field: str) -> None:
    (model,) = models_of(f"trial: {{{field}: {OF_ARCHITECTURE['gemma'][field]}}}")
    assert parts(model) == SET_BACK | {field: OF_ARCHITECTURE["gemma"][field]}


def test_in_a_grid_of_architectures_each_has_its_own() -> None:
    llama, gemma = models_of("grid: {architecture: [llama, gemma]}")
    assert (parts(llama), parts(gemma)) == (SET_BACK, OF_ARCHITECTURE["gemma"])


def test_what_the_architecture_means_is_in_the_stream_as_if_it_were_written_out() -> None:
    written = ", ".join(f"{name}: {value}" for name, value in OF_ARCHITECTURE["gemma"].items())
    (short,) = cells_of("trial: {architecture: gemma}")
    (long,) = cells_of(f"trial: {{architecture: gemma, {written}}}")
    back = ", ".join(f"{name}: {value}" for name, value in SET_BACK.items())
    (norms,) = cells_of(f"trial: {{architecture: gemma, {back}}}")
    assert short.trial(0) == long.trial(0)
    assert short.stream_base != norms.stream_base


def test_the_presets_balance_by_the_mean_over_layers_and_a_rung_of_ones_own_as_it_says() -> None:
    rung = "{name: m, width: 64, layers: 2, experts: {n_experts: 4, top_k: 2}}"
    sweep = sweeps.loads(f"name: x\nladder: [moe-tiny-25k, {rung}]\narms: {{a: {{}}}}\n")
    preset, written = (cell.template.model.experts for cell in expand(sweep, CORPUS))
    assert (preset.over, written.over, preset.per, written.per) == ("mean", "sum", "sequence", "sequence")
