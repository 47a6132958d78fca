"""Blocks compiled by torch's inductor: equal blocks share one function, later processes the files of it.

The compiled function is the block's in exact arithmetic. Its sums run in another order, so that losses differ
in their last digits from those of uncompiled blocks: one run takes one of them from beginning to end.
"""

import os
from pathlib import Path

import torch

from scalevec.model.decoder import DecoderLayer, Transformer

MOST_VARIANTS = 256
"""Of a function in one process: by shape, with a gradient or without, by model where there are several."""

MOST_COMPILING = 4
"""Processes of one trial that compile for a GPU."""


def compile_blocks(model: Transformer) -> None:
    """Let the training passes of ``model`` go through compiled blocks, compiled when they are first used.

    On a GPU the softmax of the head's loss is compiled too.

    Raises in the first pass where there is no compiler (``devices.missing_compiler``).
    """
    # Beyond its limit torch goes on uncompiled, or gives up.
    torch._dynamo.config.recompile_limit = MOST_VARIANTS
    functions = {
        # One function for each shape: what a shape gives must not depend on those before it.
        block.compilable: torch.compile(block.compilable, dynamic=False, fullgraph=True)
        for block in model.blocks
        if isinstance(block, DecoderLayer)
    }
    for block in model.blocks:
        if isinstance(block, DecoderLayer):
            block.compiled = functions[block.compilable]
    # A processor's cache holds the logits of a slice: there one operation after another is as fast.
    model.fuses_head = model.embedding.is_cuda


def keep_compiled_in(folder: Path, device: str) -> None:
    """Let this process take compiled functions for ``device`` from ``folder`` and keep its own there.

    To be called before anything is compiled. By itself torch compiles in a process for every core of the
    machine, which trials share. For a CPU it gets as many as torch takes threads; Triton, which has some
    dozen kernels to make before a first step on a GPU, gets a few of the cores that this process may use.
    """
    threads = torch.get_num_threads()
    if device == "cuda":
        threads = max(threads, min(MOST_COMPILING, len(os.sched_getaffinity(0))))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
