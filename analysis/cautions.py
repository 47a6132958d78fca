"""What a reader of a comparison must bear in mind, as sentences."""

import pandas as pd

from analysis import inference
from analysis.data import comparison_rows, simulation_warnings, unit_warnings
from analysis.lack_of_fit import lack_of_fit
from analysis.noise import are_copies, floor_profile
from analysis.pairs import Pairs, disagreements
from analysis.settings import FitSettings
from analysis.verdict import Evidence
from analysis.words import is_loss


def reference_warnings(table: pd.DataFrame, reference: str, chosen: FitSettings) -> list[str]:
    """What the reference's own ladder says about the law, and whether it was tuned."""
    rows = comparison_rows(table)
    found = simulation_warnings(rows) + unit_warnings(rows)
    rows = rows[(rows["arm"] == reference) & (rows["status"] == "completed")]
    if len(rows) and rows["n_tokens"].nunique() > 1 and is_loss(chosen.y):
        compute = 6.0 * rows["n_params"].to_numpy(float) * rows["n_tokens"].to_numpy(float)
        profile = floor_profile(compute, rows["loss"].to_numpy(float))
        if not profile.identified and chosen.law != "chinchilla":
            found.append(f"{reference}: {profile.warning}")
    if "lr_status" in rows and (rows["lr_status"] == "fixed").any():
        found.append(f"the learning rate of {reference} was fixed, not tuned")
    return found


def comparison_warnings(evidence: Evidence, pairs: Pairs) -> list[str]:
    """What did not complete, was not tuned where it was run, or is known from little."""
    found = []
    for label, names in (
        (f"{evidence.arm} diverged and {evidence.reference} did not", evidence.arm_diverged),
        (f"{evidence.reference} diverged and {evidence.arm} did not", evidence.reference_diverged),
        ("both diverged", evidence.both_diverged),
        ("no result of one or both sides", evidence.missing),
    ):
        if names:
            found.append(f"{label}: {'; '.join(names)}; no number enters the mean difference")
    if pairs.one_sided:
        where = "; ".join(pairs.one_sided)
        found.append(
            f"the difference does not speak of settings that one of the arms was not run in: {where}"
        )
    found += [f"{name}: a learning rate is censored at the edge of its grid" for name in evidence.censored]
    micro_batch = disagreements(pairs, "micro_batch")
    if micro_batch:
        found.append(f"{micro_batch} pairs differ in micro-batch: the same sums in another order")
    found += _carried(pairs)
    found += _copies(evidence, pairs)
    testable = evidence.n_pairs and not pairs.dependent
    p = inference.heterogeneity(pairs.differences, pairs.cells) if testable else None
    if p is not None and p < evidence.alpha:
        found.append("the difference is not the same at all rungs: the mean speaks of these rungs only")
    estimate = evidence.estimate
    interval = estimate.interval(evidence.level) if estimate else None
    if estimate and interval and estimate.df < 3 and interval[0] <= 0 <= interval[1]:
        found.append(f"{estimate.df} degrees of freedom: the interval is wide because little is known")
    return found


def _copies(evidence: Evidence, pairs: Pairs) -> list[str]:
    """The sides whose repeated seeds are one result written twice."""
    sides = ((evidence.reference, "loss_reference"), (evidence.arm, "loss_arm"))
    complete = pairs.complete
    return [
        f"{name}: its repeated seeds are exact copies, which carry no noise and count as one seed"
        for name, column in sides
        if len(complete) and are_copies(complete[column].to_numpy(float), pairs.cells)
    ]


def misfit_warnings(evidence: Evidence, pairs: Pairs, law: str) -> list[str]:
    """Where the law that multipliers rest on misses the rungs; for independent pairs on one line in C."""
    found = []
    for name, side in ((evidence.reference, "reference"), (evidence.arm, "arm")):
        compute = pairs.complete[f"compute_{side}"].to_numpy(float)
        test = lack_of_fit(law, {"x": compute}, pairs.complete[f"loss_{side}"].to_numpy(float))
        if test is not None and test.warning:
            found.append(f"{name}: {test.warning}")
    return found


def _carried(pairs: Pairs) -> list[str]:
    """The rungs whose learning rate follows from smaller ones."""
    columns = [name for name in ("lr_status_reference", "lr_status_arm") if name in pairs.table]
    rows = pairs.table[(pairs.table[columns] == "carried").any(axis=1)]
    if rows.empty:
        return []
    rungs = ", ".join(dict.fromkeys(rows["rung"]))
    return [f"learning rates at {rungs} are carried from smaller rungs, not tuned there"]
