"""A table in a Parquet file: its columns, and nothing that the file says beside them."""

from pathlib import Path

import pandas as pd

from scalevec.analysis.errors import DataError

MOST_CELLS = 100_000_000
"""A small file may describe any number of rows; a text file of the largest size has no more cells."""


def read_parquet(path: Path) -> pd.DataFrame:
    """The table in ``path``. Raises :class:`DataError` where it is too large or cannot be read."""
    import pyarrow
    import pyarrow.parquet

    try:
        facts = pyarrow.parquet.read_metadata(path)
        cells = facts.num_rows * facts.num_columns
        table = pd.read_parquet(path) if cells <= MOST_CELLS else None
    except (ValueError, OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error
    if table is None:
        raise DataError(f"{path} has {cells} cells; allowed: up to {MOST_CELLS} (one row per trial)")
    # pandas restores these from the file; here they hold what a sweep's own folder says of predictions.
    table.attrs = {}
    return table if table.index.names == [None] else table.reset_index()
