"""An example of every field of the sweep file, for the JSON Schema and the pages that are made from it."""

from collections.abc import Mapping
from typing import Any

from scalevec.model.optimization import OPTIONS

_WITH_PLUGINS = "WithPlugins"
_LISTS = ("FieldLists", "Tune", "ForeignLists", "ForeignTune")
"""Definitions in which a trial field holds the values that it takes in turn."""

_OF_TRIALS: dict[str, Any] = {
    "optimizer": "muon",
    "learning_rate": 0.016,
    "weight_decay": 0.1,
    "clip_norm": 1.0,
    "schedule": "wsd",
    "warmup_tokens": 8192,
    "warmup_fraction": 0.08,
    "batch_tokens": 1024,
    "sequence_length": 128,
    "precision": "bfloat16",
    "evaluation_tokens": "all",
    "architecture": "gemma",
    "scale_vectors": "unified",
    "tied_embeddings": True,
    "norm_epsilon": 1e-5,
    "rope_base": 10000.0,
    "embedding_scale": "sqrt-width",
    "norm_gain": "1+w",
    "activation": "geglu",
    "attention": "full",
    "width": 128,
    "layers": 4,
    "heads": 8,
    "kv_heads": 2,
    "feed_forward": 344,
    **{name: spec.default for name, spec in OPTIONS.items()},
}
_OF_LAWS = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
_OF_SECTIONS: dict[str, dict[str, Any]] = {
    "": {
        "name": "my-sweep",
        "plugins": ["mylab.arms"],
        "corpus": {"source": "python-stdlib", "tokenizer": {"bpe": 1024}, "sequence_length": 128},
        "trainer": {"command": ["{python}", "train.py", "--width={width}"], "metrics": "log.jsonl"},
        "fields": {"dropout": "float"},
        "n_params": "12 * layers * width ** 2",
        "trial": {"batch_tokens": 1024, "precision": "float32"},
        "ladder": ["tiny-25k", {"name": "mine", "width": 128, "layers": 4}],
        "tokens_per_parameter": [8, 16],
        "tokens": [1e8],
        "flops": [1e15, 1e16],
        "optimizers": ["adamw", {"name": "muon", "momentum": 0.9}],
        "schedules": ["cosine", {"name": "wsd", "cooldown_fraction": 0.1}],
        "arms": {"baseline": {"scale_vectors": "baseline"}, "unified": {"scale_vectors": "unified"}},
        "tune": {"learning_rate": [8e-3, 1.6e-2, 3.2e-2], "rungs": ["tiny-25k"], "seeds": [100]},
        "seeds": [0, 1, 2],
        "grid": {"batch_tokens": [512, 1024]},
        "zip": {"batch_tokens": [512, 1024], "weight_decay": [0.1, 0.05]},
        "exclude": [{"rung": "tiny-25k", "seed": 1}],
        "compare": {"reference": "baseline", "law": "power", "margin": 0.005},
        "measure": {"what": ["preconditioner"], "every": 100},
        "resources": {"default": {"time": "auto"}, "tiny-25k": {"gpus": 0.25}},
        "max_gpu_hours": 500,
        "simulate": {"arms": {"unified": {"gain": 1.2}}},
    },
    "ArmLaw": {**_OF_LAWS, "gain": 1.2},
    "Compare": {
        "reference": "baseline",
        "predict": {"arm": "unified", "sign": "lower"},
        "law": "chinchilla",
        "where": "rung == 'tiny-25k'",
        "margin": 0.005,
        "fix": "E=1.6",
        "bound": "alpha=0.1:1",
        "looks": [3, 5, 8],
        "settings": ["dropout"],
    },
    "CorpusSection": {
        "packages": ["scipy==1.17.1"],
        "files": ["texts/**/*.txt"],
        "validation": ["held-out/a.txt"],
        "test": ["held-out/b.txt"],
        "field": "content",
        "dtype": "uint16",
        "in_place": True,
        "process": {"vocabulary": 64, "branching": 8},
        "tokenizer": {"bpe": 1024},
        "sequence_length": 128,
    },
    "ExpertsFields": {
        "n_experts": 8,
        "top_k": 2,
        "feed_forward": 64,
        "shared_experts": 1,
        "loss_coefficient": 0.01,
        "bias_rate": 0.001,
        "dense_layers": 1,
    },
    "Generator": {"from": 1e7, "to": 2e9, "rungs": 8, "experts": {"n_experts": 8, "top_k": 2}},
    "MeasureSection": {"what": ["preconditioner", "sharpness"]},
    "OptimizerFields": {"name": "muon"},
    "PluginEntry": {"module": "mylab.arms", "code_version": 3},
    "PredictionEntry": {
        "arm": "unified",
        "reference": "baseline",
        "where": "rung == 'tiny-25k'",
        "sign": "lower",
        "difference": -0.02,
        "interval": [-0.04, 0.0],
    },
    "RateBowl": {"optimum": 0.016},
    "Resources": {
        "time": 90,
        "memory_gb": 32,
        "gpus": 8,
        "processes": 2,
        "nodes": 2,
        "shard": True,
        "cpus": 4,
        "micro_batch": 8,
        "keep": "weights",
    },
    "Rung": {
        "name": "mine",
        "experts": {"n_experts": 8, "top_k": 2},
        "tokens": 10**10,
    },
    "RungOptions": {"name": "0.12b", "tokens": 10**10, "batch_tokens": 524_288, "learning_rate": 0.004},
    "ForeignRungFields": {"name": "s", "n_params": 10_600_000, "tokens": 10**9},
    "ScheduleFields": {"name": "wsd"},
    "Simulate": {
        "law": _OF_LAWS,
        "arms": {"unified": {"gain": 1.2}},
        "learning_rate": {"optimum": 0.016},
        "faults": {"nan": 0.01},
    },
    "StrategyFields": {
        "normalize_per_head": True,
        "heterogeneous_maps": ["query", "key", "value"],
        "dual_maps": ["query", "key"],
        "input_role_maps": ["query"],
        "reparameterization": "or",
        "learning_rate_factor": 1.0,
        "vector_weight_decay": 0.01,
        "normalize_head": False,
        "decay_direction": True,
    },
    "TokenizerSection": {
        "bpe": 1024,
        "sample_mb": 64,
        "file": "tokenizer.json",
        "hub": "gpt2",
        "vocabulary": 50304,
        "separator": 0,
    },
    "TrainerSection": {
        "command": ["{python}", "train.py", "--width={width}", "--seed={seed}", "--out={out}"],
        "function": "mylab.training:learn",
        "files": ["model.py", "configs/*.json"],
        "code_version": 3,
        "metrics": "log.jsonl",
        "pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)",
        "result": "result.json",
        "loss": "test",
        "loss_validation": "val",
        "training_loss": "train",
        "tokens": "tokens",
        "n_params": "n_params",
        "bytes_per_token": 3.6,
        "vocabulary": 50304,
        "checkpoint": "ckpt*.pt",
        "resume": ["--resume", "{out}"],
    },
    "Tune": {
        "rungs": ["tiny-25k"],
        "seeds": [100],
        "share": "reference",
        "check_carried": True,
        "scale_vectors.learning_rate_factor": [0.5, 1.0, 2.0],
        "scale_vectors.vector_weight_decay": [0.0, 0.01, 0.1],
    },
}


def with_examples(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` with an example at each field, without the titles and empty defaults that pydantic adds."""
    sections = {"": schema, **schema["$defs"]}
    shown = {name: _with_examples(name, section) for name, section in sections.items()}
    return shown.pop("") | {"$defs": shown}


def _with_examples(section: str, definition: dict[str, Any]) -> dict[str, Any]:
    if "properties" not in definition:
        return definition
    plain = section.removesuffix(_WITH_PLUGINS)
    fields = {
        name: _described(field) | {"examples": [_example(plain, name, field)]}
        for name, field in definition["properties"].items()
    }
    return {**definition, "properties": fields}


def _described(field: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in field.items() if key != "title" and (key, value) != ("default", None)
    }


def _example(section: str, name: str, field: Mapping[str, Any]) -> Any:
    by_hand = _OF_SECTIONS.get("Tune" if section == "ForeignTune" else section, {})
    if name in by_hand:
        return by_hand[name]
    value = field["enum"][0] if "enum" in field else field.get("default")
    if value is None or section in ("Rung", "ForeignRungFields"):
        value = _OF_TRIALS.get(name, value)
    return [value] if section in _LISTS and name in _OF_TRIALS else value
