"""Runs OLMo-core's examples/llm/train.py on one device, with a log of JSON lines."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from examples.llm import train as example
from olmo_core.train import prepare_training_environment
from olmo_core.train.callbacks import Callback


@dataclass
class RowsCallback(Callback):
    """Writes a row for each step that the trainer logs."""

    def log_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Add a row."""
        with Path(self.trainer.save_folder, "log.jsonl").open("a") as stream:
            print(json.dumps({"step": step, **metrics}), file=stream)


if __name__ == "__main__":
    config = example.build_config(*example.parser_args())
    config.trainer.add_callback("rows", RowsCallback())
    if not torch.cuda.is_available():
        del config.trainer.callbacks["gpu_monitor"]
    prepare_training_environment(backend=None)
    example.train(config)
