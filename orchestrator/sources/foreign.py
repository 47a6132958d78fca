"""Results of other trackers as tidy rows; what was taken for what goes to standard error."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scalevec.analysis.data.read import kind_of
from scalevec.orchestrator.progress import note
from scalevec.orchestrator.sources.other_files import require_table

if TYPE_CHECKING:
    import pandas as pd

    from scalevec.orchestrator.sources.imports.tidy_rows import ImportedTable


@dataclass(frozen=True)
class TableReading:
    """How a source is read: what its columns are, ``NAME=COLUMN``, and the file of scores beside it."""

    maps: Sequence[str] = ()
    join: Path | None = None


AS_IT_IS = TableReading()


def is_table(source: str) -> bool:
    """Whether ``source`` is standard input, or a file of a kind that holds a table."""
    from scalevec.orchestrator.sources.imports.given_tables import STANDARD_INPUT

    return source == STANDARD_INPUT or kind_of(Path(source))[0] != ""


def rows_as_read(source: str, maps: Sequence[str]) -> "pd.DataFrame":
    """Return the rows of a table with our columns beside its own. Raises ``DataError``."""
    from scalevec.orchestrator.sources.imports.given_tables import read_given
    from scalevec.orchestrator.sources.imports.tidy_rows import as_read

    table = as_read(read_given(source), maps)
    say_columns(table)
    return table.rows


def imported_tables(sources: Sequence[str], maps: Sequence[str], unit: str | None = None) -> "ImportedTable":
    """Return the rows of ``sources``. Raises ``DataError``."""
    from scalevec.orchestrator.sources.imports.given_tables import read_given
    from scalevec.orchestrator.sources.imports.tidy_rows import imported

    for source in sources:
        require_table(source)
    table = imported([read_given(source) for source in sources], maps, unit)
    say_columns(table)
    return table


def say_columns(table: "ImportedTable") -> None:
    """Say on standard error what was taken for what, and what a person should know."""
    from scalevec.orchestrator.sources.imports.tidy_rows import mapping_lines

    for line in [*mapping_lines(table.columns, table.rows), *(f"note: {text}" for text in table.notes)]:
        note(line)
