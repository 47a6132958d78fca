"""Compare arms with a reference: paired differences, multipliers, trend, equivalence, and a verdict."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis import inference
from analysis.cautions import comparison_warnings, misfit_warnings, reference_warnings
from analysis.data import (
    DataError,
    checked,
    nearest,
    require_column,
)
from analysis.differences import (
    LossDifference,
    RungDifference,
    equivalence_test,
    overall_difference,
    rung_differences,
    trend_per_decade,
)
from analysis.inference import Estimate
from analysis.multipliers import Multiplier, multipliers, pair_noise
from analysis.pairs import (
    ARM_DIVERGED,
    BOTH_DIVERGED,
    MISSING,
    REFERENCE_DIVERGED,
    Pairs,
    make_pairs,
    varying,
)
from analysis.settings import FitSettings, settings_from
from analysis.sides import fitted_laws, held_out_difference, joint_against_separate
from analysis.subjects import comparison_arms
from analysis.verdict import Evidence, decide, sentence, would_change
from analysis.where import rows_left_out, select
from analysis.words import is_loss


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
    hold_out: dict[str, Any]
    """The difference at the largest rung, predicted by both laws from the other rungs, and as it was seen."""
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
    x: str
    y: str
    loss: str
    delta: float
    residual: str
    n_bootstrap: int
    seed: int
    cluster: str
    n_convention: str
    c_convention: str
    laws: tuple[dict[str, Any], ...]
    """The fitted law of each side in each variable that was needed, with its optimality and its starts."""
    where: str | None
    excluded: dict[str, int]
    """Rows of these arms that ``where`` leaves out."""

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
    hold_out: bool | str = True,
    **fit_settings: Any,
) -> list[Comparison]:
    """Compare every other arm with ``reference`` on paired comparison trials.

    ``margin`` (nats a token) is the difference below which arms count as equivalent; ``settings`` names
    further columns in which a pair must agree; ``hold_out`` is as in :func:`analysis.fitting.fit`;
    ``fit_settings`` are fields of :class:`analysis.settings.FitSettings`, of which ``y`` names the column
    that is compared (judged, by the margin too, only if its name starts with loss), ``cluster`` says which
    trials are not independent and ``bootstrap`` is the number of redraws for the multipliers' intervals.
    Raises :class:`DataError`.
    """
    chosen = settings_from(fit_settings)
    if chosen.interval != "auto":
        raise DataError(f"interval is {chosen.interval!r}; a comparison chooses its own: allowed is 'auto'")
    if margin is not None and not 0 < margin < float("inf"):
        raise DataError(f"margin is {margin!r}; allowed: a number of nats above zero, or none")
    table = _compared_column(select(results, where), chosen.y)
    others = other_arms(table, reference)
    parts = [_part(table, reference, arm, settings, chosen) for arm in others]
    _require_common_cells([part.pairs for part in parts], reference)
    p_values = [part.estimate.p_value() if part.estimate else None for part in parts]
    notes = reference_warnings(table, reference, chosen)
    found = [
        _comparison(part, reference, p, len(parts), margin, hold_out, chosen, notes)
        for part, p in zip(parts, inference.holm(p_values), strict=True)
    ]
    return [_of_chosen_rows(one, results, where) for one in found]


def _of_chosen_rows(found: Comparison, results: pd.DataFrame, where: str | None) -> Comparison:
    """The comparison with the expression that chose its rows, and how many it left out."""
    left_out = rows_left_out(results, where, [found.reference, found.arm])
    return dataclasses.replace(found, where=where, excluded={"where": left_out} if left_out else {})


def other_arms(table: pd.DataFrame, reference: str) -> list[str]:
    """The arms beside ``reference``, in the table's order. Raises :class:`DataError` where it is alone."""
    arms = comparison_arms(table)
    if reference not in arms:
        raise DataError(f"reference is {reference!r}, which is no arm; {nearest(reference, arms)}")
    others = [arm for arm in arms if arm != reference]
    if not others:
        raise DataError(f"reference is {reference!r}, the only arm; a comparison needs another one")
    return others


def _compared_column(results: pd.DataFrame, y: str) -> pd.DataFrame:
    """The checked table with the compared column under the name loss."""
    require_column(results, y)
    table = checked(results, ("n_params", "n_tokens", y))
    return table.assign(loss=table[y])


def _no_margin(margin: float | None, y: str) -> str:
    """Why no margin is applied."""
    return "no margin was given" if margin is None else f"the margin is in nats a token, {y} is not"


def _require_common_cells(all_pairs: list[Pairs], reference: str) -> None:
    """Refuse a table in which no arm has anything in common with the reference."""
    if any(pairs.table[["status_reference", "status_arm"]].notna().all(axis=1).any() for pairs in all_pairs):
        return
    key = ", ".join([*all_pairs[0].cell_columns, "seed"])
    own = all_pairs[0].table.loc[all_pairs[0].table["status_reference"].notna(), "rung"]
    others = pd.concat([pairs.table.loc[pairs.table["status_arm"].notna(), "rung"] for pairs in all_pairs])
    raise DataError(
        f"no arm has a trial in common with {reference!r}: a pair agrees in {key}; rungs of {reference!r}: "
        f"{', '.join(dict.fromkeys(own.astype(str)))}; of the others: "
        f"{', '.join(dict.fromkeys(others.astype(str)))}"
    )


def _part(
    table: pd.DataFrame, reference: str, arm: str, settings: Sequence[str] | None, chosen: FitSettings
) -> _Part:
    pairs = make_pairs(
        table,
        reference,
        arm,
        settings,
        cluster=chosen.cluster,
        n_convention=chosen.n_convention,
        c_convention=chosen.c_convention,
    )
    differences = pairs.differences
    estimate = inference.overall(differences, pairs.cells, pairs.clusters) if len(differences) else None
    worse = int(np.sum(differences > 0)) + len(pairs.of_kind(ARM_DIVERGED))
    better = int(np.sum(differences < 0)) + len(pairs.of_kind(REFERENCE_DIVERGED))
    return _Part(arm, pairs, estimate, inference.sign_p(worse, better) if worse > better else 1.0)


def _comparison(
    part: _Part,
    reference: str,
    p_holm: float | None,
    n_arms: int,
    margin: float | None,
    hold_out: bool | str,
    chosen: FitSettings,
    notes: list[str],
) -> Comparison:
    pairs = part.pairs
    evidence = _evidence(part, reference, p_holm, n_arms, margin if is_loss(chosen.y) else None, chosen)
    verdict, reasons = decide(evidence)
    found = multipliers(pairs, chosen)
    warnings = [*notes, *comparison_warnings(evidence, pairs)]
    if found.reason:
        warnings.append(found.reason)
    elif not pairs.dependent and is_loss(chosen.y):
        warnings += misfit_warnings(evidence, pairs, chosen.law)
    laws = [*found.laws, *fitted_laws(pairs, chosen, known=[law["x"] for law in found.laws])]
    return Comparison(
        reference=reference,
        arm=part.arm,
        pairs=evidence.n_pairs,
        loss_difference=overall_difference(pairs, part.estimate, p_holm, chosen.level),
        by_rung=tuple(rung_differences(pairs, chosen.level)),
        compute_multipliers=tuple(_noted(found.compute, evidence)),
        token_multipliers=tuple(_noted(found.token, evidence)),
        time_multipliers=tuple(_noted(found.time, evidence)),
        trend={**trend_per_decade(pairs, chosen.level), "multiplier_per_decade": found.per_decade},
        equivalence=equivalence_test(part.estimate, evidence.margin, _no_margin(margin, chosen.y)),
        joint=joint_against_separate(pairs, chosen),
        hold_out=held_out_difference(pairs, chosen, hold_out),
        verdict=verdict,
        sentence=sentence(evidence, verdict, reasons),
        would_change=would_change(evidence, verdict, reasons),
        warnings=(*warnings, *_unverified(laws)),
        arm_diverged=evidence.arm_diverged,
        reference_diverged=evidence.reference_diverged,
        both_diverged=evidence.both_diverged,
        missing=evidence.missing,
        level=chosen.level,
        n_bootstrap=chosen.bootstrap,
        laws=tuple(laws),
        where=None,
        excluded={},
        **{name: getattr(chosen, name) for name in _COPIED},
    )


_COPIED = ("law", "x", "y", "loss", "delta", "residual", "seed", "cluster", "n_convention", "c_convention")


def _noted(found: list[Multiplier], evidence: Evidence) -> list[Multiplier]:
    """Multipliers that say what the trials they rest on leave out."""
    remarks = ["complete pairs only"] if evidence.diverged else []
    remarks += [f"a learning rate of {name} is censored" for name in evidence.censored]
    return [dataclasses.replace(one, note="; ".join(filter(None, [one.note, *remarks]))) for one in found]


def _unverified(laws: list[dict[str, Any]]) -> list[str]:
    """A warning for each law whose fit is no verified optimum."""
    return [
        f"the law of the {law['side']} in {law['x']} is not a verified optimum: read no multiplier from it"
        for law in laws
        if not law["verified"]
    ]


def _evidence(
    part: _Part, reference: str, p_holm: float | None, n_arms: int, margin: float | None, chosen: FitSettings
) -> Evidence:
    pairs, estimate, level = part.pairs, part.estimate, chosen.level
    corrected = inference.level_of_holm(level, estimate.p_value() if estimate else None, p_holm, n_arms)
    parts = _parts(pairs)
    return Evidence(
        reference=reference,
        arm=part.arm,
        estimate=estimate,
        p_holm=p_holm,
        pair_sd=pair_noise(pairs) if estimate else float("nan"),
        n_pairs=len(pairs.complete),
        n_cells=len(np.unique(pairs.cells)),
        n_rungs=pairs.complete["rung"].nunique(),
        level=level,
        y=chosen.y,
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
        parts=tuple(map(_in_words, parts)),
        fragile=tuple(_fragile(pairs, parts, estimate, corrected)),
    )


def _censored(pairs: Pairs, side: str) -> bool:
    column = f"lr_status_{side}"
    return column in pairs.table and bool((pairs.table[column] == "censored").any())


def _same_trials(pairs: Pairs) -> bool:
    complete = pairs.complete
    if "trial_id_arm" not in complete or complete.empty:
        return False
    return bool((complete["trial_id_arm"] == complete["trial_id_reference"]).all())


def _parts(pairs: Pairs) -> list[str]:
    """The columns of which one value at a time is left out: rungs and settings, else budgets of tokens."""
    others = [name for name in pairs.cell_columns if name not in ("rung", "n_tokens")]
    return varying(pairs.complete, ["rung", *others]) or varying(pairs.complete, ["n_tokens"])


def _in_words(column: str) -> str:
    return "budget" if column == "n_tokens" else column.replace("_", " ")


def _fragile(pairs: Pairs, parts: list[str], estimate: Estimate | None, level: float) -> list[str]:
    """The values without which the interval at ``level`` excludes zero no longer, or on the other side."""
    interval = estimate.interval(level) if estimate else None
    if interval is None or interval[0] <= 0 <= interval[1]:
        return []
    complete, differences, cells, clusters = pairs.complete, pairs.differences, pairs.cells, pairs.clusters
    names = []
    for column, value in ((name, value) for name in parts for value in complete[name].unique()):
        keep = (complete[column] != value).to_numpy()
        rest = inference.overall(differences[keep], cells[keep], clusters[keep]).interval(level)
        if rest is None or rest[0] <= 0 <= rest[1] or rest[0] * interval[0] < 0:
            names.append(str(value) if column == "rung" else f"{_in_words(column)} {value}")
    return names
