"""``scalevec predict``: what the fitted laws say of points and budgets that nobody ran."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scalevec import analysis
from scalevec.analysis.errors import require_choice
from scalevec.analysis.options import VARIABLES, OptionChanges
from scalevec.orchestrator.cli.options import RUNS, Maps, Output, Runs, SourceName
from scalevec.orchestrator.cli.output import Result, terminal_width
from scalevec.orchestrator.commands.analyse.question import with_given
from scalevec.orchestrator.errors import InvalidInputError
from scalevec.orchestrator.sources.sources import TABLES, load_sweep, open_source

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

POINT = "allowed: VARIABLE=NUMBER with commas, as N=1e9,D=2e10, or a table (.csv, .parquet)"


def predict(
    source: SourceName,
    runs_dir: Runs = RUNS,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="POINT", help="A point, as N=1e9,D=2e10, or a table; may be given again."),
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="SWEEP", help="A planned sweep: its rungs are points.")
    ] = None,
    flops: Annotated[
        list[float] | None,
        typer.Option(metavar="C", help="A budget C = 6ND: its best N and D; may be given again."),
    ] = None,
    given: OptionChanges = {},  # noqa: B006 (never changed)
    maps: Maps = None,
    output: Output = None,
) -> Result:
    """Predict the loss at points, and the best size of a budget.

    Without points and budgets: at the largest compute of the data, twice and ten times that.
    """
    data = open_source(source, runs_dir, maps)
    tables = [points_of(text, data.rows.columns) for text in at or []]
    tables += [_rungs(sweep, runs_dir)] if sweep else []
    options = with_given(data, analysis.AnalysisOptions(), given)
    fits = list(analysis.fit(data.rows, options).values())
    budgets = [fit.best(*flops) if flops else None for fit in fits]
    records, points = [], []
    for fit, best in zip(fits, budgets, strict=True):
        record = fit.to_dict()
        ahead = record.pop("predictions")
        asked = [point for table in tables for point in fit.fitted.records(table)]
        of_budgets = [] if best is None else best.to_dict("records")
        points.append(asked or ([] if flops else ahead))
        records.append(record | {"points": points[-1], "budgets": of_budgets})
    shown = partial(analysis.predictions_text, fits, points, budgets)
    return Result(records, lambda: shown(width=terminal_width()), output=output, wraps=True)


def points_of(text: str, columns: "Iterable[str]") -> "pd.DataFrame":
    """The points of one ``--at``, whose variables are N, D, C or ``columns`` of the source."""
    import pandas as pd

    from scalevec.analysis.data.values import number as as_number

    if Path(text).suffix.lower() in TABLES or ("=" not in text and Path(text).is_file()):
        return analysis.read_table(text)
    point: dict[str, list[float]] = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if not name or name in point:
            raise InvalidInputError(f"--at {text}: {part.strip() or 'nothing'!r} is no new variable; {POINT}")
        require_choice(f"--at {text}: a variable", name, [*VARIABLES, *columns])
        try:
            point[name] = [float(as_number(number) or number)]
        except ValueError:
            raise InvalidInputError(f"--at {text}: {name} is {number!r}, no number; {POINT}") from None
    return pd.DataFrame(point)


def _rungs(source: str, runs_dir: Path) -> "pd.DataFrame":
    """The rungs of a planned sweep, each with its token budgets."""
    import pandas as pd

    from scalevec.orchestrator.sweep.corpus_of_sweep import unprepared_facts
    from scalevec.sweeps.expansion.expand import expand

    sweep = load_sweep(source, runs_dir, look_for_files=False)
    cells = expand(sweep, unprepared_facts(sweep))
    rungs = dict.fromkeys((cell.rung, cell.n_params, cell.template.tokens) for cell in cells)
    return pd.DataFrame(rungs.keys(), columns=["rung", "n_params", "n_tokens"])
