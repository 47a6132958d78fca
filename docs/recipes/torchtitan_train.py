"""Runs torchtitan.train with a Llama 3 of any shape, on files of JSON lines with a field ``text``."""

import argparse
import sys
from dataclasses import replace

from torchtitan import train
from torchtitan.components import data
from torchtitan.components.optimizer import default_adamw
from torchtitan.hf_datasets.text_datasets import TextProcessor
from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer

VOCABULARY = 2048  # of the debug model, whose configuration this changes; the tokenizer has at most so many
parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
for option in ("width", "layers", "heads", "hidden", "lr", "decay"):
    parser.add_argument(f"--{option}", type=float if option in ("lr", "decay") else int, required=True)
given, rest = parser.parse_known_args()


def text(pattern: str) -> data.GrainDataLoader.Config:
    """The lines of the files that ``pattern`` names, packed to the length of the context."""
    source = data.IndexedJsonlSource.Config(patterns=(pattern,))
    lines = data.SingleDatasetConfig(source=source, processor=TextProcessor.Config(), post_filters=(bool,))
    return data.GrainDataLoader.Config(dataset=data.ConcatThenSplitPackingConfig(dataset=lines))


def config() -> Trainer.Config:
    """The debug model's configuration with our shape, rates and text."""
    whole, width = llama3_debugmodel(), given.width
    rope = ComplexRoPE.Config(dim=width // given.heads, max_context_length=131072, theta=500000)
    shape = {"n_layers": given.layers, "dim": width, "n_heads": given.heads, "hidden_dim": given.hidden}
    embedding = {"num_embeddings": VOCABULARY, "embedding_dim": width, "param_init": llama3._EMBEDDING_INIT}
    head = {"in_features": width, "out_features": VOCABULARY, "param_init": llama3._output_linear_init(width)}
    model = llama3.Llama3Model.Config(
        dim=width,
        vocab_size=VOCABULARY,
        tok_embeddings=Embedding.Config(**embedding),
        norm=RMSNorm.Config(normalized_shape=width, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(**head),
        layers=llama3._build_llama3_layers(**shape, rope=rope, attn_backend="flex"),
    )
    whole.model_spec = replace(whole.model_spec, model=model)
    whole.optimizer = default_adamw(lr=given.lr, weight_decay=given.decay)
    whole.dataloader, whole.validator.dataloader = text("data/train*.jsonl"), text("data/val*.jsonl")
    return whole


if __name__ == "__main__":
    sys.argv[1:] = ["--module=__main__", "--config=config", *rest]
    train.main()
