"""Multipliers: how many times the compute the reference needs for the arm's loss.

``CM(C) = C_ref(L_arm(C)) / C`` with both laws fitted to the complete pairs, so that the arms share rungs and
seeds; ``analysis.comparison.line_laws`` has the laws and the intervals.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scalevec.analysis.comparison.line_laws import FEWEST_RUNGS, SIDES, ArmLaws, Multiplier
from scalevec.analysis.comparison.scale import hold_out_problem, noted, prediction_intervals
from scalevec.analysis.data.pairs import Pairs, varying
from scalevec.analysis.data.tidy import FloatArray
from scalevec.analysis.errors import DataError
from scalevec.analysis.fits.hold_out import held_rows, hold_out, lack_of_fit, lack_of_fit_at
from scalevec.analysis.formatting import joined
from scalevec.analysis.laws import law_named
from scalevec.analysis.options import AnalysisOptions
from scalevec.analysis.registry import base_of
from scalevec.analysis.solver.best_fit import joint_points

ONE_LINE = 1.1
"""Tokens per parameter may vary by this factor (whole batches) and still be one line."""
REFUTED = 0.0125
"""The level of each of four tests of the laws, two of either arm: of right laws at most 5 % are withheld."""


def line_problem(pairs: Pairs, law: str) -> str:
    """Why these pairs lie on no single line in compute, as one sentence; empty where they do."""
    complete = pairs.complete
    several = varying(complete, pairs.settings)
    if law_named(law).variables != ("x",):
        return f"no multiplier: multipliers need a law in one variable, not {law_named(law).name}"
    if several:
        return f"no multiplier across several values of {', '.join(several)}: choose one with where"
    if complete["compute_reference"].nunique() < 2:
        return "no multiplier from one rung"
    ratio = complete["n_tokens"] / complete["n_params_reference"]
    if len(ratio) and ratio.max() > ONE_LINE * ratio.min():
        return "no multiplier across several numbers of tokens per parameter: choose one with where"
    return ""


@dataclass(frozen=True)
class ShownLaws:
    """The laws in C of two arms, or None and the ``reason``; ``held`` is their hold-out.

    ``laws`` may stand although the ``reason`` withholds what follows from them.
    """

    laws: ArmLaws | None
    reason: str
    held: dict[str, Any]

    def multiplier(self, complete: pd.DataFrame) -> tuple[Multiplier, ...]:
        """The multiplier at the largest compute that both arms were run at; none where it is withheld."""
        if self.laws is None or self.reason:
            return ()
        at = largest_of(complete)
        return tuple(noted([self.laws.multiplier("largest", at, at)], self.held))

    def change(self, complete: pd.DataFrame) -> dict[str, Any] | None:
        """How the multiplier changes per decade over the compute that both arms were run at."""
        if self.laws is None or self.reason:
            return None
        smallest = max(complete["compute_reference"].min(), complete["compute_arm"].min())
        return self.laws.change(float(smallest), largest_of(complete))


def largest_of(complete: pd.DataFrame) -> float:
    """The largest compute that both arms were run at, FLOPs."""
    return float(min(complete["compute_reference"].max(), complete["compute_arm"].max()))


def laws_of_pairs(
    pairs: Pairs, options: AnalysisOptions, names: Mapping[str, str], against: str = ""
) -> ShownLaws:
    """The laws of the pairs, and what withholds their multipliers.

    That is what stands ``against`` any law of these pairs, or refutes these; ``names`` are the arms of
    :data:`SIDES`.
    """
    held, reason, laws = held_out_difference(pairs, options), line_problem(pairs, options.law), None
    if not reason:
        try:
            laws = ArmLaws(pairs, options)
        except DataError as error:
            reason = f"no multiplier: {error}"
    return ShownLaws(laws, reason or against or refuted(pairs, options, held, names), held)


def laws_to_show(pairs: Pairs, options: AnalysisOptions, names: Mapping[str, str]) -> ShownLaws:
    """The laws whose multipliers may stand alone, as in a table: on a line, checked and not refuted."""
    n_rungs = pairs.complete["compute_reference"].nunique()
    if 1 < n_rungs < FEWEST_RUNGS:
        return ShownLaws(None, f"no multiplier from {n_rungs} rungs, which cannot check the law", {})
    shown = laws_of_pairs(pairs, options, names)
    return ShownLaws(None, shown.reason, shown.held) if shown.reason else shown


def refuted(pairs: Pairs, options: AnalysisOptions, held: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Why multipliers and their trend are withheld, as a clause; empty where nothing refutes the laws.

    Args:
        pairs: The pairs of the arm, on one line in compute.
        options: How laws are fitted.
        held: The hold-out, by :func:`held_out_difference`.
        names: The arm on each of :data:`SIDES`.
    """
    if line_problem(pairs, options.law):
        return ""
    missed = [] if pairs.related else _missed(pairs, options)
    if missed:
        return f"the law {options.law} misses the runs of {joined([names[side] for side in missed])}"
    if failed := [names[side] for side in held.get("laws_fail", ())]:
        return f"the law {options.law} misses {held['rung'][:80]} of {joined(failed)}, which was held out"
    return hold_out_problem(held)


def _missed(pairs: Pairs, options: AnalysisOptions) -> list[str]:
    """The sides whose runs the law in C misses by more than their seeds differ; both of a joint law."""
    law, sides = law_named(options.law), _data(pairs, dataclasses.replace(options, x="C"))
    if law.per_arm:
        points, losses = joint_points(sides, law), np.concatenate([loss for _, loss in sides])
        test = lack_of_fit_at(points, losses)
        return list(SIDES) if test is not None and test.p < 2 * REFUTED else []
    tests = [lack_of_fit(options.law, *of_side) for of_side in sides]
    return [side for side, test in zip(SIDES, tests, strict=True) if test is not None and test.p < REFUTED]


def _data(pairs: Pairs, options: AnalysisOptions) -> list[tuple[dict[str, FloatArray], FloatArray]]:
    """The law's variables and the losses of each side, of the complete pairs."""
    complete, names = pairs.complete, law_named(options.law).variables
    return [
        (
            {name: _values(complete, options.x if name == "x" else name, side) for name in names},
            complete[f"loss_{side}"].to_numpy(float),
        )
        for side in SIDES
    ]


def held_out_difference(pairs: Pairs, options: AnalysisOptions) -> dict[str, Any]:
    """The difference (arm minus reference) at the held rows, predicted by laws fitted to the others.

    A column to hold out by, or an expression, is one of the pairs' key.
    """
    which = options.hold_out
    if which == "none":
        return {"by": "none", "reason": "none was asked for"}
    if pairs.complete.empty:
        return {}
    problem = _problem(pairs, options)
    if problem:
        return {
            "by": "the largest rung" if which == "largest" else which,
            "reason": f"not predicted: {problem}",
        }
    entry = base_of(options.law)
    alone = (entry and entry.alone) or options.law
    given = dataclasses.replace(options, law=alone, y="loss", c_convention="given", n_convention="matrices")
    rows = {side: _rows(pairs, side, alone) for side in SIDES}
    held = {side: hold_out(of_side, given, which, side) for side, of_side in rows.items()}
    shown: dict[str, Any] = {name: held["arm"][name] for name in ("by", "rung") if name in held["arm"]}
    if reasons := [of_side["reason"] for of_side in held.values() if "reason" in of_side]:
        return {**shown, "reason": reasons[0]}
    predicted, observed = (held["arm"][name] - held["reference"][name] for name in ("predicted", "observed"))
    seen = {"difference": observed} | {side: of_side["observed"] for side, of_side in held.items()}
    expected: dict[str, Any] = {}
    if law_named(alone).variables == ("x",) and options.x == "C":
        which_rows = held_rows(rows["reference"], given, which)
        expected = prediction_intervals(pairs, which_rows, options, 1 - REFUTED)
    outside = [name for name, (_, (low, high)) in expected.items() if not low <= seen[name] <= high]
    predicted, interval = expected.get("difference", (predicted, None))
    return {
        **shown,
        "predicted": predicted,
        "observed": observed,
        "interval": interval,
        "fails": "difference" in outside,
        "laws_fail": [name for name in outside if name != "difference"],
    }


def _problem(pairs: Pairs, options: AnalysisOptions) -> str:
    """Why no law goes through the losses of these pairs; empty where one may."""
    law = law_named(options.law)
    if pairs.complete.empty:
        return "no pair has two completed trials"
    if "loss" in law.variables:
        return f"law {law.name} reads the loss, which is what is compared"
    if law.method != "points":
        return f"law {law.name} describes the best sizes, not the losses of pairs"
    if law.variables == ("x",):
        return line_problem(pairs, options.law).replace("no multiplier", "no law in one variable")
    several = varying(pairs.complete, pairs.settings)
    return (
        f"no one law across several values of {', '.join(several)}: choose one with where" if several else ""
    )


def _rows(pairs: Pairs, side: str, law: str) -> pd.DataFrame:
    """The trials of one side as a tidy table; N and C are by the convention that was chosen."""
    complete = pairs.complete
    keys = [name for name in (*pairs.cell_columns, "seed") if name in complete]
    values = {"n_params": _values(complete, "N", side), "flops": _values(complete, "C", side)}
    values |= {name: _values(complete, name, side) for name in law_named(law).own_columns}
    return complete[keys].assign(loss=complete[f"loss_{side}"], **values)


def _values(complete: pd.DataFrame, x: str, side: str) -> FloatArray:
    column = {"N": f"size_{side}", "D": "n_tokens", "C": f"compute_{side}"}.get(x, f"{x}_{side}")
    column = column if column in complete else x  # a column that both sides of a pair agree in
    return complete[column].to_numpy(float)
