"""A script around the Trainer of Hugging Face: a small Llama on generated text, saved when asked to stop."""

import argparse
import json
import signal
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY, LENGTH, BATCH = 32, 32, 16
STOP_EXIT = 75


class Steps(TrainerCallback):
    """Logs each row as a line of JSON, and stops with a checkpoint once SIGUSR2 has come."""

    def __init__(self, log: Path) -> None:
        self.log, self.stopped = log, False
        signal.signal(signal.SIGUSR2, lambda *_: setattr(self, "stopped", True))

    def on_log(self, args, state, control, logs=None, **_):  # type: ignore[no-untyped-def]
        """Add a row."""
        row = {"step": state.global_step, "tokens": state.global_step * BATCH * LENGTH, **(logs or {})}
        with self.log.open("a") as stream:
            print(json.dumps(row), file=stream)

    def on_step_end(self, args, state, control, **_):  # type: ignore[no-untyped-def]
        """Save and stop, if that was asked for."""
        control.should_save = control.should_training_stop = self.stopped or control.should_training_stop


def text(sequences: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Sequences in which each symbol follows from the last one, nine times out of ten."""
    generator = torch.Generator().manual_seed(seed)
    symbols = torch.randint(VOCABULARY, (sequences, LENGTH), generator=generator)
    noise = torch.rand(sequences, LENGTH, generator=generator) < 0.1
    for at in range(1, LENGTH):
        symbols[:, at] = torch.where(noise[:, at], symbols[:, at], (5 * symbols[:, at - 1] + 3) % VOCABULARY)
    return [{"input_ids": row, "labels": row} for row in symbols]


def main() -> None:
    """Train, evaluate on two splits, and write ``all_results.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("width", "layers", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--decay", type=float, default=0.0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    shape = {"hidden_size": given.width, "intermediate_size": 3 * given.width, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=given.layers, **shape)
    arguments = TrainingArguments(
        given.out,
        max_steps=given.steps,
        per_device_train_batch_size=BATCH,
        learning_rate=given.lr,
        weight_decay=given.decay,
        lr_scheduler_type="cosine",
        seed=given.seed,
        logging_steps=1,
        save_total_limit=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    steps = Steps(Path(given.out) / "log.jsonl")
    data = text(given.steps * BATCH, given.seed)
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=data, callbacks=[steps])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(given.out) if given.resume else None)
    if steps.stopped and trainer.state.global_step < given.steps:
        sys.exit(STOP_EXIT)
    for number, split in enumerate(("validation", "test"), start=10**6):
        trainer.save_metrics(split, trainer.evaluate(text(64, number), metric_key_prefix=split))


if __name__ == "__main__":
    main()
