"""A trained decoder as the transformers library takes it.

A plain Llama where everything folds and a plain Gemma 3 where only its norms are left, else a decoder whose
code goes with it (``modeling_scalevec.py``).
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scalevec.model.decoder import Transformer
from scalevec.model.experts import Mixture
from scalevec.model.scale_vectors import LinearMap, effective
from scalevec.model.train.checkpoint import save_tensors

CODE = "modeling_scalevec.py"
_ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}
"""By the model's activation, the name that transformers has for the function of the gate."""
_MAPS = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GEMMA_NORMS = {
    "query": "self_attn.q_norm",
    "key": "self_attn.k_norm",
    "output": "post_attention_layernorm",
    "down": "post_feedforward_layernorm",
}
"""By the map that the norm is behind."""
_ROTATED = ("query", "key")


@dataclass(frozen=True)
class ExportedModel:
    """``config`` is the content of config.json; ``tensors`` are those of model.safetensors, by name."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def has_code(self) -> bool:
        """Whether the code of the model goes with it: the transformers library does not have it itself."""
        return bool(self.config["model_type"] == "scalevec")


@torch.no_grad()
def exported(model: Transformer, sequence_length: int) -> ExportedModel:
    """The function of ``model`` with every vector that folds folded; it saw ``sequence_length`` tokens."""
    maps = list(_maps(model))
    config, tensors = _builder(model, maps)(model, maps)
    shape = model.config.shape
    common = {
        "vocab_size": model.config.vocabulary_size,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": model.config.norm_epsilon,
        "rope_theta": model.config.rope_base,
        "tie_word_embeddings": model.head is None,
        "hidden_act": _ACTIVATIONS[model.config.activation],
        "max_position_embeddings": sequence_length,
        "dtype": "float32",
    }
    whole = {name: tensor.detach().float().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return ExportedModel(common | config, whole)


def write_hugging_face(folder: Path, model: ExportedModel, special: Mapping[str, Any]) -> None:
    """Write config.json, model.safetensors and, where it is needed, the code into ``folder``.

    ``special`` are the ids of special tokens. Raises ``OSError``.
    """
    (folder / "config.json").write_text(json.dumps({**model.config, **special}, indent=2) + "\n")
    save_tensors(folder / "model.safetensors", model.tensors, {"format": "pt"})
    if model.has_code:
        shutil.copyfile(Path(__file__).with_name(CODE), folder / CODE)


_Map = tuple[str, str, LinearMap, Tensor | None]
_Built = tuple[dict[str, Any], dict[str, Tensor]]


def _maps(model: Transformer) -> Iterator[_Map]:
    """Every linear map: its sublayer's name, its own, the map, the vector that it shares with others."""
    for layer, block in enumerate(model.blocks):
        for part in ("attention", "feed_forward"):
            for name, map_, shared in getattr(block, part).maps():
                yield f"blocks.{layer}.{part}", name, map_, shared


def _builder(model: Transformer, maps: list[_Map]) -> Callable[[Transformer, list[_Map]], _Built]:
    if model.config.experts is not None:
        return _scalevec
    if all(_is_plain(map_) for _, _, map_, _ in maps):
        return _llama
    head = model.config.shape.head_width
    fits = (_is_as_in_gemma(name, map_, head) for _, name, map_, _ in maps)
    return _gemma if all(fits) else _scalevec


def _is_plain(map_: LinearMap) -> bool:
    return not map_.norm_width and map_.late_vector() is None


def _is_as_in_gemma(name: str, map_: LinearMap, head_width: int) -> bool:
    """Whether Gemma 3 has what is behind the map: a norm of its own, whose vector the heads share."""
    if name not in _GEMMA_NORMS:
        return _is_plain(map_)
    width = head_width if name in _ROTATED else len(map_.weight)
    late = map_.late_vector()
    return map_.norm_width == width and (late is None or bool((late.view(-1, width) == late[:width]).all()))


def _head(model: Transformer) -> dict[str, Tensor]:
    return {} if model.head is None else {"lm_head.weight": model.head}


def _embedding(model: Transformer, factor: float = 1.0) -> Tensor:
    """For a model that multiplies it by ``factor``."""
    return model.embedding * (model.config.embedding_factor / factor)


def _final_vector(model: Transformer, factor: float = 1.0) -> Tensor:
    """Where the head is that embedding, its factor is taken out here."""
    gain = effective(model.final_vector)
    vector = torch.ones(model.config.shape.width) if gain is None else gain
    return vector / (model.config.embedding_factor / factor) if model.head is None else vector


def _matrices(model: Transformer, maps: list[_Map]) -> dict[str, Tensor]:
    """The folded matrices of a dense model under their names in transformers."""
    tensors = {}
    for sublayer, name, map_, shared in maps:
        weight = map_.folded_weight(shared)
        if name in _ROTATED:
            weight = _by_halves(weight, model.config.shape.head_width)
        tensors[f"model.layers.{sublayer.split('.')[1]}.{_MAPS[name]}.weight"] = weight
    return tensors


def _llama(model: Transformer, maps: list[_Map]) -> _Built:
    tensors = {"model.embed_tokens.weight": _embedding(model), "model.norm.weight": _final_vector(model)}
    tensors |= _matrices(model, maps)
    for number in range(model.config.shape.layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{number}.{norm}.weight"] = torch.ones(model.config.shape.width)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "head_dim": model.config.shape.head_width,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.config.rope_base},
    }
    return config, tensors | _head(model)


def _gemma(model: Transformer, maps: list[_Map]) -> _Built:
    """Gains are stored by their distance from one, and every embedding is multiplied by the width's root."""
    shape, factor = model.config.shape, model.config.shape.width**0.5
    tensors = {
        "model.embed_tokens.weight": _embedding(model, factor),
        "model.norm.weight": _final_vector(model, factor) - 1,
        **_matrices(model, maps),
    }
    for number in range(shape.layers):
        for norm in ("input_layernorm", "pre_feedforward_layernorm"):
            tensors[f"model.layers.{number}.{norm}.weight"] = torch.zeros(shape.width)
    for sublayer, name, map_, _ in maps:
        if name in _GEMMA_NORMS:
            late = map_.late_vector()
            gain = torch.ones(map_.norm_width) if late is None else late[: map_.norm_width]
            gain = _by_halves(gain[:, None], shape.head_width)[:, 0] if name in _ROTATED else gain
            tensors[f"model.layers.{sublayer.split('.')[1]}.{_GEMMA_NORMS[name]}.weight"] = gain - 1
    rope = {"rope_type": "default", "rope_theta": model.config.rope_base}
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": _ACTIVATIONS[model.config.activation],
        "attention_bias": False,
        "head_dim": shape.head_width,
        "query_pre_attn_scalar": shape.head_width,
        "layer_types": ["full_attention"] * shape.layers,
        "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
    }
    return config, tensors | _head(model)


def _by_halves(weight: Tensor, head_width: int) -> Tensor:
    """Rows in the order of transformers, where the channels of a rotated pair lie half a head apart."""
    return weight.reshape(-1, head_width // 2, 2, weight.shape[-1]).transpose(1, 2).flatten(0, 2)


def _scalevec(model: Transformer, maps: list[_Map]) -> _Built:
    tensors = {"embedding.weight": _embedding(model), "final_vector": _final_vector(model)}
    norm_widths: dict[str, int] = {}
    vectors: dict[str, int] = {}
    for sublayer, name, map_, shared in maps:
        if name == "router":
            tensors[f"{sublayer}.router"] = map_.folded_weight(shared)
            continue
        tensors[f"{sublayer}.{name}.weight"] = map_.folded_weight(shared)
        norm_widths[name], late = map_.norm_width, map_.late_vector()
        if late is not None:
            tensors[f"{sublayer}.{name}.vector"] = late
            vectors[name] = 1 if late.ndim == 1 else len(late)
    for layer, block in enumerate(model.blocks):
        if isinstance(block.feed_forward, Mixture):
            tensors |= _of_mixture(f"blocks.{layer}.feed_forward", block.feed_forward)
    code = CODE.removesuffix(".py")
    return {
        "architectures": ["ScalevecForCausalLM"],
        "model_type": "scalevec",
        "auto_map": {
            "AutoConfig": f"{code}.ScalevecConfig",
            "AutoModelForCausalLM": f"{code}.ScalevecForCausalLM",
        },
        "use_cache": False,
        "experts": _experts(model),
        "norm_widths": norm_widths,
        "vectors": vectors,
    }, tensors | _head(model)


def _of_mixture(prefix: str, mixture: Mixture) -> dict[str, Tensor]:
    tensors = {} if mixture.bias is None else {f"{prefix}.bias": mixture.bias}
    gain = effective(mixture.norm_vector)
    return tensors if gain is None else tensors | {f"{prefix}.norm_vector": gain}


def _experts(model: Transformer) -> dict[str, Any] | None:
    experts = model.config.experts
    if experts is None:
        return None
    mixture = model.blocks[-1].feed_forward
    assert isinstance(mixture, Mixture)
    return {
        "n_experts": experts.n_experts,
        "top_k": experts.top_k,
        "feed_forward": experts.feed_forward,
        "shared_feed_forward": experts.shared_experts * experts.feed_forward,
        "dense_layers": experts.dense_layers,
        "bias": mixture.bias is not None,
        "norm": mixture.normalizes,
        "norm_vector": mixture.norm_vector is not None,
    }
