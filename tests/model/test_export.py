"""An exported model computes the same function in a process that knows nothing of this project."""

from dataclasses import replace

import pytest
import torch

from folded_model import FoldingError, fold
from scalevec.model.config import ATTENTIONS, OF_ARCHITECTURE, Experts, ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise, parameter_roles
from scalevec.model.export.hugging_face import ExportError, exported, write_hugging_face
from scalevec.model.strategies import PRESETS
from support import run_python, succeeded

pytestmark = pytest.mark.slow
SHAPE = Shape(width=16, layers=2, heads=4, kv_heads=2, feed_forward=24)
MIXTURE = Experts(
    4, 2, feed_forward=8, shared_experts=1, balancing="bias", dense_layers=1, shared_feed_forward=10
)
LOGITS = """
import sys, torch
from transformers import AutoModelForCausalLM
sys.modules["scalevec"] = None
for folder in folders:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    tokens = torch.load(folder + "/tokens.pt")
    with torch.no_grad():
        logits = model(tokens).logits
    torch.save({"logits": logits, "class": type(model).__name__}, folder + "/answer.pt")
"""
CASES = {name: ModelConfig(SHAPE, 23, strategy) for name, strategy in PRESETS.items()} | {
    "a norm over the vocabulary": ModelConfig(
        SHAPE, 23, replace(PRESETS["unified"], normalize_head=True), tied_embeddings=True
    ),
    "the head's vector, tied": ModelConfig(
        SHAPE, 23, PRESETS["dp"], tied_embeddings=True, **OF_ARCHITECTURE["gemma"]
    ),
    "tied": ModelConfig(SHAPE, 23, PRESETS["baseline"], tied_embeddings=True),
    "gemma": ModelConfig(SHAPE, 23, PRESETS["unified"], "gemma"),
    "gemma-none": ModelConfig(SHAPE, 23, PRESETS["none"], "gemma"),
    "gemma as it is": ModelConfig(
        SHAPE, 23, PRESETS["baseline"], "gemma", tied_embeddings=True, **OF_ARCHITECTURE["gemma"]
    ),
    "gemma's norms, tied": ModelConfig(SHAPE, 23, PRESETS["hg"], "gemma", tied_embeddings=True),
    "llama with all of gemma but norms": ModelConfig(SHAPE, 23, PRESETS["or"], **OF_ARCHITECTURE["gemma"]),
    "the same, tied": ModelConfig(SHAPE, 23, PRESETS["hg"], tied_embeddings=True, **OF_ARCHITECTURE["gemma"]),
    "mixture": ModelConfig(SHAPE, 23, PRESETS["unified"], experts=MIXTURE),
    "mixture-own": ModelConfig(
        SHAPE,
        23,
        replace(PRESETS["unified"], experts="own"),
        "gemma",
        experts=MIXTURE,
        **OF_ARCHITECTURE["gemma"],
    ),
    "switch": ModelConfig(
        replace(SHAPE, feed_forward=8), 23, experts=Experts(n_experts=4, top_k=1, feed_forward=8)
    ),
}

PLAIN_GEMMAS = ("gemma-none", "gemma as it is", "gemma's norms, tied")


def trained(config: ModelConfig) -> Transformer:
    """A model whose vectors and biases have moved from where they start."""
    model = Transformer(config)
    initialise(model, 0)
    generator = torch.Generator().manual_seed(1)
    roles = parameter_roles(model)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if roles.get(name, "scale_vector").startswith("scale_vector") and tensor.is_floating_point():
                tensor += 0.3 * torch.randn(tensor.shape, generator=generator)
    return model


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Our logits and those of the exported model, by case."""
    pytest.importorskip("transformers")
    folder, ours = tmp_path_factory.mktemp("exports"), {}
    for name, config in CASES.items():
        model, directory = trained(config), folder / name
        directory.mkdir()
        tokens = torch.randint(23, (2, 12), generator=torch.Generator().manual_seed(2))
        torch.save(tokens, directory / "tokens.pt")
        write_hugging_face(directory, exported(model, 64), {"eos_token_id": None})
        with torch.no_grad():
            ours[name] = model(tokens)
    succeeded(run_python(f"folders = {[str(folder / name) for name in CASES]}{LOGITS}"))
    return {name: (ours[name], torch.load(folder / name / "answer.pt")) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_the_exported_model_gives_our_logits_without_us(answers, name):
    ours, answer = answers[name]
    torch.testing.assert_close(answer["logits"], ours, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_what_folds_is_a_plain_llama_and_what_has_gemmas_norms_a_plain_gemma(answers, name):
    _, answer = answers[name]
    config = CASES[name]
    is_plain = config.experts is None and config.architecture == "llama" and folds(config)
    assert (answer["class"] == "LlamaForCausalLM") == is_plain
    assert (answer["class"] == "Gemma3ForCausalLM") == (name in PLAIN_GEMMAS)


def test_an_attention_that_transformers_does_not_have_is_refused(monkeypatch):
    """A variant of a plugin: any class under a name of its own."""
    monkeypatch.setitem(ATTENTIONS, "sliding-window", ATTENTIONS["full"])
    model = trained(ModelConfig(SHAPE, 23, attention="sliding-window"))
    message = r"attention is 'sliding-window' \(.*:Attention\); .* have 'full' alone"
    with pytest.raises(ExportError, match=message):
        exported(model, 64)


def folds(config: ModelConfig) -> bool:
    try:
        fold(trained(config))
    except FoldingError:
        return False
    return True
