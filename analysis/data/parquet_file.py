"""A table in a Parquet file: its columns, and nothing that the file says beside them."""

import re
from pathlib import Path
from typing import Any

import pandas as pd

from scalevec.analysis.errors import DataError

MOST_CELLS = 100_000_000
"""A small file may describe any number of rows; a text file of the largest size has no more cells."""
_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas calls an index without a name: the numbers of rows."""


def read_parquet(path: Path, content: bytes) -> pd.DataFrame:
    """The table in the ``content`` of ``path``. Raises :class:`DataError`: too large, or not to be read."""
    import pyarrow
    import pyarrow.parquet

    try:
        stream = pyarrow.BufferReader(content)
        facts = pyarrow.parquet.read_metadata(stream)
        cells = facts.num_rows * facts.num_columns
        if cells > MOST_CELLS:
            raise DataError(f"{path} has {cells} cells; allowed: up to {MOST_CELLS} (one row per trial)")
        names = [name for name in facts.schema.to_arrow_schema().names if not _INDEX.fullmatch(name)]
        if twins := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(f"{path} has several columns {twins[0]!r}; allowed: one of each name")
        table = pyarrow.parquet.read_table(stream, columns=names)
        columns = {name: _plain(path, name, table[name]) for name in names}
        # Without what pandas kept beside them: it may be of another version, or anybody's.
        frame: pd.DataFrame = pyarrow.table(columns).to_pandas(ignore_metadata=True)
    except DataError:
        raise
    except (ValueError, OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
    return frame


def _plain(path: Path, name: str, column: Any) -> Any:
    """A column of Arrow as numbers, text, truth values, times or lists. Raises :class:`DataError`."""
    from pyarrow import float64, types

    kind = column.type
    if types.is_dictionary(kind):
        return _plain(path, name, column.cast(kind.value_type))
    if types.is_float16(kind) or types.is_decimal(kind):
        return column.cast(float64())
    odd = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    if any(is_odd(kind) for is_odd in (*odd, types.is_struct, types.is_map, types.is_union)):
        raise DataError(f"{path}: column {name!r} is of type {kind!s:.80}; allowed: numbers, text, lists")
    return column
