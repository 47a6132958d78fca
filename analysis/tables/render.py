"""Tables as Markdown, LaTeX (booktabs) and CSV; the same bytes every time."""

import csv
import io
from collections.abc import Callable, Sequence
from itertools import groupby

from scalevec.analysis.errors import require_choice
from scalevec.analysis.tables.content import Table

_MARKDOWN_SPECIAL = str.maketrans({"\\": r"\\", "|": r"\|", "*": r"\*", "<": "&lt;"})


def _markdown(table: Table) -> str:
    def cell(text: str) -> str:
        escaped = text.translate(_MARKDOWN_SPECIAL)
        return " ".join(escaped.split())

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def row(number: int) -> str:
        cells = enumerate(map(cell, table.rows[number]))
        return line([f"**{text}**" if (number, column) in table.best else text for column, text in cells])

    headings = [f"{group}: {name}" if group else name for group, name in _headings(table)]
    rule = line(["---:" if right else "---" for right in table.numeric])
    lines = [line([cell(name) for name in headings]), rule, *map(row, range(len(table.rows)))]
    notes = [f"\n{cell(note)}" for note in table.notes]
    return "\n".join([*lines, *notes]) + "\n"


def _headings(table: Table) -> list[tuple[str, str]]:
    """Group and name of each column."""
    return list(zip(table.groups or [""] * len(table.columns), table.columns, strict=True))


def _csv(table: Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    if table.records:
        names = list(dict.fromkeys(name for record in table.records for name in record))
        writer.writerow(map(_no_formula, names))
        writer.writerows([_plain(record.get(name)) for name in names] for record in table.records)
    else:
        writer.writerow(map(_no_formula, table.columns))
        writer.writerows([_ascii_minus(row, table.numeric) for row in table.rows])
    return buffer.getvalue()


def _plain(value: object) -> object:
    """Truth as programs read it; the csv module writes None as nothing and floats with every digit."""
    if isinstance(value, str):
        return _no_formula(value)
    return str(value).lower() if isinstance(value, bool) else value


def _no_formula(text: str) -> str:
    """A name that a spreadsheet would run as a formula gets an apostrophe, which keeps it text."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _ascii_minus(row: Sequence[str], numeric: Sequence[bool]) -> list[str]:
    """Numbers that programs can read; names stay as they are."""
    cells = zip(row, numeric, strict=True)
    return [text.replace("−", "-") if is_n else _no_formula(text) for text, is_n in cells]


_LATEX_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": r"\ensuremath{-}",
        "<": r"\ensuremath{<}", ">": r"\ensuremath{>}", "|": r"\ensuremath{|}", "±": r"\ensuremath{\pm}",
        "×": r"\ensuremath{\times}", "✓": r"\ensuremath{\checkmark}", "†": r"\dag{}", "‡": r"\ddag{}",
        "–": "--", "*": r"\textsuperscript{*}",
    }
)  # fmt: skip


def _in_latex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX_SPECIAL)


def _latex(table: Table) -> str:
    """A ``tabular`` with the rules of the booktabs package, the notes below it."""
    body = []
    for number, cells in enumerate(table.rows):
        if number in table.breaks:
            body.append(r"\midrule")
        body.append(_latex_line(_bold(table, number, [_in_latex(text) for text in cells])))
    alignment = "".join("r" if right else "l" for right in table.numeric)
    lines = [
        f"% needs {_packages(body)}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        *_group_lines(table.groups),
        _latex_line([_in_latex(name) for name in table.columns]),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip{{\footnotesize {_in_latex(note)}\par}}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def _packages(body: Sequence[str]) -> str:
    marks = any(r"\checkmark" in line for line in body)
    return r"\usepackage{booktabs}" + (r" and \usepackage{amssymb}" if marks else "")


def _bold(table: Table, number: int, cells: list[str]) -> list[str]:
    return [
        rf"\textbf{{{text}}}" if (number, column) in table.best else text for column, text in enumerate(cells)
    ]


def _latex_line(cells: Sequence[str]) -> str:
    # A bracket at the start of a row would be the optional argument of what ends the row above.
    first = f"{{{cells[0]}}}" if cells[0].startswith("[") else cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"


def _group_lines(groups: Sequence[str]) -> list[str]:
    """The headings over groups of columns, and a rule under each."""
    if not any(groups):
        return []
    cells, rules, start = [], [], 1
    for name, members in groupby(groups):
        width = len(list(members))
        if name:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_in_latex(name)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        else:
            cells += [""] * width
        start += width
    return [_latex_line(cells), " ".join(rules)]


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": _markdown, "csv": _csv, "latex": _latex}


def render(table: Table, form: str) -> str:
    """Write a table as text.

    Args:
        table: The table, as of :func:`table`.
        form: One of :data:`FORMATS`: ``markdown``, ``latex`` (booktabs) or ``csv`` (every digit).

    Returns:
        The text, ready to be saved or pasted.

    Raises:
        DataError: Another format.
    """
    require_choice("format", form, FORMATS)
    return FORMATS[form](table)
