"""The loss over a whole split."""

import math

import numpy as np
import torch

from scalevec.model.training.corpora.batches import evaluation_batches
from scalevec.model.transformer import Transformer


@torch.no_grad()
def evaluate(model: Transformer, tokens: np.ndarray, sequence_length: int, batch_sequences: int) -> float:
    """Mean loss of ``model`` in nats/token over every target of ``tokens``, each counted once.

    Windows do not overlap, so a token sees at most the ``sequence_length`` tokens before it.
    """
    device = next(model.parameters()).device
    losses, count = [], 0
    for inputs, targets in evaluation_batches(tokens, sequence_length, batch_sequences):
        losses.append(model.loss(inputs.to(device), targets.to(device), reduction="sum").double().item())
        count += targets.numel()
    return math.fsum(losses) / count
