"""Runs nanochat's scripts/base_train.py with a seed, a log of JSON lines, and from its last checkpoint."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from nanochat import common

parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--resume", action="store_true")
given, rest = parser.parse_known_args()
save, seed = torch.save, torch.manual_seed


class WandbRows:
    """Takes the rows that nanochat would send to wandb."""

    def log(self, row: dict[str, Any]) -> None:
        """Add a row."""
        with (given.out / "log.jsonl").open("a") as stream:
            print(json.dumps(row), file=stream)

    def finish(self) -> None:
        """Nothing is left to do."""


def save_whole(content: Any, path: str) -> None:
    """Save under another name first: a kill leaves no half of a checkpoint."""
    save(content, f"{path}.part")
    Path(f"{path}.part").rename(path)


if __name__ == "__main__":
    steps = [int(path.name.split("_")[1]) for path in given.out.glob("optim_*_rank0.pt")]
    last = max(steps, default=-1) if given.resume else -1
    sys.argv[1:] = [*rest, f"--model-tag={given.out.resolve()}", f"--resume-from-step={last}"]
    torch.save, torch.manual_seed, common.DummyWandb = save_whole, lambda _: seed(given.seed), WandbRows
    import scripts.base_train  # noqa: F401 (a script that trains when it is imported)
