"""The parameters of scale vectors that docs/models.md gives are those of the models, and the paper's."""

import re

import torch

from scalevec.model.config import ModelConfig, Shape
from scalevec.model.decoder import Transformer, parameter_roles
from scalevec.model.strategies import PRESETS, ScaleVectorStrategy
from support import CHECKOUT

SHAPES = (Shape(768, 6, 12, 12, 2048), Shape(1792, 22, 28, 28, 4778))
"""Of the paper's Llama-0.12B and Llama-1B (table 4)."""
VOCABULARY = 50_304


def counts(shape: Shape, strategy: ScaleVectorStrategy) -> tuple[int, int]:
    """All parameters, and those of scale vectors."""
    with torch.device("meta"):
        model = Transformer(ModelConfig(shape, VOCABULARY, strategy))
    roles = parameter_roles(model)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    vectors = [size for name, size in sizes.items() if roles[name].startswith("scale_vector")]
    return sum(sizes.values()), sum(vectors)


def row(strategy: ScaleVectorStrategy) -> list[str]:
    """The cells of a strategy: at each shape its vectors and what the model has beyond the baseline."""
    cells = []
    for shape in SHAPES:
        (total, vectors), (of_baseline, _) = counts(shape, strategy), counts(shape, PRESETS["baseline"])
        share = f"{(total - of_baseline) / of_baseline:+.2e}".replace("e-0", "e-").replace("-", "−")
        cells += [f"{vectors:,}", "0" if total == of_baseline else share]
    return cells


def test_the_table_of_the_page_has_every_preset_with_the_counts_of_its_model():
    text = (CHECKOUT / "docs" / "models.md").read_text(encoding="utf-8")
    section = text.split("### How many parameters")[1].split("\n## ")[0]
    written = {}
    for line in re.findall(r"^\| (`.*) \|$", section, flags=re.MULTILINE):
        names, *cells = line.split(" | ")
        written |= dict.fromkeys(re.findall(r"`([\w-]+)`", names), cells)
    assert written == {name: row(strategy) for name, strategy in PRESETS.items()}
