"""The laws of several arms and their replicates, drawn together: whole runs' residuals with random signs.

A run that several arms share (the same value in the cluster column) has the same sign in each of them, so
that what it has in common goes out of a difference. Residuals are those of a fit without the run (for the
signs: Cameron, Gelbach & Miller 2008), so that a run which draws the law to itself does not hide its noise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalevec.analysis.comparison.line_laws import LARGEST_FACTOR, Multiplier, reached
from scalevec.analysis.data.pairs import pooled_settings
from scalevec.analysis.data.tidy import BoolArray, FloatArray, parameters_of, require_column
from scalevec.analysis.errors import DataError, nearest
from scalevec.analysis.fits.arm_data import ArmData, data_of_arms, fitted_laws
from scalevec.analysis.fits.fit import fit_warnings
from scalevec.analysis.fits.intervals import FEWEST_RESIDUAL_FREEDOM, MOST_FAILED, residuals_left_out, shifted
from scalevec.analysis.formatting import count, is_loss, joined
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.solver.newton import Solution
from scalevec.analysis.statistics.noise import FEWEST_CLUSTERS
from scalevec.analysis.statistics.paired import Estimate

POINTS_ON_THE_LINE = 5
ONE_LINE = 1.5
"""Tokens per parameter that differ by more lie on no line in compute."""
Rows = Mapping[str, FloatArray]
"""Parameters of a law: name -> [rows, 1]."""
Statistic = Callable[[Rows, Rows], FloatArray]
"""What follows from the laws of reference and arm [rows]."""


@dataclass(frozen=True)
class Surface:
    """The law of one arm; ``replicates`` are fits to bootstrap replicates, with ``df`` degrees of freedom.

    Without replicates ``reason`` says why. ``number`` is the arm's own in a law of several arms.
    """

    data: ArmData
    law: FittedLaw
    number: int
    replicates: Solution | None
    df: float
    reason: str = ""

    def rows(self, keep: BoolArray | None = None) -> Rows:
        """The best parameters [1, 1]; those of the replicates ``keep`` [draws] where these are given."""
        drawn = (
            self.law.theta[None] if keep is None or self.replicates is None else self.replicates.theta[keep]
        )
        values = self.law.points.parameters(drawn, self.number)
        return {name: of_name[:, None] for name, of_name in values.items()}

    @property
    def runs(self) -> frozenset[str]:
        """Its independent runs."""
        return frozenset(self.data.clusters)


def surfaces_of(arms: Sequence[ArmData]) -> dict[str, Surface]:
    """Return the law of each arm with replicates that are drawn together.

    Raises :class:`DataError` where the points of an arm leave a parameter free.
    """
    laws, draws = fitted_laws(arms), arms[0].options.bootstrap
    jointly = bool(laws[0].points.law.per_arm)
    runs = np.unique(np.concatenate([data.clusters.to_numpy(str) for data in arms]))
    signs = np.random.default_rng(arms[0].options.seed).choice([-1.0, 1.0], (draws, len(runs)))
    surfaces: list[Surface] = []
    for number, (data, law) in enumerate(zip(arms, laws, strict=True)):
        if jointly and surfaces:
            surfaces.append(replace(surfaces[0], data=data, law=law, number=number))
            continue
        of_law = arms if jointly else [data]
        codes = np.searchsorted(runs, np.concatenate([member.clusters.to_numpy(str) for member in of_law]))
        reason = _problem(of_law, law, len(np.unique(codes)))
        drawn = None if reason else replicates(law, codes, signs)
        df = len(np.unique(codes)) - law.theta.size
        surfaces.append(Surface(data, law, number if jointly else 0, drawn, df, reason))
    return {surface.data.arm: surface for surface in surfaces}


def replicates(law: FittedLaw, clusters: npt.NDArray[np.intp], signs: FloatArray) -> Solution:
    """The fits to the law's values plus each run's residuals times its sign [draws, runs]."""
    residuals, _ = residuals_left_out(law, np.unique(clusters, return_inverse=True)[1])
    return law.redone(y=shifted(law, signs[:, clusters] * residuals))


def _problem(arms: Sequence[ArmData], law: FittedLaw, n_runs: int) -> str:
    """Why the runs carry no interval, as a sentence; empty where they do."""
    needed = max(FEWEST_CLUSTERS, law.theta.size + FEWEST_RESIDUAL_FREEDOM)
    doubts = [data.doubt for data in arms if data.doubt]
    several = pooled_settings(pd.concat([data.rows for data in arms]), arms[0].options.settings)
    if arms[0].options.bootstrap == 0:
        return "no interval was asked for"
    if several:
        return f"no interval: values of {joined(several)} differ at one rung, by more than seed noise"
    if n_runs < needed:
        return f"no interval: {n_runs} independent runs for {law.theta.size} parameters, fewer than {needed}"
    return doubts[0] if doubts else ""


def estimated(statistic: Statistic, reference: Surface, arm: Surface) -> tuple[Estimate, str]:
    """A quantity of both laws with its standard error, and why it has none (empty where it has).

    Degrees of freedom are Satterthwaite's over the arms' parts; the fewer of the two where runs are shared.
    """
    value = float(statistic(reference.rows(), arm.rows())[0])
    without = Estimate(value, float("nan"), 0)
    if reference.replicates is None or arm.replicates is None:
        return without, reference.reason or arm.reason
    keep = reference.replicates.optimal & arm.replicates.optimal
    if np.mean(~keep) > MOST_FAILED:
        return without, f"no interval: {int(np.sum(~keep))} of {len(keep)} replicates leave a parameter free"
    both = reference.rows(keep), arm.rows(keep)
    values = statistic(*both)
    parts = [np.var(statistic(both[0], arm.rows())), np.var(statistic(reference.rows(), both[1]))]
    if not np.all(np.isfinite([*values, *parts])):
        return without, "no interval: within the noise the reference may never reach this loss"
    shared = reference.law is arm.law or bool(reference.runs & arm.runs)
    df = min(reference.df, arm.df)
    if not shared and np.sum(parts) > 0:
        of_arms = zip(parts, (reference, arm), strict=True)
        df = float(np.sum(parts) ** 2 / np.sum([part**2 / side.df for part, side in of_arms]))
    return Estimate(value, float(np.std(values)), df), ""


@dataclass(frozen=True)
class LawDifference:
    """Arm minus reference of the laws at a point (counts, FLOPs); ``interval`` is descriptive."""

    at: dict[str, float]
    estimate: float
    interval: tuple[float, float] | None


def arms_on_line(
    results: pd.DataFrame, reference: str, options: AnalysisOptions, ratio: float | None = None
) -> "list[ArmOnLine]":
    """Return every other arm with the reference on the line of ``ratio`` tokens per parameter.

    Raises :class:`DataError` as :func:`compare_by_laws` does.
    """
    for column in ("arm", "n_params", "n_tokens"):
        require_column(results, column, "a comparison by laws")
    arms = data_of_arms(results, options)
    names = [data.arm for data in arms]
    if reference not in names or len(names) == 1:
        raise DataError(f"reference is {reference!r}; {nearest(reference, names)}; another arm is needed too")
    _require_line(arms)
    surfaces = surfaces_of(arms)
    chosen = ratio or float(pd.concat([_ends(surface) for surface in surfaces.values()]).median())
    others = (surfaces[name] for name in names if name != reference)
    return [ArmOnLine.of(surfaces[reference], arm, chosen) for arm in others]


def _require_line(arms: Sequence[ArmData]) -> None:
    """Refuse a law that says nothing along a line of sizes, or that lies across several."""
    options, law = arms[0].options, law_named(arms[0].options.law)
    if law.method != "points" or not set(law.variables) <= {"N", "D", "C", "x"}:
        shown = joined([*law.variables])
        raise DataError(
            f"law {law.name} ({shown}) has no line to compare arms on; allowed are laws in N, D or C"
        )
    if not is_loss(options.y):
        raise DataError(f"y is {options.y!r}; laws of losses are compared: its name starts with loss")
    reads_compute = "C" in law.variables or ("x" in law.variables and options.x == "C")
    if reads_compute and options.c_convention != "6nd":
        raise DataError(f"c_convention is {options.c_convention!r}; on a line C is 6ND: allowed is '6nd'")
    if law.variables != ("x",) or options.x != "C":
        return
    for data in arms:
        ratio = data.rows["n_tokens"] / data.rows["n_params"]
        if ratio.max() > ONE_LINE * ratio.min():
            raise DataError(
                f"arm {data.arm!r} has {ratio.min():.3g} to {ratio.max():.3g} tokens per parameter, which "
                "lie on no line in C: take a law in N and D (--law chinchilla), or one line with --where"
            )


def _ends(surface: Surface) -> "pd.Series[float]":
    """The tokens per parameter at which each run of an arm ends [runs]."""
    rows = surface.data.rows
    ratio = rows["n_tokens"] / parameters_of(rows, surface.data.options.n_convention)
    return ratio.groupby(rows[surface.data.options.cluster]).max()


@dataclass(frozen=True)
class ArmOnLine:
    """The laws of reference and arm on a line: ``compute`` [points] of it, and what the laws read there."""

    reference: Surface
    arm: Surface
    ratio: float
    compute: FloatArray

    @classmethod
    def of(cls, reference: Surface, arm: Surface, ratio: float) -> "ArmOnLine":
        """The line with ``ratio`` tokens per parameter over sizes and tokens that both were run at."""
        rows, convention = [s.data.rows for s in (reference, arm)], arm.data.options.n_convention
        sizes = [parameters_of(of_arm, convention) for of_arm in rows]
        tokens = [of_arm["n_tokens"].to_numpy(float) / ratio for of_arm in rows]
        low, high = max(v.min() for v in (*sizes, *tokens)), min(v.max() for v in (*sizes, *tokens))
        if not low < high:
            spans = " and ".join(
                f"N {count(n.min())} to {count(n.max())}, D {count(d.min())} to {count(d.max())}"
                for n, d in zip(sizes, (of_arm["n_tokens"] for of_arm in rows), strict=True)
            )
            raise DataError(
                f"{reference.data.arm!r} and {arm.data.arm!r} ({spans}) have no size in common at "
                f"{ratio:.3g} tokens per parameter"
            )
        return cls(reference, arm, ratio, 6 * ratio * np.geomspace(low, high, POINTS_ON_THE_LINE) ** 2)

    @property
    def options(self) -> AnalysisOptions:
        """How the laws were fitted."""
        return self.arm.data.options

    def places(self, compute: FloatArray) -> dict[str, FloatArray]:
        """N, D and C at ``compute`` on the line."""
        size = np.sqrt(compute / (6 * self.ratio))
        return {"N": size, "D": self.ratio * size, "C": compute}

    def variables(self, compute: FloatArray) -> dict[str, FloatArray]:
        """What the law reads at ``compute`` on the line."""
        known, read = self.places(compute), self.law.points.law.variables
        return {name: known[self.options.x if name == "x" else name] for name in read}

    @property
    def law(self) -> FittedLaw:
        """The arm's law; the reference's is of the same form."""
        return self.arm.law

    @property
    def both(self) -> tuple[Surface, Surface]:
        """The reference, then the arm."""
        return self.reference, self.arm

    def loss(self, parameters: Rows, **variables: FloatArray) -> FloatArray:
        """The law at ``variables`` [rows or 1, points]."""
        return self.law.points.law.predict(parameters, variables)

    def difference(self, compute: FloatArray) -> tuple[Estimate, str]:
        """The mean difference at ``compute`` [points] of the line."""
        at = {name: values[None] for name, values in self.variables(compute).items()}
        return estimated(
            lambda reference, arm: np.mean(self.loss(arm, **at) - self.loss(reference, **at), axis=1),
            self.reference,
            self.arm,
        )

    def multipliers(self, *, of_tokens: bool = False) -> tuple[Multiplier, ...]:
        """In the middle of the line and at its end; of tokens at one size for laws in N and D alone."""
        if of_tokens and set(self.law.points.law.variables) != {"N", "D"}:
            return ()
        first, largest = float(self.compute[0]), float(self.compute[-1])
        points = (("geometric middle", float(np.sqrt(first * largest))), ("largest", largest))
        return tuple(self.multiplier(*point, of_tokens=of_tokens) for point in points)

    def multiplier(self, name: str, compute: float, *, of_tokens: bool = False) -> Multiplier:
        """How many times the compute (or tokens) the reference needs for the arm's loss at ``compute``."""
        size, tokens, _ = (float(of[0]) for of in self.places(np.array([compute])).values())
        near, largest = compute, float(self.compute.max())
        if of_tokens:
            near, largest = tokens, float(self.reference.data.rows["n_tokens"].max())

        def along(parameters: Rows, at: FloatArray) -> FloatArray:
            fixed = {"N": np.full((len(at), 1), size), "D": at[:, None]}
            return self.loss(parameters, **(fixed if of_tokens else self.variables(at[:, None])))[:, 0]

        def log_ratio(reference: Rows, arm: Rows) -> FloatArray:
            n_rows = max(len(next(iter(side.values()))) for side in (reference, arm))
            loss = np.broadcast_to(along(arm, np.array([near])), n_rows)
            with np.errstate(divide="ignore"):
                return np.log(reached(lambda at: along(reference, at), loss, near) / near)

        estimate, note = estimated(log_ratio, self.reference, self.arm)
        if not abs(estimate.value) <= np.log(LARGEST_FACTOR):
            never = f"the reference's law never reaches this {self.options.y}"
            return Multiplier(name, compute, None, None, True, never)
        factor, ends = float(np.exp(estimate.value)), estimate.interval(self.options.level)
        interval = None if ends is None else (float(np.exp(ends[0])), float(np.exp(ends[1])))
        return Multiplier(name, compute, factor, interval, factor * near > largest * (1 + 1e-9), note)

    def along_the_line(self) -> tuple[LawDifference, ...]:
        """The difference at each point of the line."""
        result = []
        for compute in self.compute[:, None]:
            estimate, _ = self.difference(compute)
            at = {name: float(values[0]) for name, values in self.places(compute).items()}
            result.append(LawDifference(at, estimate.value, estimate.interval(self.options.level)))
        return tuple(result)

    def warnings(self) -> tuple[str, ...]:
        """Caveats of both laws."""
        return tuple(
            f"{surface.data.arm}: {warning}"
            for surface in self.both
            for warning in fit_warnings(surface.data, surface.law, surface.number)
        )
