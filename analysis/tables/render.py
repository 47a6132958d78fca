"""Tables as Markdown, LaTeX and CSV; the same bytes every time."""

import csv
import io
import re
from collections.abc import Callable, Sequence

from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.tables.content import Table
from scalevec.analysis.tables.latex import in_latex

_MARKDOWN_SPECIAL = str.maketrans({"\\": r"\\", "|": r"\|", "*": r"\*", "<": "&lt;"})
_OF_BLOCKS = re.compile(r"^(?=[-+#>=]|\d+[.)])")
"""What would begin a list, a heading or a quotation at the start of a paragraph."""


def _markdown(table: Table) -> str:
    def cell(text: str) -> str:
        return " ".join(text.translate(_MARKDOWN_SPECIAL).split())

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def row(number: int) -> str:
        cells = enumerate(map(cell, table.rows[number]))
        return line([f"**{text}**" if (number, column) in table.best else text for column, text in cells])

    rule = line(["---:" if right else "---" for right in table.numeric])
    lines = [line([cell(name) for name in table.names]), rule, *map(row, range(len(table.rows)))]
    notes = ["\n" + _OF_BLOCKS.sub(r"\\", cell(note)).replace(r"\|", "|") for note in table.notes]
    return "\n".join([*lines, *notes]) + "\n"


def _csv(table: Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if table.records:
        names = list(dict.fromkeys(name for record in table.records for name in record))
        writer.writerow(map(_no_formula, names))
        writer.writerows([_plain(record.get(name)) for name in names] for record in table.records)
    else:
        writer.writerow(map(_no_formula, table.columns))
        for row in table.rows:
            cells = zip(row, table.numeric, strict=True)
            writer.writerow([text.replace("−", "-") if is_n else _no_formula(text) for text, is_n in cells])
    return buffer.getvalue()


def _plain(value: object) -> object:
    """Truth as programs read it; the csv module writes None as nothing and floats with every digit."""
    if isinstance(value, str):
        return _no_formula(value)
    return str(value).lower() if isinstance(value, bool) else value


def _no_formula(text: str) -> str:
    """A name that a spreadsheet would run as a formula gets an apostrophe, which keeps it text."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": _markdown, "csv": _csv, "latex": in_latex}


def render(
    table: Table, form: str, *, columns: Sequence[str] | None = None, digits: int | None = None
) -> str:
    """Write a table as text.

    Args:
        table: The table, as of :func:`table`.
        form: One of :data:`FORMATS`: ``markdown``, ``latex`` (a float with caption, label and notes) or
            ``csv`` (every digit).
        columns: Headings of the columns to show, in this order, with ``GROUP: `` before one of a group; all
            without it.
        digits: Decimals of losses and differences, fewer than the four that they have.

    Returns:
        The text, ready to be saved or pasted.

    Raises:
        DataError: Another format or column; ``columns`` or ``digits`` for CSV, which has everything.
    """
    require_choice("format", form, FORMATS)
    if form == "csv" and (columns or digits is not None):
        raise DataError("columns and digits are for markdown and latex; csv has every column and digit")
    table = table if digits is None else table.rounded(digits)
    return FORMATS[form](table.with_columns(columns) if columns else table)
