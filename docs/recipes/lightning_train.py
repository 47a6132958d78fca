"""A Lightning script: a small causal model on generated text, with the log and checkpoints of Lightning."""

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

VOCABULARY, LENGTH, BATCH = 32, 32, 16


class SmallModel(lightning.LightningModule):
    """Predicts a symbol from the last one."""

    def __init__(self, width: int, rate: float, momentum: float) -> None:
        super().__init__()
        self.rate, self.momentum = rate, momentum
        self.layers = nn.Sequential(
            nn.Embedding(VOCABULARY, width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Linear(width, VOCABULARY),
        )

    def loss(self, batch: torch.Tensor, name: str) -> torch.Tensor:
        """Nats per symbol, logged by ``name``."""
        logits = self.layers(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.log(name, loss)
        return loss

    def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
        """One step of training."""
        self.log("tokens", float((self.global_step + 1) * BATCH * LENGTH))
        return self.loss(batch, "train_loss")

    def validation_step(self, batch: torch.Tensor, _index: int) -> None:
        """One batch of validation."""
        self.loss(batch, "val_loss")

    def test_step(self, batch: torch.Tensor, _index: int) -> None:
        """One batch of the test."""
        self.loss(batch, "test_loss")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=self.rate, momentum=self.momentum)


def text(sequences: int, seed: int) -> DataLoader[torch.Tensor]:
    """Sequences in which each symbol follows from the last one, nine times out of ten."""
    generator = torch.Generator().manual_seed(seed)
    symbols = torch.randint(VOCABULARY, (sequences, LENGTH + 1), generator=generator)
    noise = torch.rand(sequences, LENGTH + 1, generator=generator) < 0.1
    for at in range(1, LENGTH + 1):
        symbols[:, at] = torch.where(noise[:, at], symbols[:, at], (5 * symbols[:, at - 1] + 3) % VOCABULARY)
    return DataLoader(symbols, batch_size=BATCH)  # type: ignore[arg-type]


def main() -> None:
    """Train, validate and test."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("width", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    lightning.seed_everything(given.seed)
    keeper = ModelCheckpoint(given.out, save_last=True, every_n_train_steps=10, save_top_k=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=given.steps,
        logger=CSVLogger(given.out, name="", version="", flush_logs_every_n_steps=1),
        log_every_n_steps=1,
        callbacks=[keeper],
        enable_progress_bar=False,
    )
    model = SmallModel(given.width, given.lr, given.momentum)
    last = str(given.out / "last.ckpt") if given.resume else None
    trainer.fit(model, text(given.steps * BATCH, given.seed), text(64, -1), ckpt_path=last)
    trainer.validate(model, text(64, -1))
    trainer.test(model, text(64, -2))


if __name__ == "__main__":
    main()
