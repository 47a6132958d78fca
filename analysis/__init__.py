"""What the results mean: laws, fits, comparisons, figures, tables, the report; on any tidy DataFrame.

Nothing is loaded until it is used, so that ``import analysis`` stays cheap. A table needs ``n_params``,
``n_tokens`` and ``loss``; ``arm``, ``rung``, ``seed``, ``cluster`` and ``status`` are used where present.

>>> import numpy as np, pandas as pd, analysis
>>> sizes = np.repeat([25e3, 55e3, 83e3, 150e3, 200e3], 2)
>>> rng = np.random.default_rng(0)
>>> rows = []
>>> for arm, gain in (("baseline", 1.0), ("new", 1.2)):
...     loss = 40.0 * (gain * 6 * 16 * sizes**2) ** -0.1 * np.exp(rng.normal(0, 1e-3, 10))
...     table = pd.DataFrame({"n_params": sizes, "n_tokens": 16 * sizes, "loss": loss})
...     rows.append(table.assign(arm=arm, seed=[0, 1] * 5))
>>> results = pd.concat(rows, ignore_index=True)

Fit a law to each arm; every fit says whether it is the optimum, and predicts the largest rung from the rest:

>>> fits = analysis.fit(results, law="power", x="C")
>>> [(one.arm, round(one.parameters["alpha"], 2), one.optimality < 1e-9) for one in fits]
[('baseline', 0.1, True), ('new', 0.1, True)]
>>> fits[0].interval_method, fits[0].intervals["alpha"][0] < 0.1 < fits[0].intervals["alpha"][1]
('seed-t', True)
>>> abs(fits[0].hold_out["relative_error"]) < 0.01
True

Compare arms: a verdict with its interval, and how many times the compute the baseline needs:

>>> found = analysis.compare(results, reference="baseline")[0]
>>> found.verdict
'better'
>>> middle = found.compute_multipliers[0]
>>> middle.interval[0] < 1.2 < middle.interval[1]
True

Tables of a paper, in Markdown, LaTeX or CSV (see :mod:`analysis.tables`):

>>> shown = analysis.table(results, "main", reference="baseline", bootstrap=200)
>>> shown.columns[-3:], len(shown.rows), shown.best == {(row, 5) for row in range(5)}
(('loss', 'difference', 'multiplier'), 5, True)
>>> print(analysis.render(shown, "latex").splitlines()[0])
% needs \\usepackage{booktabs}

Before spending: what a design can detect (see :mod:`analysis.power`):

>>> ladder = [analysis.PlannedRung(str(n), n, 16 * n, seeds=2) for n in (25e3, 55e3, 83e3, 150e3)]
>>> plan = analysis.detectable(ladder, analysis.NoiseFigure(sd=0.01, slope=0.35, source="a pilot"))
>>> f"{plan.design.multiplier:.3f}"
'1.039'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.comparison import Comparison, compare
    from analysis.data import DataError, read_table
    from analysis.figures import FIGURES, write_figures
    from analysis.fitting import Fit, fit
    from analysis.laws import LAWS, Law
    from analysis.power import NoiseFigure, PlannedRung, detectable, pilot_noise
    from analysis.profile_curves import profiles
    from analysis.report import write_report
    from analysis.settings import FitSettings
    from analysis.tables import TABLES, table
    from analysis.tables.comparison import comparison_table
    from analysis.tables.content import Table
    from analysis.tables.render import render
    from analysis.text import comparison_text, fit_text
    from analysis.where import select

_HOMES = {
    "Comparison": "comparison",
    "compare": "comparison",
    "DataError": "data",
    "read_table": "data",
    "FIGURES": "figures",
    "write_figures": "figures",
    "Fit": "fitting",
    "FitSettings": "settings",
    "fit": "fitting",
    "LAWS": "laws",
    "Law": "laws",
    "NoiseFigure": "power",
    "PlannedRung": "power",
    "detectable": "power",
    "pilot_noise": "power",
    "profiles": "profile_curves",
    "write_report": "report",
    "TABLES": "tables",
    "table": "tables",
    "Table": "tables.content",
    "comparison_table": "tables.comparison",
    "render": "tables.render",
    "comparison_text": "text",
    "fit_text": "text",
    "select": "where",
}

__all__ = [
    "FIGURES",
    "LAWS",
    "TABLES",
    "Comparison",
    "DataError",
    "Fit",
    "FitSettings",
    "Law",
    "NoiseFigure",
    "PlannedRung",
    "Table",
    "compare",
    "comparison_table",
    "comparison_text",
    "detectable",
    "fit",
    "fit_text",
    "pilot_noise",
    "profiles",
    "read_table",
    "render",
    "select",
    "table",
    "write_figures",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"analysis.{_HOMES[name]}"), name)
