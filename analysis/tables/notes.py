"""What the cells and the notes of tables say, in the same words everywhere."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from scalevec.analysis.comparison.differences import CellMean, LossDifference
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind, differs
from scalevec.analysis.data.tidy import simulation_warnings
from scalevec.analysis.formatting import few, joined, loss_words, percent, plural, signed
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS

SEPARATED, CENSORED, EXTRAPOLATED = "*", "†", "‡"
_MARKS = {
    CENSORED: "learning rate censored at the edge of its grid: the loss is only an upper bound",
    EXTRAPOLATED: "extrapolated: the reference would need compute at which it was not run",
}
_NO_VECTORS = "no vectors"


def loss(mean: CellMean) -> str:
    """A mean with half the width of its interval."""
    return f"{mean.mean:.4f}{_half(mean.interval)}"


def difference(shown: CellMean | LossDifference | None) -> str:
    """A difference with its sign and half the width of its interval; nothing where there is none."""
    return "" if shown is None or shown.mean is None else signed(shown.mean) + _half(shown.interval)


def _half(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ± {(interval[1] - interval[0]) / 2:.4f}"


def multiplier(shown: Multiplier | None) -> str:
    """A multiplier with its interval, marked where it is extrapolated."""
    if shown is None or shown.estimate is None:
        return ""
    mark = EXTRAPOLATED if shown.extrapolated else ""
    interval = "" if shown.interval is None else f" [{shown.interval[0]:.2f}, {shown.interval[1]:.2f}]"
    return f"{shown.estimate:.2f}{interval}{mark}"


def bounds(name: str, value: float | None, interval: tuple[float, float] | None) -> dict[str, float | None]:
    """``name``, ``name_low`` and ``name_high`` of a record."""
    low, high = interval or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def of_mean(name: str, mean: CellMean | LossDifference | None) -> dict[str, float | None]:
    """The same of a mean, or of none."""
    return bounds(name, mean.mean if mean else None, mean.interval if mean else None)


def of_multiplier(name: str, shown: Multiplier | None) -> dict[str, Any]:
    """A multiplier as fields of a record: its compute, its bounds, whether it is extrapolated."""
    estimate, interval = (shown.estimate, shown.interval) if shown else (None, None)
    return {
        f"{name}_at_flops": shown and shown.at_flops,
        **bounds(name, estimate, interval),
        f"{name}_extrapolated": shown and shown.extrapolated,
    }


def loss_notes(trials: ComparedTrials) -> list[str]:
    """How means and differences are to be read."""
    options, reference = trials.options, trials.reference
    notes = [
        f"Loss: {', '.join(loss_words(options.y, options.unit))}, mean over seeds. Difference: arm minus "
        f"{reference}, paired by seed; negative is better. ±: half the {percent(options.level)} interval "
        "(t, noise between the seeds of its rung); no ± where no seed repeats."
    ]
    if any(trials.pairs(arm).dependent for arm in trials.others):
        notes.append(
            "Some trials are not independent (they share a trunk or cluster): the interval of a cell is from "
            "its own seeds alone, that over all cells from whole clusters, if there are enough."
        )
    # A column names cells as soon as one arm ran a grid of it; another arm may have run one other value.
    for column in trials.cell_columns:
        if arms := [arm for arm in trials.others if differs(trials.pairs(arm), column).any()]:
            notes.append(
                f"Differences of {joined(arms)}: to {reference} at another {column.replace('_', ' ')}, shown "
                "in the cells of the arm."
            )
    return notes


def mean_note(n_arms: int, level: float) -> str:
    """What the mean over cells and its p-value are."""
    return (
        "Mean: over the cells, with the same weight for each, without rungs of one run; its interval is at "
        f"{percent(level)}. p: two-sided t test against zero, by Holm over {plural(n_arms, 'arm')}."
    )


def best_note(trials: ComparedTrials, what: str) -> str:
    """What bold and the star mean."""
    return (
        f"Bold: the lowest mean {what}, among arms of which no trial diverged; {SEPARATED}: the "
        f"{percent(trials.options.level)} interval of its paired difference to the next lowest excludes "
        "zero (not corrected for several comparisons). Bold without it is a rank, not a finding."
    )


def convention_notes(trials: ComparedTrials) -> list[str]:
    """N, C, decay, learning rates, simulated results, and pairs without a difference."""
    options = trials.options
    counted = N_CONVENTIONS[options.n_convention]
    if not trials.has("n_params_scale_vectors"):  # a source without them is not told that N is
        counted = re.sub(",? without scale vectors", "", counted)
    return [
        f"N: {counted}; C: {C_CONVENTIONS[options.c_convention]}.",
        *_decay_notes(trials),
        _rate_note(trials),
        *_fraction_notes(trials),
        *_absence_notes(trials),
        *simulation_warnings(trials.rows),
    ]


def _decay_notes(trials: ComparedTrials) -> list[str]:
    """Which vectors of which arm decay, and how strongly matrices do; nothing where no column tells."""
    by_policy = _arms_by(_decay_of, trials) if trials.has("vector_decay") else {}
    if set(by_policy) <= {_NO_VECTORS}:
        return []
    decaying = "; ".join(f"{policy} in {joined(arms)}" for policy, arms in by_policy.items())
    strength = ""
    if trials.has("matrix_decay"):
        values = sorted(trials.rows["matrix_decay"].dropna().unique().tolist())
        strength = f" {', '.join(f'{value:g}' for value in values)} on matrices;"
    return [f"Weight decay:{strength} of the scale vectors decay: {decaying}."]


def _decay_of(rows: pd.DataFrame) -> str:
    """Which vectors of an arm decay, and whether to 1: where gains are stored by their distance from it."""
    if "vector_branches" in rows and set(rows["vector_branches"]) == {"none"}:
        placements = set(rows["vector_placement"]) if "vector_placement" in rows else {"input"}
        if placements == {"input"}:
            return _NO_VECTORS
    policy = ", ".join(sorted({str(policy) for policy in rows["vector_decay"].dropna()})) or "not recorded"
    gains = set(rows["vector_gain"].dropna()) if "vector_gain" in rows else set()
    if policy == "none" or "1+w" not in gains:
        return policy
    return f"{policy} (towards 1)" if gains == {"1+w"} else f"{policy} (towards 0 or, with 1+w, 1)"


def _rate_note(trials: ComparedTrials) -> str:
    """At which rungs each arm's learning rate was tuned, carried or censored."""
    if not trials.has("lr_status"):
        return "Learning rates: this source does not say whether they were tuned."
    by_rates = _arms_by(_rates_of, trials)
    if len(by_rates) == 1:
        return f"Learning rate of every arm: {next(iter(by_rates))}."
    return f"Learning rates: {'; '.join(f'{joined(arms)} {rates}' for rates, arms in by_rates.items())}."


def _arms_by(describe: Callable[[pd.DataFrame], str], trials: ComparedTrials) -> dict[str, list[str]]:
    """The arms of which ``describe`` says the same about their trials."""
    arms: dict[str, list[str]] = {}
    for arm in trials.arms:
        arms.setdefault(describe(trials.of_arm(arm)), []).append(arm)
    return arms


def _rates_of(rows: pd.DataFrame) -> str:
    statuses = rows.sort_values(["n_params", "lr_status"], kind="stable").groupby("lr_status", sort=False)
    return ", ".join(
        f"{str(status) or 'not recorded'} at {joined(list(rungs.unique()))}"
        for status, rungs in statuses["rung"]
    )


def _fraction_notes(trials: ComparedTrials) -> list[str]:
    """Which part of the full product of the settings was run, and which arms in a part of that."""
    columns = trials.varying_settings
    if not columns:
        return []
    # As text, so that a missing value equals itself.
    texts = {arm: trials.of_arm(arm)[columns].map(str) for arm in trials.arms}
    run = {arm: set(of_arm.itertuples(index=False, name=None)) for arm, of_arm in texts.items()}
    n_run = len(set().union(*run.values()))
    n_product = math.prod(trials.rows[name].nunique(dropna=False) for name in columns)
    fewer = [f"{arm} in {len(of_arm)}" for arm, of_arm in run.items() if len(of_arm) < n_run]
    if n_run == n_product and not fewer:
        return []
    of_them = f"; {joined(fewer)} of them" if fewer else ""
    return [f"Fractional design: {n_run} of {n_product} combinations of {joined(columns)} were run{of_them}."]


def _absence_notes(trials: ComparedTrials) -> list[str]:
    """A sentence for each arm with pairs that have no difference, so that no diverged trial goes unseen."""
    kinds = (
        "diverged",
        f"{trials.reference} diverged",
        "both diverged",
        "no result yet",
        "failed or cancelled",
        "run on one side only",
    )
    notes = []
    for arm in trials.others:
        absences = zip(kinds, trials.pairs(arm).absences.values(), strict=True)
        if parts := [f"{kind} at {few(names)}" for kind, names in absences if names]:
            notes.append(f"Without a difference, {arm}: {' and '.join(parts)}.")
    for arm in trials.others:
        paired = trials.paired(arm)
        judged, beyond = (
            paired.pairs.names(PairKind.COMPLETE),
            paired.beyond.names(PairKind.COMPLETE) if paired.beyond else (),
        )
        if later := [name for name in beyond if name not in judged]:
            notes.append(f"Not in the differences of {arm}, as they came after its verdict: {few(later)}.")
    return notes


def arm_at(setting: Mapping[str, str], arm: str) -> str:
    """The arm, and the setting where there are several."""
    text = " ".join(f"{name} {value}" for name, value in setting.items())
    return f"{arm} at {text}" if text else arm


def remark_notes(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """Each remark once, with the names of what it is about, from pairs of a remark and a name."""
    names: dict[str, dict[str, None]] = {}
    for remark, name in remarks:
        names.setdefault(remark, {})[name] = None
    return [f"{', '.join(of_remark)}: {remark}." for remark, of_remark in names.items()]


def mark_notes(rows: Iterable[Iterable[str]]) -> list[str]:
    """What the marks mean that stand in ``rows``."""
    body = "".join(text for row in rows for text in row)
    return [f"{mark}: {meaning}." for mark, meaning in _MARKS.items() if mark in body]


def breaks(settings: Sequence[object]) -> frozenset[int]:
    """The rows of ``settings`` at which another setting begins."""
    return frozenset(n for n in range(1, len(settings)) if settings[n] != settings[n - 1])
