"""Text that a trained decoder writes on, token by token; nothing is cached."""

from collections.abc import Iterator

import torch

from scalevec.model.decoder import Transformer


@torch.inference_mode()
def continued(
    model: Transformer, ids: list[int], n_tokens: int, length: int, temperature: float = 0.0, seed: int = 0
) -> Iterator[int]:
    """Yield ``n_tokens`` ids after ``ids``.

    Args:
        model: The trained decoder.
        ids: What was said before; at least one.
        n_tokens: How many more.
        length: The tokens that the model sees at a time, those of its training; earlier ones are forgotten.
        temperature: 0 takes the likeliest; else ids are drawn from the softmax of logits divided by it.
        seed: Of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    ids = list(ids)
    for _ in range(n_tokens):
        logits = model(torch.tensor([ids[-length:]]))[0, -1].float()
        if temperature > 0:
            chosen = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
        else:
            chosen = int(logits.argmax())
        ids.append(chosen)
        yield chosen
