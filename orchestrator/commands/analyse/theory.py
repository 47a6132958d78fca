"""``scalevec theory``: what a sweep measured along its runs about the theory of scale vectors, by arm.

It sums up the long table of measurements (``arm``, ``rung``, ``optimizer``, ``schedule``, ``trial_id``,
``step``, ``kind``, ``quantity``, ``value``); docs/theory.md explains the quantities.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalevec.analysis.formatting import aligned
from scalevec.orchestrator.cli.options import RUNS, Output, Runs, SourceName
from scalevec.orchestrator.cli.output import Result
from scalevec.orchestrator.sources.sources import open_source

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
BY = ("rung", "optimizer", "schedule", "arm")
MEASURED = ("trial_id", "seed", "step", "tokens", "kind", "quantity", "layer", "value")
"""Columns of the long table that do not tell groups of trials apart."""
_MATRIX = ["trial_id", "step", "kind", "layer"]
_MEDIANS = ("relative_error", "cosine_predicted", "cosine_gradient", "cosine_predicted_gradient")
COLUMNS = {
    "relative_error": "error",
    "cosine_predicted": "cos predicted",
    "cosine_gradient": "cos gradient",
    "eigenvalue_min": "eig. min",
    "eigenvalue_median": "median",
    "eigenvalue_max": "max",
    "condition": "condition",
    "conserved_drift": "drift",
    "sharpness_first": "sharpness first",
    "sharpness_middle": "middle",
    "sharpness_last": "last",
}
"""Quantity, and its head in the text."""


def theory(source: SourceName, runs_dir: Runs = RUNS, output: Output = None) -> Result:
    """Show what was measured along runs: movement, eigenvalues, sharpness."""
    from scalevec.orchestrator.sources.measured import measured

    rows = theory_summary(measured(open_source(source, runs_dir), runs_dir))
    return Result(rows, theory_text(rows), output=output)


def theory_summary(measured: "pd.DataFrame") -> list[Row]:
    """One row for each rung, optimizer, schedule, arm and further setting; rungs and arms as in the table.

    Movement: medians over trials, steps and effective matrices. Eigenvalues of the preconditioner: least,
    median and greatest over everything, the median condition of one matrix, and how many greatest ones did
    not converge. Drift of the conserved quantity: the median over matrices at the last measured step.
    Sharpness: the mean over trials at the first, the middle and the last measured step; None where one of
    them did not converge. What was not measured is left out.
    """
    settings = [name for name in measured.columns if name not in (*BY, *MEASURED)]
    rows: list[Row] = []
    for names, group in measured.groupby([*BY, *settings], sort=False, dropna=False):
        of = {str(name): part.set_index(_MATRIX)["value"] for name, part in group.groupby("quantity")}
        row: Row = dict(zip(BY, names, strict=False))
        row["setting"] = {name: str(value) for name, value in zip(settings, names[len(BY) :], strict=True)}
        row |= {"trials": int(group["trial_id"].nunique()), "steps": int(group["step"].nunique())}
        row |= {name: of[name].median() for name in _MEDIANS if name in of}
        if "eigenvalue_max" in of:
            least, greatest = of["eigenvalue_min"], of["eigenvalue_max"]
            row |= {"eigenvalue_min": least.min(), "eigenvalue_median": of["eigenvalue_median"].median()}
            row |= {"eigenvalue_max": greatest.max(), "condition": (greatest / least[least > 0]).median()}
            row["eigenvalues_not_converged"] = int(greatest.isna().sum())
        if "conserved_drift" in of:
            row["conserved_drift"] = of["conserved_drift"].groupby("step").median().iloc[-1]
        if "sharpness" in of:
            means = of["sharpness"].groupby("step").agg(lambda values: values.mean(skipna=False))
            places = {"first": 0, "middle": len(means) // 2, "last": -1}
            row["sharpness_steps"] = [int(means.index[at]) for at in places.values()]
            row |= {f"sharpness_{name}": means.iloc[at] for name, at in places.items()}
            row["sharpness_not_converged"] = int(of["sharpness"].isna().sum())
        rows.append({name: _number(value) for name, value in row.items()})
    rungs = [row["rung"] for row in rows]
    return sorted(rows, key=lambda row: (rungs.index(row["rung"]), row["optimizer"], row["schedule"]))


def _number(value: Any) -> Any:
    """``value`` as JSON has it: None for no number."""
    if not isinstance(value, float):
        return value
    return float(value) if math.isfinite(value) else None


def theory_text(rows: Sequence[Row]) -> str:
    """``rows`` of :func:`theory_summary` as an aligned table, with notes on what it shows and lacks."""
    settings = list(rows[0]["setting"])
    shown = [name for name in COLUMNS if any(name in row for row in rows)]
    table = [[*BY, *settings, "trials", *(COLUMNS[name] for name in shown)]]
    for row in rows:
        labels = [str(row[name]) for name in BY] + [row["setting"][name] for name in settings]
        values = (row.get(name) for name in shown)
        table.append([*labels, str(row["trials"]), *("-" if v is None else f"{v:.3g}" for v in values)])
    notes = [
        "error, cos predicted: how the effective matrices moved, apart from weight decay, against the "
        "preconditioned gradient; cos gradient: against the gradient itself (medians)"
    ]
    for name, what in (("eigenvalues", "greatest eigenvalues"), ("sharpness", "values of the sharpness")):
        if lost := sum(row.get(f"{name}_not_converged", 0) for row in rows):
            notes.append(f"{lost} {what} did not converge and are left out (-)")
    return "\n".join([*aligned(table, range(len(BY) + len(settings))), *notes])
