"""Regenerates what the README shows of the quickstart sweep from its kept results: ``make readme``.

The results are those of one real run (``scalevec demo``), kept in ``benchmarks/reference/quickstart``:

    scalevec results quickstart > benchmarks/reference/quickstart/results.csv
    cp runs/sweeps/quickstart/tuning.json benchmarks/reference/quickstart/
"""

import json
from pathlib import Path

from scalevec import analysis
from scalevec.analysis.comparison.compare import Comparison

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / "benchmarks" / "reference" / "quickstart"
README = CHECKOUT / "README.md"
FIGURES = CHECKOUT / "docs" / "figures" / "quickstart"
SHOWN = ("loss",)
BEGIN, END = "<!-- quickstart: begin (make readme) -->", "<!-- quickstart: end -->"
REFERENCE, MARGIN = "baseline", 0.005


def main() -> None:
    """Write the README's block and its figure."""
    draw(FIGURES)
    README.write_text(with_block(README.read_text(encoding="utf-8"), block()), encoding="utf-8")


def with_block(text: str, new: str) -> str:
    """``text`` with what stands between the marks replaced by ``new``."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def comparisons() -> list[Comparison]:
    """What ``scalevec compare`` says of the kept results."""
    table = analysis.read_table(KEPT / "results.csv")
    return list(analysis.compare(table, REFERENCE, margin=MARGIN).values())


def block() -> str:
    """Sentences and table, as ``compare`` and ``table`` print them."""
    compared = comparisons()
    sentences = "\n".join(
        f"- {comparison.sentence} With scale: {comparison.with_scale.text}." for comparison in compared
    )
    rows = analysis.read_table(KEPT / "results.csv")
    table = analysis.render(analysis.comparison_table(rows, compared), "markdown").strip()
    return f"{sentences}\n\n{table}"


def draw(folder: Path) -> None:
    """Write the README's figure to ``folder``."""
    choices = json.loads((KEPT / "tuning.json").read_text(encoding="utf-8"))["choices"]
    analysis.write_figures(
        analysis.read_table(KEPT / "results.csv"),
        folder,
        reference=REFERENCE,
        margin=MARGIN,
        only=SHOWN,
        formats=["svg"],
        choices=choices,
    )


if __name__ == "__main__":
    main()
