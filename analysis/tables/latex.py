"""A table in LaTeX: a float with caption, label and notes, its numbers aligned at the point.

It asks for booktabs, siunitx (version 2 or later), threeparttable and adjustbox.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from scalevec.analysis.tables.content import Table
from scalevec.analysis.tables.selection import headings

PACKAGES = ("adjustbox", "booktabs", "siunitx", "threeparttable")
ONE_COLUMN_PT = 239.0
"""Width of a column of a two-column paper, 3.3 inches; a wider table spans both."""
_CHARACTER_PT, _GAP_PT = 4.3, 6.0
"""At 8 points, and between two columns."""
_NUMBER = re.compile(r"(?P<sign>[+−-]?)(?P<whole>\d+)(?:\.(?P<decimals>\d+))?(?=$|, |[^\w.,])")
_POWER_OF_TEN = re.compile(r"(\d+(?:\.\d+)?)e([-+]?)0*(\d+)")
_EXPONENT = re.compile(r"\\textasciicircum\{\}(alpha|beta|gamma)\b")
_SYMBOL = re.compile(r"(?<![\w{\\])([NCD])(?![\w}])")

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
    escaped = " ".join(text.split()).translate(_LATEX_SPECIAL)
    return _POWER_OF_TEN.sub(_power, escaped)


def _power(match: re.Match[str]) -> str:
    sign = "-" if match[2] == "-" else ""
    return rf"\ensuremath{{{match[1]}\times10^{{{sign}{match[3]}}}}}"


def _prose(text: str) -> str:
    """A heading, a caption or a note: N, C and D are symbols, an x between words is a product."""
    symbols = _SYMBOL.sub(r"\\ensuremath{\1}", _in_latex(text))
    symbols = _EXPONENT.sub(r"\\ensuremath{^{\\\1}}", symbols)
    return symbols.replace(" x ", r" \ensuremath{\times} ")


@dataclass(frozen=True)
class _Column:
    """How a column is set: the ``format`` of its numbers, "" for text; what follows them stands beside."""

    letter: str
    format: str = ""
    has_rest: bool = False

    @property
    def width(self) -> int:
        return 2 if self.has_rest else 1

    @property
    def specification(self) -> str:
        return f"S[table-format={self.format}]" + "@{}l" * self.has_rest if self.format else self.letter

    def words(self, text: str) -> str:
        """A heading, or a cell that holds no number."""
        if self.has_rest:
            return rf"\multicolumn{{2}}{{c}}{{{text}}}" if text else "&"
        return f"{{{text}}}" if self.format and text else text

    def cell(self, text: str, *, bold: bool) -> str:
        number = _NUMBER.match(text) if self.format else None
        if number is None:
            shown = _in_latex(text)
            return self.words(rf"\textbf{{{shown}}}" if bold and shown else shown)
        begin = r"\bfseries " if bold else ""
        first, rest = begin + number[0].replace("−", "-"), _rest(text[number.end() :])
        return f"{first} & {begin * bool(rest)}{rest}".rstrip() if self.has_rest else first


def _rest(text: str) -> str:
    """What follows a number: half an interval, brackets, marks."""
    half_interval = _in_latex(text.replace(" ± ", "±")).replace(r"\ensuremath{\pm}", r"\,\ensuremath{\pm}\,")
    return rf"\ {half_interval}" if text.startswith(" ") and "±" not in text else half_interval


def _column(cells: Sequence[str], *, is_numeric: bool) -> _Column:
    """Numbers with decimals are aligned where every cell is one, words, or empty."""
    numbers = [match for text in cells if (match := _NUMBER.match(text))]
    others = [text for text in cells if not _NUMBER.match(text)]
    decimals = max((len(match["decimals"] or "") for match in numbers), default=0)
    if not is_numeric or not decimals or any(text[:1].isdigit() or "." in text for text in others):
        return _Column("r" if is_numeric else "l")
    sign = "+" if any(match["sign"] for match in numbers) else ""
    whole = max(len(match["whole"]) for match in numbers)
    has_rest = any(match.end() < len(match.string) for match in numbers)
    return _Column("r", f"{sign}{whole}.{decimals}", has_rest)


def in_latex(table: Table) -> str:
    """Return ``table`` as a float, as wide as one or two columns of a paper and never wider."""
    columns = [
        _column([row[at] for row in table.rows], is_numeric=right) for at, right in enumerate(table.numeric)
    ]
    body = [line for number in range(len(table.rows)) for line in _lines_of_row(table, columns, number)]
    float_ = "table" if _width(table) <= ONE_COLUMN_PT else "table*"
    label = re.sub(r"[^a-z0-9]+", "-", table.title.partition(" (")[0].lower()).strip("-")
    return "\n".join(
        [
            rf"% needs \usepackage{{{','.join(PACKAGES)}{_marks(body)}}}",
            rf"\begin{{{float_}}}[tb]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}\sisetup{detect-weight=true}",
            rf"\caption{{{_prose(table.title)}}}\label{{tab:{label}}}",
            r"\begin{adjustbox}{max width=\linewidth}",
            r"\begin{threeparttable}",
            rf"\begin{{tabular}}{{{' '.join(column.specification for column in columns)}}}",
            r"\toprule",
            *_group_lines(table, columns),
            _line([column.words(_prose(name)) for column, name in zip(columns, table.columns, strict=True)]),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *_notes(table.notes),
            r"\end{threeparttable}",
            r"\end{adjustbox}",
            rf"\end{{{float_}}}",
            "",
        ]
    )


def _lines_of_row(table: Table, columns: Sequence[_Column], number: int) -> list[str]:
    cells = [
        column.cell(text, bold=(number, at) in table.best)
        for at, (column, text) in enumerate(zip(columns, table.rows[number], strict=True))
    ]
    return [*([r"\midrule"] if number in table.breaks else []), _line(cells)]


def _width(table: Table) -> float:
    """About how wide the table is, in points."""
    longest = (max(map(len, texts)) for texts in zip(table.columns, *table.rows, strict=True))
    return sum(_CHARACTER_PT * characters + _GAP_PT for characters in longest)


def _marks(body: Sequence[str]) -> str:
    return ",amssymb" if any(r"\checkmark" in line for line in body) else ""


def _notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    items = (rf"\item {_prose(note)}" for note in notes)
    return [r"\begin{tablenotes}[flushleft]\footnotesize", *items, r"\end{tablenotes}"]


def _line(cells: Sequence[str]) -> str:
    # A bracket at the start of a row would be the optional argument of what ends the row above.
    first = f"{{{cells[0]}}}" if cells[0].startswith("[") else cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"


def _group_lines(table: Table, columns: Sequence[_Column]) -> list[str]:
    """The headings over groups of columns, and a rule under each."""
    if not any(table.groups):
        return []
    cells, rules, start = [], [], 1
    grouped = groupby(zip(headings(table), columns, strict=True), key=lambda pair: pair[0][0])
    for name, members in grouped:
        width = sum(column.width for _, column in members)
        if name:
            cells.append(rf"\multicolumn{{{width}}}{{c}}{{{_prose(name)}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        else:
            cells += [""] * width
        start += width
    return [_line(cells), " ".join(rules)]
