"""What the cells and the notes of tables say, in the same words everywhere."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scalevec.analysis.comparison.differences import CellMean, LossDifference
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.doubts import simulation_warnings
from scalevec.analysis.data.pairs import PairKind, differs
from scalevec.analysis.formatting import few, joined, named_with_unit, percent, plural, signed
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS

CENSORED, EXTRAPOLATED = "†", "‡"
_MARKS = {
    CENSORED: "learning rate censored at the edge of its grid: the loss is only an upper bound",
    EXTRAPOLATED: "extrapolated: the reference would need compute at which it was not run",
}


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
    interval = "" if shown.interval is None else f" [{shown.interval[0]:.2f}, {shown.interval[1]:.2f}]"
    return f"{shown.estimate:.2f}{interval}{EXTRAPOLATED if shown.extrapolated else ''}"


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


def loss_notes(trials: ComparedTrials, n_arms: int) -> list[str]:
    """How differences, their mean and its p-value are to be read; ``n_arms`` are those of Holm's family."""
    options, reference = trials.options, trials.reference
    notes = [
        f"Difference: {named_with_unit(options.y, options.unit)}, arm minus {reference}, paired by "
        f"seed; negative is better. ±: half the {percent(options.level)} interval; none where no seed "
        "repeats. Mean: every cell has the same weight, rungs of one run are left out. p: two-sided t test, "
        f"by Holm over {plural(n_arms, 'arm')}."
    ]
    # A column names cells as soon as one arm ran a grid of it; another arm may have run one other value.
    for column in trials.cell_columns:
        if arms := [arm for arm in trials.others if differs(trials.pairs(arm), column).any()]:
            notes.append(f"{joined(arms)}: compared with {reference} at another {column.replace('_', ' ')}.")
    return notes


def multiplier_note(trials: ComparedTrials, where: str) -> str:
    """What a multiplier is."""
    return (
        f"Multiplier: how many times the compute {trials.reference} needs for the arm's loss, {where}; above "
        "one the arm saves; interval in brackets."
    )


def convention_notes(trials: ComparedTrials) -> list[str]:
    """N, C, learning rates, simulated results, and pairs without a difference."""
    options = trials.options
    counted = N_CONVENTIONS[options.n_convention]
    if not trials.has("n_params_scale_vectors"):  # a source without them is not told that N is
        counted = re.sub(",? without scale vectors", "", counted)
    return [
        f"N: {counted}; C: {C_CONVENTIONS[options.c_convention]}.",
        _rate_note(trials),
        *_absence_notes(trials),
        *simulation_warnings(trials.rows),
    ]


def _rate_note(trials: ComparedTrials) -> str:
    """At which rungs each arm's learning rate was tuned, carried or censored."""
    if not trials.has("lr_status"):
        return "Learning rates: this source does not say whether they were tuned."
    by_rates: dict[str, list[str]] = {}
    for arm in trials.arms:
        rows = trials.of_arm(arm).sort_values(["n_params", "lr_status"], kind="stable")
        rungs = rows.groupby("lr_status", sort=False)["rung"].unique()
        rates = (f"{status or 'not recorded'} at {joined(list(names))}" for status, names in rungs.items())
        by_rates.setdefault(", ".join(rates), []).append(arm)
    return f"Learning rates: {'; '.join(f'{joined(arms)} {rates}' for rates, arms in by_rates.items())}."


def _absence_notes(trials: ComparedTrials) -> list[str]:
    """A sentence for each arm with pairs that have no difference, so that no diverged trial goes unseen."""
    notes = []
    for arm in trials.others:
        paired = trials.paired(arm)
        parts = [f"{kind} at {few(names)}" for kind, names in paired.pairs.absences.items() if names]
        judged = paired.pairs.names(PairKind.COMPLETE)
        beyond = paired.beyond.names(PairKind.COMPLETE) if paired.beyond else []
        if later := [name for name in beyond if name not in judged]:
            parts.append(f"after its verdict at {few(later)}")
        notes += [f"Without a difference, {arm}: {' and '.join(parts)}."] if parts else []
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
