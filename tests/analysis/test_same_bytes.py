"""Every public function of ``analysis``, called twice on the same input, gives the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from scalevec import analysis
from scalevec.analysis import DataError


def rows() -> pd.DataFrame:
    """Two arms, five rungs, two seeds, with blanks where a table may have them."""
    rng = np.random.default_rng(0)
    sizes = np.repeat(np.geomspace(1e5, 1e6, 5).round(), 2)
    parts = []
    for arm in ("baseline", "new"):
        table = pd.DataFrame({"n_params": sizes, "n_tokens": 20 * sizes, "seed": [0, 1] * 5, "arm": arm})
        table["loss"] = 10 * sizes**-0.1 * np.exp(rng.normal(0, 0.01, 10))
        parts.append(table)
    table = pd.concat(parts, ignore_index=True)
    table["run"] = [f"r{i}" for i in range(20)]
    return table.assign(optimizer="adamw", schedule="cosine")


def blank(column: str) -> pd.DataFrame:
    table = rows().astype({column: object})
    table.loc[[1, 4, 13], column] = None
    return table


TABLES = [rows(), *(blank(column) for column in ("run", "seed", "arm"))]
BOOTSTRAP = {"bootstrap": 20}
OPTIONS = analysis.AnalysisOptions(bootstrap=20)
LADDER = [analysis.PlannedRung("a", 1e5, 2e6, 2), analysis.PlannedRung("b", 1e6, 2e7, 2)]


def written(path: Path, write: Callable[[Path], Any]) -> bytes:
    write(path)
    files = [path] if path.is_file() else sorted(path.iterdir())
    return b"".join(file.read_bytes() for file in files)


def by_laws(table: pd.DataFrame) -> list[analysis.Comparison]:
    return analysis.compare_arms(table, reference="baseline", by="laws", cluster="run", **BOOTSTRAP)[1]


def drawn(table: pd.DataFrame, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    caption = analysis.draw(figure.subplots(), table, "differences", reference="baseline", **BOOTSTRAP)
    figure.savefig(path, format="png")
    path.write_bytes(path.read_bytes() + caption.encode())


CALLS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "compare": lambda t, _: analysis.compare(t, reference="baseline", **BOOTSTRAP),
    "compare_arms": lambda t, _: (
        analysis.compare_arms(t, reference="baseline", options=OPTIONS),
        by_laws(t),
    ),
    "comparison_text": lambda t, _: analysis.comparison_text(
        analysis.compare(t, "baseline", cluster="run", **BOOTSTRAP).values()
    ),
    "detectable": lambda t, _: analysis.detectable(LADDER, analysis.pilot_noise(t, "baseline")),
    "draw": lambda t, path: written(path, lambda to: drawn(t, to)),
    "fit": lambda t, _: analysis.fit(t, cluster="run", **BOOTSTRAP).summary(),
    "fits_of_laws": lambda t, _: analysis.fits_of_laws(t, ["power"], OPTIONS),
    "predictions_text": lambda t, _: [
        analysis.predictions_text(fit, fit.ahead()) for fit in analysis.fit(t, **BOOTSTRAP).values()
    ],
    "laws_text": lambda t, _: analysis.laws_text(analysis.fits_of_laws(t, ["power"], OPTIONS)),
    "pilot_noise": lambda t, _: analysis.pilot_noise(t, "baseline"),
    "read_table": lambda t, path: analysis.read_table(saved(t, path)).to_csv(),
    "render": lambda t, _: analysis.render(
        analysis.table(t, "scaling", reference="baseline", **BOOTSTRAP), "csv"
    ),
    "rolling": lambda t, _: analysis.rolling(t, OPTIONS),
    "select": lambda t, _: analysis.select(t, "loss < 3 or run in ('r1', 'r2')").to_csv(),
    "table": lambda t, _: analysis.table(t, "comparison", reference="baseline", **BOOTSTRAP),
    "write_figures": lambda t, path: written(
        path, lambda to: analysis.write_figures(t, to, reference="baseline", formats=["svg"], **BOOTSTRAP)
    ),
    "write_report": lambda t, path: written(
        path, lambda to: analysis.write_report(t, to, name="r", reference="baseline", **BOOTSTRAP)
    ),
}


def saved(table: pd.DataFrame, path: Path) -> Path:
    table.to_csv(path.with_suffix(".csv"), index=False)
    return path.with_suffix(".csv")


def outcome(call: Callable[[pd.DataFrame, Path], Any], table: pd.DataFrame, path: Path) -> str:
    try:
        return repr(call(table.copy(), path))
    except DataError as refused:
        return f"refused: {refused}"


def test_every_public_function_is_called_here():
    functions = [name for name in analysis.__all__ if callable(getattr(analysis, name)) and name.islower()]
    assert sorted(CALLS) == sorted(functions)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name.startswith("write_") else ()) for name in CALLS],
)
def test_a_public_function_called_twice_gives_the_same_bytes(name: str, tmp_path: Path):
    # What the others show, draw and write comes from these two.
    for number, table in enumerate(TABLES if name in ("fit", "compare") else TABLES[:1]):
        first, again = (outcome(CALLS[name], table, tmp_path / f"{part}{number}") for part in ("one", "two"))
        assert first == again
        assert number or not first.startswith("refused")
