"""Regenerate what is made from the kept results of the small sweeps: ``make readme``.

That is the tables and verdicts of docs/findings.md, and tables and figures beside the results themselves.

The results are those of real runs (``make paper-small``), kept in ``benchmarks/reference/small``. What stands
between the page's marks is made here; the account around them is written by people.
"""

import json
from pathlib import Path

import findings
import paper

from scalevec import analysis
from scalevec.orchestrator.commands.analyse.theory import theory_text
from scalevec.results.sweep_folder import SweepFolder

PAGE = Path(__file__).resolve().parents[1] / "docs" / "findings.md"
WITHOUT_VERDICTS = ("overhead", "theory")


def with_blocks(text: str) -> str:
    """The page ``text`` with its tables, and the verdicts of each sweep, as the kept results have them."""
    blocks = {"claims": findings.table()}
    for name in paper.TABLES:
        if name not in WITHOUT_VERDICTS:
            told = "\n".join(f"- {sentence}" for sentence in findings.sentences(name))
            blocks[name] = told or "Not run yet."
    for name, block in blocks.items():
        before, begin, rest = text.partition(f"<!-- {name}: begin (make readme) -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not (begin and end):
            raise ValueError(f"{PAGE.name} has no marks for {name}")
        text = f"{before}{begin}\n{block}\n{end}{after}"
    return text


def write_kept(name: str, folder: Path) -> None:
    """Write the tables and figures of a sweep to ``folder``, as far as its kept results give them.

    Of a sweep whose runs recorded nothing that is kept there are no curves, vectors and theory.
    """
    kept = paper.KEPT / name
    rows, options = findings.kept_rows(name), findings.question(name)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for table in paper.TABLES[name]:
        shown = analysis.table(rows, table, **options)
        for form, ending in paper.FORMATS.items():
            text = analysis.render(shown, form)
            text = paper.with_five_digits(text) if form == "csv" else text
            (folder / f"{table}.{ending}").write_text(text, encoding="utf-8")
    if (kept / "theory.json").is_file():
        text = theory_text(json.loads((kept / "theory.json").read_text(encoding="utf-8")))
        (folder / "theory.txt").write_text(f"{text}\n", encoding="utf-8")
    choices = (SweepFolder(kept).tuning() or {}).get("choices", ())
    recorded = paper.measured(kept, rows)
    for path in (folder / "figures").glob("*.svg"):
        path.unlink()
    analysis.write_figures(rows, folder / "figures", formats=["svg"], choices=choices, **recorded, **options)


def main() -> None:
    """Write the page, and beside the kept results what is made from them."""
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name in paper.TABLES:
        if findings.is_evidence(name):
            write_kept(name, paper.KEPT / name)


if __name__ == "__main__":
    main()
