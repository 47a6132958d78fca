"""Regenerate what is made from the kept results of the small sweeps: ``make readme``.

That is the tables of docs/small-results.md, and tables and figures beside the results themselves.

The results are those of real runs (``make paper-small``), kept in ``benchmarks/reference/small``. What stands
between the page's marks is made here; the account around them is written by people.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paper

from scalevec import analysis, sweeps
from scalevec.results.sweep_folder import SweepFolder

if TYPE_CHECKING:
    import pandas as pd

PAGE = Path(__file__).resolve().parents[1] / "docs" / "small-results.md"
WITH_VERDICTS = ("main", "scaling")
"""Tables under which a verdict stands for each arm; the others judge a family of their own."""


def with_blocks(text: str) -> str:
    """The page ``text`` with the tables of every small sweep as the kept results have them."""
    notes_above: set[str] = set()
    for name in paper.TABLES:
        before, begin, rest = text.partition(f"<!-- {name}: begin (make readme) -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not (begin and end):
            raise ValueError(f"{PAGE.name} has no marks for {name}")
        text = f"{before}{begin}\n{_block(name, notes_above)}\n{end}{after}"
    return text


def _block(name: str, notes_above: set[str]) -> str:
    """The tables of one sweep; a note that stands higher up on the page is not repeated."""
    if not (paper.KEPT / name).exists():
        return "Not run yet."
    if name == "theory":
        return f"```\n{(paper.KEPT / name / 'theory.txt').read_text(encoding='utf-8').strip()}\n```"
    return "\n\n".join(_tables(name, notes_above))


def _source(name: str) -> tuple["pd.DataFrame", dict[str, Any]]:
    """Return the kept rows of a sweep, with the reference and options of its file."""
    compare = sweeps.load(paper.SMALL / f"{name}.yaml").compare
    options = {"reference": compare.reference, "options": compare.options()}
    rows = analysis.read_table(paper.KEPT / name / "results.csv")
    rows.attrs["predictions"] = SweepFolder(paper.KEPT / name).predictions()
    return rows, options


def _tables(name: str, notes_above: set[str]) -> Iterator[str]:
    rows, options = _source(name)
    for table in paper.TABLES[name]:
        if table in WITH_VERDICTS or rows.attrs["predictions"]:
            yield "\n".join(f"- {sentence}" for sentence in _sentences(rows, options, table))
        shown = analysis.table(rows, table, **options)
        new = tuple(note for note in shown.notes if note not in notes_above)
        notes_above.update(new)
        yield analysis.render(replace(shown, notes=new), "markdown").strip()


def _sentences(rows: "pd.DataFrame", options: Mapping[str, Any], table: str) -> Iterator[str]:
    """The verdicts of a table that has them, and what was predicted beside what was seen."""
    compared = analysis.compare(rows, **options)
    if table in WITH_VERDICTS:
        yield from (f"{comparison.sentence} {comparison.would_change}" for comparison in compared)
    yield from (prediction.sentence for comparison in compared for prediction in comparison.predictions)


def write_kept(name: str, folder: Path) -> None:
    """Write the tables and figures of a sweep to ``folder``, as far as its kept results give them.

    Figures of what runs recorded (curves, vectors, tuning, theory) need the runs themselves.
    """
    rows, options = _source(name)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for table in paper.TABLES[name]:
        shown = analysis.table(rows, table, **options)
        for form, ending in paper.FORMATS.items():
            text = analysis.render(shown, form)
            text = _with_six_digits(text) if form == "csv" else text
            (folder / f"{table}.{ending}").write_text(text, encoding="utf-8")
    analysis.write_figures(rows, folder / "figures", formats=["svg"], **options)


def _with_six_digits(text: str) -> str:
    """Return ``text`` with six significant digits: the last of seventeen differ between processors."""
    return re.sub(r"-?\d+\.\d{5,}(?:e[-+]\d+)?", lambda number: f"{float(number[0]):.6g}", text)


def main() -> None:
    """Write the page, and beside the kept results what is made from them."""
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name in paper.TABLES:
        # A sweep that has not been run yet has nothing to be written from.
        if (paper.KEPT / name / "results.csv").is_file():
            write_kept(name, paper.KEPT / name)


if __name__ == "__main__":
    main()
