"""What stands against a comparison beside its verdict: one sentence each."""

from typing import Any

import numpy as np

from scalevec.analysis.comparison import carried, environment
from scalevec.analysis.comparison.differences import excludes_zero
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.comparison.verdict import Evidence
from scalevec.analysis.data.pairs import (
    ARM_DIVERGED,
    BOTH_DIVERGED,
    FAILED,
    REFERENCE_DIVERGED,
    UNPAIRED,
    WAITING,
    PairKind,
    Pairs,
    differs,
)
from scalevec.analysis.data.runs import checkpoints
from scalevec.analysis.data.tidy import FloatArray, simulation_warnings, unit_warnings
from scalevec.analysis.fits.hold_out import lack_of_fit
from scalevec.analysis.formatting import degrees, equal_optima_warning, few, is_loss, plural
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.noise import copied_seeds, floor_profile

MEMBERS_REMEDY = "`scalevec run` writes it into members.json"


def unverified(laws: list[dict[str, Any]]) -> list[str]:
    """A warning for each law whose fit is no verified optimum."""
    return [
        f"the law of the {law['side']} in {law['x']} is not a verified optimum: read no multiplier from it"
        for law in laws
        if not law["verified"]
    ]


def not_unique(laws: list[dict[str, Any]]) -> list[str]:
    """A warning for each law whose optimum is not unique."""
    return [
        f"law of the {law['side']} in {law['x']}: {warning}"
        for law in laws
        for warning in equal_optima_warning(law["equal_parameters"])
    ]


def of_reference(trials: ComparedTrials) -> list[str]:
    """What the reference's own ladder says about the law, and whether it was tuned."""
    reference, options = trials.reference, trials.options
    warnings = simulation_warnings(trials.rows) + unit_warnings(trials.rows)
    if trials.n_unplaced:
        left_out = f"{plural(trials.n_unplaced, 'trial')} without a result left out"
        warnings.append(f"{left_out}: no record says of which size and token budget; {MEMBERS_REMEDY}")
    rows = trials.of_arm(reference, "completed")
    warnings += filter(None, [checkpoints(rows, options.cluster)])
    if len(rows) and rows["n_tokens"].nunique() > 1 and is_loss(options.y):
        compute = 6.0 * rows["n_params"].to_numpy(float) * rows["n_tokens"].to_numpy(float)
        profile = floor_profile(compute, rows["loss"].to_numpy(float))
        if not profile.identified and options.law != "chinchilla":
            warnings.append(f"{reference}: {profile.warning}")
    if "lr_status" in rows and (rows["lr_status"] == "fixed").any():
        warnings.append(f"the learning rate of {reference} was fixed, not tuned")
    if "lr_status" in trials.rows and (trials.rows["lr_status"] == "shared").any():
        warnings.append(f"learning rates were tuned for {reference} alone and are shared by all arms")
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


def of_pairs(evidence: Evidence, pairs: Pairs) -> list[str]:
    """What did not complete, was not tuned where it was run, or is known from little."""
    labels: dict[PairKind, str] = {
        ARM_DIVERGED: f"{evidence.arm} diverged and {evidence.reference} did not",
        REFERENCE_DIVERGED: f"{evidence.reference} diverged and {evidence.arm} did not",
        BOTH_DIVERGED: "both diverged",
        WAITING: "no result yet",
        FAILED: "failed or cancelled",
        UNPAIRED: "a trial of one arm without its counterpart",
    }
    warnings = [
        f"{labels[kind]}: {few(names)}; no number enters the mean difference"
        for kind, names in evidence.absences.items()
        if names
    ]
    if pairs.versions:
        both = " and ".join(map(str, pairs.versions))
        warnings.append(
            f"trials of identity versions {both} are not paired with each other: the random numbers of "
            "version 1 follow from the seed alone, so that equal seeds are not equal starts"
        )
    if pairs.one_sided:
        where = "; ".join(pairs.one_sided)
        warnings.append(
            f"the difference does not speak of settings that one of the arms was not run in: {where}"
        )
    warnings += [f"{name}: a learning rate is censored at the edge of its grid" for name in evidence.censored]
    if n_pairs := int(np.sum(differs(pairs, "micro_batch"))):
        used = f"{plural(n_pairs, 'pair')} used different micro-batch sizes"
        warnings.append(f"{used} (floating-point summation order differs)")
    if n_pairs := int(np.sum(differs(pairs, "world_size", absent=1))):
        used = f"{plural(n_pairs, 'pair')} used different numbers of processes"
        warnings.append(f"{used} (world_size; floating-point summation order differs)")
    if n_pairs := int(np.sum(differs(pairs, "arithmetic", absent="eager"))):
        used = f"{plural(n_pairs, 'pair')} of a trial with compiled blocks and one without"
        warnings.append(f"{used} (arithmetic; rounding differs as between two machines)")
    warnings += [*environment.cautions(pairs), *_carried(pairs), *carried.caution(pairs)]
    warnings += [*_copies(evidence, pairs), *filter(None, [evidence.equal])]
    testable = evidence.n_pairs and not pairs.related and not pairs.is_interim
    p = inference.heterogeneity(pairs.differences, pairs.cells) if testable else None
    if p is not None and p < evidence.alpha:
        warnings.append("the difference is not the same at all rungs: the mean speaks of these rungs only")
    estimate = evidence.estimate
    interval = evidence.difference.interval
    if estimate and interval and estimate.df < 3 and not excludes_zero(interval):
        warnings.append(f"{degrees(estimate.df)}: the interval is wide because little is known")
    return warnings


def _carried(pairs: Pairs) -> list[str]:
    """The rungs whose learning rate follows from smaller ones."""
    columns = [name for name in ("lr_status_reference", "lr_status_arm") if name in pairs.table]
    rows = pairs.table[(pairs.table[columns] == "carried").any(axis=1)]
    rungs = ", ".join(dict.fromkeys(rows["rung"]))
    return [f"learning rates at {rungs} are extrapolated from smaller rungs"] if rungs else []


def _copies(evidence: Evidence, pairs: Pairs) -> list[str]:
    """The sides whose repeated seeds are one result written twice."""
    sides = _by_side(evidence, pairs, "loss")
    text = copied_seeds({name: list(zip(pairs.cells, side, strict=True)) for name, side in sides.items()})
    return [text] if text else []


def of_misfit(evidence: Evidence, pairs: Pairs, law: str) -> list[str]:
    """Where the law that multipliers rest on misses the rungs; for independent pairs on one line in C."""
    losses, compute = (_by_side(evidence, pairs, column) for column in ("loss", "compute"))
    tests = {name: lack_of_fit(law, {"x": compute[name]}, losses[name]) for name in losses}
    return [f"{name}: {test.warning}" for name, test in tests.items() if test is not None and test.warning]


def _by_side(evidence: Evidence, pairs: Pairs, column: str) -> dict[str, FloatArray]:
    """``column`` of the complete pairs, of the reference and of the arm."""
    sides = {evidence.reference: "reference", evidence.arm: "arm"}
    return {name: pairs.complete[f"{column}_{side}"].to_numpy(float) for name, side in sides.items()}
