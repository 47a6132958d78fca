"""What the results mean: laws, fits, comparisons, figures, tables, the report; on any tidy DataFrame.

Nothing is loaded until it is used, so that importing it stays cheap. A table needs ``n_params``,
``n_tokens`` and ``loss``; ``arm``, ``rung``, ``seed``, ``cluster`` and ``status`` are used where present.

>>> import numpy as np, pandas as pd
>>> from scalevec import analysis
>>> sizes = np.repeat([25e3, 55e3, 83e3, 150e3, 200e3], 2)
>>> rng = np.random.default_rng(1)
>>> rows = []
>>> for arm, gain in (("baseline", 1.0), ("new", 1.2)):
...     loss = 40.0 * (gain * 6 * 16 * sizes**2) ** -0.1 * np.exp(rng.normal(0, 1e-3, 10))
...     table = pd.DataFrame({"n_params": sizes, "n_tokens": 16 * sizes, "loss": loss})
...     rows.append(table.assign(arm=arm, seed=[0, 1] * 5))
>>> results = pd.concat(rows, ignore_index=True)

Fit a law to each arm; every fit says whether it is the optimum, and predicts the largest rung from the rest:

>>> fits = analysis.fit(results, law="power", x="C")
>>> [(arm, round(fit.parameters["alpha"], 2), fit.optimality < 1e-9) for arm, fit in fits.items()]
[('baseline', 0.1, True), ('new', 0.1, True)]
>>> fit = fits["baseline"]
>>> fit.interval_method, fit.intervals["alpha"][0] < 0.1 < fit.intervals["alpha"][1]
('seed-t', True)
>>> abs(fit.hold_out["relative_error"]) < 0.01
True

Compare arms: a verdict with its interval, and how many times the compute the baseline needs:

>>> comparison = analysis.compare(results, "baseline")["new"]
>>> comparison.verdict
'better'
>>> largest = comparison.compute_multipliers[0]
>>> largest.interval[0] < 1.2 < largest.interval[1]
True

Tables of a paper, in Markdown, LaTeX or CSV (see :mod:`tables`):

>>> table = analysis.table(results, "comparison", reference="baseline", bootstrap=200)
>>> table.columns[-3:], len(table.rows), len(table.best)
(('loss', 'difference', 'multiplier'), 11, 5)
>>> print(analysis.render(table, "latex").splitlines()[0])
% needs \\usepackage{adjustbox,booktabs,threeparttable}

Before spending: what a design can detect (see :mod:`power`):

>>> ladder = [analysis.PlannedRung(str(n), n, 16 * n, seeds=2) for n in (25e3, 55e3, 83e3, 150e3)]
>>> plan = analysis.detectable(ladder, analysis.NoiseFigure(sd=0.01, slope=0.35, source="a pilot"))
>>> f"{plan.design.multiplier:.3f}"
'1.061'
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scalevec.analysis.comparison.compare import Comparison as Comparison
    from scalevec.analysis.comparison.compare import Comparisons as Comparisons
    from scalevec.analysis.comparison.compare import compare as compare
    from scalevec.analysis.comparison.law_comparison import compare_arms as compare_arms
    from scalevec.analysis.data.tidy import read_table as read_table
    from scalevec.analysis.data.where import select as select
    from scalevec.analysis.errors import DataError as DataError
    from scalevec.analysis.figures.drawing import draw as draw
    from scalevec.analysis.figures.drawing import write_figures as write_figures
    from scalevec.analysis.fits.fit import fit as fit
    from scalevec.analysis.fits.fit import fits_of_laws as fits_of_laws
    from scalevec.analysis.fits.fit import rolling as rolling
    from scalevec.analysis.fits.result import Fit as Fit
    from scalevec.analysis.fits.result import Fits as Fits
    from scalevec.analysis.fits.result import laws_text as laws_text
    from scalevec.analysis.laws import Law as Law
    from scalevec.analysis.options import AnalysisOptions as AnalysisOptions
    from scalevec.analysis.power.detectable import NoiseFigure as NoiseFigure
    from scalevec.analysis.power.detectable import PlannedRung as PlannedRung
    from scalevec.analysis.power.detectable import detectable as detectable
    from scalevec.analysis.power.detectable import pilot_noise as pilot_noise
    from scalevec.analysis.registry import FIGURES as FIGURES
    from scalevec.analysis.registry import LAWS as LAWS
    from scalevec.analysis.registry import TABLES as TABLES
    from scalevec.analysis.report.html import write_report as write_report
    from scalevec.analysis.report.text import comparison_text as comparison_text
    from scalevec.analysis.report.text import predictions_text as predictions_text
    from scalevec.analysis.tables import table as table
    from scalevec.analysis.tables.render import Table as Table
    from scalevec.analysis.tables.render import render as render

_NAMES_BY_MODULE = {
    "comparison.law_comparison": "compare_arms",
    "comparison.compare": "Comparison Comparisons compare",
    "data.tidy": "read_table",
    "data.where": "select",
    "errors": "DataError",
    "figures.drawing": "draw write_figures",
    "fits.fit": "fit fits_of_laws rolling",
    "fits.result": "Fit Fits laws_text",
    "laws": "Law",
    "options": "AnalysisOptions",
    "power.detectable": "NoiseFigure PlannedRung detectable pilot_noise",
    "registry": "FIGURES LAWS TABLES",
    "report.html": "write_report",
    "report.text": "comparison_text predictions_text",
    "tables": "table",
    "tables.render": "Table render",
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module 'scalevec.analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"scalevec.analysis.{_MODULES[name]}"), name)
