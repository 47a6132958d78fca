"""One training step of a small model: what ``benchmarks/overhead.py`` waits for. ``first_step.py FOLDER``.

Writes into FOLDER when the step was done.
"""

import sys
import time
from pathlib import Path

import torch

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.transformer import Transformer, initialise

MODEL = ModelConfig(Shape(32, 2, heads=2, kv_heads=2, feed_forward=88), vocabulary_size=1024)


def main() -> None:
    """Train a step on tokens that mean nothing."""
    torch.set_num_threads(1)
    model = Transformer(MODEL)
    initialise(model, 0)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(MODEL.vocabulary_size, (8, 129))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    optimizer.step()
    (Path(sys.argv[1]) / "first").write_text(str(time.time()))


if __name__ == "__main__":
    main()
