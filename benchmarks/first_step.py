"""A trial trained by a bare library: ``first_step.py CORPORA TRIAL FOLDER``, for ``benchmarks/overhead.py``.

CORPORA is the folder of prepared corpora, TRIAL a JSON file of the trial's semantic fields. Writes into
FOLDER when the first step was done. No claim is made and nothing is recorded.
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from scalevec.model.config import RunOptions
from scalevec.model.data.corpus import open_corpus
from scalevec.model.identity import trial_from_fields
from scalevec.model.train.loop import train
from scalevec.model.train.record import SilentRecorder


class FirstStep(SilentRecorder):
    """Keeps the time of the first step alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda: False)
        self.path = folder / "first"

    def record(self, _row: Mapping[str, object]) -> None:
        """Note when the first row came."""
        if not self.path.exists():
            self.path.write_text(str(time.time()))


def main() -> None:
    """Train."""
    corpora, fields, folder = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    trial = trial_from_fields(json.loads(fields.read_text()))
    corpus = open_corpus(corpora, trial.corpus)
    train(trial, corpus, RunOptions(), FirstStep(folder), folder / "checkpoints")


if __name__ == "__main__":
    main()
