"""Compare arms with a reference: paired differences, multipliers, trend, equivalence, and a verdict."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis import inference
from analysis.data import DataError, checked, comparison_rows, nearest, simulation_warnings
from analysis.fitting import FitSettings, comparison_arms, settings_from
from analysis.inference import Estimate
from analysis.joint import likelihood_comparison
from analysis.laws import law_named
from analysis.multipliers import Multiplier, line_problem, multipliers, pair_noise
from analysis.noise import floor_profile
from analysis.pairs import (
    ARM_DIVERGED,
    BOTH_DIVERGED,
    MISSING,
    REFERENCE_DIVERGED,
    Pairs,
    disagreements,
    make_pairs,
    varying,
)
from analysis.verdict import Evidence, decide, sentence, would_change
from analysis.where import select

EQUIVALENCE_LEVEL = 0.90
"""Two one-sided tests at 5 % are a 90 % interval inside the margin."""


@dataclass(frozen=True)
class LossDifference:
    """Arm minus reference over all complete pairs, nats a token, equal weight for each cell."""

    mean: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    p_holm: float | None
    df: int
    pair_sd: float | None
    """Noise of one pair's difference, pooled within cells."""


@dataclass(frozen=True)
class RungDifference:
    """One cell, descriptive: ``sd`` of its own pairs, ``interval`` from the pooled noise."""

    rung: str
    n_params: int
    n_tokens: int
    setting: dict[str, Any]
    differences: tuple[float, ...]
    """One for each complete pair; their number is ``n``."""
    n: int
    loss_reference: float
    loss_arm: float
    mean: float
    sd: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference; the fields are those of ``scalevec compare --json``."""

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
    """A joint fit of both arms, which shares the exponents, against separate fits: does the gain change?"""
    verdict: str
    sentence: str
    would_change: str
    warnings: tuple[str, ...]
    arm_diverged: tuple[str, ...]
    reference_diverged: tuple[str, ...]
    both_diverged: tuple[str, ...]
    missing: tuple[str, ...]
    level: float
    law: str
    n_convention: str
    c_convention: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class _Part:
    """One arm's pairs and estimate, before the family's correction."""

    arm: str
    pairs: Pairs
    estimate: Estimate | None
    sign_p: float


def compare(
    results: pd.DataFrame,
    *,
    reference: str,
    margin: float | None = None,
    where: str | None = None,
    settings: Sequence[str] | None = None,
    draws: int = 1000,
    **fit_settings: Any,
) -> list[Comparison]:
    """Compare every other arm with ``reference`` on paired comparison trials.

    ``margin`` (nats a token) is the difference below which arms count as equivalent; ``settings`` names
    further columns in which a pair must agree; ``draws`` repetitions give the multipliers' intervals;
    ``fit_settings`` are fields of :class:`analysis.fitting.FitSettings`. Raises :class:`DataError`.
    """
    chosen = settings_from(fit_settings)
    if margin is not None and not 0 < margin < float("inf"):
        raise DataError(f"margin is {margin!r}; allowed: a number of nats above zero, or none")
    table = checked(select(results, where))
    arms = comparison_arms(table)
    if reference not in arms:
        raise DataError(f"reference is {reference!r}, which is no arm; {nearest(reference, arms)}")
    others = [arm for arm in arms if arm != reference]
    if not others:
        raise DataError(f"reference is {reference!r}, the only arm; a comparison needs another one")
    parts = [_part(table, reference, arm, settings, chosen) for arm in others]
    p_values = [part.estimate.p_value() if part.estimate else None for part in parts]
    notes = _reference_warnings(table, reference, chosen)
    return [
        _comparison(part, reference, p, len(parts), margin, draws, chosen, notes)
        for part, p in zip(parts, inference.holm(p_values), strict=True)
    ]


def _part(
    table: pd.DataFrame, reference: str, arm: str, settings: Sequence[str] | None, chosen: FitSettings
) -> _Part:
    pairs = make_pairs(
        table, reference, arm, settings, n_convention=chosen.n_convention, c_convention=chosen.c_convention
    )
    differences = pairs.differences
    estimate = inference.overall(differences, pairs.cells) if len(differences) else None
    worse = int(np.sum(differences > 0)) + len(pairs.of_kind(ARM_DIVERGED))
    better = int(np.sum(differences < 0)) + len(pairs.of_kind(REFERENCE_DIVERGED))
    return _Part(arm, pairs, estimate, inference.sign_p(worse, better) if worse > better else 1.0)


def _comparison(
    part: _Part,
    reference: str,
    p_holm: float | None,
    n_arms: int,
    margin: float | None,
    draws: int,
    chosen: FitSettings,
    notes: list[str],
) -> Comparison:
    pairs = part.pairs
    evidence = _evidence(part, reference, p_holm, n_arms, margin, chosen.level)
    verdict, reasons = decide(evidence)
    found, no_multiplier = multipliers(pairs, chosen, draws)
    warnings = [*notes, *_warnings(evidence, pairs), *([no_multiplier] if no_multiplier else [])]
    return Comparison(
        reference=reference,
        arm=part.arm,
        pairs=evidence.n_pairs,
        loss_difference=_loss_difference(part, p_holm, chosen.level),
        by_rung=tuple(_by_rung(pairs, chosen.level)),
        compute_multipliers=tuple(found["compute"]),
        token_multipliers=tuple(found["token"]),
        time_multipliers=tuple(found["time"]),
        trend=_trend(pairs, chosen.level),
        equivalence=_equivalence(part.estimate, margin),
        joint=_joint(pairs, chosen),
        verdict=verdict,
        sentence=sentence(evidence, verdict, reasons),
        would_change=would_change(evidence, verdict, reasons),
        warnings=tuple(warnings),
        arm_diverged=evidence.arm_diverged,
        reference_diverged=evidence.reference_diverged,
        both_diverged=evidence.both_diverged,
        missing=evidence.missing,
        level=chosen.level,
        law=chosen.law,
        n_convention=chosen.n_convention,
        c_convention=chosen.c_convention,
    )


def _evidence(
    part: _Part, reference: str, p_holm: float | None, n_arms: int, margin: float | None, level: float
) -> Evidence:
    pairs, estimate = part.pairs, part.estimate
    return Evidence(
        reference=reference,
        arm=part.arm,
        estimate=estimate,
        p_holm=p_holm,
        pair_sd=pair_noise(pairs) if estimate else float("nan"),
        n_pairs=len(pairs.complete),
        n_cells=len(np.unique(pairs.cells)),
        level=level,
        margin=margin,
        equivalence_p=inference.equivalence_p(estimate, margin) if estimate and margin else None,
        arm_diverged=tuple(pairs.names(ARM_DIVERGED)),
        reference_diverged=tuple(pairs.names(REFERENCE_DIVERGED)),
        both_diverged=tuple(pairs.names(BOTH_DIVERGED)),
        missing=tuple(pairs.names(MISSING)),
        reference_censored=_censored(pairs, "reference"),
        arm_censored=_censored(pairs, "arm"),
        same_trials=_same_trials(pairs),
        sign_p_holm=min(1.0, part.sign_p * n_arms),
        fragile=tuple(_fragile(pairs, estimate, level)),
    )


def _censored(pairs: Pairs, side: str) -> bool:
    column = f"lr_status_{side}"
    return column in pairs.table and bool((pairs.table[column] == "censored").any())


def _same_trials(pairs: Pairs) -> bool:
    complete = pairs.complete
    if "trial_id_arm" not in complete or complete.empty:
        return False
    return bool((complete["trial_id_arm"] == complete["trial_id_reference"]).all())


def _fragile(pairs: Pairs, estimate: Estimate | None, level: float) -> list[str]:
    """The rungs without which an interval that excludes zero would include it."""
    interval = estimate.interval(level) if estimate else None
    if interval is None or interval[0] <= 0 <= interval[1]:
        return []
    complete, differences, cells = pairs.complete, pairs.differences, pairs.cells
    names = []
    for rung in dict.fromkeys(complete["rung"]):
        keep = (complete["rung"] != rung).to_numpy()
        rest = inference.overall(differences[keep], cells[keep]).interval(level) if keep.any() else None
        if keep.any() and (rest is None or rest[0] <= 0 <= rest[1]):
            names.append(str(rung))
    return names


def _loss_difference(part: _Part, p_holm: float | None, level: float) -> LossDifference:
    estimate = part.estimate
    if estimate is None:
        return LossDifference(None, None, None, None, 0, None)
    sd = pair_noise(part.pairs) if estimate.df else None
    return LossDifference(
        estimate.value, estimate.interval(level), estimate.p_value(), p_holm, estimate.df, sd
    )


def _by_rung(pairs: Pairs, level: float) -> list[RungDifference]:
    complete, differences, cells = pairs.complete, pairs.differences, pairs.cells
    labels = np.unique(cells)
    settings = varying(complete, [c for c in pairs.cell_columns if c not in ("rung", "n_tokens")])
    rows = []
    for position, label in enumerate(labels):
        own = complete[cells == label]
        values = differences[cells == label]
        estimate = inference.contrast(differences, cells, np.eye(len(labels))[position])
        rows.append(
            RungDifference(
                rung=str(own["rung"].iloc[0]),
                n_params=int(own["n_params_reference"].iloc[0]),
                n_tokens=int(own["n_tokens"].iloc[0]),
                setting={name: str(own[name].iloc[0]) for name in settings},
                differences=tuple(values.tolist()),
                n=len(own),
                loss_reference=float(own["loss_reference"].mean()),
                loss_arm=float(own["loss_arm"].mean()),
                mean=float(values.mean()),
                sd=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                interval=estimate.interval(level),
            )
        )
    return rows


def _trend(pairs: Pairs, level: float) -> dict[str, Any]:
    """How the difference changes with each decade of the reference's compute, nats a token a decade."""
    decades = np.log10(pairs.complete["compute_reference"].to_numpy(float))
    found = inference.slope(pairs.differences, pairs.cells, decades) if len(decades) else None
    if found is None:
        return {"per_decade": None, "interval": None, "p_value": None}
    return {"per_decade": found.value, "interval": found.interval(level), "p_value": found.p_value()}


def _equivalence(estimate: Estimate | None, margin: float | None) -> dict[str, Any]:
    if margin is None:
        return {"margin": None, "note": "no margin was given"}
    if estimate is None or estimate.df == 0:
        return {"margin": margin, "p_value": None, "interval": None, "note": "no degree of freedom"}
    return {
        "margin": margin,
        "p_value": inference.equivalence_p(estimate, margin),
        "interval": estimate.interval(EQUIVALENCE_LEVEL),
        "level": EQUIVALENCE_LEVEL,
    }


def _joint(pairs: Pairs, chosen: FitSettings) -> dict[str, Any]:
    """The law with exponents and floor common to both arms, against a law for each."""
    problem = line_problem(pairs, chosen.law)
    if problem:
        return {"reason": problem}
    complete = pairs.complete
    sides = [
        ({"x": complete[f"compute_{side}"].to_numpy(float)}, complete[f"loss_{side}"].to_numpy(float))
        for side in ("reference", "arm")
    ]
    return likelihood_comparison(sides, law_named(chosen.law), chosen.options)


def _reference_warnings(table: pd.DataFrame, reference: str, chosen: FitSettings) -> list[str]:
    """What the reference's own ladder says about the law, and whether it was tuned."""
    rows = comparison_rows(table)
    found = simulation_warnings(rows)
    rows = rows[(rows["arm"] == reference) & (rows["status"] == "completed")]
    if len(rows) and rows["n_tokens"].nunique() > 1:
        compute = 6.0 * rows["n_params"].to_numpy(float) * rows["n_tokens"].to_numpy(float)
        profile = floor_profile(compute, rows["loss"].to_numpy(float))
        if not profile.identified and chosen.law != "chinchilla":
            found.append(f"{reference}: {profile.warning}")
    if "lr_status" in rows and (rows["lr_status"] == "fixed").any():
        found.append(f"the learning rate of {reference} was fixed, not tuned")
    return found


def _warnings(evidence: Evidence, pairs: Pairs) -> list[str]:
    found = []
    for label, names in (
        (f"{evidence.arm} diverged and {evidence.reference} did not", evidence.arm_diverged),
        (f"{evidence.reference} diverged and {evidence.arm} did not", evidence.reference_diverged),
        ("both diverged", evidence.both_diverged),
        ("no result of one or both sides", evidence.missing),
    ):
        if names:
            found.append(f"{label}: {'; '.join(names)}; no number enters the mean difference")
    for name, censored in (
        (evidence.reference, evidence.reference_censored),
        (evidence.arm, evidence.arm_censored),
    ):
        if censored:
            found.append(f"{name}: a learning rate is censored at the edge of its grid")
    micro_batch = disagreements(pairs, "micro_batch")
    if micro_batch:
        found.append(f"{micro_batch} pairs differ in micro-batch: the same sums in another order")
    p = inference.heterogeneity(pairs.differences, pairs.cells) if evidence.n_pairs else None
    if p is not None and p < evidence.alpha:
        found.append("the difference is not the same at all rungs: the mean speaks of these rungs only")
    if evidence.estimate is not None and 0 < evidence.estimate.df < 3:
        found.append(
            f"{evidence.estimate.df} degrees of freedom: the interval is wide because little is known"
        )
    return found
