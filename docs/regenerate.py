"""Regenerates what the README shows of the quickstart sweep from its kept results: ``make readme``.

The results are those of one real run (``scalevec demo``), kept in ``benchmarks/reference/quickstart``:

    scalevec results quickstart > benchmarks/reference/quickstart/results.csv
    cp runs/sweeps/quickstart/tuning.json benchmarks/reference/quickstart/
"""

import json
from pathlib import Path

import analysis
from analysis.comparison import Comparison
from analysis.data import checked, completed_rows
from analysis.figures import page as figures
from analysis.figures.style import arm_styles
from analysis.settings import FitSettings
from analysis.subjects import comparison_arms

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / "benchmarks" / "reference" / "quickstart"
README = CHECKOUT / "README.md"
FIGURES = CHECKOUT / "docs" / "figures"
BEGIN, END = "<!-- quickstart: begin (make readme) -->", "<!-- quickstart: end -->"
REFERENCE, MARGIN = "baseline", 0.005


def main() -> None:
    """Write the README's block and its figures."""
    FIGURES.mkdir(exist_ok=True)
    for name, svg in drawings().items():
        (FIGURES / f"{name}.svg").write_text(svg, encoding="utf-8")
    README.write_text(with_block(README.read_text(encoding="utf-8"), block()), encoding="utf-8")


def with_block(text: str, new: str) -> str:
    """``text`` with what stands between the marks replaced by ``new``."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def comparisons() -> list[Comparison]:
    """What ``scalevec compare`` says of the kept results."""
    table = analysis.read_table(KEPT / "results.csv")
    return list(analysis.compare(table, reference=REFERENCE, margin=MARGIN))


def block() -> str:
    """Sentences and table, as ``compare`` and ``table`` print them."""
    found = comparisons()
    sentences = "\n".join(f"- {one.sentence} {one.would_change}" for one in found)
    rows = analysis.read_table(KEPT / "results.csv")
    table = analysis.render(analysis.comparison_table(rows, found), "markdown").strip()
    return f"{sentences}\n\n{table}"


def drawings() -> dict[str, str]:
    """Name -> SVG of the README's figures."""
    table = checked(analysis.read_table(KEPT / "results.csv"))
    styles = arm_styles(comparison_arms(table), REFERENCE)
    rows, _ = completed_rows(table)
    choices = json.loads((KEPT / "tuning.json").read_text(encoding="utf-8"))["choices"]
    drawn = {
        "loss": figures.loss_figure(rows, FitSettings(), styles, comparison_arms(table)),
        "differences": figures.difference_figure(comparisons(), styles),
        "tuning": figures.tuning_figure(choices, styles) or "",
    }
    return {f"quickstart-{name}": on_white(svg) for name, svg in drawn.items()}


def on_white(svg: str) -> str:
    """A drawing that stands alone, legible on a page of any colour."""
    return svg.replace("<svg ", '<svg style="background: white" ', 1)


if __name__ == "__main__":
    main()
