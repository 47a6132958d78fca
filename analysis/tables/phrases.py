"""What the cells and the notes of tables say, in the same words everywhere."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from analysis.data import C_CONVENTIONS, N_CONVENTIONS, simulation_warnings
from analysis.multipliers import Multiplier
from analysis.pairs import ARM_DIVERGED, BOTH_DIVERGED, MISSING, REFERENCE_DIVERGED
from analysis.tables.question import Key, Mean, Question
from analysis.words import joined, percent, signed

NO_VECTORS = "no vectors"
SEPARATED, CENSORED, EXTRAPOLATED = "*", "†", "‡"


def plus_minus(mean: Mean | None, form: str = "{:.4f}") -> str:
    """A mean with half the width of its interval; nothing where there is none."""
    if mean is None:
        return ""
    return form.format(mean.value) + _half(mean.interval)


def difference(mean: Mean | None) -> str:
    """A difference with its sign and half the width of its interval."""
    return "" if mean is None else signed(mean.value) + _half(mean.interval)


def _half(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" ± {(interval[1] - interval[0]) / 2:.4f}"


def multiplier(found: Multiplier | None) -> str:
    """A multiplier with its interval, marked where it is extrapolated."""
    if found is None or found.estimate is None:
        return ""
    mark = EXTRAPOLATED if found.extrapolated else ""
    interval = "" if found.interval is None else f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]"
    return f"{found.estimate:.2f}{interval}{mark}"


def bounds(name: str, value: float | None, interval: tuple[float, float] | None) -> dict[str, float | None]:
    """``name``, ``name_low`` and ``name_high`` of a record."""
    low, high = interval or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def of_mean(name: str, mean: Mean | None) -> dict[str, float | None]:
    """The same of a mean, or of none."""
    return bounds(name, mean.value if mean else None, mean.interval if mean else None)


def loss_notes(question: Question) -> list[str]:
    """How means and differences are to be read."""
    level = percent(question.settings.level)
    notes = [
        "Loss: test loss, nats a token, mean over seeds. Difference: arm minus "
        f"{question.reference}, paired by seed; negative is better. ±: half the {level} interval "
        "(t, seed noise pooled within cells); no ± where no seed repeats."
    ]
    if any(question.pairs(arm).dependent for arm in question.others):
        notes.append(
            "Some trials are not independent (they share a trunk or cluster): the interval of a cell is from "
            "its own seeds alone, that over all cells from whole clusters, if there are enough."
        )
    return notes


def best_note(question: Question, what: str) -> str:
    """What bold and the star mean."""
    return (
        f"Bold: the lowest mean {what}, among arms of which no trial diverged; {SEPARATED}: the "
        f"{percent(question.settings.level)} interval of its paired difference to the next lowest excludes "
        "zero (not corrected for several comparisons). Bold without it is a rank, not a finding."
    )


def convention_notes(question: Question) -> list[str]:
    """N, C, decay, learning rates, simulated results, and pairs without a difference."""
    settings = question.settings
    return [
        f"N: {N_CONVENTIONS[settings.n_convention]}; C: {C_CONVENTIONS[settings.c_convention]}.",
        decay_note(question),
        *rate_notes(question),
        *fraction_notes(question),
        *absence_notes(question),
        *simulation_warnings(question.trials),
    ]


def decay_note(question: Question) -> str:
    """Which vectors of which arm decay, and how strongly matrices do."""
    if not question.has("vector_decay"):
        return "Weight decay: this source does not say which scale vectors decay."
    policies: dict[str, list[str]] = {}
    for arm in question.arms:
        policies.setdefault(decay_of(question.trials[question.trials["arm"] == arm]), []).append(arm)
    said = "; ".join(f"{policy} in {joined(arms)}" for policy, arms in policies.items())
    strength = ""
    if question.has("matrix_decay"):
        values = sorted(question.trials["matrix_decay"].dropna().unique().tolist())
        strength = f" {', '.join(f'{value:g}' for value in values)} on matrices;"
    return f"Weight decay:{strength} of the scale vectors decay: {said}."


def decay_of(trials: pd.DataFrame) -> str:
    """The decay policy of an arm's scale vectors as text: all, none, input or output, or no vectors."""
    if "vector_branches" in trials and set(trials["vector_branches"]) == {"none"}:
        placed = set(trials["vector_placement"]) if "vector_placement" in trials else {"input"}
        if placed == {"input"}:
            return NO_VECTORS
    return ", ".join(sorted({str(policy) for policy in trials["vector_decay"].dropna()})) or "not recorded"


def rate_notes(question: Question) -> list[str]:
    """At which rungs each arm's learning rate was tuned, carried or censored."""
    if not question.has("lr_status") or not (question.trials["lr_status"] != "").any():
        return ["Learning rates: this source does not say whether they were tuned."]
    said: dict[str, list[str]] = {}
    for arm in question.arms:
        said.setdefault(_rates_of(question.trials[question.trials["arm"] == arm]), []).append(arm)
    if len(said) == 1:
        return [f"Learning rate of every arm: {next(iter(said))}."]
    return ["Learning rates: " + "; ".join(f"{joined(arms)} {rates}" for rates, arms in said.items()) + "."]


def _rates_of(trials: pd.DataFrame) -> str:
    ordered = trials.sort_values(["n_params", "lr_status"], kind="stable")
    found: dict[str, list[str]] = {}
    for status, rung in zip(ordered["lr_status"], ordered["rung"], strict=True):
        rungs = found.setdefault(str(status) or "not recorded", [])
        if rung not in rungs:
            rungs.append(str(rung))
    return ", ".join(f"{status} at {joined(rungs)}" for status, rungs in found.items())


def fraction_notes(question: Question) -> list[str]:
    """Which part of the full product of the settings was run, and which arms in a part of that."""
    columns = question.varying_settings
    if not columns:
        return []
    trials = question.trials
    run = {arm: set(_combinations(trials[trials["arm"] == arm], columns)) for arm in question.arms}
    n_run = len(set().union(*run.values()))
    n_product = math.prod(trials[name].nunique(dropna=False) for name in columns)
    fewer = [f"{arm} in {len(own)}" for arm, own in run.items() if len(own) < n_run]
    if n_run == n_product and not fewer:
        return []
    of_them = f"; {joined(fewer)} of them" if fewer else ""
    return [f"Fractional design: {n_run} of {n_product} combinations of {joined(columns)} were run{of_them}."]


def _combinations(trials: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The values of ``columns`` in each row, as text, so that one that is missing equals itself."""
    yield from zip(*(trials[name].astype(str) for name in columns), strict=True)


def absence_notes(question: Question) -> list[str]:
    """A sentence for each arm with pairs that have no difference, so that no diverged trial goes unseen."""
    kinds = {
        ARM_DIVERGED: "diverged",
        REFERENCE_DIVERGED: f"{question.reference} diverged",
        BOTH_DIVERGED: "both diverged",
        MISSING: "no result",
    }
    notes = []
    for arm in question.others:
        pairs = question.pairs(arm)
        said = [
            f"{word} at {'; '.join(pairs.names(kind))}" for kind, word in kinds.items() if pairs.names(kind)
        ]
        if said:
            notes.append(f"Without a difference, {arm}: {' and '.join(said)}.")
    return notes


def mark_notes(texts: Iterable[str]) -> list[str]:
    """What the marks mean that stand in ``texts``."""
    body = "".join(texts)
    meanings = {
        CENSORED: "learning rate censored at the edge of its grid: the loss is only an upper bound",
        EXTRAPOLATED: "extrapolated: the reference would need compute at which it was not run",
    }
    return [f"{mark}: {meaning}." for mark, meaning in meanings.items() if mark in body]


def breaks(settings: Sequence[Mapping[str, str]]) -> frozenset[int]:
    """The rows of ``settings`` at which another setting begins."""
    return frozenset(n for n in range(1, len(settings)) if settings[n] != settings[n - 1])


def ranked(question: Question, arms: Sequence[str], means: dict[str, dict[Key, Mean]], key: Key) -> list[str]:
    """The arms with a mean in the cell and no diverged trial there, the lowest mean first."""
    kept = [arm for arm in arms if key in means[arm] and key not in question.diverged(arm)]
    return sorted(kept, key=lambda arm: means[arm][key].value)


def is_separated(question: Question, best: str, following: str, key: Key) -> bool:
    """Whether the paired difference of ``best`` to the next lowest mean excludes zero."""
    found = question.differences(best, following).get(key)
    return found is not None and found.separated and found.value < 0
