"""A plain PyTorch script: a small causal model on generated text. It knows nothing of scalevec."""

import argparse
import json
import math
from pathlib import Path

import torch
from torch import nn

VOCABULARY, LENGTH, BATCH = 32, 32, 16


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def text(sequences: int, generator: torch.Generator) -> torch.Tensor:
    """Sequences in which each symbol follows from the last one, nine times out of ten."""
    symbols = torch.randint(VOCABULARY, (sequences, LENGTH + 1), generator=generator)
    noise = torch.rand(sequences, LENGTH + 1, generator=generator) < 0.1
    for at in range(1, LENGTH + 1):
        follows = (5 * symbols[:, at - 1] + 3) % VOCABULARY
        symbols[:, at] = torch.where(noise[:, at], symbols[:, at], follows)
    return symbols


def loss_on(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Nats per symbol."""
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def main() -> None:
    """Train, and log a row for each step."""
    given = arguments()
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    model: nn.Module = nn.Sequential(
        nn.Embedding(VOCABULARY, given.width),
        nn.Linear(given.width, 4 * given.width),
        nn.GELU(),
        nn.Linear(4 * given.width, given.width),
        nn.Linear(given.width, VOCABULARY),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, weight_decay=given.weight_decay)
    training = torch.Generator().manual_seed(given.seed)
    validation, test = (text(64, torch.Generator().manual_seed(seed)) for seed in (-1, -2))
    given.out.mkdir(parents=True, exist_ok=True)
    steps = math.ceil(given.tokens / (BATCH * LENGTH))
    with (given.out / "log.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            loss = loss_on(model, text(BATCH, training))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            row = {"step": step, "tokens": step * BATCH * LENGTH, "train": loss.item()}
            if step == steps:
                with torch.no_grad():
                    row |= {"val": loss_on(model, validation).item(), "test": loss_on(model, test).item()}
            print(json.dumps(row), file=log, flush=True)


if __name__ == "__main__":
    main()
