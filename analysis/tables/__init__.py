"""The tables of a paper, by name. A new one is a small file with ``build`` and one line in :data:`TABLES`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.data import DataError, require_choice
from analysis.settings import settings_from
from analysis.tables import ablation, comparison, decay, main, optimizers, overhead, scaling
from analysis.tables.content import Table
from analysis.tables.question import Question, question
from analysis.where import rows_left_out
from analysis.words import chosen_rows

TABLES: dict[str, Callable[[Question], Table]] = {
    "main": main.build,
    "ablation": ablation.build,
    "decay": decay.build,
    "overhead": overhead.build,
    "optimizers": optimizers.build,
    "scaling": scaling.build,
    "comparison": comparison.build,
}


def table(
    results: pd.DataFrame,
    name: str = "main",
    *,
    reference: str,
    margin: float | None = None,
    where: str | None = None,
    **fit_settings: Any,
) -> Table:
    """The table ``name``, one of :data:`TABLES`, of ``results`` (tidy rows); ``analysis.render`` shows it.

    ``where`` chooses rows; ``margin`` (nats a token) is for the table ``comparison``; ``fit_settings`` are
    fields of :class:`analysis.FitSettings`. Raises :class:`analysis.DataError` for rows that lack what the
    table needs, with what is missing.
    """
    require_choice("table", name, TABLES)
    settings = settings_from(fit_settings)
    asked = question(results, reference=reference, settings=settings, margin=margin, where=where)
    if not (asked.trials["status"] == "completed").any():
        raise DataError(f"table {name!r} needs completed comparison trials; none of {len(asked.trials)} is")
    made = TABLES[name](asked)
    chosen = chosen_rows(where, rows_left_out(results, where, asked.arms))
    return replace(made, notes=(*made.notes, *(f"{line[0].upper()}{line[1:]}." for line in chosen)))
