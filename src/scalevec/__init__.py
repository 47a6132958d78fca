"""Scaling-law experiments from one sweep file to a verdict.

The names meant for people stand here; each is loaded when it is first used, so that the import costs nothing.

From a table of results to a verdict (:func:`compare` documents the columns and options):

>>> import pandas as pd
>>> import scalevec
>>> sizes = [25e3, 55e3, 83e3, 150e3]
>>> noise = {"baseline": [0.002, -0.001, 0.001, -0.002], "new": [-0.001, 0.002, -0.002, 0.001]}
>>> results = pd.DataFrame(
...     {"arm": arm, "n_params": size, "n_tokens": 16 * size, "seed": seed,
...      "loss": 40 * size**-0.2 - 0.05 * (arm == "new") + sign * noise[arm][rung]}
...     for arm in noise for rung, size in enumerate(sizes) for seed, sign in ((0, 1), (1, -1))
... )
>>> compared = scalevec.compare(results, "baseline")
>>> compared["new"].verdict
'better'

From a folder of runs (``scalevec run quickstart`` fills one)::

    runs = scalevec.open("runs")
    runs.sweeps()                     # ['quickstart']
    results = runs.results("quickstart")    # a DataFrame, one row per trial
    runs.trial("ab12").metrics()      # what one trial recorded per logged step
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from scalevec.analysis import (
        AnalysisOptions,
        Comparison,
        DataError,
        Fit,
        NoiseFigure,
        PlannedRung,
        Table,
        compare,
        detectable,
        draw,
        fit,
        read_table,
        render,
        table,
        write_figures,
        write_report,
    )
    from scalevec.model.config import Trial
    from scalevec.orchestrator.sources.runs import Runs
    from scalevec.sweeps import SweepError, load, shipped
    from scalevec.sweeps.sections.schema import Sweep

__version__ = "0.1.0"

# Type checkers read __all__, users' attribute accesses read _MODULES: one list, so that they cannot differ.
__all__ = [
    "AnalysisOptions",
    "Comparison",
    "DataError",
    "Fit",
    "NoiseFigure",
    "PlannedRung",
    "Table",
    "compare",
    "detectable",
    "draw",
    "fit",
    "read_table",
    "render",
    "table",
    "write_figures",
    "write_report",
]
_MODULES = dict.fromkeys(__all__, "scalevec.analysis")
__all__ += ["SweepError", "load", "shipped"]
_MODULES = dict.fromkeys(__all__, "scalevec.sweeps") | _MODULES
__all__ += ["Runs", "Sweep", "Trial"]
_MODULES |= {
    "Runs": "scalevec.orchestrator.sources.runs",
    "Sweep": "scalevec.sweeps.sections.schema",
    "Trial": "scalevec.model.config",
}


def open(runs_dir: "str | os.PathLike[str]" = "runs") -> "Runs":
    """Return the sweeps, results and trials in a runs directory.

    Not in ``__all__``: a star import must not hide the built-in ``open``.

    Raises:
        InvalidInputError: ``runs_dir`` is no directory.
    """
    from scalevec.orchestrator.sources.runs import Runs

    return Runs(runs_dir)


if not TYPE_CHECKING:  # A type checker that saw it would accept every misspelt name.

    def __getattr__(name: str) -> object:
        """Load a public name from its module on first use (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module 'scalevec' has no attribute {name!r}")
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
