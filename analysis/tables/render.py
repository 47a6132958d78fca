"""A table of a paper: what it holds, and how it is written as Markdown, LaTeX and CSV.

LaTeX is a float with caption, label and notes, by booktabs, threeparttable and adjustbox.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from scalevec.analysis.errors import DataError, require_choice

PACKAGES = ("adjustbox", "booktabs", "threeparttable")
ONE_COLUMN_PT = 239.0
"""Width of a column of a two-column paper, 3.3 inches; a wider table spans both."""
_CHARACTER_PT, _GAP_PT = 4.3, 6.0
"""At 8 points, and between two columns."""
_MARKS = re.compile(r"([†‡]+)$")
POWER_OF_TEN = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-])0*(\d+)(?!\w|\.\d)")
"""``3.6e+11``, and not a part of a name such as lr3e4."""
_EXPONENT = re.compile(r"\\textasciicircum\{\}(alpha|beta|gamma)\b")
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": r"\ensuremath{-}",
        "<": r"\ensuremath{<}", ">": r"\ensuremath{>}", "|": r"\ensuremath{|}", "±": r"\ensuremath{\pm}",
        "×": r"\ensuremath{\times}", "✓": r"\ensuremath{\checkmark}", "†": r"\dag{}", "‡": r"\ddag{}",
        "–": "--",
    }
)  # fmt: skip
_MARKDOWN_SPECIAL = str.maketrans({"\\": r"\\", "|": r"\|", "*": r"\*"})
_TAG = re.compile("<(?=[A-Za-z/!?])")
"""What Markdown would take for the beginning of a tag; in ``p < 0.001`` it is a sign."""


@dataclass(frozen=True)
class Table:
    """A table of text for people, and the same figures with every digit for programs.

    Attributes:
        title: The caption, without a full stop.
        columns: The heading of each column.
        rows: The cells as text, in the order of ``columns``.
        numeric: Which columns are set flush right.
        notes: Sentences that stand below.
        best: Cells (row, column), counted from zero, that are set in bold.
        breaks: Rows above which a rule stands.
        records: What CSV holds where it is more than the cells: one mapping per row, numbers with every digit
            (losses in nats/token), None for what is not there.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    notes: tuple[str, ...] = ()
    best: frozenset[tuple[int, int]] = frozenset()
    breaks: frozenset[int] = frozenset()
    records: tuple[Mapping[Any, Any], ...] = ()

    def with_columns(self, columns: Sequence[str]) -> "Table":
        """The same with these columns in this order. Raises :class:`DataError` for one it does not have."""
        for name in columns:
            require_choice("column", name, self.columns)
        places = [self.columns.index(name) for name in columns]
        return replace(
            self,
            columns=tuple(columns),
            rows=tuple(tuple(row[at] for at in places) for row in self.rows),
            numeric=tuple(self.numeric[at] for at in places),
            best=frozenset((row, places.index(at)) for row, at in self.best if at in places),
        )


def _markdown(table: Table) -> str:
    def cell(text: str) -> str:
        return " ".join(_TAG.sub("&lt;", text.translate(_MARKDOWN_SPECIAL)).split())

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = line(["---:" if right else "---" for right in table.numeric])
    lines = [line([cell(name) for name in table.columns]), rule]
    for number, row in enumerate(table.rows):
        texts = enumerate(map(cell, row))
        lines.append(line([f"**{text}**" if (number, at) in table.best else text for at, text in texts]))
    return "\n".join([*lines, *(f"\n{cell(note)}" for note in table.notes)]) + "\n"


def _csv(table: Table) -> str:
    records = table.records or [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    plain = [{_plain(name): _plain(value) for name, value in record.items()} for record in records]
    # As objects, so that counts stay whole numbers beside rows without one.
    return str(pd.DataFrame(plain, dtype=object).to_csv(index=False, lineterminator="\n"))


def _plain(value: Any) -> Any:
    """Truth as programs read it, and no text that a spreadsheet would run as a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value


def _text(text: str) -> str:
    shown = POWER_OF_TEN.sub(_power, " ".join(text.split()).translate(_SPECIAL))
    shown = _EXPONENT.sub(r"\\ensuremath{^{\\\1}}", shown)
    return shown.replace(" x ", r" \ensuremath{\times} ")


def _power(match: re.Match[str]) -> str:
    sign = "-" if match[2] == "-" else ""
    return rf"\ensuremath{{{match[1]}\times10^{{{sign}{match[3]}}}}}"


def _cell(text: str, *, is_best: bool) -> str:
    # Marks take no room, so that they move no number out of its column.
    number, *marks = _MARKS.split(text)
    shown = rf"\textbf{{{_text(number)}}}" if is_best else _text(number)
    shown += rf"\rlap{{{_text(marks[0])}}}" if marks else ""
    # A bracket at the start of a row would be the optional argument of what ends the row above.
    return f"{{{shown}}}" if shown.startswith("[") else shown


def _latex(table: Table) -> str:
    """Return ``table`` as a float, as wide as one or two columns of a paper and never wider."""
    longest = (max(map(len, texts)) for texts in zip(table.columns, *table.rows, strict=True))
    width = sum(_CHARACTER_PT * characters + _GAP_PT for characters in longest)
    float_ = "table" if width <= ONE_COLUMN_PT else "table*"
    label = re.sub(r"[^a-z0-9]+", "-", table.title.partition(" (")[0].lower()).strip("-")
    rows = []
    for number, row in enumerate(table.rows):
        rows += [r"\midrule"] if number in table.breaks else []
        rows.append(_line([_cell(text, is_best=(number, at) in table.best) for at, text in enumerate(row)]))
    symbols = ",amssymb" if any("✓" in text for row in table.rows for text in row) else ""
    notes = [rf"\item {_text(note)}" for note in table.notes]
    return "\n".join(
        [
            rf"% needs \usepackage{{{','.join(PACKAGES)}{symbols}}}",
            rf"\begin{{{float_}}}[tb]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{_text(table.title)}}}\label{{tab:{label}}}",
            r"\begin{adjustbox}{max width=\linewidth}",
            r"\begin{threeparttable}",
            rf"\begin{{tabular}}{{{' '.join('r' if right else 'l' for right in table.numeric)}}}",
            r"\toprule",
            _line([_text(name) for name in table.columns]),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *([r"\begin{tablenotes}[flushleft]\footnotesize", *notes, r"\end{tablenotes}"] if notes else []),
            r"\end{threeparttable}",
            r"\end{adjustbox}",
            rf"\end{{{float_}}}",
            "",
        ]
    )


def _line(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": _markdown, "csv": _csv, "latex": _latex}


def render(table: Table, form: str, *, columns: Sequence[str] | None = None) -> str:
    """Write a table as text.

    Args:
        table: The table, as of :func:`table`.
        form: One of :data:`FORMATS`: ``markdown``, ``latex`` (a float with caption, label and notes) or
            ``csv`` (every digit).
        columns: Headings of the columns to show, in this order; all without it.

    Returns:
        The text, ready to be saved or pasted.

    Raises:
        DataError: Another format or column; ``columns`` for CSV, which has everything.
    """
    require_choice("format", form, FORMATS)
    if form == "csv" and columns:
        raise DataError("columns are chosen for markdown and latex; csv has every one")
    return FORMATS[form](table.with_columns(columns) if columns else table)
