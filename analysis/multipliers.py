"""Multipliers: how many times the compute (tokens, time) the reference needs for the arm's loss.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds. The interval is a t interval on ln CM: its standard error is the spread of ln CM when the seeds'
noise is drawn anew around both laws (normal, with the covariance of log losses pooled within cells, so that
pairs stay pairs) and both are refitted; its degrees of freedom are pairs minus cells. Where no seed repeats
and there are enough rungs, the covariance is that of the residuals of least-squares fits, which is the
weaker interval and says so. It covers the noise, not a law of the wrong form.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.data import DataError, FloatArray
from analysis.estimate import Estimated, estimated
from analysis.inference import FEWEST_RUNGS_WITHOUT_SEEDS
from analysis.laws import law_named
from analysis.noise import pooled_noise, redraw, t_quantile, within_cells
from analysis.pairs import Pairs, varying
from analysis.parametrisation import Options, Parametrisation, require_identifiable
from analysis.settings import FitSettings

ONE_LINE = 1.1
"""Tokens per parameter may vary by this factor (whole batches) and still be one line."""
FEWEST_RUNGS = 3


@dataclass(frozen=True)
class Multiplier:
    """A multiplier at ``at_flops``; above one the arm saves. ``at`` says which point of the range it is.

    ``extrapolated``: the reference would need compute that it was not run at. Where ``estimate`` or
    ``interval`` is None, ``note`` says why.
    """

    at: str
    at_flops: float
    estimate: float | None
    interval: tuple[float, float] | None
    extrapolated: bool
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def line_problem(pairs: Pairs, law: str) -> str:
    """Why these pairs lie on no single line in compute, as one sentence; empty where they do."""
    complete = pairs.complete
    settings = [name for name in pairs.cell_columns if name not in ("rung", "n_tokens")]
    several = varying(complete, settings)
    if law_named(law).variables != ("x",):
        return f"multipliers need a law in one variable, not {law}"
    if several:
        return f"no multiplier across several values of {', '.join(several)}: choose one with where"
    if complete["compute_reference"].nunique() < 2:
        return "no multiplier from one rung"
    ratio = complete["n_tokens"] / complete["n_params_reference"]
    if len(ratio) and ratio.max() > ONE_LINE * ratio.min():
        return "no multiplier across several numbers of tokens per parameter: choose one with where"
    return ""


class Lines:
    """The laws of reference and arm in one variable, and of ``draws`` repetitions of the seeds' noise.

    ``x`` is C (FLOPs) or D (tokens). Raises :class:`DataError` for points that leave a parameter free.
    """

    def __init__(self, pairs: Pairs, settings: FitSettings, x: str, draws: int) -> None:
        complete = pairs.complete
        names = ("reference", "arm")
        self.law = law_named(settings.law)
        self.x = [complete[f"compute_{s}" if x == "C" else "n_tokens"].to_numpy(float) for s in names]
        losses = [complete[f"loss_{side}"].to_numpy(float) for side in names]
        self.fits: list[Estimated] = []
        for side, values, loss in zip(names, self.x, losses, strict=True):
            points = Parametrisation(self.law, {"x": values})
            require_identifiable(points, side, x)
            self.fits.append(estimated(points, loss, settings.options))
        self.parameters = [fit.points.parameters(fit.theta) for fit in self.fits]
        covariance, self.df, self.remark = self._noise(np.log(np.stack(losses)), pairs.cells, settings)
        self.drawn = []
        if self.df:
            drawn = redraw([fit.predicted() for fit in self.fits], covariance, draws, settings.seed)
            for fit, noisy in zip(self.fits, drawn, strict=True):
                self.drawn.append(fit.points.parameters(fit.redone(y=noisy).theta))
        else:
            self.drawn = self.parameters

    def _noise(
        self, logs: FloatArray, cells: FloatArray, settings: FitSettings
    ) -> tuple[FloatArray, int, str]:
        """Covariance of log losses between the sides, degrees of freedom, and a remark where it is weaker."""
        covariance, df = within_cells(logs, cells)
        if df or len(np.unique(cells)) < FEWEST_RUNGS_WITHOUT_SEEDS:
            return covariance, df, ""
        squares = Options("l2", settings.delta, "log")
        fits = [estimated(fit.points, fit.y, squares) for fit in self.fits]
        residuals = np.stack([fit.residuals() for fit in fits])
        df = residuals.shape[1] - fits[0].theta.size
        return residuals @ residuals.T / df, df, "noise from the residuals: no seed repeats"

    def range(self) -> tuple[float, float]:
        """The reference's smallest and largest x."""
        return float(self.x[0].min()), float(self.x[0].max())

    def needed(self, at: float) -> tuple[FloatArray, FloatArray]:
        """x that the reference needs for the arm's loss at ``at``: [1], and [draws] with redrawn noise."""
        return (
            _needed(self.parameters[0], self.parameters[1], at),
            _needed(self.drawn[0], self.drawn[1], at),
        )

    def multiplier(self, name: str, at: float, at_flops: float, level: float) -> Multiplier:
        """The multiplier at x = ``at`` with its interval."""
        needed, redrawn = self.needed(at)
        low, high = self.range()
        value = float(needed[0])
        outside = not low * (1 - 1e-9) <= value <= high * (1 + 1e-9)
        if not np.isfinite(value):
            return Multiplier(name, at_flops, None, None, True, "the reference's law never reaches this loss")
        interval, note = self._interval(np.log(value / at), redrawn / at, level)
        return Multiplier(name, at_flops, value / at, interval, outside, note or self.remark)

    def _interval(
        self, log_value: float, redrawn: FloatArray, level: float
    ) -> tuple[tuple[float, float] | None, str]:
        if self.df == 0:
            return None, "no interval: one seed a rung carries none"
        if len(np.unique(self.x[0])) < FEWEST_RUNGS:
            return None, f"no interval: fewer than {FEWEST_RUNGS} rungs cannot check the law"
        if not np.all(np.isfinite(redrawn)):
            return None, "no interval: within the noise the reference may never reach this loss"
        half = t_quantile(level, self.df) * float(np.std(np.log(redrawn)))
        if half > np.log(1e6):
            return None, "no interval: the noise leaves more than six orders of magnitude open"
        low, high = np.exp([log_value - half, log_value + half])
        return (float(low), float(high)), ""


def _needed(reference: dict[str, FloatArray], arm: dict[str, FloatArray], at: float) -> FloatArray:
    """Solve E + A / x^alpha = the arm's loss for x, row by row; infinite where there is no such x."""
    loss = arm["A"] * at ** -arm["alpha"] + arm.get("E", 0.0)
    above = loss - reference.get("E", np.zeros(1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.exp((np.log(reference["A"]) - np.log(above)) / reference["alpha"])
    return np.where((above > 0) & (reference["alpha"] > 0), needed, np.inf)


def multipliers(pairs: Pairs, settings: FitSettings, draws: int) -> tuple[dict[str, list[Multiplier]], str]:
    """Compute, token and time multipliers at the geometric middle and the largest shared compute.

    Returns them by name, and the reason as a sentence where there are none.
    """
    none: dict[str, list[Multiplier]] = {"compute": [], "token": [], "time": []}
    problem = line_problem(pairs, settings.law)
    if problem:
        return none, problem
    try:
        compute, tokens = (Lines(pairs, settings, x, draws) for x in ("C", "D"))
    except DataError as error:
        return none, f"no multiplier: {error}"
    points = _points(pairs.complete)
    return {
        "compute": [compute.multiplier(name, c, c, settings.level) for name, c, _ in points],
        "token": [tokens.multiplier(name, d, c, settings.level) for name, c, d in points],
        "time": _time_multipliers(pairs.complete, compute, points),
    }, ""


def _points(complete: pd.DataFrame) -> list[tuple[str, float, float]]:
    """(name, C, D) of the geometric middle and the largest compute that both arms were run at."""
    low = max(complete["compute_reference"].min(), complete["compute_arm"].min())
    high = min(complete["compute_reference"].max(), complete["compute_arm"].max())
    tokens = complete["n_tokens"]
    return [
        ("geometric middle", float(np.sqrt(low * high)), float(np.sqrt(tokens.min() * tokens.max()))),
        ("largest", float(high), float(tokens.max())),
    ]


def _time_multipliers(
    complete: pd.DataFrame, lines: Lines, points: list[tuple[str, float, float]]
) -> list[Multiplier]:
    """Time of the reference for the arm's loss over the arm's time; none without comparable wall times."""
    if "wall_s_reference" not in complete or not _timed_alike(complete):
        return []
    times = []
    for side in ("reference", "arm"):
        logs = np.log(complete[[f"compute_{side}", f"wall_s_{side}"]].to_numpy(float))
        times.append(np.polynomial.Polynomial.fit(logs[:, 0], logs[:, 1], 1))
    note = "no interval: wall times vary with the machine's load, which these trials do not measure"
    result = []
    for name, at, _ in points:
        needed = float(lines.needed(at)[0][0])
        if np.isfinite(needed):
            ratio = float(np.exp(times[0](np.log(needed)) - times[1](np.log(at))))
            low, high = lines.range()
            result.append(Multiplier(name, at, ratio, None, not low <= needed <= high, note))
    return result


def _timed_alike(complete: pd.DataFrame) -> bool:
    walls = complete[["wall_s_reference", "wall_s_arm"]].to_numpy(float)
    devices = complete[[name for name in complete if name in ("device_reference", "device_arm")]]
    one_device = len(pd.unique(devices.to_numpy().ravel())) <= 1
    return bool(np.all(np.isfinite(walls) & (walls > 0))) and one_device


def pair_noise(pairs: Pairs) -> float:
    """Standard deviation of a pair's difference, pooled within cells, nats a token; nan without repeats."""
    return pooled_noise(pairs.differences, pairs.cells).sd
