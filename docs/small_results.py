"""Regenerates the tables of docs/small-results.md from the kept results of the small sweeps: ``make readme``.

The results are those of real runs (``make paper-small``), kept in ``benchmarks/reference/small``. What stands
between the page's marks is made here; the account around them is written by people.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paper
import yaml

import analysis

PAGE = Path(__file__).with_name("small-results.md")
WITH_VERDICTS = ("main", "scaling")
"""Tables under which a verdict stands for each arm; the others judge a family of their own."""


def with_blocks(text: str) -> str:
    """The page ``text`` with the tables of every small sweep as the kept results have them."""
    said: set[str] = set()
    for name in paper.TABLES:
        before, begin, rest = text.partition(f"<!-- {name}: begin (make readme) -->")
        _, end, after = rest.partition(f"<!-- {name}: end -->")
        if not (begin and end):
            raise ValueError(f"{PAGE.name} has no marks for {name}")
        text = f"{before}{begin}\n{_block(name, said)}\n{end}{after}"
    return text


def _block(name: str, said: set[str]) -> str:
    """The tables of one sweep; a note that stands higher up on the page is not repeated."""
    if not (paper.KEPT / name).exists():
        return "Not run yet."
    if name == "theory":
        return f"```\n{(paper.KEPT / name / 'theory.txt').read_text(encoding='utf-8').strip()}\n```"
    return "\n\n".join(_tables(name, said))


def _tables(name: str, said: set[str]) -> Iterator[str]:
    fields = yaml.safe_load((paper.SMALL / f"{name}.yaml").read_text(encoding="utf-8"))
    asked = {"reference": fields["compare"]["reference"], "margin": fields["compare"].get("margin")}
    rows = analysis.read_table(paper.KEPT / name / "results.csv")
    for table in paper.TABLES[name]:
        if table in WITH_VERDICTS:
            yield "\n".join(f"- {one.sentence} {one.would_change}" for one in analysis.compare(rows, **asked))
        shown = analysis.table(rows, table, **asked)
        new = tuple(note for note in shown.notes if note not in said)
        said.update(new)
        yield analysis.render(replace(shown, notes=new), "markdown").strip()


if __name__ == "__main__":
    PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
