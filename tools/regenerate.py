"""Regenerates what the README shows of the quickstart sweep from its kept results: ``make readme``.

The results are those of one real run (``scalevec demo``), kept in ``benchmarks/reference/quickstart``:

    scalevec results quickstart > benchmarks/reference/quickstart/results.csv
    cp runs/sweeps/quickstart/tuning.json benchmarks/reference/quickstart/
"""

import json
from pathlib import Path

from scalevec import analysis

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


def block() -> str:
    """The table of the kept results with the verdicts below it, as ``scalevec table`` prints it."""
    rows = analysis.read_table(KEPT / "results.csv")
    table = analysis.table(rows, "comparison", reference=REFERENCE, margin=MARGIN)
    return analysis.render(table, "markdown").strip()


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
