"""Paper-style tables: rows of text first, then one renderer for each format; the same bytes every time."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.comparison import Comparison, RungDifference
from analysis.data import checked, comparison_rows, require_choice, simulation_warnings
from analysis.words import percent, signed, span


@dataclass(frozen=True)
class Table:
    """A table of text: ``numeric`` says which columns are set flush right, ``notes`` stand below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    notes: tuple[str, ...] = ()


def comparison_table(results: pd.DataFrame, comparisons: Sequence[Comparison]) -> Table:
    """Each arm against the reference by rung and over all: losses, difference (interval), pairs, rates."""
    trials = comparison_rows(checked(results))
    columns = (
        "arm",
        "rung",
        "N",
        "tokens",
        "epochs",
        "reference loss",
        "arm loss",
        "difference (interval)",
        "pairs",
        "learning rate",
        "verdict",
    )
    rows = [row for comparison in comparisons for row in _arm_rows(comparison, trials)]
    numeric = tuple(name not in ("arm", "rung", "learning rate", "verdict") for name in columns)
    notes = (*_notes(comparisons), *simulation_warnings(trials))
    return Table("Comparison with the reference", columns, tuple(rows), numeric, notes)


def _arm_rows(comparison: Comparison, trials: pd.DataFrame) -> list[tuple[str, ...]]:
    own = trials[trials["arm"] == comparison.arm]
    rows = []
    for cell in comparison.by_rung:
        here = own[(own["rung"] == cell.rung) & (own["n_tokens"] == cell.n_tokens)]
        name = " ".join([cell.rung, *cell.setting.values()])
        rows.append(
            (
                comparison.arm,
                name,
                f"{cell.n_params:,}",
                f"{cell.n_tokens:,}",
                _unique(here, "epochs", "{:.2f}"),
                f"{cell.loss_reference:.4f}",
                f"{cell.loss_arm:.4f}",
                _difference(cell),
                str(cell.n),
                ", ".join(
                    filter(None, [_unique(here, "learning_rate", "{:.3g}"), _unique(here, "lr_status", "{}")])
                ),
                "",
            )
        )
    return [*rows, _overall_row(comparison)]


def _overall_row(comparison: Comparison) -> tuple[str, ...]:
    overall = comparison.loss_difference
    mean = "none" if overall.mean is None else format_difference(overall.mean, overall.interval)
    blank = ("",) * 5
    return (comparison.arm, "all (mean)", *blank, mean, str(comparison.pairs), "", comparison.verdict)


def _difference(cell: RungDifference) -> str:
    return format_difference(cell.mean, cell.interval)


def format_difference(mean: float, interval: tuple[float, float] | None) -> str:
    """A difference with its interval, or ``no interval``."""
    carried = "no interval" if interval is None else span(interval)
    return f"{signed(mean)} ({carried})"


def _unique(rows: pd.DataFrame, column: str, form: str) -> str:
    """The values of a column, each once; empty where there are none."""
    if column not in rows.columns:
        return ""
    return ", ".join(dict.fromkeys(form.format(value) for value in rows[column].dropna()))


def _notes(comparisons: Sequence[Comparison]) -> list[str]:
    if not comparisons:
        return []
    first = comparisons[0]
    return [
        f"Difference: arm minus {first.reference}, test loss in nats a token, paired; negative is better.",
        f"Intervals: {percent(first.level)}, t with noise pooled within rungs; by rung they are descriptive. "
        "The mean gives each rung the same weight and speaks of these rungs.",
        f"N: {first.n_convention}; C: {first.c_convention}.",
        *absences(comparisons),
    ]


def absences(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence for each arm with pairs that have no difference, so that no diverged trial goes unseen."""
    found = []
    for comparison in comparisons:
        kinds = {
            "diverged": comparison.arm_diverged,
            f"{comparison.reference} diverged": comparison.reference_diverged,
            "both diverged": comparison.both_diverged,
            "no result": comparison.missing,
        }
        said = [f"{kind} at {'; '.join(names)}" for kind, names in kinds.items() if names]
        if said:
            found.append(f"Without a difference, {comparison.arm}: {' and '.join(said)}.")
    return found


def _markdown(table: Table) -> str:
    def cell(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
        return " ".join(escaped.split())

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell(text) for text in cells) + " |"

    rule = "| " + " | ".join("---:" if right else "---" for right in table.numeric) + " |"
    lines = [line(table.columns), rule, *(line(row) for row in table.rows)]
    notes = [f"\n{cell(note)}" for note in table.notes]
    return "\n".join([*lines, *notes]) + "\n"


def _csv(table: Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_ascii_minus(row, table.numeric) for row in table.rows])
    return buffer.getvalue()


def _ascii_minus(row: Sequence[str], numeric: Sequence[bool]) -> list[str]:
    """Numbers that programs can read; names stay as they are."""
    return [text.replace("−", "-") if is_n else text for text, is_n in zip(row, numeric, strict=True)]


_LATEX_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": r"\ensuremath{-}",
        "<": r"\ensuremath{<}", ">": r"\ensuremath{>}", "|": r"\ensuremath{|}",
    }
)  # fmt: skip


def _latex(table: Table) -> str:
    """A ``tabular`` with the rules of the booktabs package, the notes below it."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(" ".join(cell.split()).translate(_LATEX_SPECIAL) for cell in cells) + r" \\"

    alignment = "".join("r" if right else "l" for right in table.numeric)
    lines = [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        line(table.columns),
        r"\midrule",
        *(line(row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(
            rf"\par\smallskip\footnotesize {' '.join(n.split()).translate(_LATEX_SPECIAL)}"
            for n in table.notes
        ),
    ]
    return "\n".join(lines) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": _markdown, "csv": _csv, "latex": _latex}


def render(table: Table, form: str) -> str:
    """``table`` in one of :data:`FORMATS`."""
    require_choice("format", form, FORMATS)
    return FORMATS[form](table)
