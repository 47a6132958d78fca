"""Tokens per second of a whole training step (forward, backward, clipping, AdamW), ours against transformers.

    OMP_NUM_THREADS=1 python benchmarks/training_step.py --widths 64 128 256 512

Hugging Face's Llama has the same shape, data, loss and optimizer. All contestants of a width take turns
step by step within one run, and medians are compared, so that a busy machine slows all of them alike. With
``--compiled`` each takes part twice, as it is and compiled, and the faster of the two is compared. Needs the
extra ``bench``.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.decoder import Transformer, initialise
from scalevec.model.strategies import PRESETS
from scalevec.model.train.step import compile_blocks

LAYERS = {32: 2, 48: 3, 64: 3, 96: 4, 128: 4, 192: 5, 256: 4, 512: 4}
ARMS = ("baseline", "unified", "unified-dp")
PEER = "transformers"
COMPILED = ", compiled"
STATED = ("threads", "precision", "optimizer", "compiled", "vocabulary", "sequences", "length")
"""The options that stand beside the figures."""

Step = Callable[[], None]


def shape_of(width: int) -> Shape:
    """The benchmarked shape: heads of 16 to 64 channels, a feed-forward of 8/3 of the width."""
    heads = width // min(64, max(16, width // 4))
    return Shape(width, LAYERS[width], heads, heads, width * 8 // 3)


def training_step(model: nn.Module, loss: Callable[[], Tensor], options: argparse.Namespace) -> Step:
    """One whole step of ``model`` under AdamW in torch's implementation (fused or foreach)."""
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), **{options.optimizer: True})

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bfloat16"):
            of_batch = loss()
        of_batch.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    return step


def our_step(arm: str, width: int, data: Tensor, options: argparse.Namespace, *, compiled: bool) -> Step:
    """A step of our model with the scale vectors of ``arm``."""
    model = Transformer(ModelConfig(shape_of(width), options.vocabulary, PRESETS[arm]))
    initialise(model, seed=0)
    if compiled:
        compile_blocks(model)
    tokens, targets = data[:, :-1], data[:, 1:]
    return training_step(model, lambda: model.training_loss(tokens, targets)[0], options)


def peer_step(width: int, data: Tensor, options: argparse.Namespace, *, compiled: bool) -> Step:
    """A step of transformers' Llama of the same shape, attention by torch's SDPA, its own loss."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = shape_of(width)
    fields: dict[str, Any] = {
        "vocab_size": options.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": options.length,
        "tie_word_embeddings": False,
        "use_cache": False,
        "attn_implementation": "sdpa",
    }
    model: Any = LlamaForCausalLM(LlamaConfig(**fields)).train()
    if compiled:
        model.compile(dynamic=False)
    tokens = data[:, :-1].contiguous()
    return training_step(model, lambda: model(input_ids=tokens, labels=tokens).loss, options)


def take_turns(steps: dict[str, Step], repeats: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each step in turn: ``repeats`` rounds, fewer after ``seconds`` but at least three."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(2):
        for step in steps.values():
            step()
    began = time.perf_counter()
    for done in range(repeats):
        if done >= 3 and time.perf_counter() - began > seconds:
            break
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return times


def measure(width: int, options: argparse.Namespace) -> dict[str, Any]:
    """Median tokens per second of all contestants at one width, and the ratios of each one's faster way."""
    generator = torch.Generator().manual_seed(width)
    size = (options.sequences, options.length + 1)
    data = torch.randint(options.vocabulary, size, generator=generator)
    steps: dict[str, Step] = {}
    for compiled in (False, True) if options.compiled else (False,):
        suffix = COMPILED * compiled
        steps[PEER + suffix] = peer_step(width, data, options, compiled=compiled)
        steps |= {arm + suffix: our_step(arm, width, data, options, compiled=compiled) for arm in ARMS}
    times = take_turns(steps, options.repeats, options.seconds)
    tokens = options.sequences * options.length
    speed = {name: tokens / statistics.median(seconds) for name, seconds in times.items()}
    best = {name: max(speed[name], speed.get(name + COMPILED, 0.0)) for name in (PEER, *ARMS)}
    return {
        "width": width,
        "layers": LAYERS[width],
        "rounds": len(times[PEER]),
        "tokens_per_s": speed,
        "baseline_over_transformers": best["baseline"] / best[PEER],
        "unified_over_baseline": best["unified"] / best["baseline"],
        "unified_dp_over_baseline": best["unified-dp"] / best["baseline"],
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The rows as lines of a Markdown table."""
    titles = (
        "width x layers",
        PEER,
        "baseline",
        "ratio",
        "unified / baseline",
        "unified-dp / baseline",
        "rounds",
    )
    yield "| " + " | ".join(titles) + " |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        yield (
            f"| {row['width']} x {row['layers']} | {_both(row, PEER)} | {_both(row, 'baseline')} "
            f"| {row['baseline_over_transformers']:.3f} | {row['unified_over_baseline']:.3f} "
            f"| {row['unified_dp_over_baseline']:.3f} | {row['rounds']} |"
        )


def _both(row: dict[str, Any], name: str) -> str:
    """Tokens per second as it is, and compiled where that was measured."""
    speed = row["tokens_per_s"]
    return ", ".join(f"{speed[way]:,.0f}" for way in (name, name + COMPILED) if way in speed)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512], choices=sorted(LAYERS))
    parser.add_argument("--repeats", type=int, default=100, help="rounds at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for one width, about")
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--optimizer", choices=("fused", "foreach"), default="fused", help="AdamW of torch")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--compiled", action="store_true", help="each contestant compiled too")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    return parser.parse_args()


def main() -> None:
    """Measure every width and print the table."""
    options = arguments()
    torch.set_num_threads(options.threads)
    rows = [measure(width, options) for width in options.widths]
    how = {"torch": torch.__version__} | {name: getattr(options, name) for name in STATED}
    print(", ".join(f"{name} {value}" for name, value in how.items()) + "\n")
    print("\n".join(table(rows)))
    if options.json is not None:
        options.json.write_text(json.dumps({**how, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
