"""What stands against a comparison beside its verdict: one sentence each."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from scalevec.analysis.comparison.fairness import machine_cautions
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.comparison.verdict import Evidence
from scalevec.analysis.data.pairs import PairKind, differs
from scalevec.analysis.data.tidy import FloatArray, simulation_warnings, unit_warnings
from scalevec.analysis.formatting import equal_optima_warning, few, plural
from scalevec.analysis.statistics.noise import copied_seeds

_RUN_UNLIKE = (
    ("micro_batch", None, "used different micro-batch sizes"),
    ("world_size", 1, "used different numbers of processes (world_size)"),
    ("arithmetic", "eager", "of a trial with compiled blocks and one without (arithmetic)"),
)
"""Columns in which the sides of a pair may differ, what a side has that says nothing, and the words."""
MEMBERS_REMEDY = "`scalevec run` writes it into members.json"


def unverified(laws: Sequence[dict[str, Any]]) -> list[str]:
    """A warning for each law whose fit is no verified optimum."""
    return [
        f"the law of the {law['side']} in {law['x']} is not a verified optimum: read no multiplier from it"
        for law in laws
        if not law["verified"]
    ]


def not_unique(laws: Sequence[dict[str, Any]]) -> list[str]:
    """A warning for each law whose optimum is not unique."""
    return [
        f"law of the {law['side']} in {law['x']}: {warning}"
        for law in laws
        for warning in equal_optima_warning(law["equal_parameters"])
    ]


def of_reference(trials: ComparedTrials) -> list[str]:
    """What stands against the reference's trials, or those of all arms; each names what it is about."""
    reference = trials.reference
    warnings = simulation_warnings(trials.rows) + unit_warnings(trials.rows)
    if trials.n_unplaced:
        left_out = f"{plural(trials.n_unplaced, 'trial')} without a result left out"
        warnings.append(f"{left_out}: no record says of which size and token budget; {MEMBERS_REMEDY}")
    rows = trials.of_arm(reference, "completed")
    if "lr_status" in rows and "loss_validation" in rows and len(rows):
        tuned = rows["lr_status"].isin(("tuned", "carried", "censored")).any()
        if tuned and rows["loss_validation"].isna().all():
            warnings.append(
                "learning rates were chosen on the text that is compared: the trials have one loss"
            )
    return warnings + _chosen_on_compared(trials)


def _chosen_on_compared(trials: ComparedTrials) -> list[str]:
    """A warning where a seed was tuned and is compared, as it may be of imported runs."""
    rows, names = trials.source, ["arm", "rung", "seed"]
    if not {"stage", *names} <= set(rows):
        return []
    tuned, compared = (rows.loc[rows["stage"] == stage, names] for stage in ("tuning", "comparison"))
    both = compared.merge(tuned.drop_duplicates(), on=names)
    if both.empty:
        return []
    where = few(
        [f"{arm} at {rung}" for arm, rung in both[names[:2]].drop_duplicates().itertuples(index=False)]
    )
    return [
        f"learning rates of {where} were chosen on seeds that are compared: the lowest of several is too low"
    ]


def of_pairs(evidence: Evidence) -> list[str]:
    """What did not complete, was not run alike, or is known from little; each names the arm."""
    pairs, arm = evidence.pairs, evidence.arm
    labels: dict[PairKind, str] = {
        PairKind.ARM_DIVERGED: f"it diverged and {evidence.reference} did not",
        PairKind.REFERENCE_DIVERGED: f"{evidence.reference} diverged and it did not",
        PairKind.BOTH_DIVERGED: "both diverged",
        PairKind.FAILED: "failed or cancelled",
        PairKind.UNPAIRED: "a trial of one arm without its counterpart",
    }
    warnings = [
        f"{labels[kind]}: {few(names)}; no number enters the mean difference"
        for kind, names in evidence.absences.items()
        if names and kind in labels
    ]
    if pairs.one_sided:
        where = "; ".join(pairs.one_sided)
        warnings.append(f"not compared, since one of the arms was not run there: {where}")
    for column, absent, what in _RUN_UNLIKE:
        if n_pairs := int(np.sum(differs(pairs, column, absent=absent))):
            warnings.append(f"{plural(n_pairs, 'pair')} {what}; rounding differs")
    warnings += [*machine_cautions(pairs), *_copies(evidence), *filter(None, [evidence.equal])]
    return [f"{arm}: {warning}" for warning in warnings]


def _copies(evidence: Evidence) -> list[str]:
    """The sides whose repeated seeds are one result written twice."""
    sides, cells = _by_side(evidence, "loss"), evidence.pairs.cells
    text = copied_seeds({name: list(zip(cells, side, strict=True)) for name, side in sides.items()})
    return [text] if text else []


def _by_side(evidence: Evidence, column: str) -> dict[str, FloatArray]:
    """``column`` of the complete pairs, of the reference and of the arm."""
    sides = {evidence.reference: "reference", evidence.arm: "arm"}
    return {name: evidence.pairs.complete[f"{column}_{side}"].to_numpy(float) for name, side in sides.items()}
