"""The second question: does the gain grow, hold or shrink with scale?

A lower loss at some sizes is not better scaling. What is asked is how the compute multiplier changes per
decade of C: it holds where the 90 % interval of that factor lies within 10 % of one (two one-sided tests at
5 %), it grows or shrinks where Holm's correction over the arms leaves the change significant. Laws that miss
the hold-out of the difference by more than its own prediction interval answer nothing.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scalevec.analysis.comparison.differences import EQUIVALENCE_LEVEL
from scalevec.analysis.comparison.independence import Independence
from scalevec.analysis.comparison.line_laws import FEWEST_RUNGS, ArmLaws, Multiplier, Parameters
from scalevec.analysis.data.pairs import Pairs
from scalevec.analysis.data.tidy import BoolArray, FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.formatting import limits, percent, signed, span
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.noise import t_quantile
from scalevec.analysis.statistics.paired import holm
from scalevec.analysis.statistics.rung_noise import Component, Error, RungNoise, satterthwaite, with_split
from scalevec.analysis.statistics.sample import PairedSample

Scaling = Literal["grows", "holds", "shrinks", "cannot be told"]
UNTOLD: Scaling = "cannot be told"
HOLDS = (0.9, 1.1)
"""The factors per decade of C within which a multiplier counts as holding."""


@dataclass(frozen=True)
class Growth:
    """How an arm's compute multiplier changes per decade of C: a factor with its error, or why there is none.

    ``log_error`` is the standard error of the factor's logarithm, with ``df`` degrees of freedom.
    """

    estimate: float = 1.0
    log_error: float = 0.0
    df: float = 0.0
    reason: str = ""

    def interval(self, level: float) -> tuple[float, float]:
        """The t interval of the factor."""
        half = t_quantile(level, self.df) * self.log_error
        low, high = np.exp([np.log(self.estimate) - half, np.log(self.estimate) + half])
        return float(low), float(high)

    def p_value(self) -> float | None:
        """Two-sided, against a multiplier that does not change; None where nothing can be told."""
        from scipy.special import stdtr

        if self.reason:
            return None
        return float(2 * stdtr(self.df, -abs(np.log(self.estimate)) / self.log_error))


def growth_of(per_decade: Mapping[str, Any] | None, n_rungs: int, reasons: Sequence[str]) -> Growth:
    """What is known of the change; ``reasons`` stand against telling anything."""
    if n_rungs < FEWEST_RUNGS:
        reasons = [*reasons, f"{n_rungs} rungs cannot check a law"]
    if per_decade is None:
        reasons = [*reasons, "there is no multiplier along C"]
    elif not per_decade["log_error"]:
        reasons = [*reasons, per_decade["note"] or "its change has no interval"]
    if reasons or per_decade is None:
        return Growth(reason=reasons[0])
    return Growth(per_decade["estimate"], per_decade["log_error"], per_decade["df"])


def answers(
    family: Sequence[Growth], levels: Sequence[float], held: Sequence[Mapping[str, Any]]
) -> list[tuple[Scaling, str]]:
    """The answer for each arm, with Holm's correction over all of them, and its sentence.

    ``held`` are the hold-outs: an answer says so where none checks its laws.
    """
    p_holm = holm([growth.p_value() for growth in family])
    told = [_answer(*of_arm) for of_arm in zip(family, p_holm, levels, strict=True)]
    return [
        (answer, sentence if answer == UNTOLD else _with_remark(sentence, unchecked(of_arm)))
        for (answer, sentence), of_arm in zip(told, held, strict=True)
    ]


def _with_remark(sentence: str, remark: str) -> str:
    return f"{sentence} But {remark}." if remark else sentence


def _answer(growth: Growth, p_holm: float | None, level: float) -> tuple[Scaling, str]:
    if growth.reason or p_holm is None:
        return UNTOLD, f"Whether its gain grows or shrinks with scale cannot be told: {growth.reason}."
    factor, inner, whole = (
        f"a factor of {growth.estimate:.3f} per decade of C",
        growth.interval(EQUIVALENCE_LEVEL),
        growth.interval(level),
    )
    if HOLDS[0] <= inner[0] and inner[1] <= HOLDS[1]:
        shown = f"{percent(EQUIVALENCE_LEVEL)} interval {limits(inner, '.3f')}, within 10 %"
        return "holds", f"Its compute multiplier holds with scale: {factor} ({shown})."
    shown = f"{percent(level)} interval {limits(whole, '.3f')}"
    if p_holm < 1 - level:
        word: Scaling = "grows" if growth.estimate > 1 else "shrinks"
        return word, f"Its compute multiplier {word} with scale: {factor} ({shown})."
    return UNTOLD, (
        f"Whether its gain grows or shrinks with scale cannot be told: {factor} ({shown}). Its 90 % interval "
        "is not within 10 %, and no change is significant."
    )


def prediction_interval(
    pairs: Pairs, held: BoolArray, predicted: float, options: AnalysisOptions
) -> tuple[float, float] | None:
    """The interval in which the observed difference of the ``held`` complete pairs is expected.

    It holds the noise of the laws through the other rungs and that of the held pairs' own mean, each with the
    noise of its rungs, and the test split's error of what is left between them. None where either has no
    noise figure, or a planned pair no result. ``predicted`` is in nats/token.
    """
    if pairs.is_interim:
        return None
    rest = np.array(pairs.table["kind"] == "complete")
    rest[np.flatnonzero(rest)[held]] = False
    try:
        laws = ArmLaws(pairs.cut(rest), options, "C")
    except DataError:
        return None
    sample = Independence.of(pairs).sample(pairs)
    weights = held / held.sum()
    complete = pairs.complete
    losses = complete[["loss_reference", "loss_arm"]].to_numpy(float).T
    # In log loss, as that of the laws: pooled over rungs it is in proportion to the loss.
    of_held = RungNoise(np.log(losses), sample.cells, sample.clusters, sample.rungs)
    if not laws.df or not of_held.df:
        return None
    at = [complete.loc[held, f"compute_{side}"].to_numpy(float) for side in ("reference", "arm")]

    def difference(of_laws: Parameters) -> FloatArray:
        drawn = [_losses(law, x) for law, x in zip(of_laws, at, strict=True)]
        return np.asarray((drawn[1] - drawn[0]).mean(axis=1))

    # The errors of laws are those of the logarithm of a ratio: here of one whose logarithm is the difference.
    spread = float(np.std(difference(laws.replicates)))
    of_rest, _ = laws.error(lambda of_laws: np.exp(difference(of_laws)), spread, [])
    slopes = np.array([[-1.0], [1.0]]) * losses * weights
    errors = [_sum_of(of_rest, each) for each in of_held.errors(slopes)]
    without = difference(laws.left_out) if laws.left_out is not None else None
    error, _ = with_split(errors, _split_between(sample, weights, without))
    half = error.half(options.level)
    return predicted - half, predicted + half


def _sum_of(*errors: Error) -> Error:
    return satterthwaite([Component(error.standard_error**2, error.df) for error in errors])


def _split_between(
    sample: PairedSample, weights: FloatArray, predicted_without: FloatArray | None
) -> list[Component]:
    """The test split's part of predicted minus observed, by ``predicted_without`` each block [blocks]."""
    if sample.split is None or predicted_without is None:
        return []
    without = sample.split.without_each()
    observed = (without[:, 1] - without[:, 0]) @ weights
    return [Component(*sample.split.jackknife(predicted_without - observed))]


def _losses(law: Mapping[str, FloatArray], x: FloatArray) -> FloatArray:
    """The losses of replicates of a law at ``x`` [points]: [draws, points]."""
    floor = law.get("E", np.zeros(1))[:, None]
    return np.asarray(floor + law["A"][:, None] * x ** -law["alpha"][:, None], float)


def hold_out_problem(held: Mapping[str, Any]) -> str:
    """Why the hold-out forbids to extrapolate; empty where it does not."""
    if not held.get("fails"):
        return ""
    return (
        f"the hold-out fails: at {held['rung'][:80]} the difference is {signed(held['observed'])}, where the "
        f"laws of the other rungs predict {signed(held['predicted'])} ({span(held['interval'])})"
    )


def unchecked(held: Mapping[str, Any]) -> str:
    """Why no hold-out could have withheld anything, as a clause; empty where one could."""
    if held.get("interval"):
        return ""
    if reason := held.get("reason"):
        return f"no hold-out checks the laws ({reason})"
    return "no hold-out checks the laws (it has no prediction interval)"


def extrapolation_remark(multipliers: Sequence[Multiplier], held: Mapping[str, Any]) -> str:
    """What is to be said of those ``multipliers`` that are extrapolated; empty where none is."""
    beyond = any(multiplier.extrapolated for multiplier in multipliers)
    return (hold_out_problem(held) or unchecked(held)) if beyond else ""


def without_extrapolated(multipliers: Sequence[Multiplier], held: Mapping[str, Any]) -> list[Multiplier]:
    """The multipliers: no extrapolated figure where the hold-out fails, a note where none checks it."""
    return [_beyond(each, held) if each.extrapolated else each for each in multipliers]


def _beyond(multiplier: Multiplier, held: Mapping[str, Any]) -> Multiplier:
    if hold_out_problem(held):
        note = "withheld: the hold-out fails"
        return dataclasses.replace(
            multiplier, estimate=None, interval=None, note=note, seeds_error=None, split_error=None
        )
    note = "; ".join(filter(None, [multiplier.note, unchecked(held)]))
    return dataclasses.replace(multiplier, note=note)
