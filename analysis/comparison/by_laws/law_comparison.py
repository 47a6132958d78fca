"""Arms that have no trial in common with the reference, compared by their laws along a line of sizes.

The line has one number of tokens per parameter, by default the median at which the runs of all arms end, and
goes over the sizes and tokens that both were run at. The verdict is that of the mean difference over the
line; multipliers are how many times the compute (the tokens, at one size) the reference's law needs for the
arm's loss.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.by_laws.surfaces import Rows, Surface, estimated, surfaces_of
from scalevec.analysis.comparison.fairness import SCHEMA_VERSION, Line
from scalevec.analysis.comparison.line_laws import LARGEST_FACTOR, Multiplier, described, reached
from scalevec.analysis.data.tidy import FloatArray, parameters_of, require_column
from scalevec.analysis.errors import DataError, nearest
from scalevec.analysis.fits.arm_data import ArmData, data_of_arms
from scalevec.analysis.fits.fit_warnings import fit_warnings
from scalevec.analysis.formatting import count, degrees, is_loss, joined, p_value, percent, signed, span
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions, OptionChanges, chosen_options
from scalevec.analysis.solver.best_fit import FittedLaw
from scalevec.analysis.statistics.paired import Estimate, equivalence_p, holm, level_of_holm

POINTS_ON_THE_LINE = 5
ONE_LINE = 1.5
"""Tokens per parameter that differ by more lie on no line in compute."""
LawVerdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True)
class LawDifference:
    """Arm minus reference of the laws at a point (counts, FLOPs); ``interval`` is descriptive."""

    at: dict[str, float]
    estimate: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class LawComparison:
    """One arm against the reference by their laws; the fields are those of ``scalevec compare --json``.

    Attributes:
        basis: ``laws``; that of a comparison of pairs is ``pairs``.
        at_sizes: What holds along the line: a ``code`` and its ``text``.
        tokens_per_parameter: That of the line.
        loss_difference: The mean difference of the laws over the line with its interval, degrees of freedom
            and p-values; ``note`` says why there is none.
        at: The difference at points of the line.
        compute_multipliers: How many times the arm's compute the reference needs for its loss, on the line.
        token_multipliers: The same in tokens at one size, for laws in N and D.
        laws: The fitted laws; ``runs`` of each arm are what varies.
    """

    reference: str
    arm: str
    law: str
    y: str
    level: float
    verdict: LawVerdict
    at_sizes: Line
    sentence: str
    tokens_per_parameter: float
    loss_difference: dict[str, Any]
    at: tuple[LawDifference, ...]
    compute_multipliers: tuple[Multiplier, ...]
    token_multipliers: tuple[Multiplier, ...]
    laws: tuple[dict[str, Any], ...]
    runs: dict[str, int]
    warnings: tuple[str, ...]
    n_bootstrap: int
    seed: int
    cluster: str
    basis: Literal["laws"] = "laws"
    schema_version: int = SCHEMA_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return dataclasses.asdict(self)


def compare_by_laws(
    results: pd.DataFrame,
    *,
    reference: str,
    options: AnalysisOptions | None = None,
    tokens_per_parameter: float | None = None,
    **changes: Unpack[OptionChanges],
) -> list[LawComparison]:
    """Compare every other arm with ``reference`` by the laws fitted to each, without pairs.

    Args:
        results: Tidy rows as for :func:`fit`; the cluster column says which rows are one run.
        reference: The arm that the others are compared with.
        options: How to fit; a law in which arms share exponents (``chinchilla-shared``) is fitted to all.
        tokens_per_parameter: That of the line; by default the median at which runs end.
        **changes: Fields of the options that stand over ``options``.

    Returns:
        One :class:`LawComparison` per other arm, p-values by Holm over them.

    Raises:
        DataError: Bad values, points that leave a parameter free, or a law that has no line here.
    """
    family = arms_on_line(results, reference, chosen_options(options, changes), tokens_per_parameter)
    estimates = [sides.mean() for sides in family]
    p_values = [estimate.p_value() for estimate, _ in estimates]
    return [
        _compared(sides, *estimate, both, len(family))
        for sides, estimate, both in zip(
            family, estimates, zip(p_values, holm(p_values), strict=True), strict=True
        )
    ]


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

    def mean(self) -> tuple[Estimate, str]:
        """The mean difference over the line."""
        return self.difference(self.compute)

    def difference(self, compute: FloatArray) -> tuple[Estimate, str]:
        """The mean difference at ``compute`` [points] of the line."""
        at = {name: values[None] for name, values in self.variables(compute).items()}
        return estimated(
            lambda reference, arm: np.mean(self.loss(arm, **at) - self.loss(reference, **at), axis=1),
            self.reference,
            self.arm,
        )

    def compute_multiplier(self, name: str, compute: float) -> Multiplier:
        """How many times the compute the reference needs for the arm's loss at ``compute``."""

        def along(parameters: Rows, at: FloatArray) -> FloatArray:
            return self.loss(parameters, **self.variables(at[:, None]))[:, 0]

        return self._multiplier(name, compute, compute, along, float(self.compute.max()))

    def token_multiplier(self, name: str, compute: float) -> Multiplier:
        """The same in tokens at the size that ``compute`` has on the line."""
        size, tokens, _ = self.places(np.array([compute])).values()

        def along(parameters: Rows, at: FloatArray) -> FloatArray:
            return self.loss(parameters, N=np.full((len(at), 1), size), D=at[:, None])[:, 0]

        largest = float(self.reference.data.rows["n_tokens"].max())
        return self._multiplier(name, compute, float(tokens[0]), along, largest)

    def _multiplier(self, name: str, compute: float, near: float, along: Any, largest: float) -> Multiplier:
        def log_ratio(reference: Rows, arm: Rows) -> FloatArray:
            n_rows = max(len(next(iter(side.values()))) for side in (reference, arm))
            loss = np.broadcast_to(along(arm, np.array([near])), n_rows)
            with np.errstate(divide="ignore"):
                return np.log(reached(lambda at: along(reference, at), loss, near) / near)

        estimate, note = estimated(log_ratio, self.reference, self.arm)
        if not abs(estimate.value) <= np.log(LARGEST_FACTOR):
            return Multiplier(
                name, compute, None, None, True, f"the reference's law never reaches this {self.options.y}"
            )
        factor, ends = float(np.exp(estimate.value)), estimate.interval(self.options.level)
        interval = None if ends is None else (float(np.exp(ends[0])), float(np.exp(ends[1])))
        return Multiplier(name, compute, factor, interval, factor * near > largest * (1 + 1e-9), note)

    def multipliers(self, *, of_tokens: bool = False) -> tuple[Multiplier, ...]:
        """In the middle of the line and at its end; of tokens for laws in N and D alone."""
        if of_tokens and set(self.law.points.law.variables) != {"N", "D"}:
            return ()
        first, largest = float(self.compute[0]), float(self.compute[-1])
        at = self.token_multiplier if of_tokens else self.compute_multiplier
        return at("geometric middle", float(np.sqrt(first * largest))), at("largest", largest)

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
            for warning in fit_warnings(
                surface.data.rows, self.options, surface.law, surface.number, lack=None
            )
        )


def _compared(
    sides: ArmOnLine, mean: Estimate, note: str, p_values: tuple[float | None, float | None], n_arms: int
) -> LawComparison:
    """The comparison of two sides; ``p_values`` are that of the mean difference, and by Holm."""
    options, reference, arm = sides.options, sides.reference.data.arm, sides.arm.data.arm
    interval = mean.interval(level_of_holm(options.level, *p_values, n_arms))
    at = sides.along_the_line()
    crossing = _crossing(at, mean.value)
    verdict = "undecided" if crossing else law_verdict(mean, p_values[1], options, n_arms)
    law = sides.law.points.law
    of_mean = {"mean": mean.value, "interval": interval, "df": mean.df, "note": note}
    return LawComparison(
        reference=reference,
        arm=arm,
        law=options.law,
        y=options.y,
        level=options.level,
        verdict=verdict,
        at_sizes=_along(at, verdict, bool(crossing)),
        sentence=_sentence(sides, verdict, of_mean, p_values[1]) + crossing,
        tokens_per_parameter=sides.ratio,
        loss_difference={**of_mean, "p_value": p_values[0], "p_holm": p_values[1]},
        at=at,
        laws=tuple(described(s.data.arm, ", ".join(law.variables), s.law, s.number) for s in sides.both),
        runs={surface.data.arm: len(surface.runs) for surface in sides.both},
        warnings=sides.warnings(),
        n_bootstrap=options.bootstrap,
        seed=options.seed,
        cluster=options.cluster,
        compute_multipliers=sides.multipliers(),
        token_multipliers=sides.multipliers(of_tokens=True),
    )


def _along(at: Sequence[LawDifference], verdict: LawVerdict, crosses: bool) -> Line:
    """What holds along the line, as line 1 of a comparison by pairs says it of sizes."""
    where = f"N {count(at[0].at['N'])} to {count(at[-1].at['N'])}"
    if crosses:
        return Line("crosses", f"the laws cross on the line, {where}")
    word = {"better": "lower", "worse": "higher"}.get(verdict)
    if word is None:
        code = "within_margin_on_average" if verdict == "equivalent" else "not_resolved"
        return Line(code, f"{code.replace('_', ' ')}, {where}")
    if all(point.interval and point.interval[0] * point.interval[1] > 0 for point in at):
        return Line(f"{word}_at_all", f"{word} along the whole line, {where}")
    return Line(f"{word}_on_average", f"{word} on average along the line, {where}")


def _crossing(at: Sequence[LawDifference], mean: float) -> str:
    """A sentence where the laws differ against their mean at a point, beyond its noise; empty where not."""
    against = [
        point for point in at if point.interval and mean * point.estimate < 0 < np.prod(point.interval)
    ]
    if not against:
        return ""
    shown = f"{signed(against[0].estimate)} ({span(against[0].interval or (0.0, 0.0))})"
    return f" The laws cross: at N {count(against[0].at['N'])} the difference is {shown}: no mean decides."


def law_verdict(mean: Estimate, p_holm: float | None, options: AnalysisOptions, n_arms: int) -> LawVerdict:
    """What the mean difference over the line says, by its p-value after Holm's correction."""
    alpha = 1 - options.level
    if p_holm is not None and p_holm < alpha:
        return "better" if mean.value < 0 else "worse"
    within = options.margin and equivalence_p(mean, options.margin)
    return "equivalent" if within and within * n_arms < alpha else "undecided"


def _sentence(sides: ArmOnLine, verdict: LawVerdict, mean: Mapping[str, Any], p_holm: float | None) -> str:
    reference, arm = sides.reference.data.arm, sides.arm.data.arm
    openings = {
        "better": f"{arm} is better than {reference}",
        "worse": f"{arm} is worse than {reference}",
        "equivalent": f"{arm} and {reference} are equivalent within {sides.options.margin}",
        "undecided": f"{arm} against {reference} is undecided",
    }
    level = percent(sides.options.level)
    noise = mean["note"] or (
        f"{level} interval {span(mean['interval'])}, {degrees(mean['df'])}, Holm p {p_value(p_holm)}"
    )
    sizes = sides.places(sides.compute)["N"]
    return (
        f"{openings[verdict]}, by their laws: mean difference {signed(mean['mean'])} ({noise}) at "
        f"{sides.ratio:.3g} tokens per parameter from N {count(sizes[0])} to {count(sizes[-1])}, "
        "which no pairs check."
    )
