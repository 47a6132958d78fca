"""The laws of both sides of the pairs: fitted together against separately, and asked to predict a rung."""

import dataclasses
from typing import Any

import pandas as pd

from analysis.data import FloatArray
from analysis.hold_out import hold_out
from analysis.joint import likelihood_comparison
from analysis.laws import law_named
from analysis.multipliers import line_problem
from analysis.pairs import Pairs
from analysis.settings import FitSettings

SIDES = ("reference", "arm")


def joint_against_separate(pairs: Pairs, settings: FitSettings) -> dict[str, Any]:
    """The law with exponents and floor common to both arms, against a law for each, in ``settings.x``."""
    problem = _problem(pairs, settings)
    if problem:
        return {"reason": problem}
    complete = pairs.complete
    arms = [
        ({"x": _values(complete, settings.x, side)}, complete[f"loss_{side}"].to_numpy(float))
        for side in SIDES
    ]
    law = law_named(settings.law)
    return likelihood_comparison(arms, law, settings.options, independent=not pairs.dependent)


def held_out_difference(pairs: Pairs, settings: FitSettings, which: bool | str) -> dict[str, Any]:
    """The difference (arm minus reference) at the held rows, predicted by laws fitted to the others.

    ``which`` is True (the largest rung), False, a column of the pairs' key, or an expression on it.
    """
    if which is False or pairs.complete.empty:
        return {}
    problem = _problem(pairs, settings)
    if problem:
        return {"by": "the largest rung" if which is True else which, "reason": f"not predicted: {problem}"}
    given = dataclasses.replace(settings, y="loss", c_convention="given", n_convention="matrices")
    found = {side: hold_out(_rows(pairs, side), given, which, side) for side in SIDES}
    reason = next((one["reason"] for one in found.values() if "reason" in one), None)
    shown: dict[str, Any] = {
        name: found["arm"][name] for name in ("by", "n_points", "rung") if name in found["arm"]
    }
    if reason is not None:
        return {**shown, "reason": reason}
    return {
        **shown,
        "predicted": found["arm"]["predicted"] - found["reference"]["predicted"],
        "observed": found["arm"]["observed"] - found["reference"]["observed"],
        **{f"relative_error_{side}": found[side]["relative_error"] for side in SIDES},
    }


def _problem(pairs: Pairs, settings: FitSettings) -> str:
    """Why no law in one variable goes through these pairs; empty where one does."""
    return line_problem(pairs, settings.law).replace("no multiplier", "no law in one variable")


def _rows(pairs: Pairs, side: str) -> pd.DataFrame:
    """The trials of one side as a tidy table; N and C are by the convention that was chosen."""
    complete = pairs.complete
    keys = [name for name in (*pairs.cell_columns, "seed") if name in complete]
    values = {"n_params": _values(complete, "N", side), "flops": _values(complete, "C", side)}
    return complete[keys].assign(loss=complete[f"loss_{side}"], **values)


def _values(complete: pd.DataFrame, x: str, side: str) -> FloatArray:
    column = {"N": f"size_{side}", "D": "n_tokens", "C": f"compute_{side}"}[x]
    return complete[column].to_numpy(float)
