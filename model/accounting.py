"""The parameters and the training FLOPs of a model, and the passes that its memory follows from.

N and FLOPs are closed forms that load no torch: a sweep is laid out by them. Everything else is counted on
the real model, which alone knows where it has scale vectors.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from scalevec.model.config import ModelConfig

Sizes = dict[str, int]
"""Parameters or bytes by what they are of."""


@dataclass(frozen=True)
class ParameterCounts:
    """Parameters of a model by group; every parameter is in exactly one of the six fields.

    matrices: the linear maps of the blocks that a token passes, the head excluded: the N of scaling laws
        here. Of a mixture these are the *active* ones (attention, router, ``top_k`` and the shared experts),
        so that budgets in tokens per parameter and 6 N D mean what they mean for a dense model.
    token_embedding: the embedding; with tied embeddings it is the head as well and counted once, here.
    head: the untied head, 0 where it is tied.
    scale_vectors_input, scale_vectors_output: scale vectors by role, magnitudes and directions included; of
        a mixture those of all experts.
    matrices_idle: the matrices of the experts that a token does not pass; 0 without a mixture.
    """

    matrices: int
    token_embedding: int
    head: int
    scale_vectors_input: int
    scale_vectors_output: int
    matrices_idle: int = 0

    @property
    def matrices_total(self) -> int:
        """The linear maps of the blocks, those of every expert included."""
        return self.matrices + self.matrices_idle

    @property
    def embedding(self) -> int:
        """Token embedding and untied head."""
        return self.token_embedding + self.head

    @property
    def scale_vectors(self) -> int:
        """Scale vectors of both roles."""
        return self.scale_vectors_input + self.scale_vectors_output

    @property
    def total(self) -> int:
        """All parameters."""
        return self.active + self.matrices_idle

    @property
    def active(self) -> int:
        """All parameters but the matrices that a token does not pass."""
        return self.matrices + self.embedding + self.scale_vectors

    def columns(self) -> dict[str, int]:
        """Return the counts under the names that plans, run directories and tables give them."""
        return {
            "n_params": self.matrices,
            "n_params_embedding": self.embedding,
            "n_params_scale_vectors": self.scale_vectors,
            "n_params_total": self.total,
            "n_params_active": self.active,
        }


@lru_cache(maxsize=4096)
def structure(config: ModelConfig) -> ModelConfig:
    """A model of the same tensors, without what decides only how they are trained.

    A reparameterization of a plugin is one of ours there: its code, which a plan does not run, changes no
    tensor.
    """
    strategy = replace(
        config.scale_vectors,
        weight_decay="all",
        vector_weight_decay=None,
        decay_direction=True,
        learning_rate_factor=1.0,
    )
    if strategy.plugin is not None:
        strategy = replace(strategy, reparameterization="or", plugin=None)
    return replace(config, scale_vectors=strategy)


def active_matrices(config: ModelConfig) -> int:
    """N: the parameters of the blocks' linear maps that a token passes, without building the model.

    Source: N without embeddings is that of Kaplan et al. (arXiv 2001.08361).
    """
    shape, experts = config.shape, config.experts
    attention = 2 * shape.width * (shape.width + shape.kv_heads * shape.head_width)
    unit = 3 * shape.width
    if experts is None:
        return shape.layers * (attention + unit * shape.feed_forward)
    dense = experts.dense_layers * unit * shape.feed_forward
    mixture = experts.n_experts * shape.width + unit * experts.active_hidden
    return shape.layers * attention + dense + (shape.layers - experts.dense_layers) * mixture


@lru_cache(maxsize=4096)
def count_parameters(config: ModelConfig) -> ParameterCounts:
    """Count the parameters of a model by group: builds it without its memory, once for all that are alike.

    Args:
        config: The model.

    Returns:
        The counts; ``matrices`` is :func:`active_matrices`, or what a token passes of a model that has more.
    """
    return ParameterCounts(**measured("counts", structure(config), lambda: _counted(config)))


def _counted(config: ModelConfig) -> Sizes:
    """The fields of :class:`ParameterCounts`, of a model without memory."""
    import torch

    from scalevec.model.decoder import Transformer, parameter_roles

    # All layers behind the dense ones are alike: one is built.
    layers, dense = config.shape.layers, config.experts.dense_layers if config.experts else 0
    few = min(dense + 1, layers)
    with torch.device("meta"):
        model = Transformer(structure(replace(config, shape=replace(config.shape, layers=few))))
    sizes: Counter[str] = Counter()
    for name, role in parameter_roles(model).items():
        times = layers - few + 1 if name.startswith(f"blocks.{few - 1}.") else 1
        sizes[role] += times * model.get_parameter(name).numel()
    of = config.experts
    idle = 0 if of is None else sizes["experts"] * (of.n_experts - of.top_k) // of.n_experts
    return {
        "matrices": sizes["matrix"] + sizes["experts"] - idle,
        "token_embedding": sizes["embedding"],
        "head": sizes["head"],
        "scale_vectors_input": sizes["scale_vector_input"],
        "scale_vectors_output": sizes["scale_vector_output"],
        "matrices_idle": idle,
    }


def flops_per_token(config: ModelConfig, sequence_length: int) -> int:
    """Training FLOPs of one token, counted: three times (forward, backward by input and by weight) the
    multiplications and additions of all matrix products: the linear maps, the head, attention scores and
    the mixing of values.

    Scores are counted over the whole ``sequence_length``, with no discount for the causal half; element-wise
    work (norms, rotary embedding, softmax, the folding of scale vectors) and the optimizer are not counted.
    Of a mixture, the matrices that a token passes are counted.
    """
    shape = config.shape
    matrices = active_matrices(config) + config.vocabulary_size * shape.width
    attention = 2 * sequence_length * shape.width * shape.layers
    return 3 * 2 * (matrices + attention)


@dataclass(frozen=True)
class Passes:
    """What decides what training and evaluating passes take.

    sequences, length: of the micro-batch. evaluated: sequences of an evaluating pass. device: ``cpu`` or
    ``cuda``. accumulates: whether a batch has several micro-batches.
    folds_once: whether these take weights that are folded once for all.
    """

    model: ModelConfig
    sequences: int
    length: int
    evaluated: int
    precision: str
    device: str
    recomputes: bool
    compiled: bool
    accumulates: bool
    folds_once: bool


_IN_PROCESS: dict[tuple[str, Hashable], Sizes] = {}


def measured(part: str, key: Hashable, measure: Callable[[], Sizes]) -> Sizes:
    """What ``measure`` tells of ``part``, or has told of an equal ``key``: that is in the cache folder."""
    if (part, key) not in _IN_PROCESS:
        name = hashlib.sha256(repr((part, key, _code())).encode()).hexdigest()
        path = _kept_in() / f"{name}.json"
        _IN_PROCESS[part, key] = _read(path) or _written(path, measure())
    return _IN_PROCESS[part, key]


def _kept_in() -> Path:
    for variable, below in (("SCALEVEC_ESTIMATES_DIR", "."), ("SCALEVEC_CACHE_DIR", "estimates")):
        if variable in os.environ:
            return Path(os.environ[variable], below)
    # As platformdirs has it on Linux, which a machine that only trains need not have.
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (no home, no error)
    return Path(caches, "scalevec", "estimates")


def _read(path: Path) -> Sizes | None:
    """The sizes in ``path``; None where they cannot be had, or are not what was written."""
    with suppress(OSError, ValueError, RecursionError):
        kept = json.loads(path.read_bytes()[:10_000])
        if isinstance(kept, dict) and kept.pop("name", None) == path.stem and kept:
            return kept if all(type(size) is int and size >= 0 for size in kept.values()) else None
    return None


def _written(path: Path, sizes: Sizes) -> Sizes:
    """``sizes``, kept in one go: another process reads all of them or nothing. Without room they are not."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"name": path.stem, **sizes}))
        temporary.replace(path)
    return sizes


@lru_cache(maxsize=1)
def _code() -> str:
    """A digest of what the sizes follow from beside a trial: the code of the model, and torch's version."""
    digest = hashlib.sha256(version("torch").encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
