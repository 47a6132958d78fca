"""The tables of a paper, by name, each with a line in :mod:`registry`."""

from dataclasses import replace
from typing import Unpack

import pandas as pd

from scalevec.analysis.comparison.trials import compared_losses
from scalevec.analysis.errors import DataError, require_choice
from scalevec.analysis.formatting import footnotes, shortened_in
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options
from scalevec.analysis.registry import TABLES
from scalevec.analysis.tables.render import Table


def table(
    results: pd.DataFrame,
    name: str = "comparison",
    *,
    reference: str,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> Table:
    """Return a table of a paper; ``analysis.render`` writes it as Markdown, LaTeX or CSV.

    Args:
        results: Tidy rows, one per trial, as for ``compare``.
        name: One of :data:`TABLES`.
        reference: The arm that the others are compared with.
        options: How to estimate; the margin is for the table ``comparison``.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        The table: cells as text, and where it has them ``records`` with every digit.

    Raises:
        DataError: Rows that lack what the table needs, with what is missing.
    """
    require_choice("table", name, TABLES)
    trials = compared_losses(results, reference, chosen_options(options, changes))
    if not (trials.rows["status"] == "completed").any():
        raise DataError(f"table {name!r} needs completed comparison trials; none of {len(trials.rows)} is")
    contents: Table = TABLES[name].load()(trials)
    interim = [f"Interim: {'; '.join(arms)}: no interval, no p-value."] if (arms := trials.interim()) else []
    chosen = [f"{line[0].upper()}{line[1:]}." for line in trials.chosen_rows()]
    contents = replace(contents, notes=(*interim, *contents.notes, *chosen))
    # Long names would widen the table: the whole ones stand below, and in its records.
    names = trials.long_names
    shown = {part: getattr(contents, part) for part in ("title", "columns", "rows", "notes")}
    shown = shortened_in(shown, names)
    return replace(contents, **shown | {"notes": (*shown["notes"], *footnotes(names))})
