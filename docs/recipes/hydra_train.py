"""A Hydra app, a small causal model on generated text: its optimizer is a config group, the rest values."""

import json
from pathlib import Path

import hydra
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from torch import nn

VOCABULARY, LENGTH, BATCH = 32, 32, 16

store = ConfigStore.instance()
defaults = ["_self_", {"optimizer": "adamw"}]
store.store(name="config", node={"defaults": defaults, "width": 16, "steps": 10, "seed": 0})
for name in ("AdamW", "NAdam"):
    node = {"_target_": f"torch.optim.{name}", "lr": 0.01, "weight_decay": 0.0}
    store.store(group="optimizer", name=name.lower(), node=node)


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


@hydra.main(version_base="1.3", config_path=None, config_name="config")
def main(config: DictConfig) -> None:
    """Train, and log a row for each step to the folder that Hydra gives the run."""
    torch.manual_seed(config.seed)
    sizes = (config.width, 4 * config.width, config.width)
    layers = [nn.Embedding(VOCABULARY, sizes[0]), nn.Linear(*sizes[:2]), nn.GELU(), nn.Linear(*sizes[1:])]
    model = nn.Sequential(*layers, nn.Linear(config.width, VOCABULARY))
    optimizer = hydra.utils.instantiate(config.optimizer, model.parameters())
    training, *others = (torch.Generator().manual_seed(seed) for seed in (config.seed, -1, -2))
    validation, test = (text(64, generator) for generator in others)
    with Path(HydraConfig.get().runtime.output_dir, "log.jsonl").open("w") as log:
        for step in range(1, config.steps + 1):
            loss = loss_on(model, text(BATCH, training))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            row = {"step": step, "tokens": step * BATCH * LENGTH, "train": loss.item()}
            if step == config.steps:
                row |= {"val": loss_on(model, validation).item(), "test": loss_on(model, test).item()}
            print(json.dumps(row), file=log, flush=True)


if __name__ == "__main__":
    main()
