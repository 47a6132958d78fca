"""A trained decoder as the transformers library takes it.

A plain Llama where everything folds and a plain Gemma 3 where only its norms are left, else a decoder whose
code goes with it (``modeling_scalevec.py``).
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scalevec.model.config import ATTENTIONS
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
    "router": "mlp.router",
    **{f"experts.{name}": f"mlp.experts.*.{name}_proj" for name in ("gate", "up", "down")},
    **{f"shared_expert.{name}": f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")},
}
"""By the model's name of a map, that within a layer of transformers; ``*`` is the number of an expert."""
_GEMMA_NORMS = {
    "self_attn.q_proj": "self_attn.q_norm",
    "self_attn.k_proj": "self_attn.k_norm",
    "self_attn.o_proj": "post_attention_layernorm",
    "mlp.down_proj": "post_feedforward_layernorm",
}
"""By the map that the norm is behind."""


class ExportError(ValueError):
    """The transformers library has nothing that computes what the model does."""


@dataclass(frozen=True)
class ExportedModel:
    """``config`` is the content of config.json; ``tensors`` are those of model.safetensors, by name."""

    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @property
    def why_code(self) -> str:
        """Why the model's own code goes with it; empty where the transformers library has the model."""
        if self.config["model_type"] != "scalevec":
            return ""
        normed = [name.removeprefix("model.layers.*.") for name in self.config["norm_widths"]]
        reasons = ["a mixture of experts"] if self.config["experts"] else []
        return " and ".join(reasons + ([f"norms behind {', '.join(normed)}"] if normed else []))


@dataclass(frozen=True)
class _Map:
    """A linear map as transformers has it, with what could not be folded into it.

    name: ``model.layers.0.self_attn.q_proj``. weight: folded [out, in]. norm_width: neighbouring outputs that
    are normalized together, 0 for none. vector: behind that norm, [out]; ones where there is none.
    """

    name: str
    weight: Tensor
    norm_width: int
    vector: Tensor

    @property
    def kind(self) -> str:
        """Its name with ``*`` for numbers."""
        return re.sub(r"\.\d+\.", ".*.", self.name)


_Built = tuple[dict[str, Any], dict[str, Tensor]]


@torch.no_grad()
def exported(model: Transformer, sequence_length: int) -> ExportedModel:
    """The function of ``model`` with every vector that folds folded; it saw ``sequence_length`` tokens.

    Raises :class:`ExportError` for an attention of which the library has no counterpart.
    """
    kind = model.config.attention
    if kind != "full":
        have = "the transformers library's Llama and Gemma 3, and modeling_scalevec.py, have 'full' alone"
        raise ExportError(f"attention is {kind!r} ({ATTENTIONS[kind]}); {have}")
    maps = list(_maps(model))
    is_dense = model.config.experts is None
    normed = [map_ for map_ in maps if map_.norm_width]
    if is_dense and not normed:
        config, tensors = _llama(model)
    elif is_dense and _has_gemmas_norms(normed, model.config.shape.head_width, model.config.shape.layers):
        config, tensors = _gemma(model, maps)
    else:
        config, tensors = _scalevec(model, maps)
    shape = model.config.shape
    common = {
        "vocab_size": model.config.vocabulary_size,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "rms_norm_eps": model.config.norm_epsilon,
        "rope_theta": model.config.rope_base,
        "tie_word_embeddings": _is_tied(model),
        "hidden_act": _ACTIVATIONS[model.config.activation],
        "attention_bias": False,
        "max_position_embeddings": sequence_length,
        "dtype": "float32",
    }
    tensors |= {f"{map_.name}.weight": map_.weight for map_ in maps}
    whole = {name: tensor.detach().float().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return ExportedModel(common | config, whole)


def write_hugging_face(folder: Path, model: ExportedModel, special: Mapping[str, Any]) -> None:
    """Write config.json, model.safetensors and, where it is needed, the code into ``folder``.

    ``special`` are the ids of special tokens. Raises ``OSError``.
    """
    (folder / "config.json").write_text(json.dumps({**model.config, **special}, indent=2) + "\n")
    save_tensors(folder / "model.safetensors", model.tensors, {"format": "pt"})
    if model.why_code:
        shutil.copyfile(Path(__file__).with_name(CODE), folder / CODE)


def _maps(model: Transformer) -> Iterator[_Map]:
    for layer, block in enumerate(model.blocks):
        for sublayer in ("attention", "feed_forward"):
            for own_name, map_, shared in getattr(block, sublayer).maps():
                yield from _of_layer(f"model.layers.{layer}.{_MAPS[own_name]}", map_, shared, model)
    if not _is_tied(model):
        size, behind = len(model.head_weight), None if not model.normalizes_head else model.head_vector
        vector = torch.ones(size) if behind is None else behind()
        yield _Map("lm_head", model.head_weight, size if model.normalizes_head else 0, vector)


def _is_tied(model: Transformer) -> bool:
    """Whether the head of what is exported is the embedding; what stands behind the head is its own."""
    return model.head is None and model.head_vector is None and not model.normalizes_head


def _of_layer(name: str, map_: LinearMap, shared: Tensor | None, model: Transformer) -> Iterator[_Map]:
    """The map, or those of a stack one by one."""
    weight, vector = map_.folded_weight(shared), map_.post_norm_gain()
    vector = weight.new_ones(weight.shape[:-1]) if vector is None else vector.expand(weight.shape[:-1])
    if weight.ndim == 3:
        for number, (of, behind) in enumerate(zip(weight, vector, strict=True)):
            yield _Map(name.replace("*", str(number)), of, map_.norm_width, behind)
        return
    if name.endswith(("q_proj", "k_proj")):
        head = model.config.shape.head_width
        weight, vector = _by_halves(weight, head), _by_halves(vector, head)
    yield _Map(name, weight, map_.norm_width, vector)


def _by_halves(rows: Tensor, head_width: int) -> Tensor:
    """Rows in the order of transformers, where the channels of a rotated pair lie half a head apart."""
    return rows.reshape(-1, head_width // 2, 2, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)


def _embedding_and_norms(model: Transformer, norms: Sequence[str], factor: float = 1.0) -> dict[str, Tensor]:
    """Embedding, final norm and the ``norms`` of every layer, whose vectors have all been folded.

    ``factor`` is what the other model multiplies the embedding by.
    """
    width, scale = model.config.shape.width, model.config.embedding_factor / factor
    gain = effective(model.final_vector)
    gain = torch.ones(width) if gain is None else gain
    tensors = {"model.embed_tokens.weight": model.embedding * scale}
    # Where the head is that embedding, its factor is taken out here.
    tensors["model.norm.weight"] = gain / scale if _is_tied(model) else gain
    for layer in range(model.config.shape.layers):
        tensors |= {f"model.layers.{layer}.{norm}.weight": torch.ones(width) for norm in norms}
    return tensors


def _llama(model: Transformer) -> _Built:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "mlp_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.config.rope_base},
    }
    return config, _embedding_and_norms(model, ("input_layernorm", "post_attention_layernorm"))


def _has_gemmas_norms(normed: Sequence[_Map], head_width: int, layers: int) -> bool:
    """Whether the norms are where Gemma 3 has them, and all heads share a vector."""
    for map_ in normed:
        width = head_width if map_.name.endswith(("q_proj", "k_proj")) else len(map_.weight)
        by_group = map_.vector.view(-1, width)
        if map_.norm_width != width or not (by_group == by_group[0]).all():
            return False
    expected = {f"model.layers.{layer}.{name}" for layer in range(layers) for name in _GEMMA_NORMS}
    return {map_.name for map_ in normed} == expected


def _gemma(model: Transformer, maps: Sequence[_Map]) -> _Built:
    """Gains are stored by their distance from one, and every embedding is multiplied by the width's root."""
    shape = model.config.shape
    norms = ("input_layernorm", "pre_feedforward_layernorm")
    tensors = _embedding_and_norms(model, norms, shape.width**0.5)
    gains = {name: tensors.pop(name) for name in list(tensors) if "norm" in name}
    for map_ in maps:
        if map_.norm_width:
            _, _, layer, own_name = map_.name.split(".", 3)
            gains[f"model.layers.{layer}.{_GEMMA_NORMS[own_name]}.weight"] = map_.vector[: map_.norm_width]
    rope = {"rope_type": "default", "rope_theta": model.config.rope_base}
    config = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": _ACTIVATIONS[model.config.activation],
        "query_pre_attn_scalar": shape.head_width,
        "layer_types": ["full_attention"] * shape.layers,
        "rope_parameters": {"full_attention": rope, "sliding_attention": rope},
    }
    return config, tensors | {name: gain - 1 for name, gain in gains.items()}


def _scalevec(model: Transformer, maps: Sequence[_Map]) -> _Built:
    """A Llama, and what stands behind its maps."""
    config, tensors = _llama(model)
    normed = [map_ for map_ in maps if map_.norm_width]
    tensors |= {f"{map_.name}.vector": map_.vector for map_ in normed}
    for layer, block in enumerate(model.blocks):
        if isinstance(block.feed_forward, Mixture):
            tensors |= _of_mixture(f"model.layers.{layer}.mlp", block.feed_forward)
    code = CODE.removesuffix(".py")
    classes = {"AutoConfig": "ScalevecConfig", "AutoModelForCausalLM": "ScalevecForCausalLM"}
    config |= {
        "architectures": ["ScalevecForCausalLM"],
        "model_type": "scalevec",
        "auto_map": {auto: f"{code}.{name}" for auto, name in classes.items()},
        "norm_widths": {map_.kind: map_.norm_width for map_ in normed},
        "experts": _experts(model),
    }
    return config, tensors


def _of_mixture(prefix: str, mixture: Mixture) -> dict[str, Tensor]:
    count = mixture.experts_config.n_experts
    tensors = {f"{prefix}.bias": torch.zeros(count) if mixture.bias is None else mixture.bias}
    if mixture.normalizes:
        gain, width = effective(mixture.norm_vector), mixture.router.weight.shape[-1]
        tensors[f"{prefix}.norm.weight"] = torch.ones(width) if gain is None else gain
    return tensors


def _experts(model: Transformer) -> dict[str, Any] | None:
    experts, last = model.config.experts, model.blocks[-1].feed_forward
    if experts is None or not isinstance(last, Mixture):
        return None
    return {
        "n_experts": experts.n_experts,
        "top_k": experts.top_k,
        "feed_forward": experts.feed_forward,
        "shared_feed_forward": experts.shared_hidden,
        "dense_layers": experts.dense_layers,
        "norm": last.normalizes,
    }
