"""Regenerates what pages show of kept results: ``make readme``.

The README has the answer to an export, docs/demo.md the quickstart sweep. Its results are those of one real
run (``scalevec demo``), kept in ``benchmarks/reference/quickstart``:

    scalevec results quickstart > benchmarks/reference/quickstart/results.csv
    cp runs/sweeps/quickstart/tuning.json benchmarks/reference/quickstart/
"""

import json
from pathlib import Path

from scalevec import analysis
from scalevec.orchestrator.commands.analyse.compare import compare

CHECKOUT = Path(__file__).resolve().parents[1]
KEPT = CHECKOUT / "benchmarks" / "reference" / "quickstart"
README, DEMO = CHECKOUT / "README.md", CHECKOUT / "docs" / "demo.md"
EXPORT = CHECKOUT / "docs" / "examples" / "wandb_export.csv"
ARM = "config.norm"
FIGURES = CHECKOUT / "docs" / "figures" / "quickstart"
SHOWN = ("loss",)
REFERENCE, MARGIN = "baseline", 0.005


def main() -> None:
    """Write the answer in the README, and the demo's table and figure."""
    draw(FIGURES)
    for path, name, new in ((README, "answer", answer()), (DEMO, "quickstart", block())):
        path.write_text(with_block(path.read_text(encoding="utf-8"), name, new), encoding="utf-8")


def with_block(text: str, name: str, new: str) -> str:
    """``text`` with what stands between the marks of ``name`` replaced by ``new``."""
    begin, end = f"<!-- {name}: begin (make readme) -->", f"<!-- {name}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{new}\n{end}{after}"


def answer() -> str:
    """What ``scalevec compare`` prints of an export, up to the table of verdicts."""
    text = compare(str(EXPORT), reference="one-vector", maps=[f"arm={ARM}"]).text
    assert callable(text)
    shown, _, _ = text().partition("\nWith --verbose")
    return f"```text\n{shown}\n```"


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
