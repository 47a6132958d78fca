"""What was measured along runs about the theory of scale vectors, by arm: a table in numbers and as text.

Takes the long table of measurements (``arm``, ``rung``, ``optimizer``, ``schedule``, ``trial_id``, ``step``,
``kind``, ``quantity``, ``value``); docs/theory.md explains the quantities.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalevec.analysis.formatting import aligned

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Quantities = dict[str, "pd.DataFrame"]

BY = ("rung", "optimizer", "schedule", "arm")
MEDIANS = ("relative_error", "cosine_predicted", "cosine_gradient", "cosine_predicted_gradient")
MEASURED = ("trial_id", "seed", "step", "tokens", "kind", "quantity", "layer", "value")
"""Columns of the long table that do not tell groups of trials apart."""


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
        of = {str(quantity): part for quantity, part in group.groupby("quantity")}
        row: Row = dict(zip(BY, names, strict=False))
        row["setting"] = {name: str(value) for name, value in zip(settings, names[len(BY) :], strict=True)}
        row |= {"trials": int(group["trial_id"].nunique()), "steps": int(group["step"].nunique())}
        row |= {name: _number(of[name]["value"].median()) for name in MEDIANS if name in of}
        rows.append(row | _eigenvalues(of) | _drift(of) | _sharpness(of))
    rungs = [row["rung"] for row in rows]
    return sorted(rows, key=lambda row: (rungs.index(row["rung"]), row["optimizer"], row["schedule"]))


def _eigenvalues(of: Quantities) -> Row:
    if "eigenvalue_max" not in of:
        return {}
    matrix = ["trial_id", "step", "kind", "layer"]
    least, greatest = (of[f"eigenvalue_{name}"].set_index(matrix)["value"] for name in ("min", "max"))
    condition = greatest / least[least > 0]
    return {
        "eigenvalue_min": _number(least.min()),
        "eigenvalue_median": _number(of["eigenvalue_median"]["value"].median()),
        "eigenvalue_max": _number(greatest.max()),
        "condition": _number(condition.median()),
        "eigenvalues_not_converged": int(greatest.isna().sum()),
    }


def _drift(of: Quantities) -> Row:
    if "conserved_drift" not in of:
        return {}
    drift = of["conserved_drift"]
    return {"conserved_drift": _number(drift[drift["step"] == drift["step"].max()]["value"].median())}


def _sharpness(of: Quantities) -> Row:
    if "sharpness" not in of:
        return {}
    sharpness = of["sharpness"]
    steps = sorted(sharpness["step"].unique())
    chosen = {"first": steps[0], "middle": steps[len(steps) // 2], "last": steps[-1]}
    row: Row = {"sharpness_steps": [int(step) for step in chosen.values()]}
    for name, step in chosen.items():
        values = sharpness[sharpness["step"] == step]["value"]
        row[f"sharpness_{name}"] = None if values.isna().any() else _number(values.mean())
    return row | {"sharpness_not_converged": int(sharpness["value"].isna().sum())}


def _number(value: Any) -> float | None:
    """``value`` as JSON has it: None for no number."""
    return float(value) if value == value and abs(value) != float("inf") else None


COLUMNS: tuple[tuple[str, str], ...] = (
    ("relative_error", "error"),
    ("cosine_predicted", "cos predicted"),
    ("cosine_gradient", "cos gradient"),
    ("eigenvalue_min", "eig. min"),
    ("eigenvalue_median", "median"),
    ("eigenvalue_max", "max"),
    ("condition", "condition"),
    ("conserved_drift", "drift"),
    ("sharpness_first", "sharpness first"),
    ("sharpness_middle", "middle"),
    ("sharpness_last", "last"),
)
"""Quantity, and its head in the text."""


def theory_text(rows: Sequence[Row]) -> str:
    """``rows`` of :func:`theory_summary` as an aligned table, with notes on what it shows and lacks."""
    settings = list(rows[0]["setting"])
    columns = [(name, head) for name, head in COLUMNS if any(name in row for row in rows)]
    table = [[*BY, *settings, "trials", *(head for _, head in columns)]]
    for row in rows:
        labels = [str(row[name]) for name in BY] + [row["setting"][name] for name in settings]
        table.append([*labels, str(row["trials"]), *(_shown(row.get(name)) for name, _ in columns)])
    return "\n".join([*aligned(table, len(BY) + len(settings)), *_notes(rows)])


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [
        "error, cos predicted: how the effective matrices moved, apart from weight decay, against the "
        "preconditioned gradient; cos gradient: against the gradient itself (medians)"
    ]
    for name, what in (("eigenvalues", "greatest eigenvalues"), ("sharpness", "values of the sharpness")):
        lost = sum(row.get(f"{name}_not_converged", 0) for row in rows)
        if lost:
            notes.append(f"{lost} {what} did not converge and are left out (-)")
    return notes
