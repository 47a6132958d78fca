"""The laws of both sides of the pairs: fitted together against separately, and asked to predict a rung."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.data import DataError, FloatArray
from analysis.estimate import estimated
from analysis.hold_out import hold_out
from analysis.joint import likelihood_comparison
from analysis.multipliers import described, line_problem
from analysis.pairs import Pairs, varying
from analysis.parametrisation import Parametrisation, require_identifiable
from analysis.settings import FitSettings

SIDES = ("reference", "arm")


def fitted_laws(pairs: Pairs, settings: FitSettings, known: Sequence[str]) -> list[dict[str, Any]]:
    """The law of each side in its own variables; none where those are ``known``, or it cannot be fitted."""
    law = settings.functional_form
    shown = ", ".join(settings.x if name == "x" else name for name in law.variables)
    if shown in known or _problem(pairs, settings):
        return []
    found = []
    for side, (variables, loss) in zip(SIDES, _data(pairs, settings), strict=True):
        points = Parametrisation(law, variables)
        try:
            require_identifiable(points, side, settings.x)
        except DataError:  # the joint test and the hold-out say why
            return []
        found.append(described(side, shown, estimated(points, loss, settings.options)))
    return found


def joint_against_separate(pairs: Pairs, settings: FitSettings) -> dict[str, Any]:
    """The law with exponents and floor common to both arms, against a law for each."""
    problem = _problem(pairs, settings)
    if problem:
        return {"reason": f"not compared: {problem}"}
    law, independent = settings.functional_form, not pairs.dependent
    return likelihood_comparison(_data(pairs, settings), law, settings.options, independent=independent)


def _data(pairs: Pairs, settings: FitSettings) -> list[tuple[dict[str, FloatArray], FloatArray]]:
    """The law's variables and the losses of each side, of the complete pairs."""
    complete, names = pairs.complete, settings.functional_form.variables
    return [
        (
            {name: _values(complete, settings.x if name == "x" else name, side) for name in names},
            complete[f"loss_{side}"].to_numpy(float),
        )
        for side in SIDES
    ]


def held_out_difference(pairs: Pairs, settings: FitSettings, which: bool | str) -> dict[str, Any]:
    """The difference (arm minus reference) at the held rows, predicted by laws fitted to the others.

    ``which`` is True (the largest rung), False, a column of the pairs' key, or an expression on it.
    """
    if which is False or pairs.complete.empty:
        return {}
    problem = _problem(pairs, settings)
    if problem:
        return {"by": "the largest rung" if which is True else which, "reason": f"not predicted: {problem}"}
    alone = "chinchilla" if settings.functional_form.own else settings.law
    given = dataclasses.replace(settings, law=alone, y="loss", c_convention="given", n_convention="matrices")
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
    """Why no law goes through the losses of these pairs; empty where one may."""
    law = settings.functional_form
    if law.method != "points":
        return f"law {law.name} describes the best sizes, not the losses of pairs"
    if law.variables == ("x",):
        return line_problem(pairs, settings.law).replace("no multiplier", "no law in one variable")
    several = varying(pairs.complete, [c for c in pairs.cell_columns if c not in ("rung", "n_tokens")])
    return (
        f"no one law across several values of {', '.join(several)}: choose one with where" if several else ""
    )


def _rows(pairs: Pairs, side: str) -> pd.DataFrame:
    """The trials of one side as a tidy table; N and C are by the convention that was chosen."""
    complete = pairs.complete
    keys = [name for name in (*pairs.cell_columns, "seed") if name in complete]
    values = {"n_params": _values(complete, "N", side), "flops": _values(complete, "C", side)}
    return complete[keys].assign(loss=complete[f"loss_{side}"], **values)


def _values(complete: pd.DataFrame, x: str, side: str) -> FloatArray:
    column = {"N": f"size_{side}", "D": "n_tokens", "C": f"compute_{side}"}[x]
    return complete[column].to_numpy(float)
