"""Writes docs/scale-vector-counts.md: the scale-vector parameters of every strategy at every size.

    python tools/scale_vector_counts.py

All numbers are closed forms (``scalevec.model.estimate.accounting``); nothing is built or trained.
"""

from dataclasses import replace
from pathlib import Path

from scalevec.model.config import ModelConfig
from scalevec.model.estimate.accounting import ParameterCounts, count_parameters
from scalevec.model.strategies import PRESETS, ScaleVectorStrategy
from scalevec.sweeps import ladders

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale-vector-counts.md"
VOCABULARY = 50_304
SIZES = tuple(name for name in ladders.PRESETS if not name.startswith(("tiny", "moe")))
MIXTURES = tuple(name for name in ladders.PRESETS if name.startswith("moe-") and "tiny" not in name)
PAPER_SIZE = "1b"
PAPER = {"total": 1_028_065_024, "scale_vectors": 80_640}
"""Of the paper's Llama-1B (arXiv 2605.26895)."""
PAPER_UNIFIED = 119.85e6
"""What the paper gives for unified at 0.12B (section 4.4), to five digits."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def counts(size: str, strategy: ScaleVectorStrategy, architecture: str = "llama") -> ParameterCounts:
    """The parameters of the preset ``size`` with the paper's vocabulary and untied embeddings."""
    preset = ladders.PRESETS[size]
    return count_parameters(
        ModelConfig(preset.shape, VOCABULARY, strategy, architecture, experts=preset.experts)
    )


def share(counted: ParameterCounts) -> float:
    """Scale vectors over all parameters."""
    return counted.scale_vectors / counted.total


def more(name: str) -> float:
    """By what share of the baseline's parameters the strategy ``name`` is larger, at the paper's size."""
    baseline = counts(PAPER_SIZE, PRESETS["baseline"])
    return (counts(PAPER_SIZE, PRESETS[name]).total - baseline.total) / baseline.total


def mixture_strategies() -> dict[str, ScaleVectorStrategy]:
    """The presets, and unified with vectors of its own for each expert."""
    vectors_per_expert = replace(PRESETS["unified"], experts="own")
    return {**PRESETS, "unified, `experts: own`": vectors_per_expert}


def page() -> str:
    """The whole page."""
    paper = counts(PAPER_SIZE, PRESETS["baseline"])
    smallest, unified = (counts("0.12b", PRESETS[name]) for name in ("baseline", "unified"))
    all_with_magnitudes = PAPER["scale_vectors"] + 2 * ladders.PRESETS[PAPER_SIZE].shape.layers + 1
    return f"""# How many parameters scale vectors are

Made by `python tools/scale_vector_counts.py` from `scalevec.model.estimate.accounting`, which
the tests hold against the models themselves. The sizes are the presets of `sweeps/ladders.py`; vocabulary
{VOCABULARY:,}, untied embeddings. In brackets: the share of all parameters.

The paper (arXiv 2605.26895) gives for its Llama-1B {PAPER["total"]:,} parameters,
{PAPER["scale_vectors"]:,} of them scale vectors. The preset `{PAPER_SIZE}` has {paper.total:,} and
{paper.scale_vectors:,}. At 0.12B it gives 0.11974B for the baseline and {PAPER_UNIFIED / 1e9:.5f}B for its
unified design (section 4.4); the presets `baseline` and `unified` have {smallest.total:,} and
{unified.total:,} there. What it says of 1B, {_short(all_with_magnitudes / PAPER["total"])} more, contradicts
that: it is the share of *all* vectors of the baseline with one magnitude each, {all_with_magnitudes:,} of
{PAPER["total"]:,}.

## Llama

{_table(SIZES, PRESETS, "llama")}

More than the baseline, as a share of its parameters, at `{PAPER_SIZE}`:

{_more_table()}

## Gemma style

Norms behind the sublayers and on queries and keys have output-norm vectors of their own.

{_table(SIZES, PRESETS, "gemma")}

## Mixtures of experts (Llama)

The routed experts of a layer share their vectors (`experts: shared`) unless the row says otherwise; shares
are of the parameters of all experts.

{_table(MIXTURES, mixture_strategies(), "llama")}
"""


def _table(sizes: tuple[str, ...], strategies: dict[str, ScaleVectorStrategy], architecture: str) -> str:
    rows = [
        [name, *(_cell(counts(size, strategy, architecture)) for size in sizes)]
        for name, strategy in strategies.items()
    ]
    return _markdown(["strategy", *sizes], rows)


def _cell(counted: ParameterCounts) -> str:
    return f"{counted.scale_vectors:,} ({_short(share(counted))})" if counted.scale_vectors else "0"


def _more_table() -> str:
    rows = [[name, _short(more(name))] for name in PRESETS if more(name) > 0]
    return _markdown(["strategy", "more"], rows)


def _short(value: float) -> str:
    """``7.84e-5``."""
    digits, _, exponent = f"{value:.2e}".partition("e")
    return f"{digits}e{int(exponent)}"


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
