"""Multipliers: how many times the compute the reference needs for the arm's loss, and what withholds them.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds; ``analysis.comparison.line_laws`` has the laws and the intervals.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.differences import INTERIM, PairedArm
from scalevec.analysis.comparison.fairness import SIDES
from scalevec.analysis.comparison.laws_of_runs import LawsOnLine, laws_of
from scalevec.analysis.comparison.line_laws import FEWEST_RUNGS, ArmLaws, Multiplier, Parameters
from scalevec.analysis.comparison.scale import trend_per_decade
from scalevec.analysis.data.pairs import PairKind, Pairs
from scalevec.analysis.data.tidy import BoolArray, FloatArray, varying
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.fit import fitted_arms
from scalevec.analysis.fits.hold_out import held_rows, lack_of_fit
from scalevec.analysis.formatting import joined, signed, span
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.statistics.noise import Component, RungNoise, longer, satterthwaite, with_split
from scalevec.analysis.statistics.sample import sample_of

BATCHES = 1.1
"""By this factor budgets may differ (whole batches) and still be one."""
REFUTED = 0.0125
"""The level of each of four tests of the laws, two of either arm: of right laws at most 5 % are withheld."""
_KEPT: WeakKeyDictionary[Pairs, dict[tuple[bytes, str], ArmLaws]] = WeakKeyDictionary()
"""The laws of pairs that are still in use, by the rows that are left out and the options."""
EXPECTED = {"difference": (-1.0, 1.0), "reference": (1.0, 0.0), "arm": (0.0, 1.0)}
"""What is predicted of a held rung, as weights of the losses of reference and arm."""
Expected = dict[str, tuple[float, tuple[float, float] | None]]
"""Each of those with its interval."""


def line_problem(pairs: Pairs, law: str) -> str:
    """Why these pairs lie on no single line in compute, as a clause; empty where they do.

    On a line more compute is no smaller size and no smaller budget, and a size has one budget or a budget one
    size: tokens per parameter may change along it, as in a ladder of tables, or stand for one of both alone.
    """
    complete = pairs.complete
    several = varying(complete, pairs.settings)
    if law_named(law).variables != ("x",):
        return f"multipliers need a law in one variable, not {law_named(law).name}"
    if several:
        return f"several values of {', '.join(several)}: choose one with where"
    if complete["compute_reference"].nunique() < 2:
        return "one rung is no curve"
    by_compute = complete.sort_values("compute_reference", kind="stable")
    sizes, budgets = (by_compute[name].to_numpy(float) for name in ("n_params_reference", "n_tokens"))
    rises = all(np.all(values * BATCHES >= np.maximum.accumulate(values)) for values in (sizes, budgets))
    if not rises or (_vary_within(budgets, sizes) and _vary_within(sizes, budgets)):
        return "several budgets of one size: choose one with where, or a law in N and D (--law chinchilla)"
    return ""


def _vary_within(values: FloatArray, groups: FloatArray) -> bool:
    """Whether ``values`` differ by more than a batch where ``groups`` are equal."""
    of_groups = pd.Series(values).groupby(groups)
    return bool((of_groups.max() > BATCHES * of_groups.min()).any())


@dataclass(frozen=True)
class ShownLaws:
    """The laws in C of two arms, or None and the ``reason``; ``held`` is their hold-out.

    ``laws`` may stand although the ``reason`` withholds what follows from them.
    """

    laws: ArmLaws | None
    reason: str
    held: dict[str, Any]
    line: str = ""
    """The tokens per parameter along the line, where they are not one number."""

    def multiplier(self, compute: float, name: str = "largest") -> Multiplier:
        """The multiplier at ``compute``; one that is extrapolated says where no hold-out checks its laws."""
        if self.laws is None:
            raise DataError(self.reason)
        at_compute = self.laws.multiplier(name, compute)
        unchecked = self.unchecked if at_compute.extrapolated else ""
        note = "; ".join(filter(None, [self.line, at_compute.note, unchecked]))
        return dataclasses.replace(at_compute, note=note)

    @property
    def unchecked(self) -> str:
        """Why no hold-out could have withheld anything, as a clause; empty where one could."""
        if self.held.get("interval"):
            return ""
        return f"no hold-out checks the laws ({self.held.get('reason', 'it has no prediction interval')})"


def common_range(complete: pd.DataFrame) -> tuple[float, float]:
    """The smallest and the largest compute that both arms were run at, FLOPs."""
    sides = [complete[f"compute_{side}"] for side in SIDES]
    return float(max(side.min() for side in sides)), float(min(side.max() for side in sides))


def of_laws(paired: PairedArm) -> dict[str, Any]:
    """The fields of a comparison that rest on laws fitted to the pairs.

    There is no multiplier where a loss is only a bound, or a side diverged.
    """
    pairs, options = paired.pairs, dataclasses.replace(paired.options, level=paired.level)
    if set(law_named(options.law).variables) == {"N", "D"}:
        return _in_n_and_d(paired, options)
    shown, change = laws_of_pairs(paired, options), None
    multipliers: tuple[Multiplier, ...] = ()
    if shown.laws and not shown.reason:
        low, high = common_range(pairs.complete)
        multipliers, change = (shown.multiplier(high),), shown.laws.change(low, high)
        change = change and {**change, "checked": not shown.unchecked}
    return {
        "withheld": shown.reason,
        "hold_out": shown.held,
        "laws": tuple(shown.laws.described()) if shown.laws else (),
        "compute_multipliers": multipliers,
        "trend": {**trend_per_decade(paired), "multiplier_per_decade": change},
    }


def _against(paired: PairedArm) -> str:
    """What stands against any law of these pairs: a loss that is only a bound, a side that diverged."""
    if bound := dict.fromkeys(side for size in paired.sizes for side in size.bound):
        return f"a loss of {' and '.join(paired.names[side] for side in bound)} is only a bound"
    absences = paired.pairs.absences
    diverged = absences[PairKind.ARM_DIVERGED] or absences[PairKind.REFERENCE_DIVERGED]
    return "a side of some pairs diverged" if diverged else ""


def _in_n_and_d(paired: PairedArm, options: AnalysisOptions) -> dict[str, Any]:
    """The same by a law in N and D: at the largest C on the line of the median tokens per parameter."""
    complete, names = paired.pairs.complete, paired.names
    plain = dataclasses.replace(options, y="loss", where=None, n_convention="as-given", cluster="cluster")
    rows = complete[["rung", "seed", "n_tokens"]]
    rows = rows.assign(n_params=complete["size_reference"], cluster=paired.pairs.clusters)
    table = pd.concat([rows.assign(arm=name, loss=complete[f"loss_{side}"]) for side, name in names.items()])
    trend, against = {**trend_per_decade(paired), "multiplier_per_decade": None}, _against(paired)
    fields: dict[str, Any] = {"hold_out": {}, "laws": (), "compute_multipliers": ()}
    fields |= {"withheld": against, "trend": trend}
    try:
        if paired.pairs.is_interim:
            raise DataError(INTERIM)
        if several := varying(complete, paired.pairs.settings):
            raise DataError(f"several values of {joined(several)}: choose one with where")
        fitted = fitted_arms(table, plain)
        ratio = float((rows["n_tokens"] / rows["n_params"]).median())
        laws = laws_of([of_arm.data for of_arm in fitted])
        on_line = LawsOnLine(laws[paired.reference], laws[paired.arm], ratio)
    except DataError as error:
        return fields | {"withheld": against or str(error)}
    refuted = [f"{of_arm.data.arm}: {of_arm.refuted}" for of_arm in fitted if of_arm.refuted]
    described = tuple(on_line.described(SIDES, "N, D"))
    fields |= {"withheld": against or "; ".join(refuted), "laws": described}
    if fields["withheld"]:
        return fields
    low, high = on_line.range()
    at_largest = on_line.multiplier("largest", high)
    note = "; ".join(filter(None, [f"at {ratio:.3g} tokens per parameter", at_largest.note]))
    return fields | {
        "compute_multipliers": (dataclasses.replace(at_largest, note=note),),
        "trend": trend | {"multiplier_per_decade": on_line.change(low, high)},
    }


def laws_of_pairs(paired: PairedArm, options: AnalysisOptions) -> ShownLaws:
    """The laws of the pairs, and what withholds their multipliers.

    That is what stands against any law of these pairs, or refutes these.
    """
    pairs, against = paired.pairs, _against(paired)
    if problem := line_problem(pairs, options.law):
        return ShownLaws(None, problem, {})
    held = held_out_difference(pairs, options)
    try:
        laws = _laws_without(pairs, np.zeros(len(pairs.complete), bool), options)
    except DataError as error:
        return ShownLaws(None, against or str(error), held)
    ratio = pairs.complete["n_tokens"] / pairs.complete["n_params_reference"]
    low, high = ratio.min(), ratio.max()
    line = f"along {low:.3g} to {high:.3g} tokens per parameter" if high > BATCHES * low else ""
    return ShownLaws(laws, against or _refuted(laws, paired, held), held, line)


def laws_to_show(paired: PairedArm) -> ShownLaws:
    """The laws whose multipliers may stand alone, as in a table: on a line, checked and not refuted."""
    n_rungs = paired.pairs.complete["compute_reference"].nunique()
    if 1 < n_rungs < FEWEST_RUNGS:
        return ShownLaws(None, f"{n_rungs} rungs cannot check the law", {})
    shown = laws_of_pairs(paired, paired.options)
    return dataclasses.replace(shown, laws=None) if shown.reason else shown


def _refuted(laws: ArmLaws, paired: PairedArm, held: Mapping[str, Any]) -> str:
    """What refutes the laws: their lack of fit, their hold-out; empty where nothing does."""
    law, names = laws.options.law, paired.names
    # One test of a joint law stands for those of both sides.
    tests = [] if paired.pairs.related else [lack_of_fit(fit.points, fit.y) for fit in laws.fits]
    sides = [SIDES] if len(tests) == 1 else [SIDES[:1], SIDES[1:]]
    missed = [
        names[side]
        for test, of_test in zip(tests, sides, strict=False)
        for side in of_test
        if test is not None and test < len(of_test) * REFUTED
    ]
    if missed:
        return f"the law {law} misses the runs of {joined(missed)}"
    if failed := [names[side] for side in held.get("laws_fail", ())]:
        return f"the law {law} misses {held['rung'][:80]} of {joined(failed)}, which was held out"
    if not held.get("fails"):
        return ""
    return (
        f"the hold-out fails: at {held['rung'][:80]} the difference is {signed(held['observed'])}, where the "
        f"laws of the other rungs predict {signed(held['predicted'])} ({span(held['interval'])})"
    )


def held_out_difference(pairs: Pairs, options: AnalysisOptions) -> dict[str, Any]:
    """The difference (arm minus reference) at the held rows, predicted by laws fitted to the others.

    A column to hold out by, or an expression, is one of the pairs' key.
    """
    which, complete = options.hold_out, pairs.complete
    if which == "none":
        return {"by": "none", "reason": "none was asked for"}
    if complete.empty:
        return {}
    shown: dict[str, Any] = {"by": "the largest rung" if which == "largest" else which}
    keys = [name for name in (*pairs.cell_columns, "seed") if name in complete]
    given = {"n_params": "size_reference", "flops": "compute_reference", "loss": "loss_reference"}
    # The pairs as rows of the reference; N and C are by the convention that was chosen.
    rows = complete[keys].assign(**{name: complete[column] for name, column in given.items()})
    held = held_rows(rows, dataclasses.replace(options, x="C", c_convention="given"), which)
    if not held.any():
        return {**shown, "reason": "not predicted: nothing is held out"}
    shown["rung"] = ", ".join(dict.fromkeys(complete.loc[held, "rung"].astype(str)))
    try:
        if held.all():
            raise DataError("there is one rung only")
        laws = _laws_without(pairs, held, options)
        for fit in laws.fits:
            if flat := fit.conditioning()[1]:
                raise DataError(f"the other points leave {'; '.join(flat)} free")
    except DataError as error:
        return {**shown, "reason": f"not predicted: {error}"}
    expected = _expected(laws, pairs, held, options)
    losses = complete.loc[held, ["loss_reference", "loss_arm"]].mean().to_numpy(float)
    seen = {name: float(losses @ signs) for name, signs in EXPECTED.items()}
    outside = [
        name
        for name, (_, interval) in expected.items()
        if interval and not interval[0] <= seen[name] <= interval[1]
    ]
    predicted, interval = expected["difference"]
    return {
        **shown,
        "predicted": predicted,
        "observed": seen["difference"],
        "interval": interval,
        "fails": "difference" in outside,
        "laws_fail": [name for name in outside if name != "difference"],
    }


def _laws_without(pairs: Pairs, held: BoolArray, options: AnalysisOptions) -> ArmLaws:
    """The laws of the pairs that are not ``held``, fitted once for a comparison, its tables and figures."""
    options = options.with_loss(seeds_repeat=pairs.seeds_repeat)
    of_pairs, key = _KEPT.setdefault(pairs, {}), (held.tobytes(), repr(options))
    if key not in of_pairs:
        rest = np.array(pairs.table["kind"] == PairKind.COMPLETE)
        rest[np.flatnonzero(rest)[held]] = False
        of_pairs[key] = ArmLaws(pairs.cut(rest) if held.any() else pairs, options)
    return of_pairs[key]


def _expected(laws: ArmLaws, pairs: Pairs, held: BoolArray, options: AnalysisOptions) -> Expected:
    """What each of :data:`EXPECTED` should be at the ``held`` complete pairs by the ``laws`` of the others.

    The interval holds the noise of the laws through the other rungs and that of the held pairs' own mean,
    each with the noise of its rungs, and the test split's error of what is left between them. None where
    either has no noise figure, or a planned pair no result. That of the difference is at the level of the
    options, that of each law at its own.
    """
    sample, complete = sample_of(pairs), pairs.complete
    losses = complete[["loss_reference", "loss_arm"]].to_numpy(float).T
    # In log loss, as that of the laws: pooled over rungs it is in proportion to the loss.
    noise = RungNoise(np.log(losses), sample.cells, sample.clusters, sample.rungs)
    at = [complete.loc[held, f"compute_{side}"].to_numpy(float)[None] for side in SIDES]
    expected: Expected = {}
    for name, weights in EXPECTED.items():
        signs = np.array(weights)

        def combined(of_laws: Parameters, signs: FloatArray = signs) -> FloatArray:
            drawn = [laws.law.predict(side, {"x": x}) for side, x in zip(of_laws, at, strict=True)]
            return np.asarray((signs[1] * drawn[1] + signs[0] * drawn[0]).mean(axis=1))

        value, interval = float(combined(laws.best)[0]), None
        if laws.draws is not None and noise.df and not pairs.is_interim:
            of_rest = longer(laws.variances_of_seeds(combined, combined(laws.draws)))
            shares = held / held.sum()
            of_held = noise.errors(signs[:, None] * losses * shares)
            errors = [satterthwaite([of_rest, each]) for each in of_held]
            split = []
            if sample.split is not None and laws.left_out is not None:
                # The test split's part of what lies between the predicted [blocks] and the held pairs.
                observed = np.einsum("s,bsp,p->b", signs, sample.split.without_each(), shares)
                split = [Component(*sample.split.jackknife(combined(laws.left_out) - observed))]
            half = with_split(errors, split)[0].half(options.level if name == "difference" else 1 - REFUTED)
            interval = (value - half, value + half)
        expected[name] = value, interval
    return expected
