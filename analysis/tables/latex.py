"""A table in LaTeX: a float with caption, label and notes; pandas writes the rows.

It asks for booktabs, siunitx (version 2 or later), threeparttable and adjustbox.
"""

import re
from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from scalevec.analysis.tables.content import Table

PACKAGES = ("adjustbox", "booktabs", "siunitx", "threeparttable")
ONE_COLUMN_PT = 239.0
"""Width of a column of a two-column paper, 3.3 inches; a wider table spans both."""
_CHARACTER_PT, _GAP_PT = 4.3, 6.0
"""At 8 points, and between two columns."""
_NUMBER = re.compile(r"([+−-]?)(\d+)\.(\d+)")
_MARKS = re.compile(r"[*†‡]+$")
_POWER_OF_TEN = re.compile(r"(\d+(?:\.\d+)?)e([-+]?)0*(\d+)")
_EXPONENT = re.compile(r"\\textasciicircum\{\}(alpha|beta|gamma)\b")
_SYMBOL = re.compile(r"(?<![\w{\\])([NCD])(?![\w}])")

# pandas escapes for LaTeX too, but leaves the signs beyond ASCII that our cells are full of.
_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": r"\ensuremath{-}",
        "<": r"\ensuremath{<}", ">": r"\ensuremath{>}", "|": r"\ensuremath{|}", "±": r"\ensuremath{\pm}",
        "×": r"\ensuremath{\times}", "✓": r"\ensuremath{\checkmark}", "†": r"\dag{}", "‡": r"\ddag{}",
        "–": "--", "*": r"\textsuperscript{*}",
    }
)  # fmt: skip


def _escaped(text: str) -> str:
    return _POWER_OF_TEN.sub(_power, " ".join(text.split()).translate(_SPECIAL))


def _power(match: re.Match[str]) -> str:
    sign = "-" if match[2] == "-" else ""
    return rf"\ensuremath{{{match[1]}\times10^{{{sign}{match[3]}}}}}"


def _prose(text: str) -> str:
    """A heading, a caption or a note: N, C and D are symbols, an x between words is a product."""
    symbols = _SYMBOL.sub(r"\\ensuremath{\1}", _escaped(text))
    symbols = _EXPONENT.sub(r"\\ensuremath{^{\\\1}}", symbols)
    return symbols.replace(" x ", r" \ensuremath{\times} ")


def _column(cells: Sequence[str], *, is_numeric: bool) -> str:
    """How a column is set: at the point where its numbers stand alone, else flush right, words flush left.

    An interval has the decimals of its estimate, so that flush right they stand below each other too.
    """
    numbers = [match for text in cells if (match := _NUMBER.fullmatch(text))]
    others = [text for text in cells if not _NUMBER.fullmatch(text)]
    if not is_numeric or not numbers or any(re.search(r"\d", text) for text in others):
        return "r" if is_numeric else "l"
    sign = "+" if any(match[1] for match in numbers) else ""
    whole, decimals = (max(len(match[part]) for match in numbers) for part in (2, 3))
    return f"S[table-format={sign}{whole}.{decimals}]"


def _cell(text: str, column: str, *, bold: bool) -> str:
    if column.startswith("S"):
        number = _NUMBER.fullmatch(text)
        if number is None:
            return f"{{{_escaped(text)}}}" if text else ""
        return (r"\bfseries " if bold else "") + text.replace("−", "-")
    # Marks take no room, so that they move no number out of its column.
    marks = _MARKS.search(text) if column == "r" else None
    shown = _escaped(text[: marks.start()]) if marks else _escaped(text)
    shown = rf"\textbf{{{shown}}}" if bold and shown else shown
    shown = rf"{shown}\rlap{{{_escaped(marks[0])}}}" if marks else shown
    # A bracket at the start of a row would be the optional argument of what ends the row above.
    return f"{{{shown}}}" if shown.startswith("[") else shown


def in_latex(table: Table) -> str:
    """Return ``table`` as a float, as wide as one or two columns of a paper and never wider."""
    columns = [
        _column([row[at] for row in table.rows], is_numeric=right) for at, right in enumerate(table.numeric)
    ]
    cells = [
        [
            _cell(text, column, bold=(number, at) in table.best)
            for at, (text, column) in enumerate(zip(row, columns, strict=True))
        ]
        for number, row in enumerate(table.rows)
    ]
    for number in table.breaks:
        cells[number][0] = "\\midrule\n" + cells[number][0]
    float_ = "table" if _width(table) <= ONE_COLUMN_PT else "table*"
    label = re.sub(r"[^a-z0-9]+", "-", table.title.partition(" (")[0].lower()).strip("-")
    tabular = _tabular(table, cells, columns)
    symbols = ",amssymb" if r"\checkmark" in tabular else ""
    return "\n".join(
        [
            rf"% needs \usepackage{{{','.join(PACKAGES)}{symbols}}}",
            rf"\begin{{{float_}}}[tb]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}\sisetup{detect-weight=true}",
            rf"\caption{{{_prose(table.title)}}}\label{{tab:{label}}}",
            r"\begin{adjustbox}{max width=\linewidth}",
            r"\begin{threeparttable}",
            tabular + _notes(table.notes),
            r"\end{threeparttable}",
            r"\end{adjustbox}",
            rf"\end{{{float_}}}",
            "",
        ]
    )


def _tabular(table: Table, cells: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
    """The rows between their rules, with a rule under each heading of a group."""
    headings: pd.Index[str] = pd.Index([_prose(name) for name in table.columns])
    if any(table.groups):
        pairs = [(_prose(group), _prose(name)) for group, name in table.headings]
        headings = pd.MultiIndex.from_tuples(pairs)
    style = pd.DataFrame(cells, columns=headings, dtype=object).style.hide(axis="index")
    text: str = style.to_latex(hrules=True, siunitx=True, column_format=" ".join(columns), multicol_align="c")
    rules, start = [], 1
    for group, members in groupby(table.groups):
        end = start + len(list(members))
        rules += [rf"\cmidrule(lr){{{start}-{end - 1}}}"] if group else []
        start = end
    return text.replace("\\\\\n", "\\\\\n" + "".join(rules) + "\n", 1) if rules else text


def _width(table: Table) -> float:
    """About how wide the table is, in points."""
    longest = (max(map(len, texts)) for texts in zip(table.columns, *table.rows, strict=True))
    return sum(_CHARACTER_PT * characters + _GAP_PT for characters in longest)


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = (rf"\item {_prose(note)}" for note in notes)
    return "\n".join([r"\begin{tablenotes}[flushleft]\footnotesize", *items, r"\end{tablenotes}"])
