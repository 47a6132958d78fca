"""Our decoders compute what those of transformers do with the same weights: logits, gradients, balance."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scalevec.model.config import OF_ARCHITECTURE, Experts, ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.scale_vectors import ScaleVector

VOCABULARY, EPSILON, BASE = 23, 1e-6, 5e5
SHAPE = Shape(width=24, layers=2, heads=4, kv_heads=2, feed_forward=40)
MIXTURE = Experts(n_experts=4, top_k=2, feed_forward=20)
GEMMA: dict[str, Any] = {"architecture": "gemma", "tied_embeddings": True, **OF_ARCHITECTURE["gemma"]}
CASES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Llama, tied": {"tied_embeddings": True},
    "Gemma 3": GEMMA,
    "Mixtral": {"experts": MIXTURE},
}
OURS = {"query": "q", "key": "k", "value": "v", "output": "o", "gate": "gate", "up": "up", "down": "down"}
BELOW = {torch.float32: 1e-5, torch.float64: 1e-10}
"""Differences over the largest entry."""


class Float64(TorchFunctionMode):
    """What asks for float32 gets float64: transformers reckons norms, angles and routers in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return (Tensor.double if func is Tensor.float else func)(*map(_wide, args), **given)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


@contextmanager
def reckoning_in(dtype: torch.dtype) -> Iterator[None]:
    """As installed in float32; in float64 without any float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with Float64() if dtype == torch.float64 else nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


def drawn(config: ModelConfig) -> Transformer:
    """Our model with vectors away from their start."""
    model = Transformer(config)
    initialise(model, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, ScaleVector):
                for parameter in module.parameters():
                    parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def peer_of(config: ModelConfig) -> nn.Module:
    """The model of transformers of the same shape."""
    transformers = pytest.importorskip("transformers")
    shape = config.shape
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "rms_norm_eps": EPSILON,
        "tie_word_embeddings": config.tied_embeddings,
        "attn_implementation": "sdpa",
        "pad_token_id": None,
    }
    rope = {"rope_type": "default", "rope_theta": BASE}
    if config.architecture == "gemma":
        kinds = {"sliding_attention": dict(rope), "full_attention": dict(rope)}
        return transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(
                **common,
                intermediate_size=shape.feed_forward,
                query_pre_attn_scalar=shape.head_width,
                layer_types=["full_attention"] * shape.layers,
                rope_parameters=kinds,
            )
        )
    if config.experts is not None:
        return transformers.MixtralForCausalLM(
            transformers.MixtralConfig(
                **common,
                num_local_experts=config.experts.n_experts,
                num_experts_per_tok=config.experts.top_k,
                intermediate_size=config.experts.feed_forward,
                rope_parameters=rope,
                experts_implementation="eager",  # the grouped product takes no float64
            )
        )
    config = transformers.LlamaConfig(**common, intermediate_size=shape.feed_forward, rope_parameters=rope)
    return transformers.LlamaForCausalLM(config)


def by_halves(tensor: Tensor) -> Tensor:
    """Rows (or entries) of heads as transformers has them: a rotated pair lies half a head apart."""
    return tensor.unflatten(0, (-1, SHAPE.head_width // 2, 2)).transpose(1, 2).flatten(0, 2)


Of = Callable[[nn.Parameter], Tensor]


def under_their_names(model: Transformer, of: Of) -> Iterator[tuple[str, Tensor]]:
    """``of`` every parameter of ours, a copy of it or its gradient, by the name that transformers has."""
    yield "model.embed_tokens.weight", of(model.embedding)
    yield "model.norm.weight", of(model.final_vector.gain)
    if model.head is not None:
        yield "lm_head.weight", of(model.head)
    is_gemma = model.config.architecture == "gemma"
    before_unit = "pre_feedforward_layernorm" if is_gemma else "post_attention_layernorm"
    for number, block in enumerate(model.blocks):
        layer, attention, unit = f"model.layers.{number}", block.attention, block.feed_forward
        yield f"{layer}.input_layernorm.weight", of(attention.shared_vector.gain)
        yield f"{layer}.{before_unit}.weight", of(unit.shared_vector.gain)
        for name in ("query", "key", "value", "output"):
            weight = of(getattr(attention, name).weight)
            turned = by_halves(weight) if name in ("query", "key") else weight
            yield f"{layer}.self_attn.{OURS[name]}_proj.weight", turned
        if is_gemma:
            for name in ("query", "key"):
                gain = of(getattr(attention, name).norm_vector.gain)
                yield f"{layer}.self_attn.{OURS[name]}_norm.weight", by_halves(gain)
            yield f"{layer}.post_attention_layernorm.weight", of(attention.output.norm_vector.gain)
            yield f"{layer}.post_feedforward_layernorm.weight", of(unit.down.norm_vector.gain)
        if model.config.experts is None:
            for name in ("gate", "up", "down"):
                yield f"{layer}.mlp.{name}_proj.weight", of(getattr(unit, name).weight)
        else:
            stacks = unit.experts
            yield f"{layer}.mlp.gate.weight", of(unit.router.weight)
            joint = torch.cat([of(stacks.gate.weight), of(stacks.up.weight)], 1)
            yield f"{layer}.mlp.experts.gate_up_proj", joint
            yield f"{layer}.mlp.experts.down_proj", of(stacks.down.weight)


def tokens_of(batch: int = 3, length: int = 11) -> tuple[Tensor, Tensor]:
    """Tokens and those that follow them."""
    ids = torch.randint(VOCABULARY, (batch, length + 1), generator=torch.Generator().manual_seed(7))
    return ids[:, :-1], ids[:, 1:]


class Pair(NamedTuple):
    ours: Transformer
    theirs: nn.Module


def pair_of(**fields: Any) -> Pair:
    """Our model, and theirs with its weights: every one of theirs is one of ours."""
    config = ModelConfig(SHAPE, VOCABULARY, norm_epsilon=EPSILON, rope_base=BASE, **fields)
    ours, theirs = drawn(config), peer_of(config)
    left = theirs.load_state_dict(dict(under_their_names(ours, lambda p: p.detach())), strict=False)
    tied = {"lm_head.weight"} if config.tied_embeddings else set()
    assert (set(left.missing_keys), left.unexpected_keys) == (tied, [])
    return Pair(ours, theirs)


def difference(actual: Tensor, expected: Tensor) -> float:
    """The largest, over the largest entry."""
    return ((actual - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("dtype", BELOW, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_logits_and_gradients_are_those_of_transformers(name: str, dtype: torch.dtype) -> None:
    inputs, targets = tokens_of()
    with reckoning_in(dtype):
        ours, theirs = pair_of(**CASES[name])
        logits, expected = ours(inputs), theirs(inputs).logits
        for values in (logits, expected):
            nn.functional.cross_entropy(values.flatten(0, 1), targets.flatten()).backward()
    assert (logits.dtype, expected.dtype) == (dtype, dtype)
    differences = {"logits": difference(logits, expected)}
    gradients = {key: parameter.grad for key, parameter in theirs.named_parameters()}
    for key, gradient in under_their_names(ours, lambda p: p.grad):
        differences[key] = difference(gradient, gradients[key])
    worst = max(differences, key=lambda key: differences[key])
    assert differences[worst] < BELOW[dtype], worst


# The loss of balance


def balance_of(routers: list[Tensor], over: str, per: str) -> Tensor:
    """From router logits [batch, length, n_experts] of each layer, by transformers' function of rows."""
    function = pytest.importorskip("transformers.models.mixtral.modeling_mixtral").load_balancing_loss_func
    parts = [[layer.flatten(0, 1)] if per == "batch" else list(layer) for layer in routers]
    top_k, n_experts = MIXTURE.top_k, MIXTURE.n_experts
    layers = [torch.stack([function((rows,), n_experts, top_k) for rows in layer]).mean() for layer in parts]
    stacked = torch.stack(layers) / top_k
    return stacked.sum() if over == "sum" else stacked.mean()


@pytest.mark.parametrize("per", ["sequence", "batch"])
@pytest.mark.parametrize("over", ["sum", "mean"])
def test_the_balance_is_that_of_transformers_layer_by_layer_over_top_k(over: str, per: str) -> None:
    inputs, targets = tokens_of()
    experts = Experts(4, 2, 20, loss_coefficient=0.5, over=over, per=per)
    with reckoning_in(torch.float64):
        ours, theirs = pair_of(experts=experts)
        routers = theirs(inputs, output_router_logits=True).router_logits
        expected = balance_of([logits.view(*inputs.shape, -1) for logits in routers], over, per)
        _, penalty = ours.training_loss(inputs, targets)
    torch.testing.assert_close(penalty, 0.5 * expected, rtol=1e-10, atol=0)
