"""Compare arms with a reference: paired differences, multipliers, trend, equivalence, and a verdict."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.arm_laws import fitted_laws, held_out_difference, joint_against_separate
from scalevec.analysis.comparison.differences import (
    LossDifference,
    PairedArm,
    RungDifference,
    corrected_differences,
    excludes_zero,
    rung_differences,
    trend_per_decade,
)
from scalevec.analysis.comparison.multipliers import Multiplier, multipliers
from scalevec.analysis.comparison.trials import ComparedTrials, compared_trials
from scalevec.analysis.comparison.verdict import (
    Evidence,
    Verdict,
    decide,
    evidence_of,
    sentence,
    would_change,
)
from scalevec.analysis.data.pairs import (
    ARM_DIVERGED,
    BOTH_DIVERGED,
    MISSING,
    REFERENCE_DIVERGED,
    PairKind,
    Pairs,
    differs,
)
from scalevec.analysis.data.tidy import FloatArray, simulation_warnings, unit_warnings
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.law_tests import lack_of_fit
from scalevec.analysis.formatting import equal_optima_warning, is_loss, plural
from scalevec.analysis.options import (
    AnalysisOptions,
    CConvention,
    Loss,
    NConvention,
    OptionChanges,
    Residual,
    Variable,
    chosen_options,
)
from scalevec.analysis.statistics import paired as inference
from scalevec.analysis.statistics.noise import are_copies, floor_profile

_CRITERION = ("law", "x", "y", "loss", "delta", "residual", "n_convention", "c_convention")
_STATED = (*_CRITERION, "where", "level", "seed", "cluster")
"""The options that a comparison repeats under their own names."""


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference; the fields are those of ``scalevec compare --json``.

    Differences are arm minus reference in nats/token (or the unit of ``y``); multipliers are ratios, above
    one where the arm saves.

    Attributes:
        reference: The arm that is compared with.
        arm: The arm that is judged.
        pairs: Complete pairs: both sides completed, equal but for the arm.
        loss_difference: The mean difference over all pairs with its interval and p-values.
        by_rung: The difference of each rung and setting, descriptive.
        compute_multipliers: How many times the arm's compute (FLOPs) the reference needs for the same loss.
        token_multipliers: The same in training tokens.
        time_multipliers: The same in seconds of training.
        trend: Change of the difference (nats/token) and of the multiplier per decade of compute.
        equivalence: Two one-sided tests against the margin (nats/token), or why there are none.
        joint: A joint fit of both arms, which shares the exponents, against separate fits.
        hold_out: The difference at the largest rung, predicted by laws of the other rungs, and as observed;
            ``warnings`` are of those laws.
        verdict: ``better``, ``worse``, ``equivalent``, ``undecided`` or ``invalid``.
        sentence: The verdict with its figures, for people.
        would_change: What would change the verdict.
        warnings: Caveats, one sentence each.
        arm_diverged: Pairs of which the arm's side alone diverged, by name.
        reference_diverged: Pairs of which the reference's side alone diverged.
        both_diverged: Pairs of which both sides diverged.
        missing: Pairs of which one side is missing or failed.
        level: Level of the intervals.
        law: The law that gives multipliers; ``x`` is its variable (N, D or C) and ``y`` what is judged.
        loss: The loss of the fit; ``delta`` is Huber's and ``residual`` the scale it acts on.
        n_bootstrap: Bootstrap replicates; ``seed`` is theirs and ``cluster`` the column of dependent rows.
        n_convention: What N counts; ``c_convention`` what C counts.
        laws: The fitted law of each side in each variable that was needed, with its optimality and starts.
        where: The expression by which rows were chosen; None for all.
        excluded: Number of rows of these arms that ``where`` leaves out.
    """

    reference: str
    arm: str
    pairs: int
    loss_difference: LossDifference
    by_rung: tuple[RungDifference, ...]
    compute_multipliers: tuple[Multiplier, ...]
    token_multipliers: tuple[Multiplier, ...]
    time_multipliers: tuple[Multiplier, ...]
    trend: dict[str, Any]
    equivalence: dict[str, Any]
    joint: dict[str, Any]
    hold_out: dict[str, Any]
    verdict: Verdict
    sentence: str
    would_change: str
    warnings: tuple[str, ...]
    arm_diverged: tuple[str, ...]
    reference_diverged: tuple[str, ...]
    both_diverged: tuple[str, ...]
    missing: tuple[str, ...]
    level: float
    law: str
    x: Variable
    y: str
    loss: Loss
    delta: float
    residual: Residual
    n_bootstrap: int
    seed: int
    cluster: str
    n_convention: NConvention
    c_convention: CConvention
    laws: tuple[dict[str, Any], ...]
    where: str | None
    excluded: dict[str, int]

    @property
    def multipliers(self) -> dict[str, tuple[Multiplier, ...]]:
        """The multipliers by what is saved: compute, tokens, time."""
        return {
            "compute": self.compute_multipliers,
            "tokens": self.token_multipliers,
            "time": self.time_multipliers,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def compare(
    results: pd.DataFrame,
    *,
    reference: str,
    options: AnalysisOptions | None = None,
    **changes: Unpack[OptionChanges],
) -> list[Comparison]:
    """Compare every other arm with ``reference`` on paired comparison trials.

    Args:
        results: Tidy rows, one per trial: ``n_params``, ``n_tokens`` (counts) and ``loss`` (nats/token);
            ``arm``, ``rung``, ``seed``, ``cluster``, ``status`` and ``flops`` are used where present.
        reference: The arm that the others are compared with.
        options: How to compare; by default :class:`AnalysisOptions` with all its defaults.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One :class:`Comparison` per other arm, in the order of the table, with p-values corrected by Holm over
        the arms. A column ``y`` is judged (by the margin too) only if its name starts with loss.

    Raises:
        DataError: A value, a column or a design that cannot be compared; the message says which.
    """
    return compared(compared_trials(results, reference, chosen_options(options, changes)))


def compared(trials: ComparedTrials) -> list[Comparison]:
    """Compare every other arm of ``trials`` with the reference. Raises :class:`DataError`."""
    if trials.options.interval != "auto":
        raise DataError(
            f"interval is {trials.options.interval!r}; a comparison chooses its own: allowed is 'auto'"
        )
    family = [trials.paired(arm) for arm in trials.others]
    _require_common_cells([paired.pairs for paired in family], trials.reference)
    notes = _reference_warnings(trials)
    differences = corrected_differences(family, trials.options.level)
    return [
        _comparison(trials, paired, difference, notes)
        for paired, difference in zip(family, differences, strict=True)
    ]


def _require_common_cells(all_pairs: list[Pairs], reference: str) -> None:
    """Refuse a table in which no arm has anything in common with the reference."""
    if any(pairs.table[["status_reference", "status_arm"]].notna().all(axis=1).any() for pairs in all_pairs):
        return
    key = ", ".join([*all_pairs[0].cell_columns, "seed"])
    rungs, rungs_of_others = (
        dict.fromkeys(
            str(rung)
            for pairs in some
            for rung in pairs.table.loc[pairs.table[f"status_{side}"].notna(), "rung"]
        )
        for side, some in (("reference", all_pairs[:1]), ("arm", all_pairs))
    )
    raise DataError(
        f"no arm has a trial in common with {reference!r}: a pair agrees in {key}; rungs of {reference!r}: "
        f"{', '.join(rungs)}; of the others: {', '.join(rungs_of_others)}"
    )


def _comparison(
    trials: ComparedTrials, paired: PairedArm, difference: LossDifference, notes: list[str]
) -> Comparison:
    pairs, chosen = paired.pairs, trials.options
    evidence = evidence_of(trials, paired, difference)
    verdict, reasons = decide(evidence)
    left_out = trials.left_out([trials.reference, paired.arm])
    of_arm = multipliers(pairs, chosen)
    warnings = [*notes, *_comparison_warnings(evidence, pairs)]
    if of_arm.reason:
        warnings.append(of_arm.reason)
    elif not pairs.dependent and is_loss(chosen.y):
        warnings += _misfit_warnings(evidence, pairs, chosen.law)
    laws = [*of_arm.laws, *fitted_laws(pairs, chosen, known=[law["x"] for law in of_arm.laws])]
    return Comparison(
        reference=evidence.reference,
        arm=evidence.arm,
        pairs=evidence.n_pairs,
        loss_difference=difference,
        by_rung=tuple(rung_differences(pairs, chosen.level)),
        compute_multipliers=_noted(of_arm.compute, evidence),
        token_multipliers=_noted(of_arm.token, evidence),
        time_multipliers=_noted(of_arm.time, evidence),
        trend={**trend_per_decade(pairs, chosen.level), "multiplier_per_decade": of_arm.per_decade},
        equivalence=evidence.equivalence,
        joint=joint_against_separate(pairs, chosen),
        hold_out=held_out_difference(pairs, chosen),
        verdict=verdict,
        sentence=sentence(evidence, verdict, reasons),
        would_change=would_change(evidence, verdict, reasons),
        warnings=(*warnings, *_unverified(laws), *_not_unique(laws)),
        arm_diverged=evidence.absences[ARM_DIVERGED],
        reference_diverged=evidence.absences[REFERENCE_DIVERGED],
        both_diverged=evidence.absences[BOTH_DIVERGED],
        missing=evidence.absences[MISSING],
        n_bootstrap=chosen.bootstrap,
        laws=tuple(laws),
        excluded={"where": left_out} if left_out else {},
        **{name: getattr(chosen, name) for name in _STATED},
    )


def _noted(of_arm: Sequence[Multiplier], evidence: Evidence) -> tuple[Multiplier, ...]:
    """Multipliers that say what the trials they rest on leave out."""
    diverged = any(names for kind, names in evidence.absences.items() if kind != MISSING)
    remarks = ["complete pairs only"] if diverged else []
    remarks += [f"a learning rate of {name} is censored" for name in evidence.censored]
    return tuple(
        dataclasses.replace(multiplier, note="; ".join(filter(None, [multiplier.note, *remarks])))
        for multiplier in of_arm
    )


def _unverified(laws: list[dict[str, Any]]) -> list[str]:
    """A warning for each law whose fit is no verified optimum."""
    return [
        f"the law of the {law['side']} in {law['x']} is not a verified optimum: read no multiplier from it"
        for law in laws
        if not law["verified"]
    ]


def _not_unique(laws: list[dict[str, Any]]) -> list[str]:
    """A warning for each law whose optimum is not unique."""
    return [
        f"law of the {law['side']} in {law['x']}: {warning}"
        for law in laws
        for warning in equal_optima_warning(law["equal_parameters"])
    ]


def _reference_warnings(trials: ComparedTrials) -> list[str]:
    """What the reference's own ladder says about the law, and whether it was tuned."""
    reference, options = trials.reference, trials.options
    warnings = simulation_warnings(trials.rows) + unit_warnings(trials.rows)
    rows = trials.of_arm(reference, "completed")
    if len(rows) and rows["n_tokens"].nunique() > 1 and is_loss(options.y):
        compute = 6.0 * rows["n_params"].to_numpy(float) * rows["n_tokens"].to_numpy(float)
        profile = floor_profile(compute, rows["loss"].to_numpy(float))
        if not profile.identified and options.law != "chinchilla":
            warnings.append(f"{reference}: {profile.warning}")
    if "lr_status" in rows and (rows["lr_status"] == "fixed").any():
        warnings.append(f"the learning rate of {reference} was fixed, not tuned")
    return warnings


def _comparison_warnings(evidence: Evidence, pairs: Pairs) -> list[str]:
    """What did not complete, was not tuned where it was run, or is known from little."""
    labels: dict[PairKind, str] = {
        ARM_DIVERGED: f"{evidence.arm} diverged and {evidence.reference} did not",
        REFERENCE_DIVERGED: f"{evidence.reference} diverged and {evidence.arm} did not",
        BOTH_DIVERGED: "both diverged",
        MISSING: "no result of one or both sides",
    }
    warnings = [
        f"{labels[kind]}: {'; '.join(names)}; no number enters the mean difference"
        for kind, names in evidence.absences.items()
        if names
    ]
    if pairs.one_sided:
        where = "; ".join(pairs.one_sided)
        warnings.append(
            f"the difference does not speak of settings that one of the arms was not run in: {where}"
        )
    warnings += [f"{name}: a learning rate is censored at the edge of its grid" for name in evidence.censored]
    if n_pairs := int(np.sum(differs(pairs, "micro_batch"))):
        used = f"{plural(n_pairs, 'pair')} used different micro-batch sizes"
        warnings.append(f"{used} (floating-point summation order differs)")
    warnings += [*_carried(pairs), *_copies(evidence, pairs)]
    testable = evidence.n_pairs and not pairs.dependent
    p = inference.heterogeneity(pairs.differences, pairs.cells) if testable else None
    if p is not None and p < evidence.alpha:
        warnings.append("the difference is not the same at all rungs: the mean speaks of these rungs only")
    estimate = evidence.estimate
    interval = estimate.interval(evidence.options.level) if estimate else None
    if estimate and interval and estimate.df < 3 and not excludes_zero(interval):
        warnings.append(f"{estimate.df} degrees of freedom: the interval is wide because little is known")
    return warnings


def _carried(pairs: Pairs) -> list[str]:
    """The rungs whose learning rate follows from smaller ones."""
    columns = [name for name in ("lr_status_reference", "lr_status_arm") if name in pairs.table]
    rows = pairs.table[(pairs.table[columns] == "carried").any(axis=1)]
    rungs = ", ".join(dict.fromkeys(rows["rung"]))
    return [f"learning rates at {rungs} are extrapolated from smaller rungs"] if rungs else []


def _copies(evidence: Evidence, pairs: Pairs) -> list[str]:
    """The sides whose repeated seeds are one result written twice."""
    return [
        f"{name}: its repeated seeds are exact copies, which carry no noise and count as one seed"
        for name, losses in _by_side(evidence, pairs, "loss").items()
        if len(losses) and are_copies(losses, pairs.cells)
    ]


def _misfit_warnings(evidence: Evidence, pairs: Pairs, law: str) -> list[str]:
    """Where the law that multipliers rest on misses the rungs; for independent pairs on one line in C."""
    losses, compute = (_by_side(evidence, pairs, column) for column in ("loss", "compute"))
    tests = {name: lack_of_fit(law, {"x": compute[name]}, losses[name]) for name in losses}
    return [f"{name}: {test.warning}" for name, test in tests.items() if test is not None and test.warning]


def _by_side(evidence: Evidence, pairs: Pairs, column: str) -> dict[str, FloatArray]:
    """``column`` of the complete pairs, of the reference and of the arm."""
    sides = {evidence.reference: "reference", evidence.arm: "arm"}
    return {name: pairs.complete[f"{column}_{side}"].to_numpy(float) for name, side in sides.items()}
