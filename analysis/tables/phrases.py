"""What the cells and the notes of tables say, in the same words everywhere."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from scalevec.analysis.comparison.differences import CellMean, LossDifference
from scalevec.analysis.comparison.line_laws import Multiplier
from scalevec.analysis.comparison.trials import ComparedTrials
from scalevec.analysis.data.pairs import PairKind, differs
from scalevec.analysis.data.tidy import simulation_warnings
from scalevec.analysis.formatting import few, joined, loss_words, percent, signed
from scalevec.analysis.options import C_CONVENTIONS, N_CONVENTIONS, CConvention, NConvention

NO_VECTORS = "no vectors"
SEPARATED, CENSORED, EXTRAPOLATED = "*", "†", "‡"


def plus_minus(mean: CellMean) -> str:
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


def interim_stamp(trials: ComparedTrials) -> str:
    """``interim: none 3 of 8 pairs`` while planned pairs have no result, else empty."""
    arms = trials.interim()
    return f"interim: {'; '.join(arms)}" if arms else ""


def loss_notes(trials: ComparedTrials) -> list[str]:
    """How means and differences are to be read."""
    level = percent(trials.options.level)
    notes = [
        f"Loss: {', '.join(loss_words(trials.options.y, trials.options.unit))}, mean over seeds. "
        "Difference: arm minus "
        f"{trials.reference}, paired by seed; negative is better. ±: half the {level} interval "
        "(t, noise between the seeds of its rung); no ± where no seed repeats."
    ]
    if any(trials.pairs(arm).dependent for arm in trials.others):
        notes.append(
            "Some trials are not independent (they share a trunk or cluster): the interval of a cell is from "
            "its own seeds alone, that over all cells from whole clusters, if there are enough."
        )
    return notes + _unlike_notes(trials)


def _unlike_notes(trials: ComparedTrials) -> list[str]:
    """The arms whose pairs differ in a column that names cells, since another arm ran a grid of it."""
    arms_by_column = {
        column: [arm for arm in trials.others if differs(trials.pairs(arm), column).any()]
        for column in trials.cell_columns
    }
    return [
        f"Differences of {joined(arms)}: to {trials.reference} at another {column.replace('_', ' ')}, shown "
        "in the cells of the arm."
        for column, arms in arms_by_column.items()
        if arms
    ]


def best_note(trials: ComparedTrials, what: str) -> str:
    """What bold and the star mean."""
    return (
        f"Bold: the lowest mean {what}, among arms of which no trial diverged; {SEPARATED}: the "
        f"{percent(trials.options.level)} interval of its paired difference to the next lowest excludes "
        "zero (not corrected for several comparisons). Bold without it is a rank, not a finding."
    )


def conventions(n_convention: NConvention, c_convention: CConvention, *, vectors_known: bool) -> str:
    """What N and C count; a source that has no column of scale vectors is not told that N is without them."""
    counted = N_CONVENTIONS[n_convention]
    if not vectors_known:
        counted = re.sub(",? without scale vectors", "", counted)
    return f"N: {counted}; C: {C_CONVENTIONS[c_convention]}."


def convention_notes(trials: ComparedTrials) -> list[str]:
    """N, C, decay, learning rates, simulated results, and pairs without a difference."""
    return [
        conventions(
            trials.options.n_convention,
            trials.options.c_convention,
            vectors_known=trials.has("n_params_scale_vectors"),
        ),
        *decay_notes(trials),
        *rate_notes(trials),
        *fraction_notes(trials),
        *absence_notes(trials),
        *simulation_warnings(trials.rows),
    ]


def decay_notes(trials: ComparedTrials) -> list[str]:
    """Which vectors of which arm decay, and how strongly matrices do; nothing where no column tells."""
    if not trials.has("vector_decay"):
        return []
    by_policy = _arms_by(_decay_and_its_end, trials)
    if set(by_policy) == {NO_VECTORS}:
        return []
    decaying = "; ".join(f"{policy} in {joined(arms)}" for policy, arms in by_policy.items())
    strength = ""
    if trials.has("matrix_decay"):
        values = sorted(trials.rows["matrix_decay"].dropna().unique().tolist())
        strength = f" {', '.join(f'{value:g}' for value in values)} on matrices;"
    return [f"Weight decay:{strength} of the scale vectors decay: {decaying}."]


def _decay_and_its_end(rows: pd.DataFrame) -> str:
    """The decay policy, and whether it pulls to 1: where gains are stored by their distance from it."""
    policy = decay_of(rows)
    gains = set(rows["vector_gain"].dropna()) if "vector_gain" in rows else set()
    if policy in (NO_VECTORS, "none") or "1+w" not in gains:
        return policy
    return f"{policy} (towards 1)" if gains == {"1+w"} else f"{policy} (towards 0 or, with 1+w, 1)"


def decay_of(rows: pd.DataFrame) -> str:
    """The decay policy of an arm's scale vectors as text: all, none, input or output, or no vectors."""
    if "vector_branches" in rows and set(rows["vector_branches"]) == {"none"}:
        placements = set(rows["vector_placement"]) if "vector_placement" in rows else {"input"}
        if placements == {"input"}:
            return NO_VECTORS
    return ", ".join(sorted({str(policy) for policy in rows["vector_decay"].dropna()})) or "not recorded"


def rate_notes(trials: ComparedTrials) -> list[str]:
    """At which rungs each arm's learning rate was tuned, carried or censored."""
    if not trials.has("lr_status"):
        return ["Learning rates: this source does not say whether they were tuned."]
    arms_by_rates = _arms_by(_rates_of, trials)
    if len(arms_by_rates) == 1:
        return [f"Learning rate of every arm: {next(iter(arms_by_rates))}."]
    parts = (f"{joined(arms)} {rates}" for rates, arms in arms_by_rates.items())
    return [f"Learning rates: {'; '.join(parts)}."]


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


def fraction_notes(trials: ComparedTrials) -> list[str]:
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


def absence_notes(trials: ComparedTrials) -> list[str]:
    """A sentence for each arm with pairs that have no difference, so that no diverged trial goes unseen."""
    absences = {arm: trials.pairs(arm).absences.values() for arm in trials.others}
    notes = [absence_note(arm, trials.reference, absences[arm]) for arm in absences]
    return [note for note in (*notes, *(_later_note(trials, arm) for arm in trials.others)) if note]


def _later_note(trials: ComparedTrials, arm: str) -> str:
    """The pairs of ``arm`` that came after its verdict, or after the look that decided."""
    paired = trials.paired(arm)
    judged = set(paired.pairs.names(PairKind.COMPLETE))
    after = paired.beyond.names(PairKind.COMPLETE) if paired.beyond else []
    later = [name for name in after if name not in judged]
    return f"Not in the differences of {arm}, as they came after its verdict: {few(later)}." if later else ""


def absence_note(arm: str, reference: str, absences: Iterable[Sequence[str]]) -> str:
    """The pairs of an arm that have no difference as a sentence, from their names by the kinds of a pair.

    The kinds are those of :data:`NO_DIFFERENCE`, in their order; empty where all pairs have a difference.
    """
    kinds = (
        "diverged",
        f"{reference} diverged",
        "both diverged",
        "no result yet",
        "failed or cancelled",
        "run on one side only",
    )
    parts = [f"{kind} at {few(names)}" for kind, names in zip(kinds, absences, strict=True) if names]
    return f"Without a difference, {arm}: {' and '.join(parts)}." if parts else ""


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


def mark_notes(texts: Iterable[str]) -> list[str]:
    """What the marks mean that stand in ``texts``."""
    body = "".join(texts)
    meanings = {
        CENSORED: "learning rate censored at the edge of its grid: the loss is only an upper bound",
        EXTRAPOLATED: "extrapolated: the reference would need compute at which it was not run",
    }
    return [f"{mark}: {meaning}." for mark, meaning in meanings.items() if mark in body]


def breaks(settings: Sequence[object]) -> frozenset[int]:
    """The rows of ``settings`` at which another setting begins."""
    return frozenset(n for n in range(1, len(settings)) if settings[n] != settings[n - 1])
