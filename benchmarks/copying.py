"""Whether a trained model copies: its loss on text that it has just read, beside that of the first reading.

    scalevec run benchmarks/copying.yaml      two runs of 310k parameters, a quarter of an hour on two cores
    python benchmarks/copying.py [SWEEP]      a line for each run of a sweep that keeps weights

Windows of 64 tokens of Python source, none of it in the runs' corpus, stand twice in the context. A model
that attends to what followed the same tokens before has a lower loss the second time (an induction head:
Olsson et al., arXiv 2209.11895). The first 16 tokens of each reading are left out: nothing is yet known of
them the first time, and the second time they only show that the text starts again.
"""

import argparse
import difflib
import subprocess
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import scalevec

WINDOW = 64
LEFT_OUT = 16
MODULES: tuple[ModuleType, ...] = (argparse, textwrap, difflib, subprocess)
"""Their sources are the text; another version of Python has another."""


def main() -> None:
    """Print the table of a sweep, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sweep", nargs="?", default="copying")
    parser.add_argument("--runs", default="runs")
    asked = parser.parse_args()
    sweep = scalevec.open(asked.runs).sweep(asked.sweep)
    rows = sweep.results().set_index("trial_id")
    print("| arm | rung | seed | test loss | validation loss | first reading | second reading | windows |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for trial in sweep.trials():
        row = rows.loc[trial.trial_id]
        windows = repeated(trial.tokenizer().encode(_text()))
        first, second = readings(trial.model(), windows)
        losses = " | ".join(f"{loss:.3f}" for loss in (row["loss"], row["loss_validation"], first, second))
        print(f"| {row['arm']} | {row['rung']} | {row['seed']} | {losses} | {len(windows):,} |")


def repeated(tokens: Sequence[int]) -> Tensor:
    """Windows of text, each of which stands twice: [windows, 2 * WINDOW] token ids."""
    whole = len(tokens) // WINDOW * WINDOW
    windows = torch.tensor(tokens[:whole]).view(-1, WINDOW)
    return torch.cat([windows, windows], dim=1)


@torch.no_grad()
def readings(model: torch.nn.Module, windows: Tensor) -> tuple[float, float]:
    """The mean loss of each half of ``windows``, in nats/token, without its beginning."""
    logits = model.eval()(windows)
    losses = cross_entropy(logits[:, :-1].transpose(1, 2), windows[:, 1:], reduction="none")
    # The loss of token t is at t - 1.
    first, second = losses[:, LEFT_OUT : WINDOW - 1], losses[:, WINDOW + LEFT_OUT :]
    return first.mean().item(), second.mean().item()


def _text() -> str:
    return "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in MODULES)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
